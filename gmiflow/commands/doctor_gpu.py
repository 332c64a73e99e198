"""The GPU checks of `gmiflow doctor`.

Nothing here loads torch or starts CUDA in this process, and nothing changes a GPU's settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from gmiflow.commands.doctor_checks import Check, Status
from gmiflow.hardware import GPU, MULTI_RANK_NCCL

TORCH_TIMEOUT_S: Final = 120.0
_NO_GPU: Final = "nothing to do without a GPU"


def gpu_checks(gpus: tuple[GPU, ...]) -> tuple[Check, ...]:
    """Driver, every GPU, and its MIG geometry."""
    from gmiflow.runtime.gmi.nvml import session

    with session() as present:
        if not present:
            mend = "install the NVIDIA driver (in a container: start it with --gpus all); the backend cpu needs none"
            return (_gpu("NVIDIA driver", "missing", "no driver answers", mend),)
        import pynvml

        from gmiflow.runtime.gmi.nvml import cuda_driver_version, text

        version, cuda = text(pynvml.nvmlSystemGetDriverVersion()), cuda_driver_version()
        checks = [_gpu("NVIDIA driver", "ok", f"{version}, CUDA {cuda // 1000}.{cuda % 1000 // 10}")]
        if not gpus:
            checks.append(_gpu("GPU", "missing", "none is visible", "look at CUDA_VISIBLE_DEVICES"))
        return (*checks, *(check for gpu in gpus for check in _one_gpu(gpu)))


def _one_gpu(gpu: GPU) -> tuple[Check, ...]:
    from gmiflow.runtime.gmi.mig_geometry import read_mig
    from gmiflow.runtime.gmi.nvml import read_gpu

    facts, mig = read_gpu(gpu.uuid), read_mig(gpu.uuid)
    node = f", NUMA node {facts.node}" if facts.node is not None else ""
    detail = f"{gpu.name}, {gpu.sm_count} SMs, {gpu.memory_bytes / 2**30:.0f} GiB, {facts.compute_mode}{node}"
    usable = facts.compute_mode != "prohibited"
    mend = "" if usable else f"an administrator allows processes: nvidia-smi -i {facts.index} -c DEFAULT"
    first = _gpu(f"GPU {gpu.index}", "ok" if usable else "missing", f"{detail} ({gpu.uuid})", mend)
    if mig is None or not mig.supported:
        return (first, _gpu(f"MIG on GPU {gpu.index}", "missing", "this GPU has none", "the backend mps shares it"))
    if not mig.enabled:
        offered = ", ".join(f"{profile.name} x{profile.most}" for profile in mig.profiles)
        return (first, _gpu(f"MIG on GPU {gpu.index}", "ok", f"off; profiles: {offered or 'not listed while off'}"))
    sizes = ", ".join(f"{one.sm_count} SMs/{one.memory_mib:,} MiB" for one in mig.instances)
    mend = "" if mig.instances else f"an administrator makes instances: nvidia-smi mig -i {mig.index} -cgi ... -C"
    status: Status = "ok" if mig.instances else "missing"
    return (first, _gpu(f"MIG on GPU {gpu.index}", status, f"on; instances: {sizes or 'none'}", mend))


def mps_checks(gpus: tuple[GPU, ...]) -> tuple[Check, ...]:
    """The MPS tool, and a private daemon that is started and stopped again."""
    from gmiflow.runtime.gmi.mps_client import static_partitions_available
    from gmiflow.runtime.gmi.mps_control import BINARY, MPSControlError, find_binary
    from gmiflow.runtime.gmi.mps_daemon import MPSDaemon

    binary = find_binary()
    if binary is None:
        mend = "install the driver's tools (package nvidia-compute-utils); the backend timeshare needs none"
        return (_gpu("MPS", "missing", f"{BINARY} is not installed", mend),)
    whole = [gpu for gpu in gpus if not gpu.mig]
    if not whole:
        return (_gpu("MPS", "missing", f"{binary}, but no GPU to serve", "MPS needs a GPU that is not in MIG mode"),)
    start = time.perf_counter()
    try:
        daemon = MPSDaemon.start(whole[0].uuid, binary)
        daemon.stop()
    except MPSControlError as error:
        return (_gpu("MPS", "missing", str(error), "look at the daemon's message; in a container, at its privileges"),)
    took_s = time.perf_counter() - start
    partitions = "has" if static_partitions_available(binary) else "has no"
    return (_gpu("MPS", "ok", f"a private daemon starts and stops ({took_s:.1f} s); {partitions} static partitions"),)


def ipc_checks(gpus: tuple[GPU, ...]) -> tuple[Check, ...]:
    """CUDA IPC between two processes on the first GPU."""
    from gmiflow.runtime.gmi.ipc_probe import probe_ipc

    whole = [gpu for gpu in gpus if not gpu.mig]
    if not whole:
        return (_gpu("CUDA IPC", "missing", "no GPU to try it on", "the collective ip goes through host memory"),)
    problem = probe_ipc({"CUDA_VISIBLE_DEVICES": whole[0].uuid})
    if problem is None:
        return (_gpu("CUDA IPC", "ok", "one process reads another's GPU memory"),)
    mend = "in a container: share the IPC and PID namespaces (docker run --ipc=host --pid=host)"
    return (_gpu("CUDA IPC", "missing", problem, mend),)


def torch_checks(gpus: tuple[GPU, ...]) -> tuple[Check, ...]:
    """Torch's build, NCCL and green contexts, asked in a process of its own."""
    facts = torch_facts()
    if "error" in facts:
        broken = Check(
            group="packages",
            name="import torch",
            status="missing",
            detail=facts["error"],
            mend="reinstall torch",
            required=True,
        )
        return (broken,)
    build = f"CUDA {facts['cuda_build']}" if facts["cuda_build"] else "CPU only"
    if not facts["cuda"]:
        mend = "install torch with CUDA (see pytorch.org), or a newer driver" if gpus else _NO_GPU
        return (
            _gpu("torch on the GPU", "missing", f"{facts['version']} ({build}) sees no GPU", mend),
            _gpu("NCCL", "missing", "needs torch on a GPU", mend),
            _gpu("green contexts", "missing", "need torch on a GPU", mend),
        )
    seen = _gpu("torch on the GPU", "ok", f"{facts['version']} ({build}) sees {facts['devices']} GPU(s)")
    return (seen, _nccl(facts["nccl"]), _green(facts["green"], facts["green_error"]))


