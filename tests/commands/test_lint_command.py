"""`gmiflow lint` as users call it."""

import json

import pytest
from click.testing import CliRunner

from gmiflow.commands.lint import command
from gmiflow.diagnostics import Edit, apply_edits
from gmiflow.source import Source, Span

TEXT = "edition 1\n\nimport std.algo.ppo\n\nparam a : int = 1\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "test.gmi"
    path.write_text(TEXT)
    return path


def call(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_warnings_are_shown_and_are_no_failure(file):
    done = call(file)
    assert done.exit_code == 0
    assert "warning[W0201]: nothing uses the import `ppo`" in done.stderr
    assert call("--strict", file).exit_code == 1


def test_json(file):
    [warning] = json.loads(call("--format", "json", file).stdout)
    assert warning["code"] == "W0201"


def test_fix_writes_the_file(file):
    done = call("--fix", "--strict", file)
    assert done.exit_code == 0
    assert done.stderr == f"mended {file}\n"
    assert file.read_text() == "edition 1\n\n\nparam a : int = 1\n"


def test_fix_leaves_a_file_with_errors_alone(file):
    file.write_text(TEXT + "param b : nothing = 1\n")
    assert call("--fix", file).exit_code == 1
    assert file.read_text().startswith(TEXT)


def test_edits_that_overlap_wait_for_the_next_round():
    source = Source("x", "abcdef")
    edits = [
        Edit(span=Span(source, 1, 3), text=""),
        Edit(span=Span(source, 2, 4), text="X"),
        Edit(span=Span(source, 0, 1), text="Y"),
    ]
    assert apply_edits("abcdef", edits) == "YbXef"
