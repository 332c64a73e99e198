"""What the lenses show: the plan of a workflow as text, and its graph as SVG."""

from __future__ import annotations

from gmiflow.commands.compile import emitted
from gmiflow.commands.plan_view import headline, promise
from gmiflow.diagnostics import render_text
from gmiflow.graphs.diagram import diagram
from gmiflow.graphs.svg import svg
from gmiflow.lsp.analysis import Analysis
from gmiflow.pipeline import Compilation, compile_checked
from gmiflow.syntax import ast


def explanation(analysis: Analysis, workflow: str) -> str:
    """What the compiler chose for a workflow on every target of the file, and why; or what is wrong with it."""
    parts: list[str] = []
    for compilation in _of(analysis, workflow):
        compiled = compile_checked(compilation.checked, hardware=analysis.hardware, stop_after="plan")
        if compiled.failed or compiled.plan is None:
            parts.append(render_text(compiled.diagnostics))
            continue
        parts.append("\n".join((*headline(compiled.plan), *promise(compiled.plan))) + "\n")
        parts += [f"{stage}\n{emitted(compiled, stage)}" for stage in ("mapping", "sizing", "comm")]
    return "\n".join(parts) or _failure(analysis, workflow)


def choices(analysis: Analysis) -> dict[str, list[str]]:
    """The workflows and targets that a command line may have to name, in order of declaration."""
    unit = analysis.unit
    kinds = {"workflows": ast.Workflow, "targets": ast.Target}
    return {key: [item.name.text for item in unit.declared(kind)] if unit else [] for key, kind in kinds.items()}


def graph(analysis: Analysis, workflow: str) -> tuple[str, str]:
    """The graph of a workflow as SVG, or "" and what is wrong with it."""
    found = next(iter(_of(analysis, workflow)), None)
    if found is None or found.workflow is None:
        return "", _failure(analysis, workflow)
    return svg(diagram(found.workflow)), ""


def _of(analysis: Analysis, workflow: str) -> list[Compilation]:
    """Compilations of a workflow; for "" of the first."""
    found = [c for c in analysis.deep.compilations if c.workflow is not None]
    wanted = workflow or (found[0].workflow.name if found and found[0].workflow is not None else "")
    return [c for c in found if c.workflow is not None and c.workflow.name == wanted]


def _failure(analysis: Analysis, workflow: str) -> str:
    errors = [d for d in analysis.deep.diagnostics if d.severity == "error"]
    name = f"workflow `{workflow}`" if workflow else "a workflow"
    return render_text(errors) if errors else f"{analysis.document.path.name} has no {name}\n"
