"""A Triton kernel for `gmi_backends.py`; Triton reads kernels from files."""

import triton
import triton.language as tl


@triton.jit
def add_one(numbers, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(numbers + places, tl.load(numbers + places) + 1.0)
