"""Machine-readable renderings of diagnostics: JSON and SARIF 2.1.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from gmiflow import __version__
from gmiflow.codes import TITLES
from gmiflow.diagnostics import Diagnostic, Fix
from gmiflow.source import Span

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(diagnostics: Sequence[Diagnostic]) -> str:
    """A JSON array; places have 1-based lines and columns (code points) and 0-based offsets."""
    return json.dumps([_diagnostic(d) for d in diagnostics], indent=2, ensure_ascii=False) + "\n"


def render_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """A SARIF 2.1.0 log with one run, for code-scanning services."""
    codes = sorted({d.code for d in diagnostics})
    rules = [
        {"id": code, "shortDescription": {"text": TITLES[code]}, "help": {"text": f"gmiflow explain {code}"}}
        for code in codes
    ]
    driver = {"name": "gmiflow", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(d, codes.index(d.code)) for d in diagnostics],
    }
    return (
        json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"
    )


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "place": _place(diagnostic.span),
        "label": diagnostic.label,
        "secondary": [{"place": _place(label.span), "text": label.text} for label in diagnostic.secondary],
        "notes": list(diagnostic.notes),
        "fixes": [
            {"title": fix.title, "edits": [{"place": _place(edit.span), "text": edit.text} for edit in fix.edits]}
            for fix in diagnostic.fixes
        ],
        "docs": diagnostic.docs,
    }


def _place(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "start": span.start,
        "end": span.end,
    }


def _sarif_result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.severity,
        "message": {"text": "\n".join((diagnostic.message, *diagnostic.notes))},
        "locations": [{"physicalLocation": _sarif_place(diagnostic.span)}] if diagnostic.span else [],
    }
    if diagnostic.secondary:
        result["relatedLocations"] = [
            {"id": index, "physicalLocation": _sarif_place(label.span), "message": {"text": label.text}}
            for index, label in enumerate(diagnostic.secondary)
        ]
    if diagnostic.fixes:
        result["fixes"] = [_sarif_fix(fix) for fix in diagnostic.fixes]
    return result


def _sarif_place(span: Span) -> dict[str, Any]:
    return {"artifactLocation": _artifact(span), "region": _region(span)}


def _artifact(span: Span) -> dict[str, str]:
    return {"uri": quote(span.source.name.replace("\\", "/"))}


def _region(span: Span) -> dict[str, int]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _sarif_fix(fix: Fix) -> dict[str, Any]:
    by_file: dict[str, list[dict[str, Any]]] = {}
    artifacts: dict[str, dict[str, str]] = {}
    for edit in fix.edits:
        artifact = artifacts.setdefault(edit.span.source.name, _artifact(edit.span))
        replacement = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
        by_file.setdefault(artifact["uri"], []).append(replacement)
    changes = [{"artifactLocation": {"uri": uri}, "replacements": items} for uri, items in by_file.items()]
    return {"description": {"text": fix.title}, "artifactChanges": changes}
