"""MuJoCo Warp behind the `Engine` interface: the GPU engine, and on the CPU a reference for tests.

Zero-copy: the engine's tensors are `wp.to_torch` views of Warp's arrays. A step launches kernels on
torch's current stream and waits for nothing, so the runtime may capture it in a `torch.cuda.graph`:

* while torch captures, the capture is registered with Warp for the length of the step
  (`wp.capture_begin(external=True)`);
* scratch arrays of a step come from torch's allocator, see `_TorchAllocator`;
* the solver makes all its iterations instead of asking the device after each whether to go on
  (``graph_conditional = False``). Asking would synchronise outside of a capture; inside, the conditional
  node would suspend torch's capture, and with it torch's private memory pool;
* sensors are computed in the last substep only, the one whose values tasks read.

Contacts and constraints live in buffers of fixed size. They are sized from a short trial in MuJoCo with
random controls; what did not fit is counted by `diagnostics`.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from gmiflow.api import Floats, Integers
from gmiflow.sim.base import Engine, EngineSpec

__all__ = ["MjwarpEngine", "measure_buffers"]

_STATE = ("qpos", "qvel", "qacc_warmstart")

_TRIAL_WORLDS, _TRIAL_STEPS = 8, 250
_TRIAL_MARGIN = 2.0
_ROUND_TO = 8

_OVERFLOWS = {
    "constraints": mjw.OverflowType.NEFC | mjw.OverflowType.NJMAX_NNZ,
    "contacts": mjw.OverflowType.BROADPHASE | mjw.OverflowType.NARROWPHASE | mjw.OverflowType.CCD,
}
"""Overflows worth reporting; reaching the solver's iteration limit is by design and is not."""


