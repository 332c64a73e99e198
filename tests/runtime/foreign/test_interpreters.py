"""Interpreters that cannot be used, and classes that are not there: what the user is told."""

import os
import sys

import pytest
from foreign_support import HERE, foreign_stage, make_interpreter, set_up

from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.foreign.interpreter import environment, find_interpreter

OLD = """\
#!/bin/sh
exec {python} -c 'import sys; sys.version_info = (3, 7, 16); code = sys.argv[3]; sys.argv[:3] = ["-c"]; exec(code)' "$@"
"""


def failure_of(*arguments, **options):
    with pytest.raises(GMIError) as caught:
        set_up(*arguments, **options).close()
    return caught.value.failure


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_an_interpreter_that_is_not_there(tmp_path):
    failure = failure_of(tmp_path / "python")
    assert (failure.code, failure.message) == ("E0717", f"there is no interpreter {tmp_path / 'python'}")
    assert failure.notes[0].startswith("give the Python of the environment in which the simulator is installed")
    assert failure_of("no-such-python").message == "there is no `no-such-python` in PATH"


def test_a_folder_or_a_file_that_is_none(tmp_path):
    (tmp_path / "bin").mkdir()
    inside = script(tmp_path / "bin" / "python", "#!/bin/sh\n")
    failure = failure_of(tmp_path)
    assert failure.code == "E0717" and failure.notes == (f'write `python = "{inside}"`',)
    plain = script(tmp_path / "plain", "text", 0o644)
    assert failure_of(plain).message == f"{plain} may not be executed"
    assert (
        failure_of(script(tmp_path / "text", "text")).message
        == f"{tmp_path / 'text'} cannot be executed: Exec format error"
    )


def test_a_program_that_is_no_python():
    failure = failure_of("/bin/true")
    assert failure.code == "E0718"
    assert failure.message == "the interpreter of sim ended with status 0 during `load`"


def test_a_python_that_is_too_old(tmp_path):
    old = script(tmp_path / "python3.7", OLD.format(python=sys.executable))
    failure = failure_of(old)
    assert failure.code == "E0717"
    assert failure.message == f"{old} is Python 3.7, and a simulator's interpreter must be 3.8 or later"


def test_a_python_without_numpy(tmp_path):
    bare = make_interpreter(tmp_path, numpy=False)
    failure = failure_of(bare)
    assert (failure.code, failure.message) == ("E0717", f"NumPy cannot be imported in {bare}")
    assert failure.notes[0] == f"install it there: {bare} -m pip install numpy"
    assert failure.notes[-1] == "  ModuleNotFoundError: No module named 'numpy'"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"module": "no_such_module"}, "E0709", "there is no Python module no_such_module"),
        ({"name": "NoSuch"}, "E0709", "the module hosted_mass has no class NoSuch"),
        ({"name": "Incomplete"}, "E0709", "hosted_mass:Incomplete has no method `step`"),
        ({"module": "gmiflow.sim.nothing"}, "E0709", "there is no Python module gmiflow.sim.nothing"),
        (
            {"module": "needs_package", "name": "Simulator"},
            "E0701",
            "sim raised ModuleNotFoundError: No module named 'no_such_physics'",
        ),
    ],
)
def test_a_class_that_cannot_be_loaded(python, options, code, message):
    failure = failure_of(python, **options)
    assert (failure.code, failure.message) == (code, message)


def test_relative_paths_start_at_the_gmi_file(tmp_path, monkeypatch):
    beside = os.path.relpath(sys.executable, HERE)
    monkeypatch.chdir(tmp_path)
    assert find_interpreter(foreign_stage(beside)).samefile(sys.executable)
    monkeypatch.setenv("HOME", os.path.dirname(sys.executable))
    assert find_interpreter(foreign_stage("~/" + os.path.basename(sys.executable))).samefile(sys.executable)


def test_what_belongs_to_gmiflow_s_own_python_is_not_handed_on():
    ours = {"PYTHONPATH": "/packages", "PYTHONHOME": "/python", "PATH": "/bin", "OMP_NUM_THREADS": "64"}
    given = environment(ours, 3)
    assert not {"PYTHONPATH", "PYTHONHOME"} & given.keys()
    assert (given["PATH"], given["OMP_NUM_THREADS"]) == ("/bin", "3")
