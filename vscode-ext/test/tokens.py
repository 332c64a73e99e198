"""The compiler's tokens of every `.gmi` file of the project that has no syntax errors, as JSON, for the grammar's test.

Offsets count UTF-16 units, as JavaScript does.
"""

import json
import sys
from pathlib import Path

from gmiflow.source import Source
from gmiflow.syntax import lexer
from gmiflow.syntax.comments import places
from gmiflow.syntax.parser import parse, read
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS, UNITS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "stdlib", "tests", "docs", "benchmarks")


def described(path: Path) -> dict[str, object] | None:
    """A file's text, tokens and comments; None for one with syntax errors."""
    source = read(path, path.name)
    if not isinstance(source, Source) or parse(source).diagnostics:
        return None
    text = source.text

    def units(offset: int) -> int:
        return len(text[:offset].encode("utf-16-le")) // 2 if not text.isascii() else offset

    found = [(t.type, t.start_pos, t.end_pos) for t in lexer.raw_tokens(text) if t.type != "_NL"]
    found += [("COMMENT", start, end) for start, end in places(text)]
    tokens = [(kind, units(start), units(end)) for kind, start, end in sorted(found, key=lambda token: token[1])]
    return {"name": str(path.relative_to(ROOT)), "text": text, "tokens": tokens}


def main() -> None:
    """Write everything to stdout."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.gmi"))
    files = [file for path in paths if (file := described(path)) is not None]
    declarations, keywords = sorted(DECLARATION_KEYWORDS), sorted(KEYWORDS)
    answer = {"files": files, "declarations": declarations, "keywords": keywords, "units": sorted(UNITS)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
