"""What a compilation may decide by: the profile of the workload, and the search over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gmiflow.hardware import Hardware
from gmiflow.ir.workflow import Workflow
from gmiflow.profiles.store import Stored, collectives_for, look_up

if TYPE_CHECKING:
    from gmiflow.ir.search import Algorithm, Search
    from gmiflow.profiles.space import Space
    from gmiflow.profiles.workload import Measurement, ProfileKey


class EvidenceError(ValueError):
    """A profile that is missing, cannot be read, is of something else, or decides nothing; notes say what mends it."""

    def __init__(self, message: str, *notes: str) -> None:
        super().__init__(message)
        self.notes = notes


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What was found for a workflow.

    Attributes:
        search: over the profile; None without a profile, or when nothing that the settings allow can be run.
        stored: the profile and its file; None without a valid one.
        stale: fields in which the nearest profile differs, when only such a one was found.
    """

    search: Search | None = None
    stored: Stored | None = None
    stale: tuple[str, ...] = ()

    @property
    def unsliced(self) -> Measurement | None:
        """The measured point of one GMI with the most environments that tells the stages apart, or None."""
        measurements = self.stored.profile.measurements if self.stored is not None else ()
        alone = [m for m in measurements if m.point.gmis == 1 and m.status == "ok" and "simulate" in m.stage_s]
        return max(alone, key=lambda m: (m.point.num_env, m.point), default=None)


def searched(workflow: Workflow) -> bool:
    """Whether a profile decides what is `auto`: the points of split mappings are measured, but not searched."""
    return workflow.target.mapping in ("auto", "dp_only")


def gather(
    workflow: Workflow, hardware: Hardware, *, file: str | None, require: bool, algorithm: Algorithm
) -> Evidence:
    """Find the profile of a workflow and search it.

    Args:
        workflow: checked, with its target.
        hardware: this machine.
        file: a profile named by the user instead of the one that was kept.
        require: whether `auto` must not be decided by defaults.
        algorithm: of the search.

    Raises:
        EvidenceError: when ``file`` cannot be used, when ``require`` finds nothing, or when the algorithm chooses
            nothing.
    """
    stored, stale = (_named(file, workflow, hardware), ()) if file is not None else _kept(workflow, hardware)
    if not searched(workflow):
        if require and _open(workflow):
            mapping = workflow.target.mapping
            numbers = {"mp_dp": "`simulators` and `agents`", "ea_t": "`agents` and `trainers`"}.get(mapping, "`agents`")
            raise EvidenceError(
                f"no profile decides sizes of mapping `{mapping}`", f"give `num_env`, and `gmi_per_gpu` or {numbers}"
            )
        return Evidence(stored=stored, stale=stale)
    measured = stored is not None and any(m.status == "ok" for m in stored.profile.measurements)
    if stored is None or not measured:
        if require and _space(workflow, hardware).open:
            raise EvidenceError(
                f"nothing was measured for `{workflow.name}` on target `{workflow.target.name}`",
                *([f"the nearest profile differs in {', '.join(stale)}"] if stale else []),
                f"measure it: gmiflow profile {workflow.file}",
            )
        return Evidence(stored=stored, stale=stale)
    from gmiflow.profiles.search import choose  # without a profile there is nothing to search

    space = _space(workflow, hardware)
    if not any(space.points()):
        return Evidence(stored=stored)  # sizing says what is wrong
    try:
        return Evidence(search=choose(space, stored.profile, algorithm), stored=stored)
    except ValueError as error:
        raise EvidenceError(f"{stored.path}: {error}") from error


def _open(workflow: Workflow) -> bool:
    """Whether defaults would decide the numbers of a split mapping."""
    target = workflow.target
    counts = (target.gmi_per_gpu, target.agents, target.simulators)
    return workflow.num_env == "auto" or all(count == "auto" for count in counts)


def _space(workflow: Workflow, hardware: Hardware) -> Space:
    from gmiflow.profiles.space import space_of

    target = workflow.target
    return space_of(workflow, hardware, collectives_for(hardware, target.device, target.gpu, target.devices))


def _kept(workflow: Workflow, hardware: Hardware) -> tuple[Stored | None, tuple[str, ...]]:
    found = look_up(workflow, hardware)
    return found.valid, found.differences


def _named(file: str, workflow: Workflow, hardware: Hardware) -> Stored:
    """A profile that the user named; it must be of this workload on this machine."""
    from gmiflow.profiles.workload import WorkloadProfile
    from gmiflow.profiles.workload_key import key_of  # sources are hashed: not worth it without a profile

    try:
        profile = WorkloadProfile.from_json(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise EvidenceError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise EvidenceError(f"{file}: {error}") from error
    key = key_of(workflow, hardware)
    differences = profile.key.differences(key)
    if differences:
        raise EvidenceError(
            f"{file} was not measured with what would run: {', '.join(differences)} "
            f"{'differs' if len(differences) == 1 else 'differ'}",
            *(_difference(name, profile.key, key) for name in differences),
            f"measure it: gmiflow profile {workflow.file}",
        )
    return Stored(path=Path(file), profile=profile)


def _difference(name: str, there: ProfileKey, here: ProfileKey) -> str:
    first, second = getattr(there, name), getattr(here, name)
    if isinstance(first, dict) and isinstance(second, dict):
        changed = sorted(entry for entry in {*first, *second} if first.get(entry) != second.get(entry))
        return f"{name}: {', '.join(changed)} changed"
    return f"{name}: {_short(first)} in the profile, {_short(second)} here"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
