"""A small workflow to profile, whose simulator fails on purpose at some sizes: see `Fragile`."""

from __future__ import annotations

import shutil
from pathlib import Path

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.workload import Point
from gmiflow.profiling.trial import Pace

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINE = Hardware(cores=1, gpus=())
PACE = Pace(window_s=0.05, iterations=3, warm_up_s=0.2, start_s=60.0, timeout_s=120.0)

MEMORY_ERROR, TOO_LARGE, KILLED, RAISING, HANGING = 128, 144, 160, 176, 192
"""Numbers of environments at which the simulator fails, each in its way."""

SIMULATOR = f"""
import os, resource, signal, time
import torch
from pendulum import Pendulum

class Fragile(Pendulum):
    def setup(self, context):
        super().setup(context)
        if context.num_env_total == {MEMORY_ERROR}:
            raise MemoryError
        if context.num_env_total == {TOO_LARGE}:
            limit = 1 << 30
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            torch.ones(limit)

    def step(self, inputs):
        if context_is(self, {KILLED}) and self.clock > 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if context_is(self, {RAISING}) and self.clock > 4:
            raise ValueError("the pendulum\\nbroke")
        if context_is(self, {HANGING}) and self.clock > 4:
            time.sleep(3600)
        return super().step(inputs)

def context_is(simulator, num_env):
    return simulator.context.num_env_total == num_env
"""


def make_project(folder: Path) -> Path:
    """The workflow with its simulators, in ``folder``; returns the `.gmi` file."""
    shutil.copy(EXAMPLES / "pendulum.py", folder)
    (folder / "fragile.py").write_text(SIMULATOR)
    text = (EXAMPLES / "own_simulator.gmi").read_text().replace("pendulum:Pendulum", "fragile:Fragile")
    text = text.replace("hidden = [64, 64]", "hidden = [8]").replace("num_env    = 32", "num_env    = auto")
    text = text.replace("horizon    = 64", "horizon    = 8").replace("iterations = 100", "iterations = 12")
    file = folder / "small.gmi"
    file.write_text(text)
    return file


def workflow_of(file: Path, **overrides: object):
    """The checked workflow and the options that it was compiled with."""
    settings = tuple((name.replace("__", "."), str(value)) for name, value in overrides.items())
    options = Options(overrides=settings)
    compiled = compile_file(str(file), options, hardware=MACHINE, stop_after="ir")
    assert compiled.workflow is not None, compiled.diagnostics
    return compiled.workflow, options


def point(num_env: int, gmis: int = 1, **fields: str) -> Point:
    return Point(**{
        "template": "dp_only", "gmis": gmis, "num_env": num_env, "execution": "eager", "backend": "cpu", **fields
    })  # fmt: skip
