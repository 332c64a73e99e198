"""The tutorial, done: its files are written and its commands run, in order, and print what the page shows.

Numbers may differ, and `...` stands for any lines.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
STEP = re.compile(r"^```(sh|(?:python|gmi) file=(\S+))\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def without_numbers(text: str) -> list[str]:
    return [re.sub(r"\d[\d,.:-]*", "#", line).rstrip() for line in text.splitlines()]


def matches(expected: list[str], lines: list[str]) -> bool:
    """Whether the lines are as expected, where `...` stands for any number of lines."""
    if not expected:
        return not lines
    first, *rest = expected
    if first == "...":
        return any(matches(rest, lines[skip:]) for skip in range(len(lines) + 1))
    same = lines and (lines[0] == first or (first.endswith("...") and lines[0].startswith(first[:-3])))
    return bool(same) and matches(rest, lines[1:])


@pytest.mark.timeout(600)
def test_tutorial(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C"}
    gmiflow = f'gmiflow() {{ "{sys.executable}" -m gmiflow.cli "$@"; }}; '
    commands = 0
    for match in STEP.finditer(PAGE.read_text(encoding="utf-8")):
        _, file, text = match.groups()
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
            continue
        for command, expected in COMMAND.findall(text):
            done = subprocess.run(
                ["bash", "-c", f"exec 2>&1; {gmiflow}{command}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == ("error[" in expected), done.stdout
            assert matches(without_numbers(expected), without_numbers(done.stdout)), f"{command}\n{done.stdout}"
            commands += 1
    assert commands >= 10
