"""Agents on one machine and trainers on another: what holds on one machine holds there, too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from in_process import run_in_threads
from mpi_split import ITERATIONS, RANKS, cases
from plans import launch_plan, split_plan, training_plan, write_programs
from safetensors.torch import load_file

from gmiflow.runtime.events import Iteration, Restarting
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.launchers.mpi import MPILauncher, find_mpirun
from gmiflow.runtime.launchers.rank import starter_environment


@pytest.fixture(scope="module")
def said(tmp_path_factory, mpi_installed):
    """What the GMIs of every case of `mpi_split` said, by case, in order of GMI; "" is where the files are."""
    place = tmp_path_factory.mktemp("split")
    options = MPILauncher().command(str(find_mpirun()), RANKS, place)
    words = [*options[: options.index("-m")], str(Path(__file__).with_name("mpi_split.py")), str(place)]
    done = subprocess.run(words, env=starter_environment(sys.path), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} is done" for rank in range(RANKS)]
    found = {
        name: [json.loads((place / name / f"{gmi.id}.json").read_text()) for gmi in plan.gmis]
        for name, (plan, _) in cases().items()
    }
    return {**found, "": place}


def only(gmis: list[dict], kind: str) -> list[dict]:
    return [message for gmi in gmis for message in gmi["said"] if message["kind"] == kind]


def checksums(gmis: list[dict]) -> set[str]:
    assert [gmi["status"] for gmi in gmis] == [0] * len(gmis)
    return {message["checksum"] for message in only(gmis, "Done")}


def lags_of(gmis: list[dict]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for progress in only(gmis, "Progress"):
        total.update({int(lag): count for lag, count in progress["lags"].items()})
    return dict(total)


def summed(gmis: list[dict], what: str) -> float:
    return sum(progress["channels"].get(what, 0) for progress in only(gmis, "Progress"))


def one_machine(plan) -> set[str]:
    """Checksums of the last weights of the same plan in one process."""
    _, collectors, errors = run_in_threads(plan)
    assert errors == []
    return {collector.of("Done")[0].checksum for collector in collectors}


@pytest.mark.parametrize("case", ["two_agents_and_a_trainer", "agents_on_both", "two_trainers", "simulator_apart"])
def test_without_staleness_the_weights_are_those_of_one_machine(said, case: str) -> None:
    plan, _ = cases()[case]
    assert checksums(said[case]) == one_machine(plan)
    assert set(lags_of(said[case])) == {0}
    num_env = plan.trainings[0].num_env
    moved = 6 * num_env * (8 * (4 * 4 + 2 * 4 + 4 + 1 + 1) + 4)  # iterations, steps, and the value after the last
    assert (summed(said[case], "sent_bytes"), summed(said[case], "received_bytes")) == (moved, moved)
    assert summed(said[case], "trainer_wait_s") > 0 and summed(said[case], "agent_wait_s") > 0


def test_trainers_on_both_machines_reduce_among_themselves(said) -> None:
    """Their sums are in another order than on one machine."""
    assert len(checksums(said["trainers_on_both"])) == 1
    runtimes, _, _ = run_in_threads(launch_plan(training_plan(num_env=96), gmis=1))
    expected = runtimes[0]._policy.state_dict()
    run_dir = said[""] / "trainers_on_both" / "run" / "checkpoints" / "last"
    for name, value in load_file(run_dir / "policy.safetensors").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "lags"),
    [
        ("staleness_1", {0: 2, 1: 2 * (ITERATIONS - 1)}),
        ("staleness_2", {0: 2, 1: 2, 2: 2 * (ITERATIONS - 2)}),
        ("depth_1", {0: 2, 1: 2 * (ITERATIONS - 1)}),
    ],
)
def test_the_lag_never_exceeds_its_bound_under_a_slow_trainer(said, case: str, lags) -> None:
    """Rollouts 0 .. S of both agents are collected with version 0, and each further one with the version after."""
    assert lags_of(said[case]) == lags
    assert len(checksums(said[case])) == 1


def test_the_oldest_may_be_dropped(said) -> None:
    lags = lags_of(said["drops"])
    assert max(lags) <= 2 and sum(lags.values()) == 2 * ITERATIONS
    made = [message["iteration"] for message in only(said["drops"], "Done")[:2]]
    assert min(made) > ITERATIONS  # the agents did not wait for the trainer
    assert summed(said["drops"], "dropped") > 0


def test_a_resumed_run_continues_exactly(said) -> None:
    assert [message["iteration"] for message in only(said["saves"], "Saved")] == [3]
    assert [message["iteration"] for message in only(said["resumes"], "Saved")] == [6]
    assert checksums(said["resumes_at_its_end"]) == checksums(said["saves"])
    assert checksums(said["resumes"]) == one_machine(split_plan(training_plan(), agents=2))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("applies", "with `update = apply` they share parameters in memory of one"),
        ("steps_across", "with `mapping = e_at` every step would cross between them"),
        ("serves", "with `mapping = dp_mp` every step would cross between them"),
    ],
)
def test_what_needs_shared_memory_is_refused(said, case: str, message: str) -> None:
    failures = [failed["failure"] for failed in only(said[case], "Failed")]
    assert [failure["code"] for failure in failures] == ["E0710"] * len(said[case])
    assert all(message in failure["message"] and "one machine" in failure["notes"][0] for failure in failures)


def test_a_gmi_that_fails_is_named_on_both_machines(said) -> None:
    failures = [only([gmi], "Failed")[0]["failure"] for gmi in said["raises"]]
    assert [failure["code"] for failure in failures] == ["E0704", "E0701", "E0704"]
    assert failures[1]["message"] == "sim raised ValueError: the mass left the table"
    assert failures[2]["message"] == "GMI 1 left while the channel train.experience.0 waited for it"
    assert failures[0]["message"].startswith("GMI 2 left while the channel train.experience.0 waited")


@pytest.fixture
def split(tmp_path, monkeypatch, needs_mpi, clean):
    """Runs agents on one machine and a trainer on another; the result and the events."""
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))

    def start(agents, **changes):
        options = {"mode": "async", "max_staleness": 1, "checkpoint_every": 2, **changes}
        plan = split_plan(training_plan(**options), agents=agents)
        events = []
        programs = write_programs(plan, tmp_path / "programs")
        launcher = MPILauncher(ranks_per_node=agents)
        return run_plan(plan, programs, tmp_path / "run", on_event=events.append, launcher=launcher), events

    return start


def test_a_killed_agent_ends_the_run(split) -> None:
    result, _ = split(2, simulator="DyingOnce", iterations=100_000)
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0].failure
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while sim was at work")


def test_a_killed_trainer_ends_the_run_or_restarts_it(split) -> None:
    result, events = split(1, trainer="FallingOnce", on_failure="restart")
    assert (result.status, result.exit_code, result.restarts) == ("finished", 0, 1)
    failure = result.failures[0].failure
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while learner was at work")
    assert len([event for event in events if isinstance(event, Restarting)]) == 1
    last = [event for event in events if isinstance(event, Iteration)][-1]
    assert (last.iteration, last.metrics["updates"]) == (6, 6)
