"""The section `curve` of train_gpu.py: return against wall clock, and the time to the same return."""

from __future__ import annotations

import statistics

from train_bench import Sides
from train_setting import BASELINES

POINT_S = 0.5
"""Seconds of training between two points of a curve."""

SMOOTHING = 5
"""Points over which a curve is averaged before it is searched for a return."""


def mean_return(before, after):
    """Mean return of the episodes between two totals, or None."""
    episodes = after[0] - before[0]
    return round((after[1] - before[1]) / episodes, 2) if episodes > 0 else None


def curve(bench):
    for task in bench.options.tasks:
        for num_env in (bench.options.num_env or [4096])[:1]:
            needs = 30 + 2 * bench.options.seconds
            if bench.left() < needs:
                bench.emit("skipped", name=f"curve {task}", reason=f"it needs {needs:.0f} s")
                continue
            compare_curves(bench, bench.setting(task, num_env=num_env))


def compare_curves(bench, setting):
    """Both sides train for the same number of seconds, in turns."""
    options = bench.options
    sides = Sides(bench, setting, options.curve_sides)
    points = {name: [] for name in options.curve_sides}
    spent = dict.fromkeys(points, 0.0)
    try:
        while sides.alive and min(spent[name] for name in sides.alive) < options.seconds and bench.left() > 20:
            chunk = sides.ask(60 + options.turn_s, "run_for", options.turn_s, POINT_S)
            for name, new in chunk.items():
                points[name] += [(spent[name] + at, iteration, totals) for at, iteration, totals in new]
                spent[name] += new[-1][0]
        facts = sides.ask(30, "describe")
    finally:
        sides.close()
    curves = {name: returns(values, setting.num_env) for name, values in points.items() if values}
    for name, values in curves.items():
        for seconds, iteration, value in values:
            bench.emit("point", task=setting.task, side=name, train_s=seconds, iteration=iteration, mean_return=value)
        last = values[-1] if values else (spent[name], 0, None)
        bench.emit(
            "curve",
            task=setting.task,
            num_env=setting.num_env,
            side=name,
            train_s=round(spent[name], 1),
            env_steps=last[1] * setting.samples,
            last_return=last[2],
            best_return=max((value for _, _, value in smooth(values)), default=None),
            **facts.get(name, {}),
        )
    times_to_return(bench, setting, curves)


def returns(points, episodes):
    """(seconds, iteration, mean return over the last ``episodes`` or more) of every point with a new episode."""
    curve, seen = [], [(0.0, 0.0, 0.0)]
    for seconds, iteration, totals in points:
        if totals[0] == seen[-1][0]:
            continue
        before = next((old for old in reversed(seen) if totals[0] - old[0] >= episodes), seen[0])
        seen.append(tuple(totals))
        curve.append((round(seconds, 2), iteration, mean_return(before, totals)))
    return curve


def smooth(curve):
    """The means over `SMOOTHING` points."""
    parts = [curve[index : index + SMOOTHING] for index in range(len(curve) - SMOOTHING + 1)]
    return [(*part[-1][:2], round(statistics.mean(value for _, _, value in part), 2)) for part in parts]


def times_to_return(bench, setting, curves):
    """Seconds until every side has reached the same returns: parts of what the weaker one reached at best."""
    smoothed = {name: smooth(values) for name, values in curves.items() if len(values) >= SMOOTHING}
    if len(smoothed) < 2:
        bench.emit("error", task=setting.task, error="too few points to compare the curves")
        return
    first = max(values[0][2] for values in smoothed.values())
    best = min(max(value for _, _, value in values) for values in smoothed.values())
    wanted = (
        [bench.options.goal]
        if bench.options.goal is not None
        else [first + (best - first) * p for p in (0.5, 0.8, 0.95)]
    )
    for goal in wanted:
        reached = {
            name: next((seconds for seconds, _, value in values if value >= goal), None)
            for name, values in smoothed.items()
        }
        row = {"task": setting.task, "num_env": setting.num_env, "goal": round(goal, 1), "seconds": reached}
        for base in [name for name in reached if name in BASELINES and reached[name]]:
            ours = {name: value for name, value in reached.items() if name not in BASELINES and value}
            row |= {f"{base}_over_{name}": round(reached[base] / value, 2) for name, value in ours.items()}
        bench.emit("time_to_return", **row)
