"""Tensor types as the plan writes them: ``f32[env, 60]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.runtime.failure import NOT_SUPPORTED, PORT_MISMATCH, error

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.float64: "f64"}
_PATTERN = re.compile(r"\s*(\w+)\s*(?:\[([^\]]*)\])?\s*")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of one step: axes are "env" or a size; the `time` axis is dropped."""

    dtype: torch.dtype
    axes: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: str) -> TensorType:
        """Read a type of the plan.

        Raises:
            GMIError: E0710 for an element type or an axis that is not known.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or match[1] not in DTYPES:
            raise error(NOT_SUPPORTED, f"the plan has a tensor type that this runtime does not know: {text}")
        words = [word.strip() for word in (match[2] or "").split(",") if word.strip()]
        if unknown := [word for word in words if word not in ("env", "time") and not word.isdigit()]:
            raise error(NOT_SUPPORTED, f"the plan has the type {text}, but the size of {unknown[0]} is not known")
        return cls(DTYPES[match[1]], tuple(int(w) if w.isdigit() else w for w in words if w != "time"))

    def shape(self, num_env: int) -> tuple[int, ...]:
        """The shape with ``num_env`` for the `env` axis."""
        return tuple(num_env if axis == "env" else int(axis) for axis in self.axes)

    def check(self, value: object, port: str, num_env: int, device: torch.device) -> None:
        """Compare what a stage returned with what its port declares.

        Raises:
            GMIError: E0708 that names the port and both types.
        """
        shape = self.shape(num_env)
        if fits(value, self.dtype, shape, device.type):
            return
        returned = type(value).__name__
        if isinstance(value, Tensor):
            returned = f"{describe(value.dtype, tuple(value.shape))} on {value.device.type}"
        declared = f"{describe(self.dtype, shape)} on {device.type}"
        raise error(PORT_MISMATCH, f"{port} is declared {declared}, but the stage returned {returned}")


def fits(value: object, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> bool:
    """Whether a value is a tensor of that type on that kind of device; cheap enough for every step."""
    return isinstance(value, Tensor) and value.dtype is dtype and value.shape == shape and value.device.type == device


def describe(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    """The type in the notation of the language, with numbers for all axes."""
    return f"{_NAMES.get(dtype, str(dtype))}[{', '.join(map(str, shape))}]"
