"""A policy is trained, and served by a workflow: what a user types, and the files that it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

FILE = """edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets

simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor(hidden = [32])
trainer   learner = ppo.Learner(lr = 1e-3)

workflow train {
  mode = sync, num_env = 64, horizon = 16, iterations = 3
  sim.obs -> actor.obs
  actor.action -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights -> actor.weights
}
workflow serve {
  mode = serve, num_env = 96, horizon = 8, iterations = 8
  sim.obs -> actor.obs
  actor.action -> sim.action
}
target box { base = targets.cpu }
"""
SPLIT = ("--mapping", "mp_dp", "--set", "target.simulators=2")


def gmiflow(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "NO_COLOR": "1"},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with `box.gmi`, the run `trained`, and the run `served` of its policy."""
    path = tmp_path_factory.mktemp("serve")
    (path / "box.gmi").write_text(FILE)
    run = ("run", "box.gmi", "-w", "train", "--gmi-per-gpu", "1", "--run-dir", "trained")
    serve = ("run", "box.gmi", "-w", "serve", "--from", "trained")
    still = ("--set", "serve.iterations=1", "--deterministic", "--gmi-per-gpu", "1", "--run-dir", "still")
    for words in (run, (*serve, *SPLIT, "--run-dir", "served"), (*serve, *still)):
        done = gmiflow(path, *words)
        assert done.returncode == 0, done.stderr
        (path / f"{words[-1]}.out").write_text(done.stdout + done.stderr)
    return path


def test_the_policy_of_the_run_is_served(folder: Path) -> None:
    trained, served = (json.loads((folder / name / "report.json").read_text()) for name in ("trained", "served"))
    weights = served["trainings"]["serve"]["weights"]
    assert weights == trained["trainings"]["train"]["weights"]
    assert weights["equal_on_all_gmis"] and len(weights["checksums"]) == 1
    assert not (folder / "served" / "checkpoints").exists()


def test_the_report_has_throughput_latency_and_fairness(folder: Path) -> None:
    serve = json.loads((folder / "served" / "report.json").read_text())["trainings"]["serve"]
    assert (serve["iterations"], serve["env_steps"]) == (8, 8 * 8 * 96)
    assert serve["predictions_per_s"] == serve["env_steps_per_s"] > 0
    assert 0 < serve["latency_ms"]["p50"] <= serve["latency_ms"]["p95"] <= serve["latency_ms"]["p99"]
    fairness = serve["fairness"]
    assert 0.5 <= fairness["jain"] <= 1.0  # of two
    simulating, acting = serve["gmis"][:2], serve["gmis"][2]
    rates = [gmi["env_steps_per_s"] for gmi in simulating]
    assert (min(rates), max(rates)) == (fairness["slowest_env_steps_per_s"], fairness["fastest_env_steps_per_s"])
    assert sum(rates) == pytest.approx(serve["predictions_per_s"], abs=0.2)
    assert [gmi["timed_steps"] for gmi in simulating] == [8 * 6, 8 * 6]  # two iterations warm up
    assert "latency_ms" not in acting and acting["seconds"]["actor"] > 0 and acting["seconds"]["sim"] == 0
    # In 64 steps 96 environments give four numbers each, and get one back.
    assert serve["channels"]["moved_bytes"] == 64 * 96 * (4 + 1) * 4
    assert serve["execution"] == {"planned": "eager", "simulate": "eager", "infer": "eager"}


def test_every_iteration_is_in_the_metrics_and_in_tensorboard(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "served" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [*range(1, 9)]
    quantiles = {"latency_p50_ms", "latency_p95_ms", "latency_p99_ms"}
    each = {f"gmi_{gmi}/{name}" for gmi in (0, 1) for name in (*quantiles, "steps_per_s")}  # those that simulate
    names = {*quantiles, "predictions_per_s", "fairness", *each}
    assert all(set(line["serving"]) == names for line in lines)
    assert all(line["samples"] == 0 and line["env_steps"] == 8 * 96 for line in lines)
    events = EventAccumulator(str(folder / "served" / "tensorboard"))
    events.Reload()
    for name in names:
        assert len(events.Scalars(f"serving/{name}")) == 8


def test_a_run_sums_up_what_it_served(folder: Path) -> None:
    text = (folder / "served.out").read_text()
    assert "96 = 48 on each of 2 GMIs that simulate, 1 for the actions" in text
    assert "steps cross by host" in text and "without exploration" not in text
    assert "at work" in text and "waiting" in text and "learn" not in text.partition("started")[2]
    summary = next(line for line in text.splitlines() if "predictions per second" in line)
    assert "a step takes p50" in summary and "fairness" in summary and "over 2 GMIs" in summary


def test_deterministic_actions_can_be_asked_for_at_the_command_line(folder: Path) -> None:
    assert (
        "num_env 96 on 1 GMI, horizon 8, 1 iteration, seed 0, actions without exploration;"
        in (folder / "still.out").read_text()
    )
    plan = json.loads((folder / "still" / "plan.json").read_text())
    assert [training["deterministic"] for training in plan["trainings"]] == [True]
    assert "deterministic=True" in (folder / "still" / "programs" / "gmi_00.py").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-w", "serve", "--resume", "served"), 2, "serve serves and keeps no checkpoint to go on from; --from RUN"),
        (("-w", "train", "--from", "trained"), 2, "--from is for workflows with `mode = serve`"),
        (("-w", "serve", "--from", "nowhere"), 1, "E0707"),
        (("-w", "train", "--deterministic"), 1, "only `serve` has `deterministic`"),
    ],
)
def test_where_weights_cannot_come_from(folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = gmiflow(folder, "run", "box.gmi", *words, "--run-dir", "refused")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (folder / "refused").exists()


def test_a_policy_of_another_size_is_refused_before_anything_starts(folder: Path) -> None:
    """CartPole has 4 observations and an action: with 8 units instead of 32 the parameters are fewer."""
    words = ("--from", "trained", "--set", "actor.hidden=[8]", "--gmi-per-gpu", "1", "--run-dir", "narrow")
    done = gmiflow(folder, "run", "box.gmi", "-w", "serve", *words)
    assert done.returncode == 1 and "error[E0707]" in done.stderr
    assert "was trained with hidden = [32], and has [8] now" in done.stderr
    assert "`flat` is [" in done.stderr and "GMI 0" not in done.stderr, done.stderr
    assert not (folder / "narrow").exists()
