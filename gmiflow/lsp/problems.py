"""The compiler's diagnostics as the protocol has them, and their fixes as code actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lsprotocol import types

from gmiflow import resources
from gmiflow.diagnostics import Diagnostic, Edit, Fix
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.documents import uri_of
from gmiflow.lsp.places import is_here, location, range_of
from gmiflow.passes.imports import Unit
from gmiflow.source import Source, Span
from gmiflow.syntax import ast

SOURCE = "gmiflow"
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.{SOURCE}"

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
_UNUSED = frozenset(("W0102", "W0201", "W0203", "W0204", "W0205"))
"""Warnings about what could be left out; editors show such text faded."""


def diagnostics(analysis: Analysis) -> list[types.Diagnostic]:
    """Everything that is wrong in a document. A mistake in a file that it imports is shown at the import."""
    return [convert(analysis, found) for found in analysis.deep.diagnostics]


def convert(analysis: Analysis, diagnostic: Diagnostic) -> types.Diagnostic:
    """One diagnostic with its notes, further places, and the page about its code."""
    span = diagnostic.span
    related = [
        types.DiagnosticRelatedInformation(location=place, message=text)
        for place, text in _places(analysis, diagnostic)
    ]
    message = diagnostic.message + (f" ({diagnostic.label})" if diagnostic.label else "")
    return types.Diagnostic(
        range=range_of(analysis, _place(analysis, span)),
        message="\n".join((message, *diagnostic.notes)),
        severity=_SEVERITIES[diagnostic.severity],
        code=diagnostic.code,
        code_description=types.CodeDescription(href=page(diagnostic.code)),
        source=SOURCE,
        related_information=related or None,
        tags=[types.DiagnosticTag.Unnecessary] if diagnostic.code in _UNUSED else None,
    )


def page(code: str) -> str:
    """URI of the page about a code."""
    return uri_of(resources.error_pages_path() / f"{code}.md")


def actions(
    analysis: Analysis, wanted: types.Range, only: Sequence[types.CodeActionKind | str] | None
) -> list[types.CodeAction]:
    """What can be mended in a range: each fix by itself, and all of them at once."""
    lines = analysis.document.lines
    start, end = lines.offset(wanted.start), lines.offset(wanted.end)
    found: list[types.CodeAction] = []
    if _asked(only, types.CodeActionKind.QuickFix.value):
        for diagnostic in analysis.deep.diagnostics:
            place = _place(analysis, diagnostic.span)
            if place.start <= end and start <= place.end:
                found += _quick_fixes(analysis, diagnostic)
    if _asked(only, FIX_ALL):
        edits = list(_without_overlaps(_all_edits(analysis)))
        if edits:
            change = _workspace_edit(analysis, edits)
            found.append(types.CodeAction(title="Mend everything that can be mended", kind=FIX_ALL, edit=change))
    return found


def _quick_fixes(analysis: Analysis, diagnostic: Diagnostic) -> Iterator[types.CodeAction]:
    shown = convert(analysis, diagnostic)
    usable = [fix for fix in diagnostic.fixes if _is_usable(analysis, fix)]
    for fix in usable:
        yield types.CodeAction(
            title=fix.title[:1].upper() + fix.title[1:],
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            is_preferred=len(usable) == 1,
            edit=_workspace_edit(analysis, fix.edits),
        )


def _is_usable(analysis: Analysis, fix: Fix) -> bool:
    return bool(fix.edits) and all(is_here(analysis, edit.span) for edit in fix.edits)


def _all_edits(analysis: Analysis) -> Iterator[Edit]:
    """The edits of every problem that has just one fix."""
    for diagnostic in analysis.deep.diagnostics:
        if len(diagnostic.fixes) == 1 and _is_usable(analysis, diagnostic.fixes[0]):
            yield from diagnostic.fixes[0].edits


def _without_overlaps(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Edits one behind the other; of several that insert at one place those that differ, in order."""
    end, inserted = -1, set[str]()
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end)):
        start, inserts = edit.span.start, edit.span.start == edit.span.end
        if start < end or (start == end and inserts and (not inserted or edit.text in inserted)):
            continue
        yield edit
        inserted = {*(inserted if start == end else ()), edit.text} if inserts else set()
        end = edit.span.end


def _workspace_edit(analysis: Analysis, edits: Iterable[Edit]) -> types.WorkspaceEdit:
    changes = [types.TextEdit(range=range_of(analysis, edit.span), new_text=edit.text) for edit in edits]
    return types.WorkspaceEdit(changes={analysis.document.uri: changes})


def _asked(only: Sequence[types.CodeActionKind | str] | None, kind: str) -> bool:
    """Whether a kind of action is asked for: by its name, or by the start of it."""
    if not only:
        return kind != FIX_ALL
    names = [item.value if isinstance(item, types.CodeActionKind) else item for item in only]
    return any(kind == name or kind.startswith(f"{name}.") or name == "" for name in names)


def _place(analysis: Analysis, span: Span | None) -> Span:
    """Where a diagnostic is shown: its place, or for one in another file the import that leads there."""
    if span is not None and is_here(analysis, span):
        return span
    source = analysis.checked.module.span.source if analysis.checked.module is not None else None
    if source is None:
        return Span(Source(analysis.name, analysis.text), 0, 0)
    if span is not None:
        for item in analysis.items:
            if isinstance(item, ast.Import) and _leads_to(analysis, item, span.source.name):
                return item.target_span
    return Span(source, 0, 0)


def _leads_to(analysis: Analysis, item: ast.Import, name: str) -> bool:
    """Whether an import is, or imports, the source of that name."""
    unit = analysis.unit
    alias = item.alias or (item.module.names[-1] if item.module else None)
    meaning = unit.names.get(alias.text) if unit is not None and alias is not None else None
    waiting, seen = [meaning], set[int]()
    while waiting:
        current = waiting.pop()
        if isinstance(current, Unit) and id(current) not in seen:
            seen.add(id(current))
            if current.source.name == name:
                return True
            waiting += [found for found in current.names.values() if isinstance(found, Unit)]
    return False


def _places(analysis: Analysis, diagnostic: Diagnostic) -> Iterator[tuple[types.Location, str]]:
    span = diagnostic.span
    if span is not None and not is_here(analysis, span):
        place = location(analysis, span)
        if place is not None:
            yield place, diagnostic.message
    for label in diagnostic.secondary:
        place = location(analysis, label.span)
        if place is not None:
            yield place, label.text
