"""Stages that return something else than they shall, or fail in a call between iterations: which stage is named."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from in_process import run_in_threads
from plans import apart_plan, launch_plan, stage, training_plan
from point_mass import Actor, Learner, PointMass

from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.failure import RuntimeFailure
from gmiflow.runtime.process import explain
from gmiflow.runtime.run_directory import find_checkpoint

LINES = {"sim": 3, "actor": 9, "learner": 14}
SHAPE = "declared f32[64, 4] on cpu, but the stage returned"


def unchanged(value: object) -> object:
    return value


class OddSimulator(PointMass):
    """Changes what it returns by the functions that a test puts here."""

    of_reset = of_step = of_state = staticmethod(unchanged)

    def reset(self):
        return self.of_reset(super().reset())

    def step(self, inputs):
        return self.of_step(super().step(inputs))

    def state_dict(self):
        return self.of_state(super().state_dict())


class OddActor(Actor):
    """As `OddSimulator`, for an agent."""

    of_act = of_finish = of_state = staticmethod(unchanged)

    def act(self, inputs):
        return self.of_act(super().act(inputs))

    def finish(self, inputs):
        return self.of_finish(super().finish(inputs))

    def state_dict(self):
        return self.of_state(super().state_dict())


class OddLearner(Learner):
    """As `OddSimulator`, for a trainer."""

    of_update = of_state = staticmethod(unchanged)

    def update(self, batch):
        return self.of_update(super().update(batch))

    def state_dict(self):
        return self.of_state(super().state_dict())


class WithoutPolicy(Actor):
    @staticmethod
    def make_policy(context):
        return None


CLASSES = {"sim": OddSimulator, "actor": OddActor, "learner": OddLearner}
ROLES = {"sim": "simulator", "actor": "agent", "learner": "trainer"}


def run(
    run_dir: Path | None = None, resume: Path | None = None, **entries: str
) -> tuple[GMIRuntime, RuntimeFailure | None]:
    """Two iterations on one GMI; its failure as it is reported."""
    named = {name: entries.get(name, kind.__name__) for name, kind in CLASSES.items()}
    stages = tuple(
        stage(name, ROLES[name], f"{__name__}:{entry}", LINES[name])  # this module holds the classes
        for name, entry in named.items()
    )
    plan = launch_plan(dataclasses.replace(training_plan(iterations=2), stages=stages), gmis=1)
    (runtime,), _, errors = run_in_threads(plan, run_dir=run_dir, resume=resume)
    assert len(errors) <= 1
    return runtime, explain(errors[0], runtime.context.program, runtime.clock) if errors else None


def place(failure: RuntimeFailure | None) -> tuple[str, str | None, str | None, int]:
    assert failure is not None
    return failure.code, failure.stage, failure.file, failure.line


def with_port(name: str, value: object | Callable[[torch.Tensor], object]) -> Callable[[Mapping], Mapping]:
    def change(ports: Mapping) -> Mapping:
        return {**ports, name: value(ports[name]) if callable(value) else value}

    return staticmethod(change)


def without(name: str) -> Callable[[Mapping], Mapping]:
    return staticmethod(lambda ports: {key: value for key, value in ports.items() if key != name})


def later(change: Callable[[Mapping], Mapping]) -> Callable[[Mapping], Mapping]:
    """As ``change`` (one of the above), but not before the second rollout of 8 steps."""
    calls = itertools.count()
    return staticmethod(lambda ports: change.__func__(ports) if next(calls) > 8 else ports)


NOTHING = staticmethod(lambda ports: None)


def test_what_is_noted_at_an_exception_is_told_too(monkeypatch):
    def broken(ports):
        problem = ValueError("no such thing")
        problem.add_note("look there")
        raise problem

    monkeypatch.setattr(OddSimulator, "of_step", staticmethod(broken))
    _, failure = run()
    assert failure is not None and failure.stage == "sim"
    assert failure.message == "sim raised ValueError: no such thing"
    assert failure.notes == ("look there",)


@pytest.mark.parametrize(
    ("owner", "call", "change", "message"),
    [
        ("sim", "of_reset", NOTHING, "sim.obs is declared, but the stage returned None, not its ports"),
        ("sim", "of_reset", staticmethod(lambda p: [p]), "sim.obs is declared, but the stage returned list, not"),
        ("sim", "of_reset", without("obs"), "sim.obs is declared, but the stage did not return it"),
        ("sim", "of_reset", with_port("obs", torch.Tensor.double), f"sim.obs is {SHAPE} f64[64, 4] on cpu"),
        ("sim", "of_reset", with_port("obs", lambda obs: obs[:, :3]), f"sim.obs is {SHAPE} f32[64, 3] on cpu"),
        ("sim", "of_reset", with_port("obs", lambda obs: obs.numpy()), f"sim.obs is {SHAPE} ndarray"),
        ("sim", "of_step", NOTHING, "sim.obs is declared, but the stage returned None, not its ports"),
        ("sim", "of_step", with_port("obs", torch.Tensor.double), f"sim.obs is {SHAPE} f64[64, 4] on cpu"),
        ("sim", "of_step", with_port("reward", torch.Tensor.tolist), "sim.reward is declared f32[64] on cpu, but the"),
        ("sim", "of_step", with_port("reward", lambda r: r[:, None]), "sim.reward is declared f32[64] on cpu, but the"),
        ("sim", "of_step", with_port("terminated", torch.Tensor.float), "sim.terminated is declared bool[64] on cpu"),
        ("sim", "of_step", without("truncated"), "sim.truncated is declared, but the stage did not return it"),
        ("actor", "of_act", NOTHING, "actor.action is declared, but the stage returned None, not its ports"),
        ("actor", "of_act", with_port("action", torch.Tensor.half), "actor.action is declared f32[64, 2] on cpu"),
        (
            "actor",
            "of_act",
            with_port("experience", torch.zeros(())),
            "actor.experience is declared a record, but the stage",
        ),
        ("actor", "of_act", with_port("experience", {}), "actor.experience.obs is declared, but the stage did not"),
        ("actor", "of_finish", NOTHING, "actor.bootstrap is declared, but the stage returned None, not its ports"),
        ("learner", "of_update", NOTHING, "learner shall return its metrics by name, each as one number on cpu, but"),
        ("learner", "of_update", with_port("loss", 1.0), "learner shall return its metrics by name, each as one"),
        ("learner", "of_update", with_port("loss", torch.zeros(2)), "learner shall return its metrics by name, each"),
    ],
)
def test_wrong_outputs_are_those_of_their_stage(
    monkeypatch: pytest.MonkeyPatch, owner: str, call: str, change: Callable[[Mapping], Mapping], message: str
) -> None:
    monkeypatch.setattr(CLASSES[owner], call, change)
    _, failure = run()
    assert place(failure) == ("E0708", owner, "point_mass.gmi", LINES[owner])
    assert failure is not None and failure.message.startswith(message)


@pytest.mark.parametrize("mapping", ["dp_only", "e_at"])
@pytest.mark.parametrize(
    ("change", "returned"),
    [
        (with_port("reward", lambda r: r[:5]), "f32[5]"),
        (with_port("reward", lambda r: r[:1]), "f32[1]"),  # a copy would stretch it
        (with_port("reward", torch.Tensor.double), "f64[64]"),  # or convert it
        (with_port("obs", lambda obs: obs[:1]), "f32[1, 4]"),
    ],
)
def test_what_fits_in_the_first_rollout_alone_is_refused_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, mapping: str, change: Callable[[Mapping], Mapping], returned: str
) -> None:
    monkeypatch.setattr(OddSimulator, "of_step", later(change))
    stages = tuple(
        stage(name, ROLES[name], f"{__name__}:{kind.__name__}", LINES[name]) for name, kind in CLASSES.items()
    )
    training = dataclasses.replace(training_plan(iterations=2), stages=stages)
    plan = launch_plan(training, gmis=1) if mapping == "dp_only" else apart_plan(training, "e_at")
    runtimes, _, errors = run_in_threads(plan)
    failures = [explain(problem, runtimes[0].context.program, runtimes[0].clock) for problem in errors]
    (failure,) = [failure for failure in failures if failure.code == "E0708"]
    assert failure.message.endswith(f"but the stage returned {returned} on cpu")


def test_a_policy_that_is_none() -> None:
    _, failure = run(actor="WithoutPolicy")
    assert place(failure) == ("E0708", "actor", "point_mass.gmi", 9)
    assert failure is not None
    assert failure.message == "`make_policy` of actor returned NoneType, not a torch.nn.Module"


def fail(*_: object) -> None:
    raise ValueError("no state today")


@pytest.mark.parametrize("owner", CLASSES)
def test_a_state_dict_that_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: str) -> None:
    monkeypatch.setattr(CLASSES[owner], "of_state", staticmethod(fail))
    _, failure = run(tmp_path)
    assert place(failure) == ("E0701", owner, "point_mass.gmi", LINES[owner])
    assert failure is not None and "no state today" in failure.message


@pytest.mark.parametrize("owner", CLASSES)
@pytest.mark.parametrize("state", [None, {"tick": 3}])
def test_a_state_dict_without_tensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: str, state: object
) -> None:
    monkeypatch.setattr(CLASSES[owner], "of_state", staticmethod(lambda own: state))
    _, failure = run(tmp_path)
    assert place(failure) == ("E0708", owner, "point_mass.gmi", LINES[owner])


@pytest.mark.parametrize("owner", CLASSES)
def test_a_state_that_is_not_taken_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: str) -> None:
    assert run(tmp_path)[1] is None
    monkeypatch.setattr(CLASSES[owner], "load_state_dict", fail)
    _, failure = run(resume=find_checkpoint(tmp_path, "train"))
    assert place(failure) == ("E0701", owner, "point_mass.gmi", LINES[owner])


def test_diagnostics_that_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OddSimulator, "diagnostics", fail)
    assert place(run()[1]) == ("E0701", "sim", "point_mass.gmi", 3)


def test_time_between_stages_stays_with_the_runtime(tmp_path: Path) -> None:
    runtime, failure = run(tmp_path)
    assert failure is None
    assert runtime.clock.names[runtime.clock.current] == "runtime"


def test_a_close_that_raises_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(OddSimulator, "close", fail)
    with caplog.at_level(logging.WARNING):
        _, failure = run(tmp_path)
    assert failure is None
    assert find_checkpoint(tmp_path, "train").name == "iter_000002"
    assert "point_mass.gmi:3: `close` of the stage sim raised ValueError: no state today" in caplog.text


def test_a_close_that_raises_does_not_cover_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OddSimulator, "close", fail)
    monkeypatch.setattr(OddActor, "of_act", NOTHING)
    assert place(run()[1]) == ("E0708", "actor", "point_mass.gmi", 9)
