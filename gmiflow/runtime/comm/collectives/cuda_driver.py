"""All of `ipc`'s contact with CUDA: what torch does not offer goes to the driver, through cuda-bindings.

Slabs are allocated here and not by torch, whose allocator may cut, move or reuse blocks and whose own IPC counts
references per tensor across processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc  # pyright: ignore[reportMissingImports] - in the extra `gpu`
from torch import Tensor

from gmiflow.cache import user_cache
from gmiflow.runtime.failure import NOT_SUPPORTED, error


def call(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 - what the driver returns
    """Value of a driver call.

    Raises:
        GMIError: E0710 with the driver's words when the call failed.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise error(NOT_SUPPORTED, f"the CUDA driver refused: {text.decode() if text else status}", f"status {status}")
    return values[0] if len(values) == 1 else tuple(values)


@dataclass(frozen=True, slots=True)
class Device:
    """What a member must know of its GPU.

    Attributes:
        uuid: 32 hexadecimal digits; of the MIG instance where there is one.
        sm_count: multiprocessors that this process may use (its MPS share).
        mps: whether this process runs under an MPS server.
        process: number of this process; members with one number have one address space.
    """

    uuid: str
    sm_count: int
    mps: bool
    process: int
    capability: tuple[int, int]


def describe(device: torch.device) -> Device:
    """Look at a GPU; makes its primary context current."""
    handle = make_current(device)
    attribute = driver.CUdevice_attribute
    device_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)  # only the second names MIG instances

    def number(which: driver.CUdevice_attribute) -> int:
        return int(call(driver.cuDeviceGetAttribute(which, handle)))

    return Device(
        uuid=bytes(call(device_uuid(handle)).bytes).hex(),
        sm_count=number(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        mps=bool(number(attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED)),
        process=os.getpid(),
        capability=(
            number(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            number(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
    )


def make_current(device: torch.device) -> Any:  # noqa: ANN401 - CUdevice
    """Give this thread torch's context of ``device`` unless it has one there (it may be a green one)."""
    torch.cuda.init()
    handle = call(driver.cuDeviceGet(device.index or 0))
    if int(call(driver.cuCtxGetCurrent())) == 0 or int(call(driver.cuCtxGetDevice())) != int(handle):
        # retained for good: torch holds the primary context until the process ends
        call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(handle))))
    return handle


def current_stream(device: torch.device) -> int:
    """Handle of the stream that torch enqueues on; this thread gets a context if it has none."""
    make_current(device)
    return torch.cuda.current_stream(device).cuda_stream


def capturing() -> bool:
    """Whether the current stream records a CUDA graph."""
    return torch.cuda.is_current_stream_capturing()


def synchronize(device: torch.device) -> None:
    """Wait for the current stream."""
    torch.cuda.current_stream(device).synchronize()


def device_words(count: int, device: torch.device) -> Tensor:
    """Zeros, i64 [count], private to this process."""
    return torch.zeros(count, dtype=torch.int64, device=device)


def host_words(count: int) -> Tensor:
    """Zeros, i64 [count], in host memory that kernels can write at the same address."""
    return torch.zeros(count, dtype=torch.int64, pin_memory=True)


class Slab:
    """Device memory of one member that its peers map."""

    def __init__(self, size: int) -> None:
        """Allocate ``size`` bytes of zeros."""
        self.size = size
        self.address = int(call(driver.cuMemAlloc(size)))
        call(driver.cuMemsetD8(self.address, 0, size))

    def export(self) -> bytes:
        """The handle that another process on this GPU opens."""
        return bytes(call(driver.cuIpcGetMemHandle(self.address)).reserved)

    def close(self) -> None:
        """Free the memory; all peers have closed it."""
        call(driver.cuMemFree(self.address))


class ImportedSlab:
    """A peer's slab, mapped into this process."""

    def __init__(self, handle: bytes) -> None:
        """Map the slab that ``handle`` names."""
        opened = driver.CUipcMemHandle()
        opened.reserved = handle
        flag = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        self.address = int(call(driver.cuIpcOpenMemHandle(opened, flag.value)))

    def close(self) -> None:
        """Unmap."""
        call(driver.cuIpcCloseMemHandle(self.address))


def write(address: int, data: bytes) -> None:
    """Copy bytes to device memory beside whatever runs; returns when they are there."""
    stream = call(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
    call(driver.cuMemcpyHtoDAsync(address, data, len(data), stream))
    call(driver.cuStreamSynchronize(stream))
    call(driver.cuStreamDestroy(stream))


def read(address: int, size: int) -> bytes:
    """Copy bytes from device memory."""
    buffer = ctypes.create_string_buffer(size)
    call(driver.cuMemcpyDtoH(ctypes.addressof(buffer), address, size))
    return buffer.raw


def copy_rows(target: int, source: int, pitches: tuple[int, int], width: int, rows: int, stream: int) -> None:
    """Enqueue a copy of ``rows`` rows of ``width`` bytes between device memory, of any GPU that is mapped.

    Args:
        target: address.
        source: address.
        pitches: bytes from one row to the next, of the target and of the source.
        width: of a row.
        rows: how many.
        stream: to enqueue on.
    """
    if rows == 1 or pitches == (width, width):
        call(driver.cuMemcpyAsync(target, source, width * rows, stream))
        return
    unified = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED  # the address says which GPU
    job = driver.CUDA_MEMCPY2D()
    job.dstMemoryType, job.dstDevice, job.dstPitch = unified, target, pitches[0]
    job.srcMemoryType, job.srcDevice, job.srcPitch = unified, source, pitches[1]
    job.WidthInBytes, job.Height = width, rows
    call(driver.cuMemcpy2DAsync(job, stream))


class Module:
    """Kernels compiled at run time, all loaded at once: loading one later may wait for kernels that wait for it.

    A library and not a module of the driver: it belongs to no context, so its kernels run on the streams of green
    contexts, too.
    """

    def __init__(self, source: str, constants: dict[str, int], capability: tuple[int, int], names: list[str]) -> None:
        """Compile ``source`` (or take it from the cache) and load the kernels ``names``."""
        code = cubin(source, constants, capability)
        self._library = call(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
        kernels = {name: call(driver.cuLibraryGetKernel(self._library, name.encode())) for name in names}
        for kernel in kernels.values():
            call(driver.cuFuncLoad(call(driver.cuKernelGetFunction(kernel))))
        # As the driver documents, a kernel of a library may stand where a function of a module is asked for.
        self._kernels = {name: driver.CUfunction(int(kernel)) for name, kernel in kernels.items()}

    def ctas_per_sm(self, threads: int) -> int:
        """Thread blocks of ``threads`` that one multiprocessor holds, for the hungriest of the kernels."""
        occupancy = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return min(int(call(occupancy(kernel, threads, 0))) for kernel in self._kernels.values())

    def launch(self, name: str, ctas: int, threads: int, stream: int, arguments: ctypes.Structure) -> None:
        """Enqueue a kernel whose only parameter is the structure ``arguments``; it is copied before this returns."""
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        kernel = self._kernels[name]
        call(
            driver.cuLaunchKernel(kernel, ctas, 1, 1, threads, 1, 1, 0, stream, ctypes.addressof(pointers), 0),
        )

    def close(self) -> None:
        """Unload."""
        call(driver.cuLibraryUnload(self._library))


def cubin(source: str, constants: dict[str, int], capability: tuple[int, int]) -> bytes:
    """Machine code of ``source`` for a compute capability; compiled once per machine and kept in the user's cache."""
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in constants.items()]
    key = hashlib.sha256(repr((nvrtc.nvrtcVersion(), options, source)).encode()).hexdigest()
    folder = user_cache()
    if folder is None:
        return compile_source(source, options)
    cache = folder / "gmiflow" / "kernels" / f"{key}.cubin"
    try:
        return cache.read_bytes()
    except OSError:
        code = compile_source(source, options)
    _keep(cache, code)
    return code


def _keep(cache: Path, code: bytes) -> None:
    """Write a file of the cache, whole or not at all; one that cannot be written costs time and nothing else."""
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".gmiflow-", dir=cache.parent) as folder:
            fresh = Path(folder) / cache.name
            fresh.write_bytes(code)
            fresh.replace(cache)


def compile_source(source: str, options: list[str]) -> bytes:
    """Compile with NVRTC, which needs no GPU.

    Raises:
        GMIError: E0710 with the compiler's log.
    """
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"gmiflow_ipc.cu", 0, [], [])
    success = nvrtc.nvrtcResult.NVRTC_SUCCESS
    if status != success:
        raise error(NOT_SUPPORTED, f"NVRTC cannot start: {status}")
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if status != success:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise error(NOT_SUPPORTED, f"NVRTC cannot compile the kernels: {status}", log.decode(errors="replace"))
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    code = b" " * size
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code
