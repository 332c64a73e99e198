"""What the children of `gmi_backends.py` do on the GPU, and the forking of them.

The parent has torch loaded and CUDA untouched; a child is a fork of it with its own environment, its output in a file
and its result in another one. This is how GMIs are started too.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import statistics
import time
import traceback
from pathlib import Path

from gmiflow.runtime.gmi.process import wait_until


class Child:
    """A forked process that runs one function and leaves its result as JSON."""

    def __init__(self, directory, name, function, environment, *arguments):
        self.log, self._result = directory / f"{name}.log", directory / f"{name}.json"
        self._ready = directory / f"{name}.ready"
        self.status = None
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(function, environment, arguments)

    def _run(self, function, environment, arguments):
        code = 1
        try:
            descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.environ.update(environment)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._result.write_text(json.dumps(function(self, *arguments)))
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)

    def ready(self):
        """In the child: tell the parent that the GPU is in use."""
        self._ready.touch()

    def wait_ready(self, timeout_s):
        """Whether the child got as far as `ready` in time."""
        return wait_until(lambda: self._ready.exists() or self.ended(), timeout_s) and self._ready.exists()

    def ended(self):
        """Whether the child has ended; collects its status."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, timeout_s):
        """Exit status, or None after ``timeout_s`` seconds."""
        wait_until(self.ended, timeout_s)
        return self.status

    def kill(self):
        """SIGKILL, unless it has ended."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait(10)

    def result(self):
        """What its function returned, or None."""
        try:
            return json.loads(self._result.read_text())
        except (OSError, ValueError):
            return None

    def output(self):
        """What it printed."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""


def prove(child, backend_name, gmi):
    """What the GMI process does first: the backend's proof of its slice."""
    from gmiflow.runtime.gmi.registry import make_backend

    return make_backend(backend_name).prove(gmi)


def first_kernel(child):
    """CUDA initialisation up to the end of the first kernel; the parent knows when the fork began."""
    import torch

    begun = time.monotonic()
    number = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context = time.monotonic()
    number += 1
    torch.cuda.synchronize()
    return {"begun": begun, "context": context, "end": time.monotonic(), "value": number.item()}


def fill_memory(child, chunk_mib, most_mib):
    """Allocate until it fails; the failure is printed like any exception of a stage."""
    import torch

    held = []
    while len(held) * chunk_mib < most_mib:
        try:
            held.append(torch.zeros(chunk_mib << 20, dtype=torch.uint8, device="cuda"))
            torch.cuda.synchronize()
        except RuntimeError:
            traceback.print_exc()
            return {"allocated_mib": len(held) * chunk_mib, "failed": True}
    return {"allocated_mib": len(held) * chunk_mib, "failed": False}


def work(child, seconds, ignore_sigterm):
    """Keep the GPU busy; report how many rounds were made and the longest of them."""
    import torch

    if ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    left = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    child.ready()
    rounds, longest, end = 0, 0.0, time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        for _ in range(20):
            product = left @ left
        torch.cuda.synchronize()
        longest, rounds = max(longest, time.monotonic() - begun), rounds + 1
    return {"rounds": rounds, "longest_round_s": round(longest, 4), "finite": bool(product.isfinite().all())}


SMID = r"""
extern "C" __global__ void record(int* seen, int ticks) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long start = clock64();
    while (clock64() - start < ticks) {}
    if (threadIdx.x == 0) atomicAdd(seen + sm, 1);
}
"""


