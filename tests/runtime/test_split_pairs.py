"""Any number of agents and trainers: without staleness PPO's weights are those of one GMI with all roles."""

from __future__ import annotations

import functools

import pytest
import torch
from in_process import run_in_threads, weights_of

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file

SOURCE = """edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets
simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor(hidden = [8])
trainer   learner = ppo.Learner(epochs = 2, minibatches = %d)
workflow train {
  mode       = %s
  num_env    = 80
  horizon    = 3
  iterations = 2
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights
}
target box { base = targets.cpu(cores = 1), %s }
"""


def weights(mode: str, target: str, minibatches: int) -> dict[str, torch.Tensor]:
    """Of the last GMI after two iterations."""
    text = SOURCE % (minibatches, mode, target)
    options = Options(use_profiles=False)
    done = compile_file("pairs.gmi", options, text=text, hardware=Hardware(cores=1, gpus=()), stop_after="plan")
    assert done.plan is not None, done.diagnostics
    runtimes, _, errors = run_in_threads(done.plan)
    assert errors == []
    return weights_of(runtimes[-1])


@functools.cache
def whole(minibatches: int) -> dict[str, torch.Tensor]:
    """Of one GMI with all roles."""
    return weights("sync", "mapping = dp_only, gmi_per_gpu = 1", minibatches)


# 5 strata of 48 samples: 48 minibatches take one sample of each stratum.
@pytest.mark.parametrize(
    ("agents", "trainers", "minibatches"), [(1, 1, 48), (3, 1, 1), (1, 3, 16), (2, 3, 48), (5, 2, 3), (5, 5, 48)]
)
def test_the_weights_are_those_of_sync(agents: int, trainers: int, minibatches: int) -> None:
    target = f"mapping = ea_t, agents = {agents}, trainers = {trainers}"
    split = weights("async { max_staleness = 0 }", target, minibatches)
    for name, value in whole(minibatches).items():
        if trainers == 1:  # the same sums in the same order
            assert torch.equal(split[name], value), name
        else:
            torch.testing.assert_close(split[name], value, rtol=1e-4, atol=1e-5)
