"""Which file a stage's `python = "..."` names, and what the interpreter is started with."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gmiflow.plan import StagePlan
from gmiflow.runtime.failure import ENTRY_UNUSABLE, INTERPRETER_UNUSABLE, error

_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that belong to gmiflow's own interpreter: its packages are for another version of Python."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def find_interpreter(plan: StagePlan) -> Path:
    """The interpreter of a stage: a bare name is looked up in PATH, a relative path beside the `.gmi` file.

    Raises:
        GMIError: E0717 when there is none, or it may not be run.
    """
    assert plan.python is not None, "the stage asks for an interpreter"
    given = os.path.expanduser(plan.python)
    if os.sep not in given:
        found = shutil.which(given)
        if found is None:
            raise error(INTERPRETER_UNUSABLE, f"there is no `{given}` in PATH", _MEND)
        return Path(found)
    path = folder_of(plan) / given
    if path.is_dir():
        inside = next((str(path / name) for name in ("bin/python", "python") if (path / name).is_file()), None)
        mend = f"write `python = {_quoted(inside)}`" if inside else _MEND
        raise error(INTERPRETER_UNUSABLE, f"{path} is a folder, not an interpreter", mend)
    if not path.is_file():
        raise error(INTERPRETER_UNUSABLE, f"there is no interpreter {path}", _MEND)
    if not os.access(path, os.X_OK):
        raise error(INTERPRETER_UNUSABLE, f"{path} may not be executed", _MEND)
    return path


_MEND = "give the Python of the environment in which the simulator is installed, for example `/path/to/venv/bin/python`"


def _quoted(text: str | None) -> str:
    return f'"{text}"'


def folder_of(plan: StagePlan) -> Path:
    """The folder of the `.gmi` file that declares the stage."""
    return Path(plan.file).absolute().parent


def search_folders(plan: StagePlan) -> list[str]:
    """Where modules are looked up after the interpreter's own: beside the `.gmi` file and where the user works."""
    return [str(folder) for folder in dict.fromkeys((folder_of(plan), Path.cwd())) if folder.is_dir()]


def adapter_file(entry: str) -> str | None:
    """The file of an entry inside gmiflow, which the other interpreter cannot import; None for other entries.

    Raises:
        GMIError: E0709 when gmiflow has no such module.
    """
    module = entry.partition(":")[0]
    if module.partition(".")[0] != "gmiflow":
        return None
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise error(ENTRY_UNUSABLE, f"there is no Python module {module}")
    return spec.origin


def environment(given: Mapping[str, str], threads: int) -> dict[str, str]:
    """Variables of the host: the GMI's without those of its Python, and with its number of threads."""
    kept = {name: value for name, value in given.items() if name not in _OURS}
    return {**kept, **dict.fromkeys(_THREADS, str(threads)), "PYTHONUNBUFFERED": "1"}
