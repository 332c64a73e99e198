"""`gmiflow render` as a user meets it: a process, no display, a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

ROOT = Path(__file__).parents[2]


def gmiflow(*arguments, cwd, **variables):
    command = [sys.executable, "-m", "gmiflow.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **variables}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, env=environment)


def test_a_picture_is_named_after_its_task(tmp_path):
    done = gmiflow("render", "ant", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ant.png\n", "")
    assert (tmp_path / "ant.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_suffix_makes_it_a_movie(tmp_path):
    done = gmiflow("render", "cartpole", "--steps", "10", "-o", "cart.mp4", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "cart.mp4\n")
    assert (tmp_path / "cart.mp4").read_bytes()[4:8] == b"ftyp"  # the first box of an MP4 file, ISO 14496-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["render", "atn"], "there is no task atn; did you mean ant?"),
        (["render", "ant", "-o", "ant.jpg"], "ant.jpg: the file's name must end in .png, .mp4 or .gif"),
        (["render", "ant", "-o", "pictures/ant.png"], "pictures/ant.png: there is no folder pictures"),
        (["render", "ant", "--steps", "-1"], "-1 is not in the range"),
    ],
)
def test_wrong_usage(arguments, message, tmp_path):
    done = gmiflow(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_headless_opengl_it_says_what_is_missing(tmp_path):
    """Empty libraries under the names that the loader looks for stand in for a machine without OpenGL."""
    for name in ("libEGL.so.1", "libEGL.so.0", "libEGL.so", "libOSMesa.so.8", "libOSMesa.so"):
        (tmp_path / name).touch()
    (tmp_path / "ant.png").write_text("an older picture")
    done = gmiflow("render", "ant", cwd=tmp_path, LD_LIBRARY_PATH=str(tmp_path), PYOPENGL_PLATFORM="")
    assert done.returncode == 1
    first, *notes = done.stderr.splitlines()
    assert first == "error[E0715]: ant could not be drawn"
    assert any("egl: " in note for note in notes) and any("osmesa: " in note for note in notes)
    assert any("libegl1" in note for note in notes)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "ant.png").read_text() == "an older picture"
    assert not list(tmp_path.glob(".ant*"))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    done = gmiflow("render", "ant", "-o", "/proc/ant.png", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0].startswith("error[E0715]: /proc/ant.png cannot be written: ")


def test_who_draws_ends_with_the_command_even_when_that_is_killed(tmp_path):
    command = [sys.executable, "-m", "gmiflow.cli", "render", "cartpole", "--steps", "100000000"]
    command_process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    children = Path(f"/proc/{command_process.pid}/task/{command_process.pid}/children")
    (drawing,) = until(lambda: children.read_text().split(), "a process that draws")
    until(lambda: "gmiflow.tasks.render" in Path(f"/proc/{drawing}/cmdline").read_text(), "its command line")
    command_process.kill()
    command_process.wait()
    until(lambda: not _runs(drawing), "its end")


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_movie_without_its_packages_says_what_to_install(tmp_path):
    # A finder that overlooks a package makes the process one that does not have it.
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def overlook(name, *arguments, **options):\n"
        "    return None if name == 'imageio_ffmpeg' else find(name, *arguments, **options)\n"
        "PathFinder.find_spec = overlook\n"
    )
    done = gmiflow("render", "ant", "-o", "ant.mp4", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 1
    assert done.stderr.startswith("error[E0715]: ant.mp4 needs the Python package imageio_ffmpeg\n")
    assert "pip install 'gmiflow[render]'" in done.stderr
