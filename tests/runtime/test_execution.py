"""Execution lowerings give the same numbers; `overlap` is exactly as stale as it says."""

from __future__ import annotations

import copy

import pytest
import torch
from in_process import parameters_of, run_in_threads
from plans import launch_plan, program_of, training_plan
from point_mass import Actor, Learner, PointMass

from gmiflow.api import StageContext
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.execution.replay import BROKEN_PROMISE, WARM_UP, Part
from gmiflow.runtime.noise import CounterNoise

ITERATIONS = 7


def train(execution: str, max_staleness: int = 0, gmis: int = 1):
    mode = "async" if max_staleness else "sync"
    training = training_plan(
        num_env=32, iterations=ITERATIONS, execution=execution, max_staleness=max_staleness, mode=mode
    )
    runtimes, collectors, errors = run_in_threads(launch_plan(training, gmis=gmis))
    assert not errors, errors
    return runtimes, collectors


@pytest.mark.parametrize("execution", ["graph", "overlap"])
def test_without_staleness_every_lowering_gives_the_weights_of_eager(execution):
    (eager,), (expected,) = train("eager")
    (other,), (collector,) = train(execution)
    assert torch.equal(parameters_of(other), parameters_of(eager))
    assert [(p.iteration, p.episodes, p.return_sum, p.metrics) for p in collector.of("Progress")] == [
        (p.iteration, p.episodes, p.return_sum, p.metrics) for p in expected.of("Progress")
    ]


def test_a_lowering_says_why_a_part_stays_eager():
    (runtime,), _ = train("graph")
    reasons = runtime._execution.lowering
    assert reasons == {
        "collect": "eager: Actor.act may wait for the device (capturable is False)",
        "learn": "eager: Learner.update may wait for the device (capturable is False)",
    }


def test_overlapped_experience_is_one_policy_version_old():
    """Against a plain loop that keeps a history of weights: rollout k acts with the weights after update k - 2."""
    plan = launch_plan(training_plan(num_env=32, iterations=ITERATIONS), gmis=1)
    training = program_of(plan, 0).training
    context = StageContext(
        stage="reference",
        device=torch.device("cpu"),
        num_env=32,
        env_offset=0,
        num_env_total=32,
        horizon=training.horizon,
        stratum=16,
        seed=training.seed,
        params={"lr": 0.01},
        shapes={"O": 4, "A": 2},
        communicator=LocalCollective.alone("reference", 0),
        noise=CounterNoise(seed=training.seed, num_env=32, env_offset=0, device=torch.device("cpu")),
    )
    trained = Actor.make_policy(context)
    history = [copy.deepcopy(trained.state_dict())] * 2
    acting = Actor.make_policy(context)
    actor, learner, simulator = Actor(), Learner(), PointMass()
    actor.setup(_with_policy(context, acting))
    learner.setup(_with_policy(context, trained))
    simulator.setup(context)
    outputs = simulator.reset()
    for _ in range(ITERATIONS):
        acting.load_state_dict(history[-2])
        steps = []
        for _ in range(training.horizon):
            acted = actor.act({"obs": outputs["obs"].clone()})
            outputs = simulator.step(acted)
            steps.append({**acted["experience"], **{k: v.clone() for k, v in outputs.items() if k != "obs"}})
        stacked = {key: torch.stack([step[key] for step in steps]) for key in steps[0]}
        batch = {"experience": stacked, **stacked, "bootstrap": actor.finish({"obs": outputs["obs"]})["bootstrap"]}
        learner.update(batch)
        history.append(copy.deepcopy(trained.state_dict()))
    (runtime,), _ = train("overlap", max_staleness=1)
    expected = torch.cat([p.detach().reshape(-1) for p in trained.parameters()])
    torch.testing.assert_close(parameters_of(runtime), expected, rtol=1e-6, atol=1e-7)
    (eager,), _ = train("eager")
    assert not torch.allclose(parameters_of(eager), expected, rtol=1e-4), "staleness changes the result"


def test_overlap_on_several_gmis_is_overlap_on_one():
    (one,), _ = train("overlap", max_staleness=1)
    several, _ = train("overlap", max_staleness=1, gmis=2)
    for runtime in several:
        torch.testing.assert_close(parameters_of(runtime), parameters_of(one), rtol=1e-5, atol=1e-6)


def _with_policy(context: StageContext, policy: torch.nn.Module) -> StageContext:
    import dataclasses

    return dataclasses.replace(context, policy=policy)


@pytest.mark.gpu
def test_work_that_cannot_be_captured_is_said_to_break_the_promise():
    side = torch.cuda.Stream()
    part = Part("collect", lambda: torch.tensor([1.0, 2.0], device="cuda"), stream=side)
    for _ in range(WARM_UP):
        part()
    with pytest.raises(RuntimeError) as raised:
        part()
    assert raised.value.__notes__ == [BROKEN_PROMISE]
    torch.cuda.synchronize()
