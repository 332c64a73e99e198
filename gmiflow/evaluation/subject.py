"""What is evaluated: the simulator, the ports and the policy of a training of a run."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gmiflow.api import Simulator, StageContext
from gmiflow.plan import Role, StagePlan, TrainingPlan
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, NOT_SUPPORTED, error
from gmiflow.runtime.foreign.simulator import ForeignSimulator
from gmiflow.runtime.noise import CounterNoise
from gmiflow.runtime.policy import find_training, load_policy, read_plan
from gmiflow.runtime.run_directory import META, RunDirectory, find_checkpoint
from gmiflow.runtime.stages import load_entry
from gmiflow.tasks.base import Task

Act = Callable[[Tensor], Tensor]
"""From observations, f32 [num_env, O], to actions, f32 [num_env, A]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One training of a run, ready to be evaluated.

    Attributes:
        checkpoint: directory of the checkpoint.
        training: the plan's part about it.
        observation, action: ports of the simulator that the agent reads and drives.
    """

    checkpoint: Path
    training: TrainingPlan
    observation: str
    action: str

    @property
    def simulator(self) -> StagePlan:
        """The simulator's stage."""
        return stage_of(self.training, "simulator")


def find_subjects(run: Path, training: str | None = None, *, best: bool = False) -> list[Subject]:
    """The trainings of a run, or the one that is asked for.

    Args:
        run: a run directory, or one checkpoint in it.
        training: name of one; None for all of a run directory.
        best: the checkpoints with the highest mean return; else the last ones.

    Raises:
        GMIError: E0707 when there is no such run, training or checkpoint; E0710 when simulator and agent exchange
            anything but one tensor each way.
    """
    run = run.resolve()
    if training is not None or (run / META).is_file():
        folder, chosen = find_training(run, training)
        trainings = (chosen,)
    else:
        folder, plan = read_plan(run)
        trainings = plan.trainings
    return [_subject(run, folder, one, best=best) for one in trainings]


def _subject(run: Path, folder: Path, training: TrainingPlan, *, best: bool) -> Subject:
    place = run
    if best:
        several = (folder / "checkpoints" / training.name).is_dir()
        place = RunDirectory(folder).checkpoints(training.name, only_training=not several) / "best"
        if not (place / META).is_file():
            raise error(CHECKPOINT_UNUSABLE, f"there is no best checkpoint of the training {training.name} in {folder}")
    observation, action = _ports(training)
    checkpoint = find_checkpoint(place, training.name)
    return Subject(checkpoint=checkpoint, training=training, observation=observation, action=action)


def stage_of(training: TrainingPlan, role: Role) -> StagePlan:
    """The training's stage with that role."""
    return next(stage for stage in training.stages if stage.role == role)


def _ports(training: TrainingPlan) -> tuple[str, str]:
    """Ports of the simulator: what the agent reads, and what it drives."""
    simulator, agent = (stage_of(training, role).name for role in ("simulator", "agent"))
    ends = [(edge.source.partition("."), edge.target.partition("."), edge.type) for edge in training.edges]
    read = [(s[2], kind) for s, t, kind in ends if (s[0], t[0]) == (simulator, agent)]
    driven = [(t[2], kind) for s, t, kind in ends if (s[0], t[0]) == (agent, simulator)]
    if len(read) != 1 or len(driven) != 1 or not all(isinstance(kind, str) for _, kind in (*read, *driven)):
        what = "an evaluation needs an agent that reads one tensor of the simulator and answers with one"
        raise error(NOT_SUPPORTED, what)
    return read[0][0], driven[0][0]


def make_simulator(
    training: TrainingPlan, num_env: int, *, device: torch.device, seed: int, threads: int = 1
) -> Simulator:
    """The simulator of a training, set up with ``num_env`` environments of its own.

    Args:
        training: of the run.
        num_env: environments.
        device: where they live.
        seed: of starts and of other noise.
        threads: CPU threads that it may use.

    Raises:
        GMIError: E0709 when its class is not found, and what a hosted one fails with.
    """
    plan = stage_of(training, "simulator")
    _find_modules(plan)
    simulator = ForeignSimulator(plan, training) if plan.python is not None else _construct(plan)
    simulator.setup(
        StageContext(
            stage=plan.name,
            device=device,
            num_env=num_env,
            env_offset=0,
            num_env_total=num_env,
            horizon=training.horizon,
            stratum=math.gcd(training.stratum, num_env),
            seed=seed,
            params=plan.params,
            shapes=plan.shapes,
            communicator=LocalCollective.alone(f"{training.name}.evaluation", 0),
            noise=CounterNoise(seed=seed, num_env=num_env, env_offset=0, device=device),
            threads=threads,
            precision=training.precision,
        )
    )
    return simulator


def _construct(plan: StagePlan) -> Simulator:
    made: type[Any] = load_entry(plan.entry, Simulator)
    return made()


def _find_modules(plan: StagePlan) -> None:
    """Users' modules are looked up beside the `.gmi` file and in the working directory, as in a run."""
    for place in (Path(plan.file).resolve().parent, Path.cwd()):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def task_class(training: TrainingPlan) -> type[Task] | None:
    """The benchmark task that a training has for its simulator; None for any other simulator."""
    plan = stage_of(training, "simulator")
    module, _, name = plan.entry.partition(":")
    if plan.python is not None or not module.startswith("gmiflow.tasks."):
        return None
    return getattr(importlib.import_module(module), name)


def make_act(subject: Subject, device: torch.device) -> Act:
    """The policy of a training as a function, without exploration; raises as `load_policy`.

    The module's first output (for `std.algo.ppo` the mean of the action) is the action.
    """
    policy = load_policy(subject.checkpoint, training=subject.training.name, device=device)
    return acting(policy)


def acting(policy: nn.Module) -> Act:
    """``policy`` as a function; of several outputs the first is the action."""

    def act(observation: Tensor) -> Tensor:
        output = policy(observation)
        return output[0] if isinstance(output, tuple) else output

    return act
