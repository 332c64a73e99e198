"""Takes the place of `cuda_driver` where there is no GPU: memory of this process, kernels on CPU threads."""

import ctypes
import itertools
import threading

import numpy as np
import torch
from emulator import KERNEL_INDEX, Launch


class EmulatedDriver:
    """One "machine"; members are threads of this process, and pass for processes of their own unless told otherwise.

    Attributes:
        recording: whether the calling thread records a CUDA graph: `recording.now`.
        open_slabs: slabs and mappings that are not closed yet.
        log: what was closed, in order: "unmap" and "free".
    """

    def __init__(self, library, mps=True, uuids=None, one_process=False):
        self.library, self.mps = library, mps
        self.uuids = iter(uuids) if uuids else itertools.repeat("00")
        self.processes = itertools.repeat(1) if one_process else itertools.count(1)
        self.recording = threading.local()
        self.exports: dict[bytes, int] = {}
        self.memory: dict[int, np.ndarray] = {}
        self.log: list[str] = []
        driver = self

        class Slab:
            def __init__(self, size):
                raw = np.zeros(size + 16, np.uint8)
                self.address = raw.ctypes.data + -raw.ctypes.data % 16
                driver.memory[self.address] = raw

            def export(self):
                handle = len(driver.exports).to_bytes(64, "big")
                driver.exports[handle] = self.address
                return handle

            def close(self):
                driver.log.append("free")

        class ImportedSlab:
            def __init__(self, handle):
                self.address = driver.exports[handle]

            def close(self):
                driver.log.append("unmap")

        class Module:
            def __init__(self, source, constants, capability, names):
                self.names = names

            def ctas_per_sm(self, threads):
                return 4

            def launch(self, name, ctas, threads, stream, arguments):
                index = KERNEL_INDEX.get(
                    {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64"}.get(
                        name.removeprefix("all_reduce_"), name
                    )
                )
                launch = Launch(arguments=arguments, kernel=index, ctas=ctas, present=1)
                driver.library.run_group(ctypes.byref(launch), 1, 1, ctas, threads)

            def close(self):
                driver.log.append("unload")

        self.Slab, self.ImportedSlab, self.Module = Slab, ImportedSlab, Module

    def describe(self, device):
        return _Device(next(self.uuids), self.mps, next(self.processes))

    def current_stream(self, device):
        return 0

    def capturing(self):
        return getattr(self.recording, "now", False)

    def synchronize(self, device):
        pass

    def device_words(self, count, device):
        return torch.zeros(count, dtype=torch.int64)

    def host_words(self, count):
        return torch.zeros(count, dtype=torch.int64)

    def write(self, address, data):
        ctypes.memmove(address, data, len(data))

    def read(self, address, size):
        return ctypes.string_at(address, size)


class _Device:
    def __init__(self, uuid, mps, process):
        self.uuid, self.mps, self.sm_count, self.capability, self.process = uuid, mps, 2, (9, 0), process
