"""Files that commands write where the user says: whole, or not at all."""

import errno
import os
import stat

import click
import pytest

from gmiflow.commands.output import replace_output, write_output


def test_a_full_disk_costs_nobody_the_file_that_was_there(tmp_path):
    kept = tmp_path / "plan.json"
    kept.write_text("old")

    def fails(path):
        path.write_text("half of the n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(click.UsageError, match=r"cannot write .*plan.json: no space left on device"):
        replace_output(str(kept), fails)
    assert kept.read_text() == "old" and os.listdir(tmp_path) == ["plan.json"]


def test_links_and_modes_stay(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_output(str(link), "new")
    assert link.is_symlink() and target.read_text() == "new" and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.txt", "target.txt"]


def test_what_is_no_plain_file_is_written_at_once(tmp_path):
    reading, writing = os.pipe()
    try:
        write_output(f"/proc/self/fd/{writing}", "text")
        assert os.read(reading, 100) == b"text"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("name", "words"), [("nowhere/x.svg", "no such file"), ("file/x.svg", "not a directory")])
def test_a_place_that_cannot_be_is_named(tmp_path, name, words):
    (tmp_path / "file").touch()
    with pytest.raises(click.UsageError, match=words):
        write_output(str(tmp_path / name), "text")
    with pytest.raises(click.UsageError, match="is a directory"):
        write_output(str(tmp_path), "text")