def torch_facts(timeout_s: float = TORCH_TIMEOUT_S) -> dict[str, Any]:
    """What `doctor_probe` prints; {"error": ...} when it fails or takes longer than ``timeout_s``."""
    probe = Path(__file__).with_name("doctor_probe.py")
    search = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            [sys.executable, str(probe)],
            env={**os.environ, "PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {"error": f"torch does not load within {timeout_s:g} s"}
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return {"error": last[0]}


def _nccl(version: list[int] | None) -> Check:
    if version is None:
        return _gpu("NCCL", "missing", "this build of torch has none", "install torch with CUDA for Linux")
    shown = ".".join(map(str, version))
    if tuple(version[:2]) >= MULTI_RANK_NCCL:
        return _gpu("NCCL", "ok", f"{shown}; can put several ranks on one GPU (experimental)")
    return _gpu("NCCL", "ok", f"{shown}; one rank per GPU")


def _green(sizes: list[int] | None, problem: str | None) -> Check:
    if sizes is None:
        return _gpu(
            "green contexts", "missing", problem or "unknown", "pip install 'gmiflow[gpu]', driver 550 or newer"
        )
    return _gpu("green contexts", "ok", f"two halves of {' and '.join(map(str, sizes))} SMs")


def _gpu(name: str, status: Status, detail: str, mend: str = "") -> Check:
    return Check(group="GPU", name=name, status=status, detail=detail, mend=mend, gpu=True)
