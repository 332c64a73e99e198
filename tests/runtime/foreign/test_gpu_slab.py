"""Ports in the memory of a GPU, shared with an interpreter that has torch and with one that has not.

What needs no device pointer is tested without a GPU, too.
"""

import signal
import sys

import numpy as np
import pytest
import torch
from foreign_support import NUM_ENV, make_interpreter, set_up

from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.foreign import cuda_slab, shim

gpu = pytest.mark.gpu


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An interpreter with torch."""
    return make_interpreter(tmp_path_factory.mktemp("whole"), everything=True)


@gpu
def test_torch_on_the_other_side(whole):
    simulator = set_up(whole, "TorchMass", module="hosted_cuda", device="cuda")
    assert float(simulator.reset()["obs"].abs().sum()) == 0.0
    for step in range(1, 4):
        action = torch.full((NUM_ENV, 2), 0.25 * step, device="cuda")
        out = simulator.step({"action": action})
        assert all(value.is_cuda for value in out.values())
        assert out["obs"][:, 0].tolist() == [float(step)] * NUM_ENV
        assert torch.equal(out["obs"][:, 1:3], action) and torch.equal(out["reward"], action.sum(1))
        assert out["terminated"].tolist() == [False, True] * (NUM_ENV // 2)  # integers became bool
    simulator.close()


@gpu
def test_an_interpreter_without_torch(python):
    simulator = set_up(python, "DriverMass", module="hosted_cuda", device="cuda")
    assert simulator.reset()["obs"].unique().tolist() == [0.5]
    for step in (1.0, 2.0):
        out = simulator.step({"action": torch.zeros(NUM_ENV, 2, device="cuda")})
        assert (out["obs"].unique().tolist(), out["reward"].unique().tolist()) == ([step], [-step])
    simulator.close()


@gpu
def test_a_class_for_the_cpu_on_a_gpu(python):
    simulator = set_up(python, device="cuda")
    here = set_up(python)
    assert torch.equal(simulator.reset()["obs"].cpu(), here.reset()["obs"])
    for value in (-1.0, 0.5):
        there = simulator.step({"action": torch.full((NUM_ENV, 2), value, device="cuda")})
        expected = here.step({"action": torch.full((NUM_ENV, 2), value)})
        assert all(torch.equal(there[port].cpu(), expected[port]) for port in expected)
        assert there["obs"].is_cuda
    simulator.close()
    here.close()


@gpu
def test_failures_leave_the_gpu_usable(whole):
    simulator = set_up(whole, "TorchMass", module="hosted_cuda", device="cuda", shape=True)
    action = {"action": torch.zeros(NUM_ENV, 2, device="cuda")}
    with pytest.raises(GMIError, match=r"sim\.obs is declared torch\.float32\[32, 4\], but the class returned"):
        simulator.step(action)
    simulator._host._process.send_signal(signal.SIGKILL)
    with pytest.raises(GMIError, match="was killed by SIGKILL"):
        simulator.step(action)
    simulator.close()
    assert float(torch.ones(8, device="cuda").sum()) == 8.0


def slab_without_a_device():
    slab = object.__new__(cuda_slab.ImportedSlab)
    slab._mismatch = shim.mismatch
    return slab


def test_values_are_converted_as_the_ports_declare():
    slab, obs, flags = slab_without_a_device(), torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool)
    slab.put("sim.obs", obs, torch.full((3, 2), 1.5, dtype=torch.float64))
    slab.put("sim.terminated", flags, torch.tensor([0, 1, 2]))
    assert obs.tolist() == [[1.5, 1.5]] * 3 and flags.tolist() == [False, True, True]
    with pytest.raises(
        shim.PortMismatch, match=r"sim\.obs is declared torch\.float32\[3, 2\].*returned torch\.float32\[2\]"
    ):
        slab.put("sim.obs", obs, torch.zeros(2))
    with pytest.raises(shim.PortMismatch, match=r"returned torch\.float32"):
        slab.put("sim.terminated", flags, torch.zeros(3))


class LateTorch:
    """Loads torch in `setup`, as the adapters do."""

    def setup(self, context):
        self.out = context.buffers
        assert isinstance(self.out["obs"], cuda_slab.CudaArray)
        sys.modules["torch"] = torch

    def step(self, inputs):
        self.out["obs"].copy_(inputs["action"] * 2)
        return self.out


def test_ports_are_tensors_as_soon_as_the_class_has_loaded_torch(monkeypatch):
    tensors = {0: torch.full((3,), 1.5), 256: torch.zeros(3)}  # where a GPU would have the ports
    monkeypatch.setattr(torch, "as_tensor", lambda array, **_: tensors[array.address])
    monkeypatch.delitem(sys.modules, "torch")
    slab, host = slab_without_a_device(), object.__new__(shim.Host)
    slab._address, slab._device, slab.settle = 0, 0, lambda: None
    host._simulator = LateTorch()
    host._open = lambda **place: slab
    ports = [{"label": f"sim.{name}", "path": [name], "dtype": "f32", "shape": [3]} for name in ("action", "obs")]
    action, obs = ({**port, "offset": 256 * place} for place, port in enumerate(ports))
    host._setup({}, context={}, inputs=[action], outputs=[obs], slab={})
    host._store(host._simulator.step(host._inputs))
    assert tensors[256].tolist() == [3.0] * 3


def test_an_array_says_where_and_what_it_is():
    array = cuda_slab.CudaArray(0x7F0000000100, "bool", [16, 3])
    assert (array.dtype, array.bytes) == (np.dtype(bool), 48)
    interface = {"shape": (16, 3), "typestr": "|b1", "data": (0x7F0000000100, False), "version": 2}
    assert array.__cuda_array_interface__ == interface
    with pytest.raises(
        shim.PortMismatch, match=r"sim\.obs is declared bool\[16, 3\], but the class returned float64\[2\]"
    ):
        slab_without_a_device().put("sim.obs", array, [1.0, 2.0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_without_a_driver_the_slab_says_so():
    with pytest.raises(cuda_slab.CudaError, match=r"there is no CUDA driver here|cuInit"):
        cuda_slab.Slab(4096, 0)
