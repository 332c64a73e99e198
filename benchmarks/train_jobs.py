"""What the children of train_gpu.py do. Every function takes the connection to the parent first."""

from __future__ import annotations

import dataclasses
import time

import torch
from train_sides import GmiflowSide, JointSides, make_side, synchronize

WARM_UP = 6
"""Iterations before anything is timed: `overlap` captures its last graph in the fifth."""

BASELINE_WARM_UP = 3


def serve(connection, name, setting):
    """One side that answers requests until the parent closes the connection.

    Requests: ("run", iterations) -> (seconds, totals); ("run_for", seconds, points a second) -> points;
    ("split", iterations) -> milliseconds of rollout and update; ("describe",) -> fields of a row.
    """
    start = time.perf_counter()
    side = make_side(name, setting)
    synchronize(setting.device)
    connection.send({"setup_s": round(time.perf_counter() - start, 2)})
    answers = {
        "warm": lambda: warm(side),
        "run": lambda iterations: timed(side, iterations),
        "run_for": lambda seconds, iteration_s: curve(side, seconds, iteration_s),
        "split": side.split,
        "describe": lambda: describe(side),
    }
    while True:
        request, *arguments = connection.recv()
        connection.send(answers[request](*arguments))


def warm(side):
    """Warm up; seconds of one iteration afterwards."""
    iterations = WARM_UP if isinstance(side, GmiflowSide | JointSides) else BASELINE_WARM_UP
    timed(side, iterations)
    return timed(side, 2)[0] / 2


def timed(side, iterations):
    """Run ``iterations``, with the device's queue empty on both sides: seconds, and the totals after them."""
    synchronize(side.setting.device)
    start = time.perf_counter()
    side.run(iterations)
    synchronize(side.setting.device)
    return time.perf_counter() - start, side.totals()


def curve(side, seconds, chunk_s):
    """Train for ``seconds``: (seconds, iterations so far, totals so far) about every ``chunk_s`` seconds."""
    points, spent, chunk = [], 0.0, 1
    while spent < seconds:
        took, totals = timed(side, chunk)
        spent += took
        points.append((spent, side.iterations, totals))
        chunk = max(1, min(round(chunk * chunk_s / took), 4 * chunk))
    return points


def describe(side):
    """Fields for the rows of a side."""
    memory = torch.cuda.max_memory_reserved() >> 20 if side.setting.device == "cuda" else 0
    return {"finite": side.finite(), "iterations": side.iterations, "torch_memory_mib": memory, **side.describe()}


def compile_kernels(connection, setting):
    """Run a few small iterations, which compiles the kernels of a task into the caches on disk."""
    start = time.perf_counter()
    side = make_side("graph", setting)
    timed(side, WARM_UP)
    side.close()
    connection.send({"task": setting.task, "seconds": round(time.perf_counter() - start, 1)})
    connection.send(None)


def replicas(connection, setting, execution, count, rounds, window_s, joint=()):
    """Trainings with different seeds, one after the other, side by side as streams of this process, and joint.

    Args:
        connection: to the parent.
        setting: of one training.
        execution: of all.
        count: of trainings.
        rounds: that are measured, after one that is not; every round has each way once.
        window_s: length of a round of one after the other.
        joint: for each number a way in which as many trainings share one simulator.
    """
    staleness = 1 if execution == "overlap" else 0
    seeded = [dataclasses.replace(setting, seed=setting.seed + index) for index in range(count)]
    start = time.perf_counter()
    sides = [GmiflowSide(one, execution, staleness) for one in seeded]
    iterations = max(3, round(window_s / sum(warm(side) for side in sides)))
    sharing = {size: JointSides(seeded, execution, staleness, size) for size in joint}
    for together in sharing.values():
        warm(together)
    setup_s = time.perf_counter() - start
    ways = {"in_turn": lambda: sum(timed(side, iterations)[0] for side in sides)}
    ways["side_by_side"] = lambda: side_by_side(sides, iterations)
    ways |= {f"joint_{size}": lambda own=own: timed(own, iterations)[0] for size, own in sharing.items()}
    seconds = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, run in ways.items():
            seconds[way].append(run())
    samples = setting.samples * count * iterations
    everyone = [*sides, *(side for own in sharing.values() for side in own.sides)]
    lowerings = {"side_by_side": sides[0].describe()["lowering"]}
    lowerings |= {f"joint_{size}": own.sides[0].describe()["lowering"] for size, own in sharing.items()}
    for way in list(ways)[1:]:
        ratios = sorted(before / after for before, after in zip(seconds["in_turn"][1:], seconds[way][1:], strict=True))
        row = {"row": "replicas", "task": setting.task, "num_env": setting.num_env, "execution": execution}
        row |= {"replicas": count, "way": way, "iterations": iterations, "lowering": lowerings[way]}
        row["in_turn_steps_per_s"] = round(samples / median(seconds["in_turn"][1:]))
        row["steps_per_s"] = round(samples / median(seconds[way][1:]))
        row |= {"ratio": round(median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios]}
        connection.send({**row, "setup_s": round(setup_s, 1), "finite": all(side.finite() for side in everyone)})
    for own in sharing.values():
        own.close()
    for side in sides:
        side.close()
    connection.send(None)


