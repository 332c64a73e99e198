"""Hosted simulators for tests: an interpreter without gmiflow, and stages that ask for it."""

from __future__ import annotations

import dataclasses
import os
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
from plans import stage, training_plan

from gmiflow.runtime.foreign.process import Patience
from gmiflow.runtime.foreign.simulator import ForeignSimulator
from gmiflow.sim.standalone import standalone_context

HERE = Path(__file__).parent
IMPATIENT = Patience(start_s=120.0, step_s=1.0, look_s=0.1, close_s=60.0)
NUM_ENV = 32


def make_interpreter(folder: Path, *, numpy: bool = True, everything: bool = False) -> Path:
    """A virtual environment in which NumPy is all that can be imported, or not even that, or all that is installed."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    installed = Path(np.__file__).parents[1]
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    if everything:
        (packages / "installed.pth").write_text(str(installed))
    elif numpy:
        for name in ("numpy", "numpy.libs"):
            if (installed / name).is_dir():
                os.symlink(installed / name, packages / name)
    return python


def foreign_stage(python: Path | str, name: str = "PointMass", module: str = "hosted_mass", **params: Any):
    plan = stage("sim", "simulator", f"{module}:{name}", 3)
    return dataclasses.replace(plan, python=str(python), file=str(HERE / "mass.gmi"), params=params)


def set_up(python: Path | str, name: str = "PointMass", *, num_env: int = NUM_ENV, **options: Any) -> ForeignSimulator:
    """A hosted simulator that is ready; it is closed when that fails."""
    patience, training = options.pop("patience", None), options.pop("training", training_plan())
    context = {key: options.pop(key) for key in ("seed", "env_offset", "device") if key in options}
    plan = foreign_stage(python, name, **options)
    simulator = ForeignSimulator(plan, training, patience)
    try:
        simulator.setup(standalone_context(num_env, **context, **plan.params))
    except BaseException:
        simulator.close()
        raise
    return simulator
