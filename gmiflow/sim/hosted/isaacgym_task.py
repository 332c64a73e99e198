"""Tasks of IsaacGymEnvs, by name, in the Python 3.8 that Isaac Gym needs (`std.sim.isaacgym`).

Imports nothing of gmiflow: the shim loads this file in that interpreter. It relies on what IsaacGymEnvs publishes:
`isaacgymenvs.make`, and of a task what `PublishedTask` names. `make check-isaacgym` checks it against the published
types of Isaac Gym (`isaacgym-stubs`).

Isaac Gym starts an ended environment anew at the end of its *next* step. So the observation that comes with the end of
an episode is the last one of the old episode, and what the next action does is thrown away: one sample per episode that
says little. rl_games, which the benchmarks' settings were made for, sees the same.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from isaacgym import gymapi  # pyright: ignore[reportMissingImports] - present where it is checked against the stubs
    from torch import Tensor

MISSING = (
    "{} cannot be imported in this interpreter ({}). Isaac Gym (Preview 4) comes from NVIDIA's developer site, needs "
    "Python 3.6 to 3.8, and is no longer maintained; IsaacGymEnvs is its companion on GitHub. gmiflow's own tasks "
    "(std.tasks) are the same benchmarks on MuJoCo, and std.sim.mjlab has maintained ones."
)


class PublishedTask(Protocol):
    """What the adapter uses of IsaacGymEnvs' `VecTask`."""

    num_envs: int
    num_obs: int
    num_acts: int
    rl_device: str
    gym: gymapi.Gym
    sim: gymapi.Sim

    def reset(self) -> dict[str, Tensor]:
        """Observations by group, as they are in the buffers."""
        ...

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards f32 [num_envs], ends i64 [num_envs], and extras, among them "time_outs"."""
        ...


class IsaacGymTask:
    """A task of IsaacGymEnvs. On a GPU its tensors stay there."""

    PARAMS = ("task", "obs_size", "action_size")
    on_gpu = True

    def setup(self, context: Any) -> None:  # noqa: ANN401 - the namespace that the shim makes
        """Make the task.

        Raises:
            ImportError: without Isaac Gym or IsaacGymEnvs, with where they come from.
            ValueError: sizes other than the `.gmi` file declares.
        """
        preload_python()
        make = find_make()
        import torch  # after isaacgym, which refuses the other order

        self._torch = torch
        params = context.params
        # One generator serves all environments of a process, so slices differ by where they start.
        self._task = make(
            seed=context.seed + context.env_offset,
            task=params["task"],
            num_envs=context.num_env,
            sim_device=context.device,
            rl_device=context.device,
            graphics_device_id=-1,
            headless=True,
            force_render=False,
        )
        sizes = (("observation", self._task.num_obs, "obs_size"), ("action", self._task.num_acts, "action_size"))
        for what, actual, declared in sizes:
            if params[declared] != actual:
                text = "{}: the {} has size {}, but the .gmi file declares {}"
                raise ValueError(text.format(params["task"], what, actual, params[declared]))

    def reset(self) -> dict[str, Any]:
        """The first observations. Isaac Gym fills them in a step, so one is made without action."""
        self._task.reset()
        zero = self._torch.zeros(self._task.num_envs, self._task.num_acts, device=self._task.rl_device)
        return {"obs": self._task.step(zero)[0]["obs"]}

    def step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """One control step; the task clips the actions."""
        action = self._torch.as_tensor(inputs["action"])
        obs, reward, ended, extras = self._task.step(action)
        ended = ended != 0
        late = ended & (extras["time_outs"] != 0) if "time_outs" in extras else self._torch.zeros_like(ended)
        return {"obs": obs["obs"], "reward": reward, "terminated": ended & ~late, "truncated": late}

    def close(self) -> None:
        """Destroy the simulation, which frees its memory on the device."""
        self._task.gym.destroy_sim(self._task.sim)


def preload_python() -> None:
    """Load the shared library of this Python, which Isaac Gym's modules want and `LD_LIBRARY_PATH` often lacks."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    path = os.path.join(folder or "", name or "")
    if os.path.isfile(path) and ".so" in path:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def find_make() -> Callable[..., PublishedTask]:
    """`isaacgymenvs.make`; raises ImportError with where it comes from."""
    try:
        import isaacgym  # noqa: F401 # pyright: ignore[reportMissingImports, reportUnusedImport] - before torch
    except ImportError as problem:
        raise ImportError(MISSING.format("isaacgym", problem)) from problem
    try:
        import isaacgymenvs  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise ImportError(MISSING.format("isaacgymenvs", problem)) from problem
    return isaacgymenvs.make  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - it has no types