def side_by_side(sides, iterations):
    """Seconds for ``iterations`` of every side, their work enqueued in turn on a stream each."""
    device = sides[0].setting.device
    synchronize(device)
    start = time.perf_counter()
    for _ in range(iterations):
        for side in sides:
            side.run(1)
    synchronize(device)
    return time.perf_counter() - start


def equal(connection, setting, iterations, engine_exact):
    """Weights after ``iterations`` of each execution against those of `eager`; and of replicas against one alone.

    Args:
        connection: to the parent.
        setting: what to train.
        iterations: how many.
        engine_exact: the simulator computes the same bits at every run, so the weights must be equal.
    """
    start, eager = trained(setting, "eager", iterations)
    again = [trained(setting, "eager", iterations)[1] for _ in range(2)]
    moved = float((eager - start).norm())
    spread = [distance(eager, again[0], moved), distance(eager, again[1], moved), distance(*again, moved)]
    runs = {
        "eager": again[0],
        "graph": trained(setting, "graph", iterations)[1],
        "overlap, staleness 0": trained(setting, "overlap", iterations)[1],
        "graph, 4 replicas side by side": beside_others(setting, iterations),
        "graph, 4 joint replicas": joined_with_others(setting, iterations),
    }
    for name, weights in runs.items():
        row = {"row": "equal", "task": setting.task, "num_env": setting.num_env, "iterations": iterations}
        row |= {"execution": name, "same_bits": torch.equal(weights, eager), **named(eager, weights, moved)}
        if not engine_exact:
            row["eager_spread_relative"] = max(relative for _, relative in spread)
            row["within_spread"] = row["relative"] <= 2.0 * row["eager_spread_relative"]
        connection.send(row)
    connection.send(None)


def trained(setting, execution, iterations):
    """Weights before and after ``iterations``."""
    side = GmiflowSide(setting, execution)
    before = side.weights()
    side.run(iterations)
    after = side.weights()
    side.close()
    return before, after


def beside_others(setting, iterations):
    """Weights of the first of four replicas that run side by side."""
    sides = [GmiflowSide(dataclasses.replace(setting, seed=setting.seed + index), "graph") for index in range(4)]
    side_by_side(sides, iterations)
    weights = sides[0].weights()
    for side in sides:
        side.close()
    return weights


def joined_with_others(setting, iterations):
    """Weights of the first of four replicas that share one simulator."""
    together = JointSides([dataclasses.replace(setting, seed=setting.seed + n) for n in range(4)], "graph", 0, 4)
    together.run(iterations)
    weights = together.sides[0].weights()
    together.close()
    return weights


def distance(left, right, moved):
    """Largest difference, and the norm of the difference over how far training has moved the weights."""
    difference = left - right
    return float(difference.abs().max()), float(difference.norm()) / moved


def named(left, right, moved):
    """`distance` as fields of a row."""
    largest, relative = distance(left, right, moved)
    return {"largest": largest, "relative": relative}


def median(values):
    """The middle of ``values``."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def machine(connection):
    """What this is measured on."""
    import importlib.metadata
    import platform

    versions = {}
    for name in ("torch", "mujoco", "mujoco-warp", "warp-lang", "rsl-rl-lib", "tensordict", "triton"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    row = {"row": "machine", "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"), **versions}
    if torch.cuda.is_available():
        row |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    connection.send(row)
    connection.send(None)
