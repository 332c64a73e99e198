"""rsl_rl's PPO on a simulator of gmiflow: the adapter and the runner of the training benchmarks.

rsl_rl itself is used as it ships. What is ours is the `VecEnv`: it steps the simulator either by
calling it, or by replaying one CUDA graph that holds the whole control step (physics, observation,
reward, restarts), which is what users of GPU simulators with built-in graphs have.
"""

# pyright: reportMissingImports=false, reportGeneralTypeIssues=false
# rsl_rl and tensordict are optional; without them this module is not imported.

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import Tensor

from gmiflow.api import Ports, Simulator

__all__ = ["EpisodeSums", "SimulatorEnv", "learn", "make_runner", "policy_of"]

WARM_UP_STEPS = 3
"""Plain steps before the capture."""


class EpisodeSums:
    """Episodes, their returns and lengths, summed on the device step by step without waiting for it."""

    def __init__(self, num_env: int, device: torch.device | str) -> None:
        """For ``num_env`` environments on ``device``; `totals` are episodes, sum of returns and sum of lengths."""
        self.totals = torch.zeros(3, dtype=torch.float64, device=device)
        self._running = torch.zeros(2, num_env, device=device)
        self._ended = torch.zeros(3, num_env, device=device)

    def add(self, reward: Tensor, done: Tensor) -> None:
        """Count one step of all environments."""
        self._running[0] += reward
        self._running[1] += 1.0
        self._ended[0] = done
        torch.mul(self._running, self._ended[0], out=self._ended[1:])
        self.totals += self._ended.sum(1)
        self._running -= self._ended[1:]


class SimulatorEnv(VecEnv):
    """A simulator as rsl_rl's environment."""

    def __init__(
        self,
        simulator: Simulator,
        *,
        num_env: int,
        action_size: int,
        device: str | torch.device,
        reward_scale: float,
        count: Callable[[Tensor, Tensor], None],
        graphed: bool = False,
    ) -> None:
        """Start the simulator, which is set up already.

        Args:
            simulator: with ports "obs" and "action".
            num_env: environments.
            action_size: floats per action.
            device: where they live.
            reward_scale: factor on the reward that rsl_rl sees.
            count: called with (reward, done) of every step, as part of the step: it must not wait for the device.
            graphed: replay the step as one CUDA graph.
        """
        self.num_envs, self.num_actions, self.device, self.cfg = num_env, action_size, device, {}
        self.max_episode_length = 1000  # rsl_rl asks for it where episodes begin at random lengths, which is not used
        self.episode_length_buf = torch.zeros(num_env, dtype=torch.long, device=device)
        self._simulator, self._scale, self._count = simulator, reward_scale, count
        self._action = torch.zeros(num_env, action_size, device=device)
        self._done = torch.zeros(num_env, dtype=torch.bool, device=device)
        self._reward = torch.zeros(num_env, device=device)
        self._obs = _tensor(simulator.reset(), "obs")
        self._time_outs = self._done
        self._graph = self._capture() if graphed else None

    def _advance(self) -> None:
        out = self._simulator.step({"action": self._action})
        reward, truncated = _tensor(out, "reward"), _tensor(out, "truncated")
        torch.logical_or(_tensor(out, "terminated"), truncated, out=self._done)
        torch.mul(reward, self._scale, out=self._reward)
        self._count(reward, self._done)
        self._obs, self._time_outs = _tensor(out, "obs"), truncated

    def _capture(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._advance()
        return graph

    def get_observations(self) -> TensorDict:
        """The current observation; a copy, because rsl_rl stores it after the next step."""
        return TensorDict({"policy": self._obs.clone()}, batch_size=[self.num_envs])

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Tensor]]:
        """One control step."""
        self._action.copy_(actions)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._advance()
        return self.get_observations(), self._reward, self._done, {"time_outs": self._time_outs}


def _tensor(ports: Ports, name: str) -> Tensor:
    value = ports[name]
    assert isinstance(value, Tensor), f"the port {name} is a tensor"
    return value


def make_runner(
    env: SimulatorEnv,
    *,
    horizon: int,
    epochs: int,
    minibatches: int,
    hidden: Sequence[int],
    lr: float,
    kl_target: float,
    seed: int,
    compile_mode: str | None = None,
    init_std: float = 1.0,
    algorithm: Mapping[str, Any] | None = None,
) -> OnPolicyRunner:
    """`OnPolicyRunner` with the settings that gmiflow's PPO has; nothing is logged.

    Args:
        env: `SimulatorEnv`.
        horizon: steps per iteration.
        epochs: passes over a rollout.
        minibatches: parts of a pass.
        hidden: units of the hidden layers; actor and critic have a network each.
        lr: learning rate at the start.
        kl_target: KL divergence that the learning rate is adapted to; 0 keeps the learning rate.
        seed: of torch's global generator.
        compile_mode: rsl_rl's own option to run the networks through torch.compile.
        init_std: standard deviation of the action at the start.
        algorithm: further settings of rsl_rl's PPO, by its own names.
    """
    network = {"class_name": "rsl_rl.models.MLPModel", "hidden_dims": list(hidden), "activation": "elu"}
    network["obs_normalization"] = True
    gaussian = {"class_name": "rsl_rl.modules.GaussianDistribution", "init_std": init_std, "std_type": "log"}
    config = {
        "num_steps_per_env": horizon,
        "save_interval": 1_000_000,
        "check_for_nan": False,
        "torch_compile_mode": compile_mode,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": gaussian},
        "critic": network,
        "algorithm": {
            "class_name": "rsl_rl.algorithms.PPO",
            "num_learning_epochs": epochs,
            "num_mini_batches": minibatches,
            "clip_param": 0.2,
            "gamma": 0.99,
            "lam": 0.95,
            "value_loss_coef": 1.0,  # our `value_coef` is 2, of half the squared error
            "entropy_coef": 0.0,
            "learning_rate": lr,
            "max_grad_norm": 1.0,
            "schedule": "adaptive" if kl_target > 0 else "fixed",
            "desired_kl": kl_target if kl_target > 0 else None,
            **(algorithm or {}),
        },
    }
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return OnPolicyRunner(env, config, log_dir=None, device=str(env.device))


def learn(runner: OnPolicyRunner, iterations: int) -> None:
    """Make iterations; what the runner prints is dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        runner.learn(iterations)


def policy_of(runner: OnPolicyRunner) -> Callable[[Tensor], Tensor]:
    """The trained policy without exploration, from observations to actions."""
    policy = runner.get_inference_policy()

    def act(observation: Tensor) -> Tensor:
        return policy(TensorDict({"policy": observation}, batch_size=[observation.shape[0]]))

    return act
