"""Every code has a page, and what the page shows is true."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from error_pages import FOLDER, FROM_TEXT, PAGES

from gmiflow.codes import TITLES
from gmiflow.source import Source
from gmiflow.syntax.formatter import format_source

ROOT = Path(__file__).parents[2]
INDEX = FOLDER / "README.md"
FAMILIES = {
    "E01": "Text and syntax",
    "E02": "Names",
    "E03": "Types and shapes",
    "E04": "Constraints",
    "E05": "Mapping and sizing",
    "E07": "Run time",
    "W": "Warnings",
}
SESSIONS = [page for page in PAGES if not page.from_text and not page.code.startswith("E07")]
RUN_TIME = [page for page in PAGES if page.code.startswith("E07")]


def code_of(page):
    return page.code


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_code_has_a_page_and_every_page_a_code():
    assert [page.code for page in PAGES] == sorted(TITLES)


@pytest.mark.parametrize("page", PAGES, ids=code_of)
def test_layout(page):
    lines = page.text.splitlines()
    assert lines[0] == f"# {page.code}: {TITLES[page.code]}"
    titles = [line[3:] for line in lines if line.startswith("## ")]
    examples = ["Gives the warning", "Does not"] if page.code.startswith("W") else ["Wrong", "Right"]
    assert titles in (examples, [*examples, "Notes"])
    summary = page.text.split("\n## ")[0].splitlines()[1:]
    assert any(line and not line.startswith("<!--") for line in summary)
    assert all(len(line) <= 250 for line in lines)


@pytest.mark.parametrize("page", FROM_TEXT, ids=code_of)
def test_the_wrong_example_gives_this_code(page, tmp_path):
    found = page.wrong.diagnostics(tmp_path, warnings=page.code.startswith("W"))
    codes = {diagnostic.code for diagnostic in found}
    assert page.code in codes
    assert page.code.startswith("W") or codes == {page.code}


@pytest.mark.parametrize("page", FROM_TEXT, ids=code_of)
def test_the_right_example_gives_nothing(page, tmp_path):
    assert page.right.diagnostics(tmp_path, warnings=page.code.startswith("W")) == ()


@pytest.mark.parametrize("page", PAGES, ids=code_of)
def test_examples_are_formatted(page):
    for example in (page.wrong, page.right):
        for language, _, text in example.blocks:
            formatted = format_source(Source("example.gmi", text)).text if language == "gmi" else None
            assert formatted in (text, None)


@pytest.mark.parametrize("side", ["wrong", "right"])
@pytest.mark.parametrize("page", SESSIONS, ids=code_of)
def test_sessions(page, side, tmp_path):
    """The commands of the page, in bash, give the output of the page; the page's `gmi` block is `example.gmi`."""
    for example in (page.wrong, page.right):
        example.write(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C"}
    gmiflow = f'gmiflow() {{ "{sys.executable}" -m gmiflow.cli "$@"; }}; '
    (session,) = (text for language, _, text in getattr(page, side).blocks if language == "sh")
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1; {gmiflow}{command}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stdout == expected
    assert side == "right" or page.code in session


@pytest.mark.parametrize("page", RUN_TIME, ids=code_of)
def test_run_time_pages(page):
    """Their Python parses, and the message that they show is of this code."""
    for example in (page.wrong, page.right):
        assert example.blocks
        for language, _, text in example.blocks:
            assert language in ("python", "sh")
            if language == "python":
                ast.parse(text)
            else:
                assert set(re.findall(r"error\[(\w+)\]", text)) <= {page.code}


def index() -> str:
    """What docs/errors/README.md must be."""
    lines = ["# Errors and warnings", "", "`gmiflow explain CODE` shows these pages on a terminal."]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}", "", "| code | meaning |", "|---|---|"]
        lines += [f"| [{code}]({code}.md) | {text} |" for code, text in TITLES.items() if code.startswith(family)]
    return "\n".join(lines) + "\n"


def test_the_index_lists_every_page(request):
    if request.config.getoption("--bless"):
        INDEX.write_text(index(), encoding="utf-8")
    assert INDEX.read_text(encoding="utf-8") == index()
