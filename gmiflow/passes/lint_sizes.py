"""Lint rules about sizes that are legal and probably waste the device or the samples.

In: a file that checked, with its workflow on one target. Out: warnings at the settings' values.
"""

from __future__ import annotations

from collections.abc import Iterator

from gmiflow.diagnostics import Diagnostic, Edit, Fix
from gmiflow.ir.workflow import Component, Workflow
from gmiflow.passes.check import CheckResult
from gmiflow.source import Span
from gmiflow.syntax import ast

WARP = 32
"""Threads that a GPU runs together; a kernel over environments wastes what the last warp lacks."""
FEW_ENVIRONMENTS = 512
"""Per GPU; with fewer, launches and not arithmetic take the time."""
SMALL_MINIBATCH = 256
"""Samples; with fewer, gradients are noisy and each costs nearly as much as a larger one."""


def warnings(result: CheckResult) -> Iterator[Diagnostic]:
    """Warnings about the sizes of the checked workflow."""
    workflow, module = result.workflow, result.module
    if workflow is None or module is None:
        return
    declared = next((i for i in module.items if isinstance(i, ast.Workflow) and i.name.text == workflow.name), None)
    if declared is None:
        return
    yield from _environments(workflow, declared, module)
    if workflow.horizon == 1 and workflow.mode != "serve":
        notes = ("advantages look one step ahead only, and every step pays for an update",)
        yield _warning("W0504", "rollouts of one step", _value_of(declared, "horizon"), notes)
    for component in {component.stages: component for component in workflow.components}.values():
        yield from _minibatches(workflow, component)


def _environments(workflow: Workflow, declared: ast.Workflow, module: ast.Module) -> Iterator[Diagnostic]:
    num_env, target = workflow.num_env, workflow.target
    if isinstance(num_env, str) or target.device != "cuda":
        return
    span = _value_of(declared, "num_env")
    if num_env % WARP:
        nearest = max(WARP, round(num_env / WARP) * WARP)
        notes = (f"a GPU runs environments in groups of {WARP}; nearest: {nearest}",)
        literal = _literal(declared, "num_env", module)
        fixes = (Fix(title=f"write `{nearest}`", edits=(Edit(span=literal, text=str(nearest)),)),) if literal else ()
        yield _warning("W0503", f"{num_env} environments are no multiple of {WARP}", span, notes, fixes)
    if num_env < FEW_ENVIRONMENTS * target.devices:
        devices = f" on {target.devices} GPUs" if target.devices > 1 else " on a GPU"
        notes = ("with so few the GPU mostly waits for the next launch; `num_env = auto` lets sizing choose",)
        yield _warning("W0506", f"only {num_env} environments{devices}", span, notes)


def _minibatches(workflow: Workflow, component: Component) -> Iterator[Diagnostic]:
    trainer = component.stage("trainer")
    minibatches = dict(trainer.params).get("minibatches") if trainer is not None else None
    if trainer is None or isinstance(workflow.num_env, str) or not isinstance(minibatches, int):
        return
    samples = workflow.num_env * workflow.horizon // max(1, minibatches)
    if 0 < samples < SMALL_MINIBATCH:
        notes = (f"{workflow.num_env} environments x {workflow.horizon} steps / {minibatches} minibatches = {samples}",)
        yield _warning("W0505", f"minibatches of {samples} samples", trainer.span, notes)


def _setting(declared: ast.Workflow, name: str) -> ast.Setting | None:
    return next((s for s in declared.body if isinstance(s, ast.Setting) and s.name.text == name), None)


def _value_of(declared: ast.Workflow, name: str) -> Span:
    setting = _setting(declared, name)
    return setting.value.span if setting else declared.name.span


def _literal(declared: ast.Workflow, name: str, module: ast.Module) -> Span | None:
    """The number that decides a setting: its value, or the default of the parameter that it names."""
    setting = _setting(declared, name)
    value = setting.value if setting else None
    if isinstance(value, ast.Path) and len(value.names) == 1:
        param = next((i for i in module.items if isinstance(i, ast.Param) and i.name.text == value.text), None)
        value = param.default if param else None
    return value.span if isinstance(value, ast.Constant) and value.kind == "int" else None


def _warning(
    code: str, message: str, span: Span, notes: tuple[str, ...] = (), fixes: tuple[Fix, ...] = ()
) -> Diagnostic:
    return Diagnostic(code=code, message=message, span=span, severity="warning", notes=notes, fixes=fixes)
