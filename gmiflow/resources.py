"""Where the files beside the code are: in the wheel, or in the checkout of an editable install."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
DATA = _PACKAGE / "_data"
"""Files that the wheel carries: `grammar/`, `stdlib/`, `examples/`, `errors/`, `gmi.tables`. Absent in a checkout."""


def grammar_path() -> Path:
    """The grammar, `gmi.lark`."""
    return _first(DATA / "grammar" / "gmi.lark", _PACKAGE.parent / "grammar" / "gmi.lark")


def stdlib_path() -> Path:
    """The folder that `std` names."""
    return _first(DATA / "stdlib", _PACKAGE.parent / "stdlib")


def standard_modules() -> list[str]:
    """The modules of the standard library, `std.tasks.ant`, in alphabetical order."""
    root = stdlib_path()
    return [".".join(("std", *path.relative_to(root).with_suffix("").parts)) for path in sorted(root.rglob("*.gmi"))]


def examples_path() -> Path:
    """The folder of the example workflows, `ant.gmi`."""
    return _first(DATA / "examples", _PACKAGE.parent / "examples")


def error_pages_path() -> Path:
    """The folder with a page per diagnostic code, `E0302.md`."""
    return _first(DATA / "errors", _PACKAGE.parent / "docs" / "errors")


def _first(packaged: Path, checkout: Path) -> Path:
    return packaged if packaged.exists() else checkout
