"""Tables and pictures of the rows of `gmiflow bench train`. No torch; matplotlib only for pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmiflow.bench.curves import Estimate, band, common_return, estimate, first_reached
from gmiflow.bench.jobs import GMIFLOW
from gmiflow.bench.rows import Row
from gmiflow.tasks.catalog import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GOAL_NEAR = 2.0
"""Heights of the curves up to which the goal is drawn."""

COLOURS = ("#1f6feb", "#d1741f", "#2da44e", "#a371f7", "#6e7781")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The seeds of one side of one task.

    Attributes:
        label: the side, and whether its seeds ran side by side.
    """

    task: str
    label: str
    rows: tuple[Row, ...]

    def values(self, name: str) -> list[float]:
        """The numbers of a field, where rows have one."""
        return [row[name] for row in self.rows if row[name] is not None]

    def evaluated(self, name: str) -> list[float]:
        """The numbers of a field of the evaluations, where there are some."""
        found = [row["evaluation"] for row in self.rows if row["evaluation"] is not None]
        return [one[name] for one in found if one[name] is not None]

    def measured(self, name: str) -> list[float]:
        """The values of a measure, where the evaluations have it."""
        found = [row["evaluation"]["measures"] for row in self.rows if row["evaluation"] is not None]
        return [one[name] for one in found if name in one]


