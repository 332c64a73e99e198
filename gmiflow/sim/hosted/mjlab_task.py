"""Any task that is registered with mjlab, in an environment of its own: mjlab pins another MuJoCo (`std.sim.mjlab`).

Imports nothing of gmiflow: the shim loads this file in that interpreter. Written for mjlab 1.6.
"""

from __future__ import annotations

# pyright: reportMissingImports=false
# mjlab is not installed where gmiflow is.
from typing import Any

MISSING = (
    "mjlab cannot be imported in this interpreter ({}): `pip install mjlab` there. It needs Python 3.10 or later, "
    "and an environment without gmiflow, because the two want different versions of MuJoCo."
)


class MjlabTask:
    """A manager-based environment of mjlab. On a GPU its tensors stay there."""

    PARAMS = ("task", "obs_size", "action_size", "group")
    on_gpu = True

    def setup(self, context: Any) -> None:  # noqa: ANN401 - the namespace that the shim makes
        """Make the environment.

        Raises:
            ImportError: without mjlab.
            ValueError: no such task or group of observations, or sizes other than the `.gmi` file declares.
        """
        try:
            import mjlab.tasks  # noqa: F401 - registers the tasks
            import torch
            from mjlab.envs import ManagerBasedRlEnv
            from mjlab.tasks.registry import list_tasks, load_env_cfg
        except ImportError as problem:
            raise ImportError(MISSING.format(problem)) from problem
        self._torch = torch
        params = context.params
        name, known = params["task"], list_tasks()
        if name not in known:
            raise ValueError("mjlab has no task {!r}; it has {}".format(name, ", ".join(known)))
        configuration = load_env_cfg(name)
        configuration.scene.num_envs = context.num_env
        # One generator serves all environments of a process, so slices differ by where they start.
        configuration.seed = context.seed + context.env_offset
        self._finite = configuration.is_finite_horizon
        self._env = ManagerBasedRlEnv(cfg=configuration, device=context.device)
        self._group = params.get("group", "actor")
        self._action_size = params["action_size"]
        groups = self._env.observation_manager.group_obs_dim
        if self._group not in groups:
            raise ValueError(
                "{} has no group of observations {!r}; it has {}".format(name, self._group, ", ".join(groups))
            )
        actual = (int(groups[self._group][0]), int(self._env.action_manager.total_action_dim))
        if actual != (params["obs_size"], self._action_size):
            text = "{}: obs_size is {} and action_size {}, but the .gmi file declares {} and {}"
            raise ValueError(text.format(name, *actual, params["obs_size"], self._action_size))

    def reset(self) -> dict[str, Any]:
        """Start all environments."""
        return {"obs": self._env.reset()[0][self._group]}

    def step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """One control step; environments that ended are started anew in the observations."""
        with self._torch.no_grad():
            action = self._torch.as_tensor(inputs["action"])
            obs, reward, terminated, late, _ = self._env.step(action)
        if self._finite:  # the time limit is the task's own end: nothing would follow
            terminated, late = terminated | late, self._torch.zeros_like(late)
        return {"obs": obs[self._group], "reward": reward, "terminated": terminated, "truncated": late & ~terminated}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
