"""Episodes of a policy: which count, and what is made of them."""

import math

import pytest
import torch

from gmiflow.api import Simulator
from gmiflow.evaluation.episodes import Arena
from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim.standalone import standalone_context
from gmiflow.tasks.cartpole import CartPole

CPU = torch.device("cpu")


class Clockwork(Simulator):
    """Environment k ends after LENGTHS[k] steps, again and again; the reward is the action plus k."""

    LENGTHS = (3, 5, 30, 40)
    ENDS_BY_TIME = (False, True, True, False)

    def setup(self, context):
        self.steps = torch.zeros(context.num_env, dtype=torch.int64)
        self.lengths = torch.tensor(self.LENGTHS)

    def reset(self):
        self.steps.zero_()
        return {"seen": torch.zeros(4, 1)}

    def step(self, inputs):
        self.steps += 1
        done = self.steps == self.lengths
        by_time = torch.tensor(self.ENDS_BY_TIME)
        self.steps[done] = 0
        return {
            "seen": self.steps.float().unsqueeze(1),
            "reward": inputs["push"][:, 0] + torch.arange(4.0),
            "terminated": done & ~by_time,
            "truncated": done & by_time,
        }


@pytest.fixture
def arena():
    simulator = Clockwork()
    simulator.setup(standalone_context(4))
    return Arena(simulator, num_env=4, device=CPU, observation="seen", action="push")


def test_every_environment_makes_one_episode(arena):
    for _ in range(2):  # a policy after the other
        outcome = arena.play(lambda seen: torch.ones(4, 1), max_steps=1000)
        assert outcome.lengths == (3, 5, 30, 40)
        assert outcome.returns == (3.0, 10.0, 90.0, 160.0)
        assert outcome.mean_return == pytest.approx(263 / 4)
        assert outcome.mean_length == pytest.approx(78 / 4)
        assert (outcome.survived, outcome.survival, outcome.unfinished) == (2, 0.5, 0)
        assert (dict(outcome.measures), outcome.solved) == ({}, None)


def test_the_policy_sees_the_observation_of_the_step_before(arena):
    # The action is how often the environment has been stepped: 0 + 1 + 2 for the first.
    assert arena.play(lambda seen: seen.clone(), max_steps=50).returns[0] == 3.0


def test_episodes_that_do_not_end_are_left_out(arena):
    outcome = arena.play(lambda seen: torch.ones(4, 1), max_steps=10)
    assert (outcome.lengths, outcome.unfinished) == ((3, 5), 2)
    assert outcome.return_deviation == pytest.approx(math.sqrt(24.5))
    nothing = arena.play(lambda seen: torch.ones(4, 1), max_steps=1)
    assert (nothing.episodes, nothing.mean_return, nothing.survival, nothing.unfinished) == (0, None, None, 4)


def test_a_task_is_measured_and_judged():
    """Without control the pole falls: its mean angle and the steps until then, by hand."""
    task, reference = CartPole(), CartPole()
    for one in (task, reference):
        one.setup(standalone_context(3, seed=7, engine="mujoco"))
    arena = Arena(task, num_env=3, device=CPU)
    outcome = arena.play(lambda obs: torch.zeros(3, 1), max_steps=500)
    angles = [[], [], []]
    reference.watch()
    reference.reset()
    running = [True] * 3
    while any(running):
        out = reference.step({"action": torch.zeros(3, 1)})
        for env in range(3):
            if running[env]:
                angles[env].append(float(reference._measures[0, env]))
                running[env] = not bool(out["terminated"][env])
    assert outcome.lengths == tuple(map(len, angles))
    assert outcome.returns == tuple(float(len(values)) for values in angles)
    expected = sum(sum(values) / len(values) for values in angles) / 3
    assert outcome.measures["pole_angle"] == pytest.approx(expected, rel=1e-6)
    assert (outcome.survived, outcome.solved) == (0, False)
    assert all(values[-1] > math.radians(12.0) for values in angles)
    arena.close()


@pytest.mark.gpu
def test_a_gpu_replays_the_same_episodes():
    """The step is captured after the first calls; what is counted is what a step by step run gives."""
    outcomes = []
    for capturable in (True, False):
        task = CartPole()
        noise = CounterNoise(seed=3, num_env=64, env_offset=0, device=torch.device("cuda"))
        task.setup(standalone_context(64, device="cuda", seed=3, noise=noise))
        task.capturable = capturable
        arena = Arena(task, num_env=64, device=torch.device("cuda"))
        outcomes.append([arena.play(lambda obs: torch.sign(obs[:, 2:3]), max_steps=500) for _ in range(2)])
        arena.close()
    for captured, plain in zip(*outcomes, strict=True):
        assert captured.episodes == plain.episodes == 64
        assert captured.mean_length == pytest.approx(plain.mean_length, rel=0.05)
        assert captured.measures["pole_angle"] == pytest.approx(plain.measures["pole_angle"], rel=0.05)
