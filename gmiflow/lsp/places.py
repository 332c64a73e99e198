"""Places of the compiler as places of the protocol, in the file at hand and in others."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.documents import uri_of
from gmiflow.source import Span
from gmiflow.syntax import ast


def is_here(analysis: Analysis, span: Span) -> bool:
    """Whether a place is in the document itself."""
    return span.source.name == analysis.name


def range_of(analysis: Analysis, span: Span) -> types.Range:
    """The range of a place in the document."""
    return analysis.document.lines.range(span.start, span.end)


def location(analysis: Analysis, span: Span) -> types.Location | None:
    """The place in its file, None when that is no file that can be read (the text of a `--set`)."""
    if is_here(analysis, span):
        return types.Location(uri=analysis.document.uri, range=range_of(analysis, span))
    path = analysis.paths.get(span.source.name)
    return file_location(analysis, path, span) if path is not None else None


def file_location(analysis: Analysis, path: Path, span: Span) -> types.Location | None:
    """A place in a file that may be open in a buffer, None when it cannot be read."""
    lines = analysis.files.lines(path)
    if lines is None:
        return None
    document = analysis.files.at(path)
    uri = document.uri if document is not None else uri_of(path)
    return types.Location(uri=uri, range=lines.range(span.start, span.end))


def declaration_at(analysis: Analysis, offset: int) -> ast.Declaration | None:
    """The top-level declaration around an offset."""
    return next((item for item in analysis.items if item.span.start <= offset <= item.span.end), None)