def measure_buffers(model: mujoco.MjModel, substeps: int) -> tuple[int, int]:
    """Contacts per world (on average) and constraints per world (at most) to allocate.

    Runs MuJoCo with random controls, held for ``substeps`` physics steps each, until the body has fallen into
    heaps, and doubles the most that was seen. Every other run begins in the default state, the rest
    in the model's keyframes: some touch what random controls would not reach.
    """
    generator = np.random.default_rng(0)
    data = mujoco.MjData(model)
    low, high = model.actuator_ctrlrange.T if model.actuator_ctrllimited.all() else (-1.0, 1.0)
    contacts = constraints = 0
    for world in range(_TRIAL_WORLDS):
        mujoco.mj_resetData(model, data)
        if model.nkey and world % 2:
            mujoco.mj_resetDataKeyframe(model, data, world // 2 % model.nkey)
        for _ in range(_TRIAL_STEPS):
            data.ctrl[:] = generator.uniform(low, high, model.nu)
            for _ in range(substeps):
                mujoco.mj_step(model, data)
                contacts = max(contacts, data.ncon)
                constraints = max(constraints, data.nefc)
    return _padded(contacts), _padded(constraints)


def _padded(most: int) -> int:
    """``most`` with the margin, rounded up to a multiple of `_ROUND_TO`."""
    return -(-int(most * _TRIAL_MARGIN + 1) // _ROUND_TO) * _ROUND_TO


class MjwarpEngine(Engine):
    """MuJoCo Warp on a GPU, or for tests on the CPU."""

    masked = True

    def __init__(self, spec: EngineSpec) -> None:
        """Compile the model and make the worlds. The first step compiles kernels, which takes a minute."""
        # Warp reports kernel loads on the standard output, which belongs to data.
        wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
        wp.init()
        self.model = _model_without_views(spec.model_path)
        self._substeps = spec.substeps
        self._device = _with_index(spec.device)
        self._warp_device = wp.device_from_torch(self._device)
        self.capturable = spec.device.type == "cuda"
        contacts, constraints = measure_buffers(self.model, spec.substeps)
        with wp.ScopedDevice(self._warp_device):
            self._model = mjw.put_model(self.model)
            self._data = mjw.make_data(self.model, nworld=spec.num_env, nconmax=contacts, njmax=constraints)
        # A full buffer is read from the overflow words; printf from a kernel can fill an undrained pipe and hang.
        self._model.opt.warn_overflow = 0
        self._model.opt.graph_conditional = False
        # Newton's method starts from the last acceleration and needs neither the unconstrained one nor its
        # factorisation. Worlds without a constraint take one exact step.
        self._model.opt.run_qacc_smooth = False
        self._views = {name: wp.to_torch(getattr(self._data, name)) for name in _STATE}
        self.qpos, self.qvel = self._views["qpos"], self._views["qvel"]
        self.ctrl = wp.to_torch(self._data.ctrl)
        self.derived = {name: wp.to_torch(getattr(self._data, name)) for name in spec.derived}
        self._scratch = _TorchAllocator(self._device)
        self._streams: dict[int, wp.Stream] = {}
        # The arrays were made on Warp's stream; from here on everything runs on torch's.
        wp.synchronize_device(self._warp_device)

    def step(self) -> None:
        """Enqueue the substeps of one control step on torch's current stream."""
        if not self.capturable:
            with wp.ScopedDevice(self._warp_device):
                self._advance()
            return
        stream = self._current_stream()
        with (
            wp.ScopedStream(stream, sync_enter=False),
            wp.ScopedAllocator(self._warp_device, self._scratch),
            _registered_capture(stream),
        ):
            self._advance()

    def _advance(self) -> None:
        """Launch the substeps; sensors are off in all but the last."""
        option = self._model.opt
        flags = option.disableflags
        option.disableflags = flags | int(mjw.DisableBit.SENSOR)
        try:
            for _ in range(self._substeps - 1):
                self._substep()
        finally:
            option.disableflags = flags
        self._substep()

    def _substep(self) -> None:
        """Launch one physics step.

        MuJoCo Warp 4.0 builds the constraints before it computes body velocities, so the velocity term of an
        equality constraint would lag by one substep, and MuJoCo's does not. Computing the velocities first
        makes the two agree to float32's precision.
        """
        if self.model.neq:
            mjw.kinematics(self._model, self._data)
            mjw.com_pos(self._model, self._data)
            mjw.com_vel(self._model, self._data)
        mjw.step(self._model, self._data)

    def _current_stream(self) -> wp.Stream:
        """Torch's current stream as a Warp stream; one Warp object per stream, which captures are keyed by."""
        stream = torch.cuda.current_stream(self._device)
        known = self._streams.get(stream.cuda_stream)
        if known is None:
            known = self._streams[stream.cuda_stream] = wp.stream_from_torch(stream)
        return known

    def write(self, env: Tensor | Integers, qpos: Tensor | Floats, qvel: Tensor | Floats) -> None:
        """Set the state of the simulations ``env``."""
        rows = torch.as_tensor(env, device=self._device)
        self.qpos.index_copy_(0, rows, torch.as_tensor(qpos, device=self._device))
        self.qvel.index_copy_(0, rows, torch.as_tensor(qvel, device=self._device))
        self._views["qacc_warmstart"].index_fill_(0, rows, 0.0)

    def write_where(self, mask: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Set the state of the simulations where ``mask`` holds."""
        column = mask.unsqueeze(1)
        torch.where(column, qpos, self.qpos, out=self.qpos)
        torch.where(column, qvel, self.qvel, out=self.qvel)
        self._views["qacc_warmstart"].masked_fill_(column, 0.0)

    def state_dict(self) -> dict[str, Tensor]:
        """Positions, velocities and warm start in float32."""
        return {name: view.clone() for name, view in self._views.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        for name, view in self._views.items():
            view.copy_(state[name])

    def diagnostics(self) -> dict[str, Any]:
        """Buffer sizes per world, and how many worlds ever had more contacts or constraints than fit."""
        words = wp.to_torch(self._data.overflow)
        counts = {
            f"overflow_{name}": int(torch.count_nonzero(words.bitwise_and(int(bits))))
            for name, bits in _OVERFLOWS.items()
        }
        per_world = self._data.naconmax // self._data.nworld
        return {"contacts_per_world": per_world, "constraints_per_world": self._data.njmax, **counts}

    def close(self) -> None:
        """Wait for the device, so that nothing in flight uses memory that is about to be freed."""
        wp.synchronize_device(self._warp_device)


class _TorchAllocator:
    """Gives Warp's scratch arrays memory of torch's caching allocator, on torch's current stream.

    A physics step makes and drops some thirty scratch arrays. Warp's own pool would turn each into a node of a
    captured graph that allocates and one that frees, in the middle of the chain of kernels; memory from torch
    is found once, in the graph's private pool, and costs a replay nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocate(self, size_in_bytes: int) -> int:
        """A device pointer."""
        return torch.cuda.caching_allocator_alloc(size_in_bytes, self._device)

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Give it back; kernels enqueued before on the same stream may still use it, as torch's own tensors."""
        torch.cuda.caching_allocator_delete(ptr)


def _model_without_views(path: Path) -> mujoco.MjModel:
    """The body without cameras and lights, whose places would be worked out by a kernel each in every substep."""
    spec = mujoco.MjSpec.from_file(str(path))
    for view in (*spec.cameras, *spec.lights):
        spec.delete(view)
    return spec.compile()


def _with_index(device: torch.device) -> torch.device:
    """The device with its number, which Warp needs: a plain "cuda" is the current GPU."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _registered_capture(stream: wp.Stream) -> AbstractContextManager[Any]:
    """Tell Warp about a capture that torch has begun on ``stream``; nothing when there is none."""
    if not torch.cuda.is_current_stream_capturing():
        return nullcontext()
    return wp.ScopedCapture(stream=stream, force_module_load=False, external=True)
