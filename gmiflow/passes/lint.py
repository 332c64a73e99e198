"""The linter: what is legal but probably not meant.

In: a file. Out: the checker's diagnostics and warnings about names that nothing uses, names that hide others and
sizes that waste a GPU. A warning is silenced by `// gmi: allow(W0203) reason` on its line or on the line before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, in_order
from gmiflow.passes import lint_names, lint_sizes
from gmiflow.passes.allow import read_allows, split, unused
from gmiflow.passes.check import CheckResult, check_all

if TYPE_CHECKING:
    from gmiflow.hardware import Hardware


def lint(path: str, *, text: str | None = None, hardware: Hardware | None = None) -> tuple[Diagnostic, ...]:
    """Check and lint a file.

    Args:
        path: as the user names it.
        text: content to use in place of the file's.
        hardware: this machine, for a file without a target.

    Returns:
        Errors and warnings of this file, and errors of what it imports, sorted by place.
    """
    return lint_results(check_all(path, text=text, hardware=hardware))


def lint_results(results: Sequence[CheckResult]) -> tuple[Diagnostic, ...]:
    """As `lint`, for a file that `check_all` has checked."""
    model = results[0].model
    if model is None:
        return results[0].diagnostics
    unit = model.scope.unit
    found = [diagnostic for result in results for diagnostic in result.diagnostics]
    if any(diagnostic.severity == "error" for diagnostic in found):
        return in_order(found)
    found += lint_names.warnings(unit)
    found += [w for result in results if result.workflow is not None for w in lint_sizes.warnings(result)]
    found += [warning for result in results for warning in result.allowed]
    allows, problems = read_allows(unit.source)
    kept, _ = split(allows, found)
    return in_order([*kept, *problems, *unused(allows)])