def groups_of(rows: Iterable[Row]) -> list[Group]:
    """Rows by task, side, environments and whether they ran side by side; in the order of their first row."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    sizes: dict[str, set[int]] = {}
    for row in rows:
        found.setdefault((row["task"], row["side"], row["num_env"], row["replicas"]), []).append(row)
        sizes.setdefault(row["task"], set()).add(row["num_env"])
    groups: list[Group] = []
    for (task, side, num_env, replicas), members in found.items():
        label = side + (f", {replicas} side by side" if replicas > 1 else "")
        label += f", {num_env:,} env" if len(sizes[task]) > 1 else ""
        groups.append(Group(task=task, label=label, rows=tuple(members)))
    return sorted(groups, key=lambda group: list(sizes).index(group.task))


def markdown(rows: Iterable[Row]) -> str:
    """Three tables: training, behaviour, and how much sooner gmiflow reaches the same return than each peer."""
    groups = groups_of(rows)
    parts = [_training_table(groups), _behaviour_table(groups), _comparison_table(groups)]
    note = (
        "Means over seeds, +- half of the 95 % confidence interval (Student's t). Seconds are those of the iterations; "
        "returns of training are with exploration, those of the second table without."
    )
    return "\n\n".join([part for part in parts if part] + [note]) + "\n"


def _training_table(groups: Sequence[Group]) -> str:
    titles = ["task", "side", "seeds", "env steps/s", "seconds", "env steps", "last return", "goal"]
    titles += ["seconds to the goal", "env steps to the goal"]
    lines = [
        [
            group.task,
            group.label,
            str(len(group.rows)),
            _shown(estimate(group.values("steps_per_s")), 0),
            _shown(estimate(group.values("train_s")), 1),
            f"{sum(group.values('env_steps')) / len(group.rows):,.0f}",
            _shown(estimate(group.values("last_return")), 1),
            f"{group.rows[0]['goal']:g}",
            _shown(estimate(group.values("goal_s")), 1, of=len(group.rows)),
            _shown(estimate(group.values("goal_env_steps")), 0, of=len(group.rows)),
        ]
        for group in groups
    ]
    return _table(titles, lines) if lines else ""


def _behaviour_table(groups: Sequence[Group]) -> str:
    lines: list[list[str]] = []
    for group in groups:
        solved = group.evaluated("solved")
        if not solved:
            continue
        measures = [
            f"{measure.name} {_shown(estimate(group.measured(measure.name)), 3)} {measure.unit}".rstrip()
            for measure in TASKS[group.task].goal.measures
        ]
        numbers = [_shown(estimate(group.evaluated(name)), 2) for name in ("mean_return", "survival")]
        lines.append([group.task, group.label, *numbers, "; ".join(measures), f"{sum(solved)} of {len(solved)}"])
    return _table(["task", "side", "return", "survival", "behaviour", "solved"], lines) if lines else ""


def _comparison_table(groups: Sequence[Group]) -> str:
    lines: list[list[str]] = []
    for ours in groups:
        for peer in groups:
            if not _comparable(ours, peer):
                continue
            goal = common_return([[row["curve"] for row in side.rows] for side in (ours, peer)])
            if goal is None:
                lines.append([ours.task, ours.label, peer.label, "none", "", "", "", ""])
                continue
            times = [_times(side, goal) for side in (ours, peer)]
            rates = [estimate(side.values("steps_per_s")) for side in (ours, peer)]
            speed = f"{rates[0].mean / rates[1].mean:.2f}x" if rates[0] and rates[1] else ""
            sooner = f"{times[1].mean / times[0].mean:.2f}x" if times[0] and times[1] and times[0].mean else ""
            shown = [_shown(time, 1) for time in times]
            lines.append([ours.task, ours.label, peer.label, f"{goal:,.1f}", *shown, sooner, speed])
    titles = ["task", "side", "against", "return that all reach", "seconds", "seconds of the other", "sooner"]
    return _table([*titles, "env steps/s"], lines) if lines else ""


def _comparable(ours: Group, peer: Group) -> bool:
    """Whether the one is gmiflow alone on the machine and the other is not gmiflow, of the same task and size."""
    first, other = ours.rows[0], peer.rows[0]
    if first["side"] != GMIFLOW or other["side"] == GMIFLOW or first["replicas"] != 1:
        return False
    return all(first[name] == other[name] for name in ("task", "num_env"))


def _times(group: Group, goal: float) -> Estimate | None:
    """Seconds until each seed has reached ``goal``."""
    points = [first_reached([tuple(point) for point in row["curve"]], goal) for row in group.rows]
    return estimate([point[0] for point in points if point is not None])


def _shown(value: Estimate | None, digits: int, of: int | None = None) -> str:
    """As 12.3 +- 0.4; with ``of`` also how many of so many seeds have a value, where not all have."""
    if value is None:
        return "not reached" if of is not None else ""
    text = f"{value.mean:,.{digits}f}"
    if value.half_width is not None:
        text += f" +- {value.half_width:,.{digits}f}"
    return text if of in (None, value.count) else f"{text} ({value.count} of {of} seeds)"


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown whose columns also stand below each other on a terminal."""
    widths = [max(3, *map(len, column)) for column in zip(titles, *lines, strict=True)]
    rule = ["-" * width for width in widths]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in (titles, rule, *lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def draw(rows: Iterable[Row], path: Path) -> None:
    """Return against wall clock and against environment steps: a line of two pictures per task.

    Every seed is a thin line, their mean a thick one, and the band its 95 % confidence interval.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = groups_of(rows)
    tasks = list(dict.fromkeys(group.task for group in groups))
    figure = Figure(figsize=(10.0, 3.3 * len(tasks)), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    for (left, right), task in zip(grid, tasks, strict=True):
        sides = [group for group in groups if group.task == task]
        _draw_task(left, sides, 0, "wall clock of the iterations (s)")
        _draw_task(right, sides, 1, "environment steps")
        left.legend(frameon=False, fontsize="small", loc="best")
    figure.savefig(path, metadata={"Software": None})


def draw_against_steps(rows: Iterable[Row], path: Path) -> None:
    """Like `draw`, against environment steps alone: for trainings that shared a machine. Two tasks in a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = groups_of(rows)
    tasks = list(dict.fromkeys(group.task for group in groups))
    lines = -(-len(tasks) // 2)
    figure = Figure(figsize=(10.0, 3.1 * lines), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(lines, 2, squeeze=False).flat
    for axes, task in zip(grid, tasks, strict=False):
        _draw_task(axes, [group for group in groups if group.task == task], 1, "environment steps")
        axes.legend(frameon=False, fontsize="small", loc="best")
    for axes in grid[len(tasks) :]:
        axes.set_axis_off()
    figure.savefig(path, metadata={"Software": None})


def _draw_task(axes: Axes, sides: Sequence[Group], column: int, label: str) -> None:
    """All sides of a task; ``column`` of the points is the abscissa."""
    for colour, group in zip(COLOURS, sides, strict=False):
        _draw_group(axes, group, column, colour)
    _frame(axes, sides)
    axes.set(title=sides[0].task, xlabel=label, ylabel="mean return")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _frame(axes: Axes, sides: Sequence[Group]) -> None:
    """The goal as a dotted line, if it is near; heights by the curves, since bands of two seeds are very wide."""
    values = [point[2] for group in sides for row in group.rows for point in row["curve"]]
    goal = sides[0].rows[0]["goal"]
    if not values:
        return
    low, high = min(values), max(values)
    if goal <= low + GOAL_NEAR * (high - low):
        high = max(high, goal)
        axes.axhline(goal, color="0.6", linestyle=":", linewidth=1.0)
    margin = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)


def _draw_group(axes: Axes, group: Group, column: int, colour: str) -> None:
    """One side: ``column`` of the points is the abscissa."""
    curves = [[(float(point[column]), float(point[2])) for point in row["curve"]] for row in group.rows]
    for curve in curves:
        axes.plot([x for x, _ in curve], [y for _, y in curve], color=colour, alpha=0.3, linewidth=0.7)
    together = band(curves)
    label = f"{group.label} ({len(curves)} seed{'s' if len(curves) > 1 else ''})"
    if together is None:
        axes.plot([], [], color=colour, label=label)
        return
    axes.plot(together.x, together.mean, color=colour, linewidth=1.8, label=label)
    axes.fill_between(together.x, together.low, together.high, color=colour, alpha=0.18, linewidth=0)
