"""The compiler's passes in order. It reads as a table of contents and stops after any stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.hardware import Hardware, detect
from gmiflow.ir import verify
from gmiflow.ir.comm import CommWorkflow
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.check import CheckResult, check, without_collections
from gmiflow.passes.mapping import map_workflow
from gmiflow.passes.planning import plan as make_plan
from gmiflow.passes.sizing import size
from gmiflow.plan import LaunchPlan

if TYPE_CHECKING:
    from gmiflow.ir.search import Algorithm
    from gmiflow.passes.imports import Files
    from gmiflow.profiles.evidence import Evidence

STAGES = ("ast", "ir", "mapping", "sizing", "comm", "plan", "python")
"""What `--emit` accepts, in the order of the pipeline (besides "tokens")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a user may choose besides the file.

    Attributes:
        workflow, target: names, or None for the defaults.
        overrides: `--set` pairs (path, expression text), later ones win.
        profile: file of measurements to decide by, or None for those that were kept for this machine.
        require_profile: whether `auto` without a profile is an error.
        algorithm: of the sizing search.
        use_profiles: whether to look for measurements at all.
    """

    workflow: str | None = None
    target: str | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    require_profile: bool = False
    algorithm: Algorithm = "improved"
    use_profiles: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Compilation:
    """What a compilation got to; a stage after `stop_after` or after an error is None.

    ``evidence`` is what the sizes were decided by, None when no measurements were looked for.
    """

    checked: CheckResult
    diagnostics: tuple[Diagnostic, ...]
    workflow: Workflow | None = None
    evidence: Evidence | None = None
    mapped: MappedWorkflow | None = None
    sized: SizedWorkflow | None = None
    comm: CommWorkflow | None = None
    plan: LaunchPlan | None = None
    programs: dict[str, str] | None = None

    @property
    def failed(self) -> bool:
        """Whether any diagnostic is an error."""
        return any(d.severity == "error" for d in self.diagnostics)


def compile_file(
    path: str,
    options: Options = Options(),
    *,
    text: str | None = None,
    hardware: Hardware | None = None,
    stop_after: str = "python",
    require_workflow: bool = False,
    files: Files | None = None,
) -> Compilation:
    """Run the passes on a file (or on ``text``, as if it stood in the file).

    Never raises for a user's mistake: errors are in ``diagnostics`` and later stages are None. A file
    without a workflow has nothing to lower; ``require_workflow`` makes that an error. ``files`` says where files
    come from, None for the disk.
    """
    hardware = hardware or detect()
    checked = check(
        path,
        text=text,
        workflow=options.workflow,
        target=options.target,
        overrides=options.overrides,
        hardware=hardware,
        require_workflow=require_workflow,
        files=files,
    )
    return compile_checked(checked, hardware=hardware, stop_after=stop_after, options=options)


def compile_checked(
    checked: CheckResult,
    *,
    hardware: Hardware,
    stop_after: str = "python",
    options: Options = Options(),
    evidence: Evidence | None = None,
) -> Compilation:
    """Run the passes after the checker, as `compile_file` does.

    Args:
        checked: the file.
        hardware: this machine.
        stop_after: the last stage.
        options: as of `compile_file`.
        evidence: what to decide by; None to look for it.
    """
    if checked.workflow is None or stop_after in ("ast", "check"):
        return Compilation(checked=checked, diagnostics=checked.diagnostics, workflow=checked.workflow)
    reached: dict[str, object] = {"workflow": checked.workflow}
    found: Sequence[Diagnostic] = ()
    try:
        with without_collections():
            _lower(checked.workflow, hardware, stop_after, options, evidence, reached)
    except DiagnosticError as error:
        found = error.diagnostics
    return Compilation(checked=checked, diagnostics=(*checked.diagnostics, *found), **reached)  # type: ignore[arg-type]


def _lower(
    workflow: Workflow,
    hardware: Hardware,
    stop_after: str,
    options: Options,
    given: Evidence | None,
    reached: dict[str, object],
) -> None:
    verify.verify_workflow(workflow)
    if stop_after == "ir":
        return
    evidence = reached["evidence"] = given or (_gather(workflow, hardware, options) if options.use_profiles else None)
    mapped = reached["mapped"] = map_workflow(workflow, evidence.unsliced if evidence is not None else None)
    verify.verify_mapped(mapped)
    if stop_after == "mapping":
        return
    sized = reached["sized"] = size(mapped, hardware=hardware, search=evidence.search if evidence is not None else None)
    verify.verify_sized(sized)
    if stop_after == "sizing":
        return
    # What `check` does not need is loaded here.
    from gmiflow.passes.comm_lowering import lower_comm
    from gmiflow.profiles.store import collectives_for

    target = workflow.target
    profile = collectives_for(hardware, target.device, target.gpu, target.devices)
    comm = reached["comm"] = lower_comm(sized, profile)
    verify.verify_comm(comm)
    if stop_after == "comm":
        return
    plan = reached["plan"] = make_plan(comm)
    if stop_after != "plan":
        from gmiflow.codegen.render import render  # Jinja2 is loaded only where programs are written

        reached["programs"] = render(plan)


def _gather(workflow: Workflow, hardware: Hardware, options: Options) -> Evidence:
    """What was measured of the workflow.

    Raises:
        DiagnosticError: E0507.
    """
    from gmiflow.profiles.evidence import EvidenceError, gather  # a check needs no measurements

    try:
        return gather(
            workflow,
            hardware,
            file=options.profile,
            require=options.require_profile,
            algorithm=options.algorithm,
        )
    except EvidenceError as error:
        problem = Diagnostic(code="E0507", message=str(error), span=workflow.span, notes=error.notes)
        raise DiagnosticError(problem) from error
