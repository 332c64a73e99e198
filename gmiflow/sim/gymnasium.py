"""Any Gymnasium environment as a simulator: `gymnasium.make_vec` behind the `Simulator` interface.

Parameters of the stage:

* ``id``: the environment's id, for example "Ant-v5";
* ``vectorization``: "sync" (one process) or "async" (one process per environment);
* ``obs_size`` and ``action_size``: what the `.gmi` file declares; checked against the environment.

Observations are flattened to float32. Actions in -1..1 are scaled to a bounded box's limits; of an
unbounded box they are the values themselves; a discrete action is one number that is cut into equal bins.

Finished environments are restarted inside the step that ended them (autoreset mode SAME_STEP), so
``obs`` belongs to the new episode while ``reward``, ``terminated`` and ``truncated`` tell how the
old one ended. Environment k of the whole run is seeded with the base seed + k at every slicing. Gymnasium
cannot save an environment, so a resumed run starts new episodes with seeds of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmiflow.api import Ports, Simulator, StageContext

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "gymnasium is not installed: `pip install 'gymnasium[mujoco]'`", name=missing.name
    ) from missing

__all__ = ["GymnasiumSimulator"]

VECTORIZATIONS = ("sync", "async")


class GymnasiumSimulator(Simulator):
    """A vector of Gymnasium environments on the CPU, with tensors on the stage's device."""

    def setup(self, context: StageContext) -> None:
        """Make the environments.

        Raises:
            ValueError: unknown ``vectorization``, an action or observation space that is not a box (or
                a discrete action), or sizes other than the `.gmi` file declares.
        """
        name = str(context.params["id"])
        vectorization = str(context.params.get("vectorization", "sync"))
        if vectorization not in VECTORIZATIONS:
            raise ValueError(f"unknown vectorization {vectorization!r}; choose one of {', '.join(VECTORIZATIONS)}")
        self._context = context
        env = gymnasium.make_vec(
            name,
            num_envs=context.num_env,
            vectorization_mode=vectorization,
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
        # Both take a seed for every environment, which the base class does not.
        assert isinstance(env, SyncVectorEnv | AsyncVectorEnv)
        self._env = env
        self._actions = _ActionMap(name, self._env.single_action_space)
        space = self._env.single_observation_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"{name}: the observation space is {space}, not a box")
        observation_size = int(np.prod(space.shape))
        _check_size(name, "observation", observation_size, context.params.get("obs_size"))
        _check_size(name, "action", self._actions.size, context.params.get("action_size"))
        # Staging on the host: one conversion to float32, then one copy to the device.
        self._host_obs = torch.zeros(context.num_env, observation_size)
        self._out: dict[str, Tensor] = {
            "obs": torch.zeros(context.num_env, observation_size, device=context.device),
            "reward": torch.zeros(context.num_env, device=context.device),
            "terminated": torch.zeros(context.num_env, dtype=torch.bool, device=context.device),
            "truncated": torch.zeros(context.num_env, dtype=torch.bool, device=context.device),
        }
        self._steps = 0
        self._started = False

    def reset(self) -> Ports:
        """Start all environments, each seeded by its global id."""
        context = self._context
        # After a resume the seeds move on by the steps made, so that old episodes are not repeated.
        first = context.seed + self._steps * context.num_env_total + context.env_offset
        observation, _ = self._env.reset(seed=list(range(first, first + context.num_env)))
        self._started = True
        return {"obs": self._take_observation(observation)}

    def step(self, inputs: Ports) -> Ports:
        """One step of every environment; see `gmiflow.api.Simulator.step`."""
        action = inputs["action"]
        assert isinstance(action, Tensor), "the port action is a tensor"
        observation, reward, terminated, truncated, _ = self._env.step(self._actions(action))
        self._steps += 1
        self._take_observation(observation)
        self._out["reward"].copy_(torch.from_numpy(np.asarray(reward, dtype=np.float32)))
        self._out["terminated"].copy_(torch.from_numpy(terminated))
        # An environment may report both; then it ended for good, and no value is to be bootstrapped.
        self._out["truncated"].copy_(torch.from_numpy(truncated & ~terminated))
        return self._out

    def _take_observation(self, observation: Any) -> Tensor:  # noqa: ANN401 - typed so by Gymnasium
        np.copyto(self._host_obs.numpy(), observation.reshape(self._host_obs.shape), casting="same_kind")
        return self._out["obs"].copy_(self._host_obs)

    def observe(self) -> Ports:
        """The current observation; starts the environments if they are not running."""
        return {"obs": self._out["obs"]} if self._started else self.reset()

    def state_dict(self) -> dict[str, Tensor]:
        """The number of steps made, from which a resumed run takes its seeds."""
        return {"steps": torch.tensor(self._steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the seeds of the steps to come; the episodes themselves start anew."""
        self._steps = int(state["steps"])
        self._started = False

    def close(self) -> None:
        """Close the environments and their processes."""
        self._env.close()


class _ActionMap:
    """Turns actions in -1..1 into what the environments' action space takes."""

    def __init__(self, name: str, space: spaces.Space[Any]) -> None:
        self._space = space
        if isinstance(space, spaces.Discrete):
            self.size = 1
            return
        if not isinstance(space, spaces.Box):
            raise ValueError(f"{name}: the action space is {space}, neither a box nor discrete")
        self.size = int(np.prod(space.shape))
        self._bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())

    def __call__(self, action: Tensor) -> np.ndarray[Any, Any]:
        """Actions of shape [num_env, ...] from f32 [num_env, A]."""
        values = action.detach().to("cpu", torch.float32).numpy()
        if isinstance(self._space, spaces.Discrete):
            unit = (np.clip(values[:, 0], -1.0, 1.0) + 1.0) / 2.0
            bins = np.minimum((unit * self._space.n).astype(np.int64), int(self._space.n) - 1)
            return bins + int(self._space.start)
        assert isinstance(self._space, spaces.Box)
        values = values.reshape(-1, *self._space.shape)
        if self._bounded:
            low, high = self._space.low, self._space.high
            values = low + (np.clip(values, -1.0, 1.0) + 1.0) * 0.5 * (high - low)
        return values.astype(self._space.dtype, copy=False)


def _check_size(name: str, what: str, actual: int, declared: object) -> None:
    """Raise when the `.gmi` file declares another size than the environment has."""
    if declared is not None and declared != actual:
        raise ValueError(f"{name}: the {what} has size {actual}, but the .gmi file declares {declared}")
