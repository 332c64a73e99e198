"""What differs between two plans, as a person reads it: "num_env 4096 -> 8192, gmi_per_gpu 1 -> 2"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gmiflow.plan import GMIPlan, Json, LaunchPlan, TrainingPlan

SETTINGS = (
    "mode", "max_staleness", "deterministic", "num_env", "horizon", "mapping", "execution", "precision", "seed",
    "iterations", "checkpoint_every", "on_failure", "gmi", "stratum",
)  # fmt: skip
"""Fields of a training that a plan's reader decides or is told about."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; "" where there was nothing, or is nothing any more."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before or 'none'} -> {self.after or 'none'}"


def changes(before: LaunchPlan, after: LaunchPlan) -> tuple[Change, ...]:
    """Everything that `run` would do differently.

    Comments, the position of a declaration and new measurements of the same choice are no differences.
    """
    return tuple(_distinct([*_target(before, after), *_trainings(before, after), *_gmis(before, after)]))


def predicted_ratio(before: LaunchPlan, after: LaunchPlan) -> float | None:
    """How much faster the new plan is expected to be over all trainings, None when either has no prediction."""
    speeds = [predicted_steps_per_s(plan) for plan in (before, after)]
    old, new = speeds
    return new / old if old and new else None


def predicted_steps_per_s(plan: LaunchPlan) -> float | None:
    """Environment steps per second of all trainings together, None unless all are predicted."""
    total = 0.0
    for training in plan.trainings:
        if training.prediction is None:
            return None
        total += training.prediction.steps_per_s
    return total


def _target(before: LaunchPlan, after: LaunchPlan) -> Iterator[Change]:
    for name in ("device", "devices", "memory_mib", "gmi_per_gpu", "cores"):
        old, new = getattr(before.target, name), getattr(after.target, name)
        if old != new:
            yield Change(name, str(old), str(new))


def _trainings(before: LaunchPlan, after: LaunchPlan) -> Iterator[Change]:
    old, new = ({training.name: training for training in plan.trainings} for plan in (before, after))
    if old.keys() != new.keys():
        yield Change("trainings", str(len(old)), str(len(new)))
    several = len(after.trainings) > 1
    found = {name: list(_training(old[name], new[name])) for name in old if name in new}
    everywhere = set.intersection(*map(set, found.values())) if found else set[Change]()
    for name, differences in found.items():
        for change in differences:
            alone = change not in everywhere and several
            yield Change(f"{name}: {change.name}", change.before, change.after) if alone else change


def _training(before: TrainingPlan, after: TrainingPlan) -> Iterator[Change]:
    for name in SETTINGS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield Change(name, _text(old), _text(new))
    old_stages, new_stages = ({stage.name: stage for stage in training.stages} for training in (before, after))
    for name in dict.fromkeys([*old_stages, *new_stages]):
        old, new = old_stages.get(name), new_stages.get(name)
        if old is None or new is None:
            yield Change(name, old.entry if old else "", new.entry if new else "")
            continue
        for field in ("entry", "python"):
            if getattr(old, field) != getattr(new, field):
                yield Change(f"{name}.{field}", _text(getattr(old, field)), _text(getattr(new, field)))
        for kind in ("params", "shapes"):
            one, other = getattr(old, kind), getattr(new, kind)
            for key in dict.fromkeys([*one, *other]):
                if one.get(key) != other.get(key):
                    yield Change(f"{name}.{key}", _text(one.get(key)), _text(other.get(key)))
    if before.edges != after.edges:
        edges = [{f"{edge.source} -> {edge.target}" for edge in training.edges} for training in (before, after)]
        gone, come = ", ".join(sorted(edges[0] - edges[1])), ", ".join(sorted(edges[1] - edges[0]))
        yield Change("edges", gone or "the same ports", come or "the same ports, other attributes")


def _gmis(before: LaunchPlan, after: LaunchPlan) -> Iterator[Change]:
    backends = [sorted({gmi.backend for gmi in plan.gmis}) for plan in (before, after)]
    if backends[0] != backends[1]:
        yield Change("backend", ", ".join(backends[0]), ", ".join(backends[1]))
    kinds = [{group.name: group.kind for group in plan.collectives} for plan in (before, after)]
    for name in dict.fromkeys([*kinds[0], *kinds[1]]):
        if kinds[0].get(name) != kinds[1].get(name):
            yield Change(f"collective {name}", kinds[0].get(name, ""), kinds[1].get(name, ""))
    if len(before.gmis) != len(after.gmis):
        if before.target == after.target:  # else told by gmi_per_gpu or devices
            yield Change("GMIs", str(len(before.gmis)), str(len(after.gmis)))
        return
    for old, new in zip(before.gmis, after.gmis, strict=True):
        yield from _gmi(old, new)


def _gmi(before: GMIPlan, after: GMIPlan) -> Iterator[Change]:
    for name in ("share", "cores", "threads", "memory_mib", "device", "stages", "num_env", "host", "joint"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield Change(f"{name} of GMI {after.id}", _text(old), _text(new))


def _distinct(found: list[Change]) -> list[Change]:
    """Each once; the environments and cores of a GMI are left out where the total tells as much."""
    names = {change.name for change in found}
    implied = {"num_env": "num_env of GMI", "cores": "cores of GMI"}
    kept = [
        change
        for change in dict.fromkeys(found)
        if not any(total in names and change.name.startswith(part) for total, part in implied.items())
    ]
    return kept


def _text(value: Json | tuple[str, ...]) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
