"""MuJoCo on the CPU: `mujoco.batch.Batch` behind the `Engine` interface.

The batch keeps every simulation as one float64 row and steps the rows on a thread pool; its
results do not depend on the number of threads. The row's fields are strided float64 views, so
each control step makes one conversion of positions, velocities and derived fields to float32 tensors
(each column contiguous, see `by_column`), and one of the controls back.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from gmiflow.api import Floats, Integers
from gmiflow.sim.base import Engine, EngineSpec, by_column

__all__ = ["MujocoEngine"]

_STATE = ("qpos", "qvel", "qacc_warmstart")


class MujocoEngine(Engine):
    """`mujoco.batch.Batch` with a thread pool of ``spec.threads`` threads."""

    capturable = False

    def __init__(self, spec: EngineSpec) -> None:
        """Compile the model and allocate the rows and the float32 tensors.

        Raises:
            ValueError: the device is not the CPU.
        """
        if spec.device.type != "cpu":
            raise ValueError(f"engine mujoco runs on the CPU, not on {spec.device}; use engine = mjwarp or auto")
        self.model = mujoco.MjModel.from_xml_path(str(spec.model_path))
        # A simulation that blows up must not be put back to its first state behind the task's back: the
        # task sees numbers that are not finite, ends the episode and counts it.
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        self._substeps = spec.substeps
        self._batch = Batch(self.model, spec.num_env, max(1, spec.threads))
        # Live float64 views of the batch's rows: a write is the simulation's state at its next step.
        self._arrays = {name: self._batch.bind(name) for name in _STATE}
        self._rows = {name: torch.from_numpy(array) for name, array in self._arrays.items()}
        self.qpos = by_column(spec.num_env, self.model.nq).copy_(self._rows["qpos"])
        self.qvel = by_column(spec.num_env, self.model.nv).copy_(self._rows["qvel"])
        self.ctrl = by_column(spec.num_env, self.model.nu)
        self.derived = {name: by_column(*self._batch.bind(name).shape) for name in spec.derived}
        # NumPy converts: one call per field is cheaper than torch's dispatch, and derived fields are read-only
        # arrays, which torch cannot wrap.
        self._positions = (self._arrays["qpos"], self.qpos.numpy())
        self._velocities = (self._arrays["qvel"], self.qvel.numpy())
        self._inputs = (self._batch.bind("ctrl"), self.ctrl.numpy())
        tensors = {"qpos": self.qpos, "qvel": self.qvel, **self.derived}
        self._outputs = [(tensor.numpy(), self._batch.bind(name)) for name, tensor in tensors.items()]

    def step(self) -> None:
        """Advance every simulation by ``substeps`` physics steps and refresh the tensors."""
        controls, ctrl = self._inputs
        controls[...] = ctrl
        self._batch.step(nstep=self._substeps)
        for tensor, rows in self._outputs:
            tensor[...] = rows

    def write(self, env: Tensor | Integers, qpos: Tensor | Floats, qvel: Tensor | Floats) -> None:
        """Set the state of the simulations ``env``."""
        # Few rows as a rule, for which an assignment in NumPy costs a third of torch's index_copy_.
        rows, positions, velocities = (np.asarray(given) for given in (env, qpos, qvel))
        for array in self._positions:
            array[rows] = positions
        for array in self._velocities:
            array[rows] = velocities
        self._arrays["qacc_warmstart"][rows] = 0.0

    def write_where(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Set the state of the simulations where ``mask`` holds."""
        env = mask.nonzero().squeeze(1)
        self.write(env, qpos.index_select(0, env), qvel.index_select(0, env))

    def state_dict(self) -> dict[str, Tensor]:
        """Positions, velocities and warm start in float64."""
        return {name: self._rows[name].clone() for name in _STATE}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        for name in _STATE:
            self._rows[name].copy_(state[name])
        self.qpos.copy_(self._rows["qpos"])
        self.qvel.copy_(self._rows["qvel"])

    def diagnostics(self) -> dict[str, Any]:
        """Number of MuJoCo warnings by kind since the start, kinds without a warning left out."""
        counts = self._batch.warning[:, :, 1].sum(axis=0)
        names = {
            int(kind): kind.name.removeprefix("mjWARN_").lower() for kind in mujoco.mjtWarning.__members__.values()
        }
        return {f"warning_{names[kind]}": int(count) for kind, count in enumerate(counts) if count}
