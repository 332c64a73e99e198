"""What a finished run measured, folded into the profile of its workload. No torch."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gmiflow.plan import LaunchPlan, PlanError, TrainingPlan
from gmiflow.plan_check import read_plan
from gmiflow.profiles import store
from gmiflow.profiles.json_values import decode, load_object
from gmiflow.profiles.workload import Look, Measurement, Point, ProfileKey, WorkloadProfile
from gmiflow.profiling.session import today, with_measurement

KEY_FILE = "profile_key.json"
"""In a run directory: the key of the workload on the machine that ran it."""


class RecalibrationError(ValueError):
    """A run directory that a profile cannot learn from; the text says why."""


def write_key(run_dir: Path, source: str, key: ProfileKey) -> None:
    """Leave the key in a run directory. Raises OSError when it cannot be written."""
    text = json.dumps({"source": source, "key": dataclasses.asdict(key)}, indent=1) + "\n"
    (run_dir / KEY_FILE).write_text(text, encoding="utf-8")


def recalibrate(run_dir: Path) -> tuple[WorkloadProfile, Measurement, Path]:
    """Take the run's numbers for its point into the profile of its key.

    Returns:
        The profile as it is kept now, the numbers, and the file.

    Raises:
        RecalibrationError: when the run has not measured itself, or its files are not there.
        OSError: when the profile cannot be written.
    """
    empty = _profile_of(run_dir)
    measured = _measured(run_dir, _plan_of(run_dir))
    ended = round((run_dir / "report.json").stat().st_mtime, 1)
    look = Look(at_s=ended, steps_per_s=measured.steps_per_s, run=True)

    def with_run(known: WorkloadProfile) -> WorkloadProfile:
        return with_measurement(known, _after(known.at(measured.point), measured, look))

    profile, path = store.change_workload(empty, with_run)
    return profile, profile.at(measured.point) or measured, path


def _after(before: Measurement | None, measured: Measurement, look: Look) -> Measurement:
    """The run's measurement with what only an earlier one knows.

    Its looks beside other points, which say how fast the point is in comparison, stay; the run adds one that says at
    which level all of them are (`profiles.drift`). The memory stays where the run was too short to sample its own.
    A run that was taken in already is not taken in twice.
    """
    if before is None or not before.looks:
        return measured if before is None else _with_memory_of(before, measured)
    looks = (*(known for known in before.looks if known != look), look)
    return dataclasses.replace(_with_memory_of(before, measured), looks=looks)


def _with_memory_of(before: Measurement, measured: Measurement) -> Measurement:
    return dataclasses.replace(
        measured,
        device_memory_bytes=measured.device_memory_bytes or before.device_memory_bytes,
        host_memory_bytes=measured.host_memory_bytes or before.host_memory_bytes,
        sm_occupancy=before.sm_occupancy,
    )


def _profile_of(run_dir: Path) -> WorkloadProfile:
    """An empty profile under the key of the run."""
    data = {"date": today(), **_read(run_dir / KEY_FILE), "measurements": []}
    try:
        return decode(WorkloadProfile, data, "profile")
    except ValueError as problem:
        raise RecalibrationError(f"{run_dir / KEY_FILE}: {problem}") from problem


def _plan_of(run_dir: Path) -> LaunchPlan:
    try:
        return read_plan((run_dir / "plan.json").read_text(encoding="utf-8"))
    except (OSError, PlanError, UnicodeDecodeError) as problem:
        raise RecalibrationError(f"{run_dir / 'plan.json'}: {problem}") from problem


def point_of(plan: LaunchPlan) -> Point:
    """The point that a plan is of."""
    training = plan.trainings[0]
    members = plan.members(training.name)
    return Point(
        template=training.mapping,
        gmis=plan.target.gmi_per_gpu,
        num_env=training.num_env // _devices(plan, training),
        execution=training.execution,
        backend=members[0].backend,
    )


def _devices(plan: LaunchPlan, training: TrainingPlan) -> int:
    return len({gmi.device for gmi in plan.members(training.name)})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """What a report has under "measured" of a training (`runtime.predicted`); units as in `Measurement`."""

    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    iteration_s: float
    stage_s: dict[str, float]
    iterations: int
    device_memory_bytes: int
    host_memory_bytes: int


def _measured(run_dir: Path, plan: LaunchPlan) -> Measurement:
    path = run_dir / "report.json"
    report = _read(path)
    status, trainings = report.get("status"), report.get("trainings")
    if status not in ("finished", "interrupted"):
        told = status if isinstance(status, str) else "has no status"
        raise RecalibrationError(f"{run_dir}: the run {told}: its speed means nothing")
    if not isinstance(trainings, dict) or not trainings:
        raise RecalibrationError(f"{path}: there are no trainings")
    entries = [_entry(path, name, item) for name, item in cast("dict[str, object]", trainings).items()]
    mean = _mean(point_of(plan), entries)
    if min(mean.steps_per_s, mean.iteration_s) <= 0:
        raise RecalibrationError(f"{path}: it took no time, or made no steps")
    return mean


def _entry(path: Path, name: str, item: object) -> _Measured:
    """What one training of a report has measured."""
    place = f"trainings.{name}"
    if not isinstance(item, dict):
        raise RecalibrationError(f"{path}: {place} is no object")
    measured = cast("dict[str, object]", item).get("measured")
    if measured is None:
        raise RecalibrationError(f"{path.parent}: the run ended in its warm-up, so it has measured nothing")
    try:
        return decode(_Measured, measured, f"{place}.measured")
    except ValueError as problem:
        raise RecalibrationError(f"{path}: {problem}") from problem


def _mean(point: Point, entries: Sequence[_Measured]) -> Measurement:
    """One training's numbers: the mean over trainings side by side. Memory is of all of them already."""

    def mean(name: str) -> float:
        return statistics.fmean(getattr(entry, name) for entry in entries)

    terms = dict.fromkeys(term for entry in entries for term in entry.stage_s)
    return Measurement(
        point=point,
        status="ok",
        steps_per_s=mean("steps_per_s"),
        steps_per_s_low=mean("steps_per_s_low"),
        steps_per_s_high=mean("steps_per_s_high"),
        iteration_s=mean("iteration_s"),
        stage_s={term: statistics.fmean(entry.stage_s.get(term, 0.0) for entry in entries) for term in terms},
        device_memory_bytes=entries[0].device_memory_bytes,
        host_memory_bytes=entries[0].host_memory_bytes,
        iterations=min(entry.iterations for entry in entries),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return load_object(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        hint = ": a run of a .gmi file leaves one" if path.name == KEY_FILE else ""
        raise RecalibrationError(f"{path} is not there{hint}") from problem
    except (OSError, ValueError) as problem:
        raise RecalibrationError(f"{path}: {problem}") from problem
