"""What a finished run measured, folded into the profile of its workload. No torch."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any, cast

from gmiflow.plan import LaunchPlan, PlanError, TrainingPlan
from gmiflow.profiles import store
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


def recalibrate(run_dir: Path) -> tuple[WorkloadProfile, Measurement]:
    """The profile with the run's numbers for its point, and those numbers; the caller keeps it.

    Raises:
        RecalibrationError: when the run has not measured itself, or its files are not there.
    """
    empty = _profile_of(run_dir)
    plan = _plan_of(run_dir)
    measured = _measured(run_dir, plan)
    path = store.workload_path(empty.source, empty.key)
    try:
        known = WorkloadProfile.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = empty
    ended = round((run_dir / "report.json").stat().st_mtime, 1)
    measured = _after(known.at(measured.point), measured, Look(at_s=ended, steps_per_s=measured.steps_per_s, run=True))
    return with_measurement(known, measured), measured


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
    data = _read(run_dir / KEY_FILE)
    try:
        text = json.dumps({"format": 1, "date": today(), "measurements": [], **data})
        return WorkloadProfile.from_json(text)
    except ValueError as problem:
        raise RecalibrationError(f"{run_dir / KEY_FILE}: {problem}") from problem


def _plan_of(run_dir: Path) -> LaunchPlan:
    try:
        return LaunchPlan.from_json((run_dir / "plan.json").read_text(encoding="utf-8"))
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


def _measured(run_dir: Path, plan: LaunchPlan) -> Measurement:
    report = _read(run_dir / "report.json")
    if report.get("status") not in ("finished", "interrupted"):
        raise RecalibrationError(f"{run_dir}: the run {report.get('status', 'has no status')}: its speed means nothing")
    entries = [cast("dict[str, Any]", entry.get("measured") or {}) for entry in report.get("trainings", {}).values()]
    if not entries or not all(entries):
        raise RecalibrationError(f"{run_dir}: the run ended in its warm-up, so it has measured nothing")
    try:
        return _mean(point_of(plan), entries)
    except (KeyError, TypeError, ValueError) as problem:
        raise RecalibrationError(f"{run_dir / 'report.json'}: it lacks {problem}") from problem


def _mean(point: Point, entries: list[dict[str, Any]]) -> Measurement:
    """One training's numbers: the mean over trainings side by side. Memory is of all of them already."""

    def mean(name: str) -> float:
        return statistics.fmean(float(entry[name]) for entry in entries)

    terms = entries[0]["stage_s"]
    return Measurement(
        point=point,
        status="ok",
        steps_per_s=mean("steps_per_s"),
        steps_per_s_low=mean("steps_per_s_low"),
        steps_per_s_high=mean("steps_per_s_high"),
        iteration_s=mean("iteration_s"),
        stage_s={term: statistics.fmean(float(entry["stage_s"][term]) for entry in entries) for term in terms},
        device_memory_bytes=int(entries[0]["device_memory_bytes"]),
        host_memory_bytes=int(entries[0]["host_memory_bytes"]),
        iterations=min(int(entry["iterations"]) for entry in entries),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        hint = ": a run of a .gmi file leaves one" if path.name == KEY_FILE else ""
        raise RecalibrationError(f"{path} is not there{hint}") from problem
    except (OSError, ValueError) as problem:
        raise RecalibrationError(f"{path}: {problem}") from problem
    if not isinstance(data, dict):
        raise RecalibrationError(f"{path}: not a JSON object")
    return cast("dict[str, Any]", data)
