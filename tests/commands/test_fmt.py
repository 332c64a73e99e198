"""`gmiflow fmt` as users call it: files, stdin, --check, --diff, and what it leaves alone."""

import os
import stat

import pytest
from click.testing import CliRunner

from gmiflow.commands import fmt
from gmiflow.syntax import formatter

MESSY = "edition 1\nparam a:int=1 // why\n"
TIDY = "edition 1\n\nparam a : int = 1  // why\n"


def call(*arguments: str, stdin: bytes | None = None):
    return CliRunner().invoke(fmt.command, arguments, input=stdin)


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "messy.gmi"
    path.write_text(MESSY)
    return path


def test_files_are_written_in_place_and_keep_their_mode(messy):
    messy.chmod(0o640)
    done = call(str(messy))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"reformatted {messy}\n"
    assert messy.read_text() == TIDY
    assert stat.S_IMODE(messy.stat().st_mode) == 0o640
    assert os.listdir(messy.parent) == ["messy.gmi"]


def test_a_tidy_file_is_not_touched(tmp_path):
    path = tmp_path / "tidy.gmi"
    path.write_text(TIDY)
    before = path.stat().st_mtime_ns
    assert call(str(path)).stderr == ""
    assert path.stat().st_mtime_ns == before


def test_check_names_files_and_writes_nothing(messy, tmp_path):
    tidy = tmp_path / "tidy.gmi"
    tidy.write_text(TIDY)
    done = call("--check", str(messy), str(tidy))
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"would reformat {messy}\n")
    assert messy.read_text() == MESSY
    assert call("--check", str(tidy)).exit_code == 0


def test_diff_is_data_and_writes_nothing(messy):
    done = call("--diff", str(messy))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[2:] == [
        "@@ -1,2 +1,3 @@",
        " edition 1",
        "-param a:int=1 // why",
        "+",
        "+param a : int = 1  // why",
    ]
    assert messy.read_text() == MESSY


def test_stdin_goes_to_stdout():
    assert call("-", stdin=MESSY.encode()).stdout == TIDY
    assert call("-", stdin=TIDY.encode()).stdout == TIDY
    assert call("--check", "-", stdin=MESSY.encode()).exit_code == 1


def test_line_ends_stay_and_the_byte_order_mark_goes(tmp_path):
    path = tmp_path / "windows.gmi"
    path.write_bytes(b"\xef\xbb\xbf" + TIDY.replace("\n", "\r\n").encode())
    assert call(str(path)).exit_code == 0
    assert path.read_bytes() == TIDY.replace("\n", "\r\n").encode()


@pytest.mark.parametrize(
    ("content", "code"), [(b"edition 1\nparam in : int\n", "E0113"), (b"\xff\xfe", "E0105"), (b"a\0b", "E0105")]
)
def test_files_that_cannot_be_parsed_are_left_alone_and_others_are_not(messy, tmp_path, content, code):
    path = tmp_path / "broken.gmi"
    path.write_bytes(content)
    done = call(str(path), str(messy))
    assert done.exit_code == 1
    assert f"error[{code}]" in done.stderr
    assert path.read_bytes() == content
    assert messy.read_text() == TIDY


def test_a_missing_file_is_an_error(tmp_path):
    done = call(str(tmp_path / "none.gmi"))
    assert done.exit_code == 1
    assert "no such file" in done.stderr


def test_a_formatter_that_loses_something_leaves_the_file_alone(messy, monkeypatch):
    monkeypatch.setattr(formatter, "layout", lambda text, tokens: "edition 1\n")
    done = call(str(messy))
    assert done.exit_code == 1
    assert done.stderr.startswith("internal error: ")
    assert messy.read_text() == MESSY
