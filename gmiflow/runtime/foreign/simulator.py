"""`ForeignSimulator`: a class in an interpreter of its own, as any other simulator of its GMI."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmiflow.api import Ports, Simulator, StageContext
from gmiflow.plan import StagePlan, TrainingPlan
from gmiflow.runtime.foreign import shim
from gmiflow.runtime.foreign.cuda_slab import CudaArray, Slab
from gmiflow.runtime.foreign.interpreter import adapter_file, environment, find_interpreter, search_folders
from gmiflow.runtime.foreign.layout import Layout, PortField, lay_out
from gmiflow.runtime.foreign.process import HostProcess, Patience

logger = logging.getLogger(__name__)


class ForeignSimulator(Simulator):
    """Hosts the class of a stage in the interpreter that the stage names.

    A step copies the action into shared memory, signals the host, and waits for its signal. What `step` returns are
    views of that memory on the CPU, and of a slab of the GPU for a class with ``on_gpu``. For another class on a GPU
    they are copies on the device. The host ends with the thread that called `setup`.
    """

    def __init__(self, plan: StagePlan, training: TrainingPlan, patience: Patience | None = None) -> None:
        """Prepare; `setup` starts the interpreter.

        Args:
            plan: the stage, with ``python``.
            training: tells which ports are read.
            patience: how long the host may be silent.
        """
        self._plan = plan
        self._training = training
        self._patience = patience or Patience()
        self._host: HostProcess | None = None
        self._slab: Slab | None = None

    def setup(self, context: StageContext) -> None:
        """Start the interpreter, import the class there, set it up.

        Raises:
            GMIError: E0701, E0708, E0709, E0710, E0717, E0718.
        """
        plan = self._plan
        self._context = context
        layout = lay_out(self._training, context.num_env)
        file, python = adapter_file(plan.entry), find_interpreter(plan)
        host = HostProcess(plan.name, python, environment(os.environ, context.threads), self._patience)
        self._host = host
        weakref.finalize(self, host.kill)  # also when the process ends without `close`
        try:
            facts, _ = host.call("load", entry=plan.entry, file=file, folders=search_folders(plan))
            host.version = facts["python"]
            self._has_diagnostics = facts["has_diagnostics"]
            said = "%s runs in %s: Python %s, NumPy %s"
            logger.info(said, plan.name, plan.python, facts["python"], facts["numpy"])
            self._place(layout, on_gpu=facts["on_gpu"])
        except BaseException:
            host.kill()
            raise
        host.started()

    def _place(self, layout: Layout, *, on_gpu: bool) -> None:
        """Make the memory, the views of it, and have the host map it."""
        assert self._host is not None
        context, device = self._context, self._context.device
        place: dict[str, Any] = {"size": layout.size}
        shared = device.type == "cuda" and on_gpu
        if shared:
            index = device.index or 0
            torch.cuda.init()
            self._slab = Slab(layout.size, index)
            place["slab"] = {"handle": self._slab.export(), "device": index}
        else:
            self._host.grow(layout.size)
        self._inputs = [(field.path, self._view(field)) for field in layout.inputs]
        views = [self._view(field) for field in layout.outputs]
        self._copies: list[tuple[Tensor, Tensor]] = []
        if device.type == "cuda" and not shared:
            copies = [torch.zeros_like(view, device=device) for view in views]
            self._copies = list(zip(copies, views, strict=True))
            views = copies
        fields = [field.to_json() for field in layout.outputs]
        self._outputs = shim.nested(fields, views)
        self._first = list(layout.first)
        self._host.call(
            "setup",
            context=_facts_of(context, str(device) if shared else "cpu"),
            inputs=[field.to_json() for field in layout.inputs],
            outputs=fields,
            **place,
        )

    def _view(self, field: PortField) -> Tensor:
        """The shared tensor of a port."""
        if self._slab is not None:
            array = CudaArray(self._slab.address + field.offset, field.dtype, list(field.shape))
            return torch.as_tensor(array, device=self._context.device)
        assert self._host is not None
        count = int(np.prod(field.shape, dtype=np.int64))
        flat = torch.frombuffer(self._host.memory, dtype=field.type.dtype, count=count, offset=field.offset)
        return flat.reshape(field.shape)

    def reset(self) -> Ports:
        """Start all environments."""
        self._running().call("reset", ports=self._first)
        return self._first_ports()

    def observe(self) -> Ports:
        """The current ports by the class's own `observe`, where it has one; else it starts anew."""
        self._running().call("observe", ports=self._first)
        return self._first_ports()

    def _first_ports(self) -> Ports:
        self._take()
        return {port: self._outputs[port] for port in self._first}

    def step(self, inputs: Ports) -> Ports:
        """One step of every environment; see `gmiflow.api.Simulator.step`."""
        for path, buffer in self._inputs:
            value: Any = inputs
            for name in path:
                value = value[name]
            buffer.copy_(value)
        if self._slab is not None:
            torch.cuda.current_stream(self._context.device).synchronize()
        self._running().step()
        self._take()
        return self._outputs

    def _take(self) -> None:
        """Copy to the device what the host left in the memory of the machine."""
        for copy, view in self._copies:
            copy.copy_(view)

    def state_dict(self) -> dict[str, Tensor]:
        """What the class gives; empty when it cannot be resumed."""
        _, arrays = self._running().call("state_dict")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Hand the class back what it gave."""
        arrays = {name: value.detach().cpu().numpy() for name, value in state.items()}
        self._running().call("load_state_dict", arrays)

    def diagnostics(self) -> dict[str, Any]:
        """The counters of the class, where it has some."""
        if not self._has_diagnostics:
            return {}
        return self._running().call("diagnostics")[0]["diagnostics"]

    def close(self) -> None:
        """Close the class and end its interpreter."""
        if self._host is not None:
            self._host.close()
        if self._slab is not None:
            self._slab.close()
            self._slab = None

    def _running(self) -> HostProcess:
        assert self._host is not None, "`setup` comes first"
        return self._host


def _facts_of(context: StageContext, device: str) -> dict[str, Any]:
    """What the class is told at `setup`."""
    return {
        "num_env": context.num_env,
        "env_offset": context.env_offset,
        "num_env_total": context.num_env_total,
        "seed": context.seed,
        "horizon": context.horizon,
        "params": dict(context.params),
        "threads": context.threads,
        "device": device,
    }
