"""Every fenced `gmi` block of the documentation compiles, and the reference names everything that the language has.

A block without `edition` is a part of a file: what it uses and does not declare is put above it. A block whose fence
says `error=E0305` gives that error, and nothing else; `unformatted` is for one that shows a layout.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from error_pages import MACHINE

from gmiflow.passes.imports import MAX_IMPORT_DEPTH
from gmiflow.passes.settings import EDGE, MODE_BLOCK, MODES, NEEDS, SIZING, STAGE, STAGE_TYPE, TARGET, WORKFLOW
from gmiflow.pipeline import compile_file
from gmiflow.source import Source
from gmiflow.syntax.build_expressions import MAX_DEPTH
from gmiflow.syntax.formatter import format_source
from gmiflow.syntax.parser import MAX_BYTES, MAX_DECLARATIONS
from gmiflow.syntax.words import AXES, DIMENSIONS, DTYPES, FUNCTIONS, KEYWORDS, UNITS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "errors")])
FENCE = re.compile(r"^```gmi((?: \S+)*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ABOVE = {
    "cartpole": "import std.tasks.cartpole",
    "ppo": "import std.algo.ppo",
    "targets": "import std.targets",
    "gymnasium": "import std.sim.gymnasium",
    "sim": "simulator sim = cartpole.CartPole()",
    "actor": "agent actor = ppo.Actor()",
    "learner": "trainer learner = ppo.Learner()",
}


@dataclass(frozen=True)
class Block:
    """A fenced block; ``marks`` are the words behind `gmi` on its fence."""

    page: Path
    text: str
    marks: tuple[str, ...]

    @property
    def error(self):
        """The code that it gives, or None."""
        return next((mark.removeprefix("error=") for mark in self.marks if mark.startswith("error=")), None)


def blocks():
    for page in PAGES:
        for number, match in enumerate(FENCE.finditer(page.read_text(encoding="utf-8")), 1):
            block = Block(page, match.group(2), tuple(match.group(1).split()))
            yield pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")


def whole(text):
    """The block as a file of its own."""
    if re.search(r"^edition ", text, re.MULTILINE):
        return text
    above = []
    for name, line in reversed(ABOVE.items()):
        used = re.search(rf"\b{name}\b", "\n".join([text, *above]))
        if used and not re.search(rf"^(?:import|simulator|agent|trainer)\s.*\b{name}\b\s*(?:=|$)", text, re.MULTILINE):
            above.insert(0, line)
    return "\n".join(["edition 1", "", *above, "", text])


def write_modules(page, folder):
    """The page's Python blocks, as the files that they name or else by the class that they have."""
    for file, code in PYTHON.findall(page.read_text(encoding="utf-8")):
        for name in [file] if file else re.findall(r"^class (\w+)\(", code, re.MULTILINE):
            (folder / (name if file else f"{name.lower()}.py")).write_text(code, encoding="utf-8")


@pytest.mark.parametrize("block", list(blocks()))
def test_block(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_modules(block.page, tmp_path)
    result = compile_file("example.gmi", text=whole(block.text), hardware=MACHINE)
    expected = {block.error} if block.error else set()
    assert {d.code for d in result.diagnostics} == expected
    if re.search(r"^workflow ", block.text, re.MULTILINE) and not expected:
        assert result.programs


@pytest.mark.parametrize("block", list(blocks()))
def test_block_is_formatted(block):
    assert format_source(Source("example.gmi", block.text)).text == block.text or "unformatted" in block.marks


def settings():
    specs = {**WORKFLOW, **MODE_BLOCK, **SIZING, **EDGE, **STAGE, **STAGE_TYPE, **NEEDS, **TARGET}
    yield from specs
    yield from ("base", "sizing", "place", "needs", "devices", *MODES)
    for spec in specs.values():
        yield from spec.type.members


@pytest.mark.parametrize(
    "word",
    sorted(
        {*KEYWORDS, *UNITS, *DTYPES, *DIMENSIONS, *FUNCTIONS, *AXES, *settings(), "int", "float", "string", "weights"}
    ),
)
def test_the_reference_names(word):
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    code = " ".join(re.findall(r"`[^`]+`|^```.*?^```", text, re.DOTALL | re.MULTILINE))
    assert re.search(rf"(?<![\w/]){re.escape(word)}(?![\w/])", code)


def test_the_reference_has_the_limits():
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    section = text.partition("## Limits")[2].partition("## ")[0]
    for limit in (f"{MAX_BYTES >> 20} MiB", f"{MAX_DEPTH}", f"{MAX_DECLARATIONS:,}", f"{MAX_IMPORT_DEPTH} files"):
        assert f"| {limit} |" in section or f"| {limit}, or" in section


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), link


def test_the_readme_has_the_quickstart():
    assert (ROOT / "examples" / "quickstart.gmi").read_text(encoding="utf-8") in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    links = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", index.read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page not in (index, ROOT / "README.md")} <= links
