"""Where the checker collects what is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label, Severity, suggestion
from gmiflow.source import Span

MAX_SHOWN = 8
"""Members of a cycle that a message shows."""


class Report:
    """Collects diagnostics. A part that reported a problem answers None, and whoever gets None stays silent."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def __len__(self) -> int:
        return len(self.diagnostics)

    @property
    def failed(self) -> bool:
        """Whether there is an error so far."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def add(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        severity: Severity = "error",
        label: str = "",
        secondary: Iterable[tuple[Span, str]] = (),
        notes: Iterable[str] = (),
        replace: str | None = None,
        fixes: tuple[Fix, ...] = (),
    ) -> None:
        """Add one diagnostic; ``replace`` offers to put that text in place of ``span``, ``fixes`` other changes."""
        if replace is not None and span is not None:
            fixes = (Fix(title=f"write `{replace.strip()}`", edits=(Edit(span=span, text=replace),)), *fixes)
        self.diagnostics.append(
            Diagnostic(
                code=code,
                message=message,
                span=span,
                severity=severity,
                label=label,
                secondary=tuple(Label(span=place, text=text) for place, text in secondary),
                notes=tuple(notes),
                fixes=fixes,
            )
        )

    def unknown(
        self,
        code: str,
        message: str,
        span: Span,
        name: str,
        candidates: Iterable[str],
        *,
        what: str = "",
        note: str = "",
    ) -> None:
        """Add a diagnostic about a name that does not exist: ``note``, or "did you mean", or a list of all."""
        known = sorted(set(candidates))
        notes, fixes = suggestion(span, name, known) if not note else ((note,), ())
        if not notes and what and known:
            shown = ", ".join(f"`{candidate}`" for candidate in known[:12]) + (", ..." if len(known) > 12 else "")
            notes = (f"{what}: {shown}",)
        self.diagnostics.append(Diagnostic(code=code, message=message, span=span, notes=notes, fixes=fixes))
