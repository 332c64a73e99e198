"""Environments of Gymnasium, or of its predecessor Gym from 0.26, in an interpreter of their own.

Imports nothing of gmiflow and needs Python 3.8: the shim loads this file there (`std.sim.gymnasium`, `Hosted`).
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


class GymEnvironments:
    """One environment after the other, restarted in the step that ends an episode.

    Actions in -1..1 are scaled to a bounded box's limits; of an unbounded box they are the values themselves; a
    discrete action is one number that is cut into equal bins. Environment k of the whole run is seeded with the base
    seed + k.
    """

    PARAMS = ("id", "package", "obs_size", "action_size")

    def setup(self, context: Any) -> None:  # noqa: ANN401 - the namespace that the shim makes
        """Make the environments; raises ValueError for spaces other than declared."""
        params = context.params
        package = importlib.import_module(params.get("package", "gymnasium"))
        self._envs = [package.make(params["id"]) for _ in range(context.num_env)]
        self._seed = context.seed + context.env_offset
        self._out = context.buffers
        space = self._envs[0].action_space
        self._discrete = hasattr(space, "n")
        self._space = space
        self._bounded = not self._discrete and bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        observed = int(np.prod(self._envs[0].observation_space.shape))
        taken = 1 if self._discrete else int(np.prod(space.shape))
        for what, actual, declared in (("observation", observed, "obs_size"), ("action", taken, "action_size")):
            if params[declared] != actual:
                text = "{}: the {} has size {}, but the .gmi file declares {}"
                raise ValueError(text.format(params["id"], what, actual, params[declared]))

    def reset(self) -> dict[str, Any]:
        """Start every environment with its own seed."""
        for index, env in enumerate(self._envs):
            self._out["obs"][index] = np.ravel(env.reset(seed=self._seed + index)[0])
        return self._out

    def step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """One step of every environment, written into the shared arrays."""
        out = self._out
        for index, env in enumerate(self._envs):
            obs, reward, terminated, truncated, _ = env.step(self._action(inputs["action"][index]))
            if terminated or truncated:
                obs = env.reset()[0]
            out["obs"][index] = np.ravel(obs)
            out["reward"][index] = reward
            out["terminated"][index] = terminated
            out["truncated"][index] = truncated and not terminated
        return out

    def _action(self, values: Any) -> Any:  # noqa: ANN401 - an array or a number, as the space wants it
        """What the action space takes, from numbers in -1..1."""
        space = self._space
        if self._discrete:
            unit = (min(max(float(values[0]), -1.0), 1.0) + 1.0) / 2.0
            return int(getattr(space, "start", 0)) + min(int(unit * space.n), int(space.n) - 1)
        shaped = values.reshape(space.shape)
        if self._bounded:
            shaped = space.low + (np.clip(shaped, -1.0, 1.0) + 1.0) * 0.5 * (space.high - space.low)
        return shaped.astype(space.dtype)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
