import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from gmiflow.sim.gymnasium import GymnasiumSimulator
from gmiflow.sim.standalone import standalone_context


class Countdown(gymnasium.Env):
    """Starts at a random number of steps to go; says how many are left, ends with reward 10 or is cut off."""

    observation_space = spaces.Box(-np.inf, np.inf, (1, 2), np.float64)
    action_space = spaces.Box(np.float32([0.0, -4.0]), np.float32([10.0, 4.0]))

    def __init__(self, cut_off=False):
        self.cut_off = cut_off
        self.last_action = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 6))
        self.serial = float(self.np_random.random())
        return np.array([[self.left, self.serial]]), {}

    def step(self, action):
        self.last_action = action
        self.left -= 1
        over = self.left == 0
        ends, cut = over and not self.cut_off, over and self.cut_off
        return np.array([[self.left, self.serial]]), 10.0 if over else 1.0, ends, cut, {}


class Choice(gymnasium.Env):
    """Observes the discrete action it was given."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.array([action], np.float32), 0.0, False, False, {}


@pytest.fixture(autouse=True, scope="module")
def registered():
    gymnasium.register("gmiflow/Countdown-v0", Countdown)
    gymnasium.register("gmiflow/CutOff-v0", Countdown, kwargs={"cut_off": True})
    gymnasium.register("gmiflow/Choice-v0", Choice)
    yield
    for name in ("Countdown", "CutOff", "Choice"):
        del gymnasium.registry[f"gmiflow/{name}-v0"]


def make(name, num_env=4, **options):
    simulator = GymnasiumSimulator()
    simulator.setup(standalone_context(num_env, id=name, **options))
    return simulator


def test_observations_are_flat_float32():
    simulator = make("gmiflow/Countdown-v0")
    obs = simulator.reset()["obs"]
    assert obs.shape == (4, 2) and obs.dtype == torch.float32
    assert torch.equal(simulator.observe()["obs"], obs)


@pytest.mark.parametrize("name", ["gmiflow/Countdown-v0", "gmiflow/CutOff-v0"])
def test_the_observation_after_an_end_is_that_of_the_next_episode(name):
    simulator = make(name)
    before = simulator.reset()["obs"].clone()
    ends = 0
    for _ in range(30):
        out = simulator.step({"action": torch.zeros(4, 2)})
        over = before[:, 0] == 1.0
        assert torch.equal(out["terminated"], over & (name == "gmiflow/Countdown-v0"))
        assert torch.equal(out["truncated"], over & (name == "gmiflow/CutOff-v0"))
        assert torch.equal(out["reward"], torch.where(over, 10.0, 1.0))
        assert torch.equal(out["obs"][~over, 0], before[~over, 0] - 1.0)
        assert (out["obs"][over, 0] >= 2.0).all() and (out["obs"][over, 1] != before[over, 1]).all()
        ends += int(over.sum())
        before = out["obs"].clone()
    assert ends > 12


def test_bounded_actions_are_scaled_to_the_box():
    simulator = make("gmiflow/Countdown-v0", 3)
    simulator.reset()
    simulator.step({"action": torch.tensor([[-1.0, -1.0], [0.0, 0.5], [7.0, 1.0]])})
    given = [env.unwrapped.last_action.tolist() for env in simulator._env.envs]
    assert given == [[0.0, -4.0], [5.0, 2.0], [10.0, 4.0]]


def test_discrete_actions_are_bins_of_one_number():
    simulator = make("gmiflow/Choice-v0", 6)
    simulator.reset()
    out = simulator.step({"action": torch.tensor([[-9.0], [-1.0], [-0.34], [0.0], [0.34], [1.0]])})
    assert out["obs"][:, 0].tolist() == [5, 5, 5, 6, 7, 7]


def test_environment_k_is_the_same_in_every_slice():
    whole = make("gmiflow/Countdown-v0", 8)
    parts = [make("gmiflow/Countdown-v0", 4, env_offset=offset, num_env_total=8) for offset in (0, 4)]
    assert torch.equal(whole.reset()["obs"], torch.cat([part.reset()["obs"] for part in parts]))
    for _ in range(20):
        out = whole.step({"action": torch.zeros(8, 2)})
        halves = [part.step({"action": torch.zeros(4, 2)}) for part in parts]
        for name, tensor in out.items():
            assert torch.equal(tensor, torch.cat([half[name] for half in halves])), name


def test_a_resumed_run_plays_other_episodes():
    first = make("gmiflow/Countdown-v0")
    start = first.reset()["obs"].clone()
    first.step({"action": torch.zeros(4, 2)})
    second = make("gmiflow/Countdown-v0")
    second.load_state_dict(first.state_dict())
    assert not torch.equal(second.observe()["obs"][:, 1], start[:, 1])


def test_a_real_environment_and_processes():
    simulator = make("CartPole-v1", 2, vectorization="async", obs_size=4, action_size=1)
    simulator.reset()
    ended = 0
    for _ in range(40):
        out = simulator.step({"action": torch.ones(2, 1)})
        ended += int(out["terminated"].sum())
        assert (out["obs"][out["terminated"]].abs() <= 0.05).all()
    assert ended >= 4
    simulator.close()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"id": "CartPole-v1", "obs_size": 5}, "CartPole-v1: the observation has size 4, but the .gmi file declares 5"),
        ({"id": "CartPole-v1", "action_size": 2}, "CartPole-v1: the action has size 1, but the .gmi file declares 2"),
        (
            {"id": "CartPole-v1", "vectorization": "threads"},
            "unknown vectorization 'threads'; choose one of sync, async",
        ),
        ({"id": "Blackjack-v1"}, "the observation space is Tuple"),
    ],
)
def test_what_does_not_fit_is_said(params, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        GymnasiumSimulator().setup(standalone_context(2, **params))
