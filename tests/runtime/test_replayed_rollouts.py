"""Captured rollouts of a simulator that returns new tensors at every step, as the guide's pendulum does.

A graph holds the addresses that it was captured with: what one rollout hands to the next must not be in a tensor that
happened to be there. CUDA graphs are recorded and replayed on the CPU here (`recording`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from in_process import run_in_threads
from recording import record_parts

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.single_steps import StepAgent

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"num_env": "16", "horizon": "4", "iterations": "8", "seed": "3"}
SHARED = """from pendulum import Pendulum


class SharedPendulum(Pendulum):
    joinable = True
"""
PARAMS = {"simulator": {}, "agent": {"hidden": [8]}, "trainer": {"epochs": 1, "minibatches": 1}}


@pytest.fixture(autouse=True)
def _pendulum(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def plan_of(execution: str, *, serves: bool = False, entry: str = "pendulum:Pendulum", **settings: str) -> LaunchPlan:
    """The pendulum's example, small; the compiler has graphs for GPUs alone, so ``execution`` is set afterwards."""
    text = (EXAMPLES / "own_simulator.gmi").read_text().replace("pendulum:Pendulum", entry)
    if serves:
        text = text[: text.index("trainer ")] + text[text.index("/// Synchronous PPO") :]
        kept = [line for line in text.splitlines() if "learner" not in line]
        text = "\n".join(kept).replace("= sync", "= serve") + "\n"
    overrides = (*((f"workflow.{name}", value) for name, value in SMALL.items()), *settings.items())
    options = Options(overrides=overrides, use_profiles=False)
    file = str(EXAMPLES / "own_simulator.gmi")
    compiled = compile_file(file, options, hardware=Hardware(cores=1, gpus=()), text=text)
    assert compiled.plan is not None, compiled.diagnostics
    trainings = []
    for training in compiled.plan.trainings:
        stages = (dataclasses.replace(s, params={**s.params, **PARAMS[s.role]}) for s in training.stages)
        trainings.append(dataclasses.replace(training, execution=execution, stages=tuple(stages)))
    return dataclasses.replace(compiled.plan, trainings=tuple(trainings))


def ran(plan: LaunchPlan) -> tuple[list[GMIRuntime], list[list[tuple[int, float]]]]:
    """The runtimes, and episodes and rewards of every iteration of each."""
    runtimes, collectors, errors = run_in_threads(plan)
    assert errors == []
    return runtimes, [[(report.episodes, report.return_sum) for report in c.of("Progress")] for c in collectors]


def weights(runtime: GMIRuntime) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in runtime.stages.policy.state_dict().values()])


@pytest.fixture(scope="module")
def eager() -> tuple[torch.Tensor, list[tuple[int, float]]]:
    """What the first iterations give as plain calls."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(EXAMPLES))
        (runtime,), (reports,) = ran(plan_of("eager"))
    return weights(runtime), reports


@pytest.mark.parametrize("execution", ["graph", "overlap"])
def test_replayed_rollouts_begin_where_the_ones_before_ended(monkeypatch, eager, execution: str) -> None:
    record_parts(monkeypatch)
    (runtime,), (reports,) = ran(plan_of(execution))
    assert reports == eager[1]
    assert torch.equal(weights(runtime), eager[0])


@pytest.mark.parametrize("execution", ["graph", "overlap"])
def test_joint_rollouts_too(monkeypatch, tmp_path, eager, execution: str) -> None:
    """Two replicas share the simulator; the first has the seed of the one alone."""
    (tmp_path / "shared_pendulum.py").write_text(SHARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    record_parts(monkeypatch)
    settings = {"workflow.replicas": "2", "workflow.joint": "2"}
    plan = plan_of(execution, entry="shared_pendulum:SharedPendulum", **settings)
    assert [gmi.joint for gmi in plan.gmis] == [0, 0]
    runtimes, reports = ran(plan)
    assert "joint with 1 other" in runtimes[0]._execution.lowering["collect"]
    assert reports[0] == eager[1]
    assert torch.equal(weights(runtimes[0]), eager[0])
    assert not torch.equal(weights(runtimes[1]), eager[0])


@pytest.mark.parametrize(("mapping", "gmis"), [("e_at", "2"), ("dp_mp", "3")])
def test_single_steps_where_simulators_are_apart_too(monkeypatch, eager, mapping: str, gmis: str) -> None:
    """Graphs of `step` on one side, of `act` on the other: one begins a rollout, one goes on."""
    record_parts(monkeypatch)
    runtimes, reports = ran(plan_of("graph", **{"target.mapping": mapping, "target.gmi_per_gpu": gmis}))
    agent = runtimes[1].stages.agent
    assert isinstance(agent, StepAgent)
    assert [part._calls for part in agent._parts.values()] == [8, 8 * 3]
    assert reports[1] == eager[1]
    assert torch.equal(weights(runtimes[1]), eager[0])


@pytest.mark.parametrize("mapping", ["dp_only", "mp_dp"])
def test_served_steps_too(monkeypatch, mapping: str) -> None:
    """Whole rollouts where roles share a GMI, else single steps on either side of a channel."""
    split = {"target.mapping": "mp_dp", "target.simulators": "1", "target.agents": "1"}
    expected, _ = ran(plan_of("eager", serves=True))
    record_parts(monkeypatch)
    found, _ = ran(plan_of("graph", serves=True, **(split if mapping == "mp_dp" else {})))
    states = [runtimes[0].stages.simulator.state_dict() for runtimes in (expected, found)]
    assert all(torch.equal(states[1][name], value) for name, value in states[0].items())
