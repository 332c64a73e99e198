"""Every `.gmi` file here is wrong; the `.txt` beside it is what `gmiflow check` says about it.

The file is named after the code that it must produce (or after the property that it shows). Run pytest
with `--bless` to write the texts again, and read the difference.
"""

import re
from pathlib import Path

import pytest

from gmiflow.codes import TITLES
from gmiflow.diagnostics import render_text
from gmiflow.passes.check import check

HERE = Path(__file__).parent
CASES = sorted(path.stem for path in HERE.glob("*.gmi"))
ELSEWHERE = {"E0105", "E0106", "E0108", "E0205", "E0215", "E0501", "E0502", "E0503", "E0507"}
"""Codes whose failing input is no single `.gmi` file: tested in tests/syntax and tests/passes."""


@pytest.fixture(autouse=True)
def in_this_folder(monkeypatch):
    monkeypatch.chdir(HERE)


@pytest.mark.parametrize("case", CASES)
def test_message(case, request):
    diagnostics = check(f"{case}.gmi").diagnostics
    text = render_text(diagnostics)
    expected = HERE / f"{case}.txt"
    if request.config.getoption("--bless", default=False):
        expected.write_text(text, encoding="utf-8", newline="")
    assert text == expected.read_bytes().decode()
    code = re.match(r"[EW]\d{4}", case)
    if code:
        assert {d.code for d in diagnostics} == {code.group()}


def test_every_error_code_has_a_case():
    errors = {code for code in TITLES if code.startswith("E") and not code.startswith("E07")}  # not run time
    covered = {match.group() for case in CASES if (match := re.match(r"[EW]\d{4}", case))}
    assert errors - covered - ELSEWHERE == set()


@pytest.mark.parametrize("case", CASES)
def test_fixes_apply_cleanly(case):
    """A fix changes the text where it says, and the result no longer has that diagnostic at that place.

    What a message proposes to write, a fix writes.
    """
    diagnostics = check(f"{case}.gmi").diagnostics
    for diagnostic in diagnostics:
        assert diagnostic.fixes or not any(note.startswith("did you mean `") for note in diagnostic.notes)
        for fix in diagnostic.fixes:
            edits = sorted(fix.edits, key=lambda edit: -edit.span.start)
            if any(edit.span.source.name != f"{case}.gmi" for edit in edits):
                continue
            text = edits[0].span.source.text
            for edit in edits:
                text = text[: edit.span.start] + edit.text + text[edit.span.end :]
            after = check(f"{case}.gmi", text=text).diagnostics
            assert (diagnostic.code, diagnostic.message) not in {(d.code, d.message) for d in after}