class SMRecorder:
    """A kernel that notes the SMs it runs on, loaded independent of any context."""

    def __init__(self):
        import torch
        from cuda.bindings import driver, nvrtc

        self.driver = driver
        major, minor = torch.cuda.get_device_capability()
        program = checked(nvrtc.nvrtcCreateProgram(SMID.encode(), b"record.cu", 0, [], []))
        options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
        checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
        code = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
        checked(nvrtc.nvrtcGetCUBIN(program, code))
        self.code = code
        self.library = checked(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
        self.kernel = checked(driver.cuLibraryGetKernel(self.library, b"record"))

    def launch(self, stream, seen, function=None):
        """Enqueue the kernel; ``seen`` counts blocks per SM."""
        function = function or self.driver.CUfunction(int(self.kernel))
        arguments = ((seen.data_ptr(), 20_000), (ctypes.c_void_p, ctypes.c_int))
        checked(self.driver.cuLaunchKernel(function, 4096, 1, 1, 256, 1, 1, 0, stream.cuda_stream, arguments, 0))

    def used(self, stream, function=None):
        """The SMs that run a kernel of this stream."""
        import torch

        seen = torch.zeros(256, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        self.launch(stream, seen, function)
        torch.cuda.synchronize()
        return set(seen.nonzero().flatten().tolist())


def checked(answer):
    code, *results = answer
    if int(code) != 0:
        raise RuntimeError(str(code))
    return results[0] if len(results) == 1 else results


def green(child):
    """Creation time of green parts and of plain streams; proof that parts are disjoint and that graphs stay inside."""
    import torch

    from gmiflow.runtime.gmi.green import GreenPartition

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    report = {"creation": _creation_times()}
    recorder = SMRecorder()
    partition = GreenPartition([0.5, 0.25, 0.25])
    streams = [part.make_stream() for part in partition.parts]
    sets = [recorder.used(stream) for stream in streams]
    report |= {
        "group_sms": partition.group_sms,
        "part_sms": [part.sm_count for part in partition.parts],
        "sms_seen": [len(found) for found in sets],
        "disjoint": len(set.union(*sets)) == sum(map(len, sets)),
        "sms_seen_on_plain_stream": len(recorder.used(torch.cuda.Stream())),
    }
    report |= _attempt("module_of_primary_context", lambda: len(_module_used(recorder, streams[1])))
    report |= _attempt("triton_kernel", lambda: _triton_add(streams[1]))
    report |= _attempt("graph", lambda: _graph_stays_inside(recorder, streams[1], sets[1]))
    report |= _attempt("timing", lambda: _green_timing(streams[1], streams[2]))
    partition.close()
    return report


def _attempt(name, function):
    """A finding, or the reason why there is none: the rest of the report goes on."""
    try:
        return {name: function()}
    except Exception as error:
        return {name: f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def _creation_times():
    import torch

    from gmiflow.runtime.gmi.green import GreenPartition

    def kernels(streams):
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.ones(1, device="cuda").add_(1)
        for stream in streams:
            stream.synchronize()

    green_s, stream_s = [], []
    for _ in range(6):
        start = time.perf_counter()
        partition = GreenPartition([0.25] * 4)
        kernels([part.make_stream() for part in partition.parts])
        green_s.append((time.perf_counter() - start) / 4)
        torch.cuda.synchronize()
        partition.close()
        start = time.perf_counter()
        kernels([torch.cuda.Stream() for _ in range(4)])
        stream_s.append((time.perf_counter() - start) / 4)
    return {
        "green_first_s": round(green_s[0], 6),
        "green_s": round(statistics.median(green_s[1:]), 6),
        "stream_s": round(statistics.median(stream_s[1:]), 6),
    }


def _module_used(recorder, stream):
    """Run a kernel that was loaded into the primary context, as Triton and CuPy load theirs."""
    module = checked(recorder.driver.cuModuleLoadData(recorder.code))
    function = checked(recorder.driver.cuModuleGetFunction(module, b"record"))
    return recorder.used(stream, function)


def _triton_add(stream):
    import torch
    from gmi_triton import add_one

    numbers = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        add_one[(4,)](numbers, BLOCK=256)
    stream.synchronize()
    return bool((numbers == 1).all())


def _graph_stays_inside(recorder, stream, part):
    """Capture on the part's stream; replay there and on a plain stream; which SMs run it?"""
    import torch

    seen = torch.zeros(256, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        recorder.launch(stream, seen)
    found = {}
    for name, where in (("own_stream", stream), ("plain_stream", torch.cuda.Stream())):
        seen.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(where):
            graph.replay()
        torch.cuda.synchronize()
        used = set(seen.nonzero().flatten().tolist())
        found[f"replayed_on_{name}"] = {"sms": len(used), "inside_part": used <= part}
    return found


def _green_timing(first, second):
    """Matrix products on a quarter, on the whole, and on two quarters at once; medians of 5, in ms."""
    import torch

    one, two = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()

    def run(*pairs):
        times = []
        for _ in range(6):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for stream, matrix in pairs:
                with torch.cuda.stream(stream):
                    for _ in range(4):
                        matrix @ matrix
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - start))
        return round(statistics.median(times[1:]), 3)

    plain, other = torch.cuda.Stream(), torch.cuda.Stream()
    return {
        "whole_ms": run((plain, one)),
        "quarter_ms": run((first, one)),
        "two_quarters_at_once_ms": run((first, one), (second, two)),
        "two_plain_streams_at_once_ms": run((plain, one), (other, two)),
    }


def job(root, binary, uuid, ready):
    """A second job with a daemon of its own; stays until it is told to end, or killed."""
    from gmiflow.runtime.gmi.mps_daemon import MPSDaemon, reap_stale
    from gmiflow.runtime.gmi.probe import probe_cuda

    reap_stale(Path(root))
    daemon = MPSDaemon.start(uuid, binary, root=Path(root))
    view = probe_cuda(
        {"CUDA_VISIBLE_DEVICES": uuid, **daemon.control.environment(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    )
    Path(ready).write_text(json.dumps({"sm_count": view.sm_count, "control": daemon.record.control.pid}))
    import sys

    sys.stdin.read()
    daemon.stop()
