"""What torch says about this machine, as one JSON object.

`gmiflow doctor` runs it as a script in a process of its own: importing torch takes seconds, and a broken CUDA
installation may hang it.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def torch_facts() -> dict[str, Any]:
    """Version, build and devices; keys are missing where something fails, and "error" says what."""
    import torch
    from torch.cuda import nccl

    facts: dict[str, Any] = {"version": torch.__version__, "cuda_build": torch.version.cuda}
    facts["cuda"] = torch.cuda.is_available()
    if not facts["cuda"]:
        return facts
    facts["devices"] = torch.cuda.device_count()
    facts["nccl"] = list(nccl.version()) if torch.distributed.is_nccl_available() else None
    facts["green"], facts["green_error"] = _green_parts()
    return facts


def _green_parts() -> tuple[list[int] | None, str | None]:
    """SMs of the two halves that the first GPU splits into, or why it does not."""
    from gmiflow.runtime.failure import GMIError
    from gmiflow.runtime.gmi.green import GreenPartition

    try:
        partition = GreenPartition([0.5, 0.5])
    except GMIError as error:
        return None, error.failure.message
    sizes = [part.sm_count for part in partition.parts]
    partition.close()
    return sizes, None


if __name__ == "__main__":
    try:
        answer = torch_facts()
    except (ImportError, RuntimeError, OSError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer))
