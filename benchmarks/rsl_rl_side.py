"""rsl_rl's PPO on a simulator of gmiflow: the adapter and the runner that the training benchmarks share.

rsl_rl itself is used as it ships. What is ours is the `VecEnv`: it steps the simulator either by
calling it, or by replaying one CUDA graph that holds the whole control step (physics, observation,
reward, restarts), which is what users of GPU simulators with built-in graphs have.
"""

from __future__ import annotations

import contextlib
import io

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

WARM_UP_STEPS = 3
"""Plain steps before the capture."""


class SimulatorEnv(VecEnv):
    """A simulator as rsl_rl's environment.

    Args:
        simulator: set up already.
        num_env: environments.
        action_size: floats per action.
        device: "cpu" or "cuda".
        reward_scale: factor on the reward that rsl_rl sees.
        count: called with (reward, done) of every step, as part of the step: it must not wait for the device.
        graphed: replay the step as one CUDA graph.
    """

    def __init__(self, simulator, *, num_env, action_size, device, reward_scale, count, graphed=False):
        self.num_envs, self.num_actions, self.device, self.cfg = num_env, action_size, device, {}
        self.max_episode_length = 1000
        self.episode_length_buf = torch.zeros(num_env, dtype=torch.long, device=device)
        self._simulator, self._scale, self._count = simulator, reward_scale, count
        self._action = torch.zeros(num_env, action_size, device=device)
        self._done = torch.zeros(num_env, dtype=torch.bool, device=device)
        self._reward = torch.zeros(num_env, device=device)
        self._obs = simulator.reset()["obs"]
        self._time_outs = self._done
        self._graph = self._capture() if graphed else None

    def _advance(self):
        out = self._simulator.step({"action": self._action})
        torch.logical_or(out["terminated"], out["truncated"], out=self._done)
        torch.mul(out["reward"], self._scale, out=self._reward)
        self._count(out["reward"], self._done)
        self._obs, self._time_outs = out["obs"], out["truncated"]

    def _capture(self):
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

    def get_observations(self):
        """The current observation; a copy, because rsl_rl stores it after the next step."""
        return TensorDict({"policy": self._obs.clone()}, batch_size=[self.num_envs])

    def step(self, actions):
        """One control step."""
        self._action.copy_(actions)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._advance()
        return self.get_observations(), self._reward, self._done, {"time_outs": self._time_outs}


def make_runner(env, *, horizon, epochs, minibatches, hidden, lr, kl_target, seed, compile_mode=None):
    """`OnPolicyRunner` with the settings that gmiflow's PPO has; nothing is logged.

    Args:
        env: `SimulatorEnv`.
        horizon: steps per iteration.
        epochs: passes over a rollout.
        minibatches: parts of a pass.
        hidden: units of the hidden layers; actor and critic have a network each.
        lr: learning rate at the start.
        kl_target: KL divergence that the learning rate is adapted to.
        seed: of torch's global generator.
        compile_mode: rsl_rl's own option to run the networks through torch.compile.
    """
    network = {"class_name": "rsl_rl.models.MLPModel", "hidden_dims": list(hidden), "activation": "elu"}
    network["obs_normalization"] = True
    gaussian = {"class_name": "rsl_rl.modules.GaussianDistribution", "init_std": 1.0, "std_type": "log"}
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
            "value_loss_coef": 1.0,
            "entropy_coef": 0.0,
            "learning_rate": lr,
            "max_grad_norm": 1.0,
            "schedule": "adaptive",
            "desired_kl": kl_target,
        },
    }
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return OnPolicyRunner(env, config, log_dir=None, device=env.device)


def learn(runner, iterations):
    """Make iterations; what the runner prints is dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        runner.learn(iterations)
