"""What the GPU backends share: finding a plan's GPUs, the SMs a process sees, and memory that ran out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gmiflow.hardware import GPU, detect
from gmiflow.plan import GMIPlan
from gmiflow.runtime.failure import GPU_MEMORY, LAUNCH_FAILED, RuntimeFailure, error
from gmiflow.runtime.gmi.mps_logs import is_out_of_memory


def planned_gpus(gmis: Sequence[GMIPlan]) -> dict[int, GPU]:
    """The GPUs that a plan names, by device index.

    Raises:
        GMIError: E0711 when this machine lacks one.
    """
    present = {gpu.index: gpu for gpu in detect().gpus}
    wanted = sorted({gmi.device for gmi in gmis})
    missing = [device for device in wanted if device not in present]
    if missing:
        listed = ", ".join(map(str, missing))
        raise error(
            LAUNCH_FAILED,
            f"the plan uses GPU {listed}, but this machine has {len(present)} GPU{'s' * (len(present) != 1)}",
            "`--target cpu` compiles it for the CPU, where `place` may name device 0 alone",
            "CUDA_VISIBLE_DEVICES hides GPUs too",
            "`gmiflow doctor` says what is found",
        )
    return {device: present[device] for device in wanted}


def visible_sms() -> int:
    """Start CUDA in this process and return the SMs of its only GPU that it may use.

    Raises:
        GMIError: E0711 when CUDA does not start.
    """
    import torch

    try:
        torch.zeros(1, device="cuda")  # the context exists from here on, so an MPS server lists this process
        return int(torch.cuda.get_device_properties(0).multi_processor_count)
    except (RuntimeError, AssertionError) as reason:
        raise error(LAUNCH_FAILED, f"CUDA does not start: {str(reason).splitlines()[0]}") from reason


def memory_failure(gmi: GMIPlan, output: str) -> RuntimeFailure | None:
    """The failure of a GMI whose output says that the GPU's memory ran out, else None.

    Args:
        gmi: the GMI, with its cap.
        output: its last lines, with the exception of the framework.
    """
    if not is_out_of_memory(output):
        return None
    limit = f"its cap of {gmi.memory_mib} MiB" if gmi.memory_mib else f"the memory of GPU {gmi.device}"
    asked = re.search(r"Tried to allocate (\d+(?:\.\d+)? [KMG]iB)", output)
    notes = [
        f"it wanted {asked[1]} more" if asked else "an allocation failed",
        f"it simulates {gmi.num_env} environments: a smaller num_env needs less",
    ]
    if gmi.memory_mib:
        notes.append("a smaller `reserve` in the target, or fewer GMIs on the GPU, raises the cap")
    return RuntimeFailure(
        code=GPU_MEMORY, message=f"GMI {gmi.id} ran out of GPU memory: it reached {limit}", notes=tuple(notes)
    )
