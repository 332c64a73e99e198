"""Simulators with their ports on a GPU: one brings torch, one nothing but NumPy and the CUDA driver."""

import ctypes
import struct
import sys


class TorchMass:
    """obs counts the steps in one column and holds the action in two; odd environments end at every step."""

    on_gpu = True

    def setup(self, context):
        import torch

        self.torch, self.context, self.out = torch, context, context.buffers
        self.steps = torch.zeros(context.num_env, device=context.device)
        self.odd = torch.arange(context.num_env, device=context.device) % 2

    def reset(self):
        return {"obs": self.torch.zeros(self.context.num_env, 4, dtype=self.torch.float64, device=self.context.device)}

    def step(self, inputs):
        assert inputs["action"].is_cuda
        self.steps += 1
        obs = self.torch.zeros_like(self.out["obs"])
        obs[:, 0] = self.steps
        obs[:, 1:3] = inputs["action"]
        if self.context.params.get("shape"):
            obs = obs[:3]
        self.out["reward"].copy_(inputs["action"].sum(1))
        return {"obs": obs, "reward": self.out["reward"], "terminated": self.odd, "truncated": self.odd * 0}


class DriverMass:
    """Without torch: fills its ports by the driver, at the addresses that the arrays tell."""

    on_gpu = True

    def setup(self, context):
        assert "torch" not in sys.modules
        self.out, self.driver, self.steps = context.buffers, ctypes.CDLL("libcuda.so.1"), 0

    def fill(self, port, value):
        array = self.out[port].__cuda_array_interface__
        words = 1
        for size in array["shape"]:
            words *= size
        (bits,) = struct.unpack("I", struct.pack("f", value))
        status = self.driver.cuMemsetD32_v2(
            ctypes.c_uint64(array["data"][0]), ctypes.c_uint(bits), ctypes.c_size_t(words)
        )
        assert status == 0, status

    def reset(self):
        self.fill("obs", 0.5)
        return self.out

    def step(self, inputs):
        self.steps += 1
        self.fill("obs", float(self.steps))
        self.fill("reward", -float(self.steps))
        return self.out
