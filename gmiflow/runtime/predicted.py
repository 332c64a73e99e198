"""What the plan predicted beside what the run measured, term by term, for report.json. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gmiflow.plan import PredictionPlan
from gmiflow.runtime.speed import Rates
from gmiflow.runtime.telemetry import HOST_MEMORY

BEFORE = "before"
"""In the telemetry of the report: MiB that were in use on each GPU before the run started."""

_NUMBERS = ("steps_per_s", "iteration_s", "device_memory_bytes", "host_memory_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Peaks of a whole run, all trainings together; 0 when they were not sampled.

    Attributes:
        device_bytes: of the fullest GPU, beyond what was in use before.
        host_bytes: of all GMI processes.
    """

    device_bytes: int = 0
    host_bytes: int = 0


def memory_of(telemetry: Mapping[str, Mapping[str, float]]) -> Memory:
    """The peaks from the summary that `Telemetry` gives, with `BEFORE`."""
    grown = [
        telemetry.get(f"{gpu}/memory_used_mib", {}).get("max", 0.0) - before
        for gpu, before in telemetry.get(BEFORE, {}).items()
    ]
    host = telemetry.get(HOST_MEMORY, {}).get("max", 0.0)
    return Memory(device_bytes=round(max([0.0, *grown]) * 2**20), host_bytes=round(host * 2**20))


def against(prediction: PredictionPlan | None, rates: Rates | None, memory: Memory) -> dict[str, Any]:
    """The entries "measured", "predicted" and "error" of a training.

    An error is measured over predicted, less 1; it is left out where either is missing. "measured" is None for a
    run that ended in its warm-up.
    """
    measured: dict[str, Any] | None = None
    if rates is not None:
        sizes = {"device_memory_bytes": memory.device_bytes, "host_memory_bytes": memory.host_bytes}
        measured = {**dataclasses.asdict(rates), **sizes}
    if prediction is None:
        return {"measured": measured, "predicted": None, "error": None}
    predicted = dataclasses.asdict(prediction)
    return {"measured": measured, "predicted": predicted, "error": measured and _errors(predicted, measured)}


def _errors(predicted: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, float]:
    pairs = [(name, predicted[name], measured[name]) for name in _NUMBERS]
    pairs += [
        (f"stage_s.{term}", seconds, measured["stage_s"].get(term, 0.0))
        for term, seconds in predicted["stage_s"].items()
    ]
    return {name: round(found / expected - 1.0, 4) for name, expected, found in pairs if expected > 0 and found > 0}
