"""The picture and the tables of asynchronous.py, from its rows."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict

PAPER = {"predictions_per_s": 1.88, "training_samples_per_s": 1.65}
"""What GMI-DRL reports over processes without GMIs (its Figure 10, at most): PPS and TTOP."""

COLOURS = ("#24292f", "#1f6feb", "#d1741f", "#2da44e", "#a371f7", "#bf3989")
POINTS = 200


def read(path):
    """The rows of a file of JSON lines; none where there is no file."""
    try:
        text = path.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def report(path, images):
    """Draw the curves into ``images`` and print the tables as Markdown."""
    rows = [row for row in read(path) if "error" not in row]
    curves = [row for row in rows if row["row"] == "curve" and row["points"]]
    groups = defaultdict(list)
    for row in curves:
        groups[row["task"], row["device"]].append(row)
    for (task, device), found in groups.items():
        suffix = "h200" if device == "cuda" else "cpu"
        draw(f"{task}, {device}", by_side(found), images / f"async_{task}_{suffix}.png")
    if curves:
        print(curve_table(groups), end="\n\n")
    if found := [row for row in rows if row["row"] == "throughput"]:
        print(throughput_table(found))


def by_side(rows):
    """Curves by side, the seeds of each together."""
    found = defaultdict(list)
    for row in rows:
        name = row["side"] if row["correction"] == "clip" else f"{row['side']}, {row['correction']}"
        found[name].append(row)
    return found


def at(row, seconds):
    """Return of a curve at a time: that of the last point before it, or of the first."""
    earlier = [value for time_s, _, value in row["points"] if time_s <= seconds]
    return earlier[-1] if earlier else row["points"][0][2]


def draw(title, sides, path):
    """Mean over the seeds of each side, and the range of them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    for index, (name, rows) in enumerate(sides.items()):
        end = min(row["points"][-1][0] for row in rows)
        begin = max(row["points"][0][0] for row in rows)
        times = [begin + (end - begin) * step / POINTS for step in range(POINTS + 1)]
        values = [[at(row, time_s) for row in rows] for time_s in times]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(times, [statistics.fmean(seeds) for seeds in values], label=name, color=colour, linewidth=1.6)
        if len(rows) > 1:
            axes.fill_between(times, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.12)
    axes.set(title=title, xlabel="wall clock (s)", ylabel="mean return of recent episodes")
    axes.set_xlim(left=0.0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def curve_table(groups):
    """First, best and last return of each side, its speed, and when it had 90 % of what sync reached."""
    heading = ["task", "device", "side", "seeds", "largest lag", "env steps/s", "first", "last", "best", "90 % of sync"]
    lines = [heading, ["---"] * len(heading)]
    for (task, device), found in groups.items():
        sides = by_side(found)
        goals = {}
        for row in sides.get("sync", []):
            first = row["points"][0][2]
            goals[row["seed"]] = first + 0.9 * (max(value for *_, value in row["points"]) - first)
        for name, rows in sides.items():
            reached = [reached_s(row, goals[row["seed"]]) for row in rows if row["seed"] in goals]
            known = [value for value in reached if value is not None]
            times = f"{statistics.fmean(known):.1f} s" if reached and len(known) == len(reached) else "not reached"
            lines.append(
                [
                    task,
                    device,
                    name,
                    str(len(rows)),
                    str(max(row["max_lag"] for row in rows)),
                    f"{statistics.median(row['predictions_per_s'] for row in rows):,.0f}",
                    f"{statistics.fmean(row['points'][0][2] for row in rows):,.1f}",
                    f"{statistics.fmean(row['points'][-1][2] for row in rows):,.1f}",
                    f"{statistics.fmean(max(v for *_, v in row['points']) for row in rows):,.1f}",
                    times if reached else "",
                ]
            )
    return written(lines)


def reached_s(row, goal):
    """Seconds until a curve has a return, or None."""
    return next((time_s for time_s, _, value in row["points"] if value >= goal), None)


def throughput_table(rows):
    """PPS and TTOP of every side, medians of the rounds, and the ratios to each baseline of the same round."""
    heading = ["task", "device", "regime", "side", "rounds", "PPS", "TTOP", "over", "PPS ratio", "TTOP ratio"]
    lines = [heading, ["---"] * len(heading)]
    groups = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        groups[row["task"], row["device"], row["regime"], row["bound"]][row["side"]][row["round"]] = row
    for (task, device, regime, bound), sides in groups.items():
        baselines = [name for name in sides if name.startswith("baseline")]
        for name, rounds in sides.items():
            cells = [task, device, f"{regime}, at most {bound} behind", name, str(len(rounds))]
            cells += [f"{statistics.median(row[what] for row in rounds.values()):,.0f}" for what in PAPER]
            if name in baselines or not baselines:
                lines.append([*cells, "", "", ""])
                continue
            for other in baselines:
                lines.append([*cells, other, *(ratio(rounds, sides[other], what) for what in PAPER)])
                cells = [""] * len(cells)
    paper = ["GMI-DRL", "8 A100", "A3C", "", "", "", "", "processes without GMIs, at most"]
    lines.append(paper + [f"{value:.2f}x" for value in PAPER.values()])
    return written(lines)


def ratio(rounds, others, what):
    """Median over the rounds that both have, and the range."""
    found = [row[what] / others[number][what] for number, row in rounds.items() if number in others]
    if not found:
        return ""
    return f"{statistics.median(found):.2f}x ({min(found):.2f} - {max(found):.2f})"


def written(lines):
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
