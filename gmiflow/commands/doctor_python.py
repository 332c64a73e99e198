"""What `gmiflow doctor` says about interpreters that host simulators (`python = "..."` at a stage)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, Final

from gmiflow.commands.doctor_checks import Check

OLDEST: Final = (3, 8)
PACKAGES: Final = ("torch", "gymnasium", "isaacgym", "isaacgymenvs", "mjlab", "mujoco")
"""Distributions that are worth a line where they are installed; only NumPy must be."""

_PROBE = """\
import json, sys
found = {"version": list(sys.version_info[:3])}
if sys.version_info >= (3, 8):
    from importlib import metadata
    for name in ["numpy"] + sys.argv[1:]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
print(json.dumps(found))
"""


def kernel_check() -> Check:
    """What of the kernel a hosted simulator is driven with."""
    missing = [name for name in ("memfd_create", "eventfd", "pidfd_open") if not hasattr(os, name)]
    return Check(
        group="simulators",
        name="in another Python",
        status="missing" if missing else "ok",
        detail=f"this system has no {', '.join(missing)}" if missing else "memfd, eventfd and pidfd are there",
        mend="`python = ...` at a stage needs Linux 5.3 or later" if missing else "",
    )


def interpreter_group(path: str) -> str:
    """The heading of the checks of an interpreter."""
    return f"interpreter {path}"


def interpreter_checks(path: str) -> tuple[Check, ...]:
    """Whether an interpreter can host a simulator, and which of the known ones it has."""
    group = interpreter_group(path)
    found = _probe(path)
    if isinstance(found, str):
        mend = "give the Python of an environment, for example /path/to/venv/bin/python"
        return (Check(group=group, name="Python", status="missing", detail=found, mend=mend),)
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"][:2]) < OLDEST:
        return (Check(group=group, name="Python", status="missing", detail=version, mend="it must be 3.8 or later"),)
    checks = [Check(group=group, name="Python", status="ok", detail=version)]
    if "numpy" in found:
        checks.append(Check(group=group, name="numpy", status="ok", detail=found["numpy"]))
    else:
        mend = f"{path} -m pip install numpy"
        checks.append(Check(group=group, name="numpy", status="missing", detail="not installed", mend=mend))
    checks += [Check(group=group, name=name, status="ok", detail=found[name]) for name in PACKAGES if name in found]
    return tuple(checks)


def _probe(path: str) -> dict[str, Any] | str:
    """What the interpreter says of itself, or why it says nothing."""
    python = shutil.which(os.path.expanduser(path))
    if python is None:
        return "there is no such interpreter"
    from gmiflow.runtime.foreign.interpreter import environment

    command = [python, "-c", _PROBE, *PACKAGES]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment(os.environ, 1)
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"it cannot be run: {problem}"
    except json.JSONDecodeError:
        return "it is not a Python"
