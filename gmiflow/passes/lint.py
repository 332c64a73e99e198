"""The linter: what is legal but probably not meant.

In: a file. Out: the checker's diagnostics and warnings about names that nothing uses, names that hide others and
sizes that waste a GPU. A warning is silenced by `// gmi: allow(W0203) reason` on its line or on the line before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, in_order
from gmiflow.passes import lint_names, lint_sizes
from gmiflow.passes.allow import read_allows, split, unused
from gmiflow.passes.check import CheckResult, check
from gmiflow.passes.imports import Files, Loader
from gmiflow.passes.report import Report
from gmiflow.syntax import ast

if TYPE_CHECKING:
    from gmiflow.hardware import Hardware

MAX_COMBINATIONS = 32
"""Workflows times targets whose sizes are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Linted:
    """What the linter found.

    Attributes:
        diagnostics: errors and warnings of the file, and errors of what it imports, sorted by place.
        results: one check per workflow and target; the first is the one of a file without either.
    """

    diagnostics: tuple[Diagnostic, ...]
    results: tuple[CheckResult, ...]


def lint(
    path: str, *, text: str | None = None, hardware: Hardware | None = None, files: Files | None = None
) -> tuple[Diagnostic, ...]:
    """Check and lint a file.

    Args:
        path: as the user names it.
        text: content to use in place of the file's.
        hardware: this machine, for a file without a target.
        files: where files come from, None for the disk.

    Returns:
        Errors and warnings of this file, and errors of what it imports, sorted by place.
    """
    return lint_results(path, text=text, hardware=hardware, files=files).diagnostics


def lint_results(
    path: str, *, text: str | None = None, hardware: Hardware | None = None, files: Files | None = None
) -> Linted:
    """As `lint`, with the checks behind the diagnostics."""
    unit = Loader(Report(), files).load(Path(path), path, text=text)
    if unit is None:
        result = check(path, text=text, hardware=hardware, files=files)
        return Linted(diagnostics=result.diagnostics, results=(result,))
    results = tuple(_checked(path, text, unit.module, hardware, files))
    found = [diagnostic for result in results for diagnostic in result.diagnostics]
    if not any(diagnostic.severity == "error" for diagnostic in found):
        found += lint_names.warnings(unit)
        found += [w for result in results if result.workflow is not None for w in lint_sizes.warnings(result)]
        found += [warning for result in results for warning in result.allowed]
        allows, problems = read_allows(unit.source)
        kept, _ = split(allows, found)
        return Linted(diagnostics=in_order([*kept, *problems, *unused(allows)]), results=results)
    return Linted(diagnostics=in_order(found), results=results)


def _checked(
    path: str, text: str | None, module: ast.Module, hardware: Hardware | None, files: Files | None
) -> Iterator[CheckResult]:
    """Check every workflow on every target of the file that can be had without arguments."""
    workflows: list[str | None] = [item.name.text for item in module.items if isinstance(item, ast.Workflow)]
    targets: list[str | None] = [
        item.name.text
        for item in module.items
        if isinstance(item, ast.Target) and all(param.default is not None for param in item.params or ())
    ]
    pairs = [(workflow, target) for workflow in workflows or [None] for target in targets or [None]]
    for workflow, target in pairs[:MAX_COMBINATIONS]:
        wanted = target if workflow is not None else None
        yield check(path, text=text, workflow=workflow, target=wanted, hardware=hardware, files=files)
