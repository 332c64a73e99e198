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

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = {"num_env": "16", "horizon": "4", "iterations": "8"}
SMALL = {"simulator": {}, "agent": {"hidden": [8]}, "trainer": {"epochs": 1, "minibatches": 1}}


def trained(execution: str) -> tuple[torch.Tensor, list[tuple[int, float]]]:
    """The weights of the pendulum's policy, and episodes and rewards of every iteration."""
    overrides = tuple((f"workflow.{name}", value) for name, value in SETTINGS.items())
    options = Options(overrides=overrides, use_profiles=False)
    compiled = compile_file(str(EXAMPLES / "own_simulator.gmi"), options, hardware=Hardware(cores=1, gpus=()))
    assert compiled.plan is not None, compiled.diagnostics
    (training,) = compiled.plan.trainings  # the compiler has graphs for GPUs alone
    stages = tuple(
        dataclasses.replace(stage, params={**stage.params, **SMALL[stage.role]}) for stage in training.stages
    )
    training = dataclasses.replace(training, execution=execution, stages=stages)
    plan = dataclasses.replace(compiled.plan, trainings=(training,))
    (runtime,), (collector,), errors = run_in_threads(plan)
    assert errors == []
    weights = torch.cat([value.double().flatten() for value in runtime.stages.policy.state_dict().values()])
    return weights, [(report.episodes, report.return_sum) for report in collector.of("Progress")]


@pytest.mark.parametrize("execution", ["graph", "overlap"])
def test_replayed_rollouts_begin_where_the_ones_before_ended(monkeypatch, execution: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    expected = trained("eager")
    with monkeypatch.context() as patched:
        record_parts(patched)
        replayed = trained(execution)
    assert replayed[1] == expected[1]
    assert torch.equal(replayed[0], expected[0])
