"""CartPole learns from rollouts of an older policy: the return rises with every bound on staleness that is offered."""

from collections import deque
from dataclasses import replace

import pytest
import torch
from rl_support import make_context

from gmiflow.rl.ppo import Actor, Learner
from gmiflow.tasks.cartpole import CartPole

ITERATIONS = 14


class Lagging:
    """A training whose every rollout is exactly ``lag`` versions old: the worst that `max_staleness = lag` admits."""

    def __init__(self, lag: int, correction: str) -> None:
        context = make_context(num_env=64, horizon=32, observation=4, action=1, seed=3)
        context = replace(context, max_staleness=lag)
        parameters = replace(context, params={"hidden": [32, 32], "init_log_std": -0.5})
        self._actor, self._learner, self._simulator = Actor(), Learner(), CartPole()
        self._actor.setup(replace(context, policy=Actor.make_policy(parameters)))
        self._learner.setup(
            replace(
                context,
                policy=Actor.make_policy(parameters),
                params={"lr": 1e-3, "gamma": 0.98, "reward_scale": 0.1, "correction": correction},
            )
        )
        self._simulator.setup(context)
        self._obs = self._simulator.reset()["obs"]
        self._versions = deque([self._weights()], maxlen=lag + 1)

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self._learner.weights().items()}

    def iterate(self) -> int:
        """One rollout and one update; how many episodes ended."""
        self._actor.load_weights(self._versions[0])
        steps, ended = [], 0
        for _ in range(32):
            acted = self._actor.act({"obs": self._obs})
            record = {name: value.clone() for name, value in acted["experience"].items()}
            out = self._simulator.step({"action": acted["action"]})
            signals = {name: out[name].clone() for name in ("reward", "terminated", "truncated")}
            steps.append(record | signals)
            self._obs = out["obs"]
            ended += int((signals["terminated"] | signals["truncated"]).sum())
        stacked = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        batch = {name: stacked.pop(name) for name in signals}
        bootstrap = self._actor.finish({"obs": self._obs})["bootstrap"]
        self._learner.update({**batch, "experience": stacked, "bootstrap": bootstrap})
        self._versions.append(self._weights())
        return ended


@pytest.mark.parametrize(("lag", "correction"), [(1, "clip"), (2, "clip"), (4, "clip"), (4, "vtrace")])
def test_the_return_rises(lag, correction):
    training = Lagging(lag, correction)
    ended = [training.iterate() for _ in range(ITERATIONS)]
    # A step pays 1, so the mean return is the number of steps by that of episodes: it becomes several times as large.
    assert sum(ended[-6:]) / 6 < sum(ended[:2]) / 2 / 2.5
