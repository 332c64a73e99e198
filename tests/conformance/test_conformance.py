"""The conformance corpus: what the compiler says about each `.gmi` file here, compared with the `.txt` beside it.

`parse` shows the syntax tree, `check` the checked workflow, `lower` everything from mapping to the launch plan; a file
with mistakes shows its diagnostics instead, and warnings stand before the rest. The examples of docs/errors belong
to the corpus, too: for every code a failing and a mended case. Files in `modules` are imported by others.

A first line `// options: --workflow W --target T --set PATH=VALUE` gives options. Run with `--bless` to write the
texts again, and read the difference.
"""

import argparse
import re
import shlex
from pathlib import Path

import pytest
from error_pages import FROM_TEXT, MACHINE

from gmiflow import __version__
from gmiflow.codes import TITLES
from gmiflow.commands.compile import emitted
from gmiflow.diagnostics import in_order, render_text
from gmiflow.pipeline import Options, compile_file
from gmiflow.syntax import parser
from gmiflow.syntax.text import module_text

HERE = Path(__file__).parent
STAGES = {"check": ("ir",), "lower": ("mapping", "sizing", "comm", "plan")}
CASES = sorted((path.parent.name, path.stem) for path in HERE.glob("*/*.gmi"))
PAGE_CASES = [(page, side) for page in FROM_TEXT for side in ("wrong", "right")]


def options(text: str) -> Options:
    """Options from the first line."""
    mark, _, line = text.partition("\n")[0].partition("// options:")
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--workflow")
    arguments.add_argument("--target")
    arguments.add_argument("--set", action="append", default=[])
    chosen = arguments.parse_args(shlex.split(line) if not mark else [])
    pairs = tuple(tuple(item.split("=", 1)) for item in chosen.set)
    return Options(workflow=chosen.workflow, target=chosen.target, overrides=pairs)


def parsed(path: str) -> str:
    """Tree or diagnostics of the parser alone."""
    source = parser.read(Path(path), path)
    assert not hasattr(source, "code"), source
    result = parser.parse(source)
    return render_text(in_order(result.diagnostics)) or module_text(result.module)


def compiled(path: str, stages: tuple[str, ...]) -> str:
    """Diagnostics and, without errors, the text of the stages."""
    text = Path(path).read_text(encoding="utf-8-sig")
    compilation = compile_file(path, options(text), hardware=MACHINE, stop_after=stages[-1])
    said = render_text(in_order(compilation.diagnostics))
    if compilation.failed or compilation.workflow is None:
        return said or "nothing to compile\n"
    parts = [emitted(compilation, stage).replace(f"gmiflow {__version__}", "gmiflow") for stage in stages]
    return "\n".join([said, *parts] if said else parts)


def stable(text: str) -> str:
    """Without line numbers and source lines of gmiflow's own Python files, which the pages' examples name."""
    return re.sub(r"--> \S*/(\w+\.py):\d+:\d+\n.*\n.*\n( *\|).*[-^]+ (.*)\n", r"--> \1\n\2 \3\n", text)


def compare(expected: Path, text: str, request) -> None:
    if request.config.getoption("--bless"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text, encoding="utf-8", newline="")
    assert expected.exists(), f"no expected text {expected.name}: run pytest with --bless and read it"
    assert text == expected.read_bytes().decode()


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_case(folder, name, request, monkeypatch):
    monkeypatch.chdir(HERE / folder)
    text = parsed(f"{name}.gmi") if folder == "parse" else compiled(f"{name}.gmi", STAGES[folder])
    compare(HERE / folder / f"{name}.txt", text, request)


@pytest.mark.parametrize(("page", "side"), PAGE_CASES, ids=lambda value: getattr(value, "code", value))
def test_case_of_an_error_page(page, side, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = render_text(getattr(page, side).diagnostics(tmp_path, warnings=page.code.startswith("W")))
    if side == "right":
        assert text == ""
    else:
        compare(HERE / "pages" / f"{page.code}.txt", stable(text), request)


def test_the_corpus_is_large_and_nothing_lies_around():
    assert len(CASES) + len(PAGE_CASES) >= 120
    assert min(sum(folder == kind for folder, _ in CASES) for kind in ("parse", *STAGES)) >= 20
    expected = {(folder, name) for folder, name in CASES} | {("pages", page.code) for page in FROM_TEXT}
    assert {(path.parent.name, path.stem) for path in HERE.glob("*/*.txt")} == expected


def test_every_code_that_a_text_can_show_has_a_failing_and_a_mended_case():
    """Other codes (a missing file, `--set`, run time) are tested where they arise, and by the pages' sessions."""
    elsewhere = {"E0105", "E0106", "E0108", "E0205", "E0215", "E0507"}
    shown = {code for code in TITLES if not code.startswith("E07")} - elsewhere
    assert {page.code for page in FROM_TEXT} == shown
