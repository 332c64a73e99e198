"""The pages in docs/errors, taken apart: the examples are test cases.

A page has `## Wrong` and `## Right` (a warning's: `## Gives the warning` and `## Does not`). In each, the fenced `gmi`
block without a file name is the example; a block with `file=NAME` is a file beside it. A page with the comment
`<!-- not from text -->` is about something that no file's text can show.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import GPU, Hardware
from gmiflow.passes.lint import lint
from gmiflow.pipeline import compile_file

FOLDER = Path(__file__).parents[1] / "docs" / "errors"
MACHINE = Hardware(
    cores=4,
    gpus=(GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False),),
)
"""Four cores and one H200, whatever this machine has."""
_FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One side of a page: the fenced blocks as (language, file name or "", text)."""

    blocks: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> str:
        """The example itself."""
        (text,) = (text for language, file, text in self.blocks if language == "gmi" and not file)
        return text

    def write(self, folder: Path) -> None:
        """Write the example as `example.gmi`, and the files beside it."""
        for language, file, text in self.blocks:
            if language == "gmi":
                (folder / (file or "example.gmi")).write_text(text, encoding="utf-8")

    def diagnostics(self, folder: Path, *, warnings: bool) -> tuple[Diagnostic, ...]:
        """What the compiler (or the linter) says; ``folder`` is the working directory."""
        self.write(folder)
        if warnings:
            return lint("example.gmi")  # on a CPU, where small numbers of environments are normal
        return compile_file("example.gmi", hardware=MACHINE, stop_after="comm").diagnostics


@dataclass(frozen=True)
class Page:
    """One page."""

    code: str
    text: str
    from_text: bool
    wrong: Example
    right: Example


def read(path: Path) -> Page:
    """Take a page apart."""
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))

    def example(*titles: str) -> Example:
        found = next((sections[title] for title in titles if title in sections), "")
        return Example(tuple(match.groups(default="") for match in _FENCE.finditer(found)))

    return Page(
        code=path.stem,
        text=text,
        from_text="<!-- not from text -->" not in text,
        wrong=example("Wrong", "Gives the warning"),
        right=example("Right", "Does not"),
    )


PAGES = [read(path) for path in sorted(FOLDER.glob("[EW]*.md"))]
FROM_TEXT = [page for page in PAGES if page.from_text]
