"""Runs of real processes: results, failures, signals, and nothing left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import launch_plan, training_plan, write_programs
from safetensors.torch import load_file
from waiting import PATIENCE_S

from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.events import Checkpoint, Event, Failure, Finished, Iteration, Restarting, RunResult, Slow, Started
from gmiflow.runtime.gmi.cpus import Core, Topology
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.processes import assign_cpus, environment
from gmiflow.runtime.supervisor import Limits

pytestmark = pytest.mark.usefixtures("one_fork_server")

HERE = Path(__file__).parent


def run(tmp_path: Path, *, gmis: int = 2, limits: Limits | None = None, resume=None, **options):
    plan = launch_plan(training_plan(**options), gmis=gmis)
    programs = write_programs(plan, tmp_path / "programs")
    events: list[Event] = []
    run_dir = tmp_path / "run"
    result = run_plan(plan, programs, run_dir, on_event=events.append, limits=limits, resume=resume)
    return result, events


def only(events: list[Event], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def policy_of(run_dir: Path):
    return load_file(run_dir / "checkpoints" / "last" / "policy.safetensors")


def expect_failure(result: RunResult, events: list[Event], *, code: str, message: str, reason: str) -> Failure:
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0]
    assert failure in events
    assert isinstance(events[-1], Finished)
    assert failure.failure.code == code
    assert failure.failure.message == message
    assert failure.reason.startswith(reason)
    assert (failure.failure.stage, failure.failure.file, failure.failure.line) == ("sim", "point_mass.gmi", 3)
    assert failure.log == result.report.parent / "logs" / "gmi_01.log"
    return failure


@pytest.mark.usefixtures("mark")
def test_a_run_reports_what_it_did(tmp_path: Path) -> None:
    result, events = run(tmp_path, checkpoint_every=4)
    assert (result.status, result.exit_code, result.failures) == ("finished", 0, ())
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    iterations = only(events, Iteration)
    assert [event.iteration for event in iterations] == [1, 2, 3, 4, 5, 6]
    assert {event.env_steps for event in iterations} == {64 * 8}
    assert iterations[-1].total_env_steps == 6 * 64 * 8
    assert iterations[-1].metrics["updates"] == 6
    assert iterations[-1].episode_length is not None and 1 <= iterations[-1].episode_length <= 20
    assert [event.iteration for event in only(events, Checkpoint)] == [4, 6]

    run_dir = tmp_path / "run"
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    report = json.loads((run_dir / "report.json").read_text())
    training = report["trainings"]["train"]
    assert training["weights"] == {"checksums": [result.checksums["train"]], "equal_on_all_gmis": True}
    assert [gmi["env_offset"] for gmi in training["gmis"]] == [0, 32]
    assert set(training["gmis"][0]["seconds"]) == {"runtime", "sim", "actor", "learner", "communicate"}
    assert (run_dir / "checkpoints" / "last").resolve().name == "iter_000006"
    assert "the job uses no GPU" in (run_dir / "telemetry.jsonl").read_text().splitlines()[0]
    assert "telemetry" in report


@pytest.mark.usefixtures("mark")
def test_tensorboard_can_read_the_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, events = run(tmp_path, gmis=1, iterations=3)
    reader = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    reader.Reload()
    losses = reader.Scalars("train/loss")
    assert [scalar.step for scalar in losses] == [1, 2, 3]
    assert [scalar.value for scalar in losses] == pytest.approx([e.metrics["loss"] for e in only(events, Iteration)])


@pytest.mark.usefixtures("mark")
def test_processes_and_slices_change_nothing(tmp_path: Path) -> None:
    import torch

    run(tmp_path / "one", gmis=1, iterations=3)
    run(tmp_path / "four", gmis=4, iterations=3)
    one, four = policy_of(tmp_path / "one" / "run"), policy_of(tmp_path / "four" / "run")
    for name, value in one.items():
        torch.testing.assert_close(four[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("mark")
def test_a_resumed_run_continues_exactly(tmp_path: Path) -> None:
    run(tmp_path / "whole", iterations=6)
    run(tmp_path / "half", iterations=3)
    checkpoint = tmp_path / "half" / "run"
    _, events = run(tmp_path / "rest", iterations=6, resume=checkpoint)
    assert only(events, Started)[0].iteration == {"train": 3}
    assert [event.iteration for event in only(events, Iteration)] == [4, 5, 6]
    assert only(events, Iteration)[0].total_env_steps == 4 * 64 * 8
    whole, rest = policy_of(tmp_path / "whole" / "run"), policy_of(tmp_path / "rest" / "run")
    assert all((whole[name] == rest[name]).all() for name in whole)


@pytest.mark.usefixtures("mark")
def test_two_trainings_side_by_side(tmp_path: Path) -> None:
    plan = launch_plan(training_plan(name="a"), training_plan(name="b", seed=8), gmis=1)
    programs = write_programs(plan, tmp_path / "programs")
    events: list[Event] = []
    result = run_plan(plan, programs, tmp_path / "run", on_event=events.append)
    assert result.status == "finished"
    assert result.iterations == {"a": 6, "b": 6}
    assert (tmp_path / "run" / "checkpoints" / "b" / "last" / "meta.json").is_file()
    assert (tmp_path / "run" / "tensorboard" / "a").is_dir()


@pytest.mark.usefixtures("mark")
def test_an_exception_in_a_stage(tmp_path: Path) -> None:
    result, _ = run(tmp_path, simulator="Raising", gmis=3, num_env=96, iterations=1000)
    message = "sim raised ValueError: the mass left the table"
    failure = result.failures[0]
    assert (result.exit_code, failure.failure.code, failure.failure.message) == (1, "E0701", message)
    assert (failure.failure.file, failure.failure.line) == ("point_mass.gmi", 3)
    assert "Traceback" not in failure.failure.message
    assert any("Traceback" in line for line in failure.log_tail)
    places = [line for line in failure.log_tail if line.strip().startswith("File ")]
    assert len(places) == 1 and "point_mass.py" in places[0]  # the runtime's own frames are left out


@pytest.mark.usefixtures("mark")
def test_a_killed_gmi_is_named_and_stops_the_others(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="Dying", iterations=1000)
    message = "GMI 1 was killed by SIGKILL while sim was at work"
    failure = expect_failure(result, events, code="E0702", message=message, reason="killed by SIGKILL")
    assert failure.log_tail[-1] == "a last word"
    report = json.loads(result.report.read_text())
    assert (report["status"], report["failures"][0]["gmi"]) == ("failed", 1)


@pytest.mark.usefixtures("mark")
def test_a_gmi_that_leaves_without_a_word(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="Exiting", iterations=1000)
    message = "GMI 1 ended with status 7 while sim was at work"
    expect_failure(result, events, code="E0702", message=message, reason="ended with status 7")


@pytest.mark.usefixtures("mark")
def test_a_stopped_gmi_is_noticed(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="Freezing", iterations=1000, limits=Limits(silence_s=4))
    message = "GMI 1 is stopped while sim was at work"
    expect_failure(result, events, code="E0703", message=message, reason="silent for")


@pytest.mark.usefixtures("mark")
def test_a_gmi_that_never_comes_back_is_named_by_its_peer(tmp_path: Path) -> None:
    limits = Limits(collective_s=600, consequence_s=1)
    result, _ = run(tmp_path, simulator="Waiting", gmi="point_mass:Impatient", iterations=1000, limits=limits)
    failure = result.failures[0]
    assert result.exit_code == 1
    assert failure.failure.code == "E0705"
    assert failure.failure.message == "GMI 1 did not come to the collective train.gradient within 1 s"


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"simulator": "NoSuch"}, "E0709", "the module point_mass has no class NoSuch"),
        ({"simulator": "WrongType"}, "E0708", "sim.reward is declared f32[32] on cpu, but the stage returned f64[32]"),
        (
            {"gmi": "point_mass:NotAStage"},
            "E0709",
            "point_mass:NotAStage is not a subclass of gmiflow.runtime.core.GMI",
        ),
    ],
)
def test_failures_before_the_first_iteration(tmp_path: Path, options, code: str, message: str) -> None:
    result, _ = run(tmp_path, **options)
    failure = result.failures[0].failure
    assert result.exit_code == 1
    assert failure.code == code
    assert failure.message.startswith(message)


@pytest.mark.usefixtures("mark")
def test_a_user_class_replaces_the_loop(tmp_path: Path) -> None:
    result, events = run(tmp_path, iterations=4, gmi="point_mass:Alternating")
    assert result.status == "finished"
    assert [event.metrics.get("updates") for event in only(events, Iteration)] == [1, None, 2, None]


def test_what_cannot_be_started_is_reported(tmp_path: Path) -> None:
    plan = launch_plan(training_plan(), gmis=2)
    events: list[Event] = []
    result = run_plan(plan, tmp_path / "nowhere", tmp_path / "run", on_event=events.append)
    assert result.exit_code == 1
    assert result.failures[0].failure.code == "E0711"
    assert result.failures[0].failure.message.startswith("the program of GMI 0 is missing")
    assert isinstance(events[-1], Finished)


def test_programs_can_be_started_by_hand(tmp_path: Path, mark: str) -> None:
    plan = launch_plan(training_plan(iterations=3), gmis=2)
    programs = write_programs(plan, tmp_path / "programs")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shared = ["--rendezvous", str(tmp_path / "meet"), "--run-dir", str(tmp_path / "run")]
    started = [
        subprocess.Popen(
            [sys.executable, str(programs / gmi.program), *shared], env=environment, stderr=subprocess.PIPE
        )
        for gmi in plan.gmis
    ]
    outputs = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert "done after 3 iterations" in outputs[0]
    meta = json.loads((tmp_path / "run" / "checkpoints" / "last" / "meta.json").read_text())
    assert meta["slices"] == [[0, 32], [32, 32]]


def test_a_program_explains_itself(tmp_path: Path) -> None:
    plan = launch_plan(training_plan(), gmis=2)
    programs = write_programs(plan, tmp_path / "programs")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(programs / "gmi_01.py"), "--help"]
    text = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    text = " ".join(text.split())
    assert "GMI 1 of 2: sim, actor, learner of the training train for environments 32 to 63." in text
    assert "--rendezvous DIR" in text


def test_cpus_are_shared_fairly() -> None:
    gmis = launch_plan(training_plan(), gmis=4).gmis
    assert assign_cpus(gmis, cores(4, 5, 6, 7)) == {0: [4], 1: [5], 2: [6], 3: [7]}
    assert assign_cpus(gmis, cores(4, 5)) == {0: [4], 1: [5], 2: [4], 3: [5]}
    wide = [dataclasses.replace(gmi, cores=3) for gmi in gmis[:2]]
    assert assign_cpus(wide, cores(0, 1, 2, 3, 4, 5)) == {0: [0, 1, 2], 1: [3, 4, 5]}
    assert assign_cpus(wide, cores(0, 1)) == {0: [0, 1], 1: [0, 1]}


def cores(*cpus: int) -> Topology:
    """Cores with one hardware thread each."""
    return Topology(cores=tuple(Core(cpus=(cpu,)) for cpu in cpus), distances={})


def test_the_launcher_needs_no_torch() -> None:
    code = "import sys, gmiflow.runtime, gmiflow.runtime.launch; assert not {'torch', 'mujoco'} & set(sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE_S)


@pytest.mark.usefixtures("mark")
def test_a_run_that_may_restart_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    run(tmp_path / "calm", checkpoint_every=2)
    result, events = run(tmp_path / "hit", simulator="DyingOnce", checkpoint_every=2, on_failure="restart")
    assert (result.status, result.exit_code, result.restarts) == ("finished", 0, 1)
    # A peer that missed the lost one may have said so too.
    assert [failure.failure.code for failure in result.failures].count("E0702") == 1
    assert only(events, Restarting) == [Restarting(restart=1, limit=3)]
    again = events.index(Restarting(restart=1, limit=3))
    assert [event.iteration for event in only(events[again:], Iteration)] == [3, 4, 5, 6]
    assert only(events[again:], Started)[0].iteration == {"train": 2}

    run_dir = tmp_path / "hit" / "run"
    lines = [json.loads(line)["iteration"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert lines == [1, 2, 3, 4, 5, 6]
    assert json.loads((run_dir / "report.json").read_text())["restarts"] == 1
    calm, hit = policy_of(tmp_path / "calm" / "run"), policy_of(run_dir)
    assert all((calm[name] == hit[name]).all() for name in calm)


@pytest.mark.usefixtures("mark")
def test_a_run_that_fails_every_time_is_restarted_three_times(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="Late", checkpoint_every=1, on_failure="restart")
    assert (result.status, result.exit_code, result.restarts) == ("failed", 1, 3)
    assert [event.restart for event in only(events, Restarting)] == [1, 2, 3]
    assert [failure.failure.code for failure in result.failures].count("E0702") == 4


@pytest.mark.usefixtures("mark")
def test_a_checkpoint_that_cannot_be_written_costs_none_that_was(tmp_path: Path) -> None:
    result, _ = run(tmp_path, simulator="Filling", checkpoint_every=2)
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0].failure
    assert failure.code == "E0707" and "cannot be written: File too large" in failure.message
    assert failure.notes[0].startswith("make room for it; ")
    checkpoints = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir() if not path.is_symlink()) == ["iter_000002"]
    assert CheckpointReader(checkpoints / "last").meta.iteration == 2


@pytest.mark.usefixtures("mark")
def test_a_run_that_got_on_is_restarted_also_when_a_restart_fails_to_start(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="DyingAgain", checkpoint_every=1, on_failure="restart")
    assert (result.status, result.exit_code, result.restarts) == ("finished", 0, 2)
    assert [event.restart for event in only(events, Restarting)] == [1, 2]


@pytest.mark.usefixtures("mark")
def test_a_failure_of_the_first_iteration_is_not_repeated(tmp_path: Path) -> None:
    result, events = run(tmp_path, simulator="Dying", on_failure="restart")
    assert (result.status, result.restarts, only(events, Restarting)) == ("failed", 0, [])


def hosted(plan, kind: str = "local"):
    """The plan with all GMIs in one process."""
    gmis = tuple(dataclasses.replace(gmi, host=plan.gmis[0].id) for gmi in plan.gmis)
    groups = tuple(dataclasses.replace(group, kind=kind) for group in plan.collectives)
    return dataclasses.replace(plan, gmis=gmis, collectives=groups)


def run_hosted(tmp_path: Path, plan):
    events: list[Event] = []
    programs = write_programs(plan, tmp_path / "programs")
    return run_plan(plan, programs, tmp_path / "run", on_event=events.append), events


@pytest.mark.usefixtures("mark")
def test_gmis_of_one_process_compute_the_same(tmp_path: Path) -> None:
    import torch

    run(tmp_path / "processes", gmis=2)
    result, events = run_hosted(tmp_path / "threads", hosted(launch_plan(training_plan(), gmis=2)))
    assert (result.status, result.exit_code) == ("finished", 0)
    assert [event.iteration for event in only(events, Iteration)] == [1, 2, 3, 4, 5, 6]
    apart, together = policy_of(tmp_path / "processes" / "run"), policy_of(tmp_path / "threads" / "run")
    for name, value in apart.items():
        torch.testing.assert_close(together[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("mark")
def test_replicas_of_one_process_are_each_as_alone(tmp_path: Path) -> None:
    seeds = [7, 8, 9]
    alone = []
    for seed in seeds:
        run(tmp_path / str(seed), gmis=1, seed=seed)
        alone.append(policy_of(tmp_path / str(seed) / "run"))
    trainings = [training_plan(name=f"train.{number}", seed=seed) for number, seed in enumerate(seeds)]
    result, _ = run_hosted(tmp_path, hosted(launch_plan(*trainings, gmis=1)))
    assert result.exit_code == 0
    for number, expected in enumerate(alone):
        folder = tmp_path / "run" / "checkpoints" / f"train.{number}" / "last"
        together = load_file(folder / "policy.safetensors")
        assert all((together[name] == expected[name]).all() for name in expected)

    values = [result.mean_return[f"train.{number}"] for number in range(3)]
    center = sum(values) / 3
    half = 4.303 * (sum((value - center) ** 2 for value in values) / 2 / 3) ** 0.5  # Student's t, 2 degrees of freedom
    summary = json.loads((tmp_path / "run" / "report.json").read_text())["replicas"]["train"]
    assert summary["trainings"] == ["train.0", "train.1", "train.2"]
    assert summary["mean_return"] == pytest.approx(center)
    assert summary["confidence_95"] == pytest.approx([center - half, center + half])


@pytest.mark.usefixtures("mark")
def test_replicas_that_share_a_simulator_are_each_as_alone(tmp_path: Path) -> None:
    trainings = [training_plan(simulator="JoinableMass", name=f"train.{seed}", seed=seed) for seed in (7, 8)]
    apart = hosted(launch_plan(*trainings, gmis=1))
    joint = dataclasses.replace(apart, gmis=tuple(dataclasses.replace(gmi, joint=0) for gmi in apart.gmis))
    for name, plan in (("apart", apart), ("joint", joint)):
        result, events = run_hosted(tmp_path / name, plan)
        assert result.exit_code == 0, only(events, Failure)
    for training in trainings:
        places = [tmp_path / name / "run" / "checkpoints" / training.name / "last" for name in ("apart", "joint")]
        for file in ("policy", "trainer", "environments_00000000"):
            one, other = (load_file(place / f"{file}.safetensors") for place in places)
            assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one), file


@pytest.mark.usefixtures("mark")
def test_a_gmi_that_raises_in_a_shared_process_is_named(tmp_path: Path) -> None:
    plan = hosted(launch_plan(training_plan(simulator="Raising", iterations=1000), gmis=2))
    result, _ = run_hosted(tmp_path, plan)
    failure = result.failures[0]
    assert (result.exit_code, failure.gmi, failure.failure.code) == (1, 1, "E0701")
    assert failure.failure.message == "sim raised ValueError: the mass left the table"


@pytest.mark.usefixtures("mark")
def test_a_shared_process_that_dies_is_named_with_all_its_gmis(tmp_path: Path) -> None:
    plan = hosted(launch_plan(training_plan(simulator="Dying", iterations=1000), gmis=2))
    result, _ = run_hosted(tmp_path, plan)
    failure = result.failures[0]
    assert (result.exit_code, failure.gmi, failure.failure.code) == (1, 0, "E0702")
    assert "GMI 1 shared its process and ended with it" in failure.failure.notes


def test_a_process_of_many_streams_gets_as_many_queues_to_its_gpu() -> None:
    class Backend:
        def environment(self, gmi):
            return {"CUDA_VISIBLE_DEVICES": "GPU-1"}

    plan = hosted(launch_plan(training_plan(), gmis=2))
    gmis = tuple(dataclasses.replace(gmi, backend="timeshare") for gmi in plan.gmis)
    backends = {"timeshare": Backend(), "cpu": Backend()}
    many = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert environment(gmis, backends) == many
    assert environment(gmis[:1], backends) == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert environment(plan.gmis, backends) == {"CUDA_VISIBLE_DEVICES": "GPU-1"}


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(("simulator", "port"), [("NotANumber", "sim.reward"), ("LostPlace", "sim.obs")])
def test_numbers_that_are_not_finite_stop_a_training_and_are_never_saved(tmp_path: Path, simulator, port) -> None:
    result, events = run(tmp_path, simulator=simulator, iterations=50, checkpoint_every=1)
    failure = result.failures[0]
    assert (result.exit_code, failure.failure.code) == (1, "E0716")
    assert failure.failure.message.startswith(f"{port} is not finite (NaN or infinity) in iteration ")
    assert (failure.failure.stage, failure.failure.line) == ("sim", 3)
    assert [event.iteration for event in only(events, Checkpoint)] == [1]
    assert all(value.isfinite().all() for value in policy_of(tmp_path / "run").values())


@pytest.mark.usefixtures("mark")
def test_a_policy_that_diverges_is_named_as_such(tmp_path: Path) -> None:
    result, _ = run(tmp_path, gmis=1, trainer="Exploding", iterations=50)
    failure = result.failures[0].failure
    assert (result.exit_code, failure.code, failure.stage) == (1, "E0716", "learner")
    assert failure.message.startswith("the policy is not finite")


@pytest.mark.usefixtures("mark")
def test_a_call_that_never_comes_back_is_mentioned_and_then_ends_the_run(tmp_path: Path) -> None:
    limits = Limits(slow_s=1.0, stuck_s=3.0)
    result, events = run(tmp_path, simulator="Waiting", gmis=2, iterations=50, limits=limits)
    slow = only(events, Slow)
    assert (1, "sim") in [(event.gmi, event.stage) for event in slow]
    failure = next(found for found in result.failures if found.failure.code == "E0703")
    assert (result.exit_code, failure.gmi, failure.failure.stage) == (1, 1, "sim")
    assert failure.failure.message.startswith("GMI 1: sim has not come back from one call for")


@pytest.mark.usefixtures("mark")
def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    result, _ = run(tmp_path, simulator="RealTime", iterations=1000)
    failure = result.failures[0]
    assert (result.exit_code, failure.failure.code) == (1, "E0702")
    assert failure.failure.message == "GMI 1 was killed by signal 37 while sim was at work"


@pytest.mark.usefixtures("mark")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_curves_that_cannot_be_written_do_not_end_a_training(tmp_path: Path) -> None:
    events: list[Event] = []
    plan = launch_plan(training_plan(), gmis=1)
    programs = write_programs(plan, tmp_path / "programs")

    def receive(event: Event) -> None:
        events.append(event)
        if isinstance(event, Iteration) and event.iteration == 2:
            (tmp_path / "run").rename(tmp_path / "elsewhere")  # at once, whatever the GMI may write there just now

    result = run_plan(plan, programs, tmp_path / "run", on_event=receive)
    assert [event.iteration for event in only(events, Iteration)] == [1, 2, 3, 4, 5, 6]
    assert isinstance(events[-1], Finished)
    assert result.iterations == {"train": 6}
