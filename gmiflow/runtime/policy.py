"""The policy of a run as a torch module, for evaluation, export and deployment."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from gmiflow.api import Agent, StageContext
from gmiflow.plan import LaunchPlan, PlanError, TrainingPlan
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, error
from gmiflow.runtime.noise import CounterNoise
from gmiflow.runtime.run_directory import find_checkpoint
from gmiflow.runtime.stages import load_entry

__all__ = ["find_training", "load_policy", "read_plan"]


def load_policy(run: str | Path, *, training: str | None = None, device: torch.device | str = "cpu") -> nn.Module:
    """The module that the agent of a run acts with, with the weights and normalisers of a checkpoint.

    For `std.algo.ppo` the module takes raw observations, f32 [..., O], and returns the mean of the action
    [..., A], its standard deviation [A], and the value [...].

    Args:
        run: a run directory (its last checkpoint) or one checkpoint in it, for example "runs/x/checkpoints/best".
        training: which one, where a run has several.
        device: where the module lives.

    Raises:
        GMIError: E0707 when there is no such run, training or checkpoint; E0709 when the agent's class is not found.
    """
    path = Path(run).resolve()
    folder, chosen = find_training(path, training)
    device = torch.device(device)
    agent_plan = next(stage for stage in chosen.stages if stage.role == "agent")
    for place in (folder, Path(agent_plan.file).resolve().parent, Path.cwd()):  # users' modules, as in a run
        if str(place) not in sys.path:
            sys.path.append(str(place))
    agent = load_entry(agent_plan.entry, Agent)
    policy = agent.make_policy(
        StageContext(
            stage=agent_plan.name,
            device=device,
            num_env=1,
            env_offset=0,
            num_env_total=1,
            horizon=chosen.horizon,
            stratum=1,
            seed=chosen.seed,
            params=agent_plan.params,
            shapes=agent_plan.shapes,
            communicator=LocalCollective.alone(f"{chosen.name}.policy", 0),
            noise=CounterNoise(seed=chosen.seed, num_env=1, env_offset=0, device=device),
            precision=chosen.precision,
        )
    )
    CheckpointReader(find_checkpoint(path, chosen.name)).restore_policy(policy)
    return policy.to(device).eval()


def find_training(path: Path, name: str | None) -> tuple[Path, TrainingPlan]:
    """The run directory that ``path`` is or lies in, and what its plan says of one training.

    Args:
        path: a run directory or something in it.
        name: of the training; None where the run has one.

    Raises:
        GMIError: E0707 when there is no such run or training.
    """
    folder, plan = read_plan(path)
    return folder, _training(plan, name)


def read_plan(path: Path) -> tuple[Path, LaunchPlan]:
    """The run directory that ``path`` is or lies in, and its plan.

    Raises:
        GMIError: E0707 when there is no such run, or its plan cannot be used.
    """
    folder = next((place for place in (path, *path.parents) if (place / "plan.json").is_file()), None)
    if folder is None:
        runs = sorted(plan.parent for plan in path.glob("*/plan.json"))
        newest = max(runs, key=lambda run: (run.stat().st_mtime, run), default=None)
        notes = [f"it holds {len(runs)} of them; the newest is {newest}"] if newest is not None else []
        raise error(CHECKPOINT_UNUSABLE, f"{path} is neither a run directory nor a checkpoint in one", *notes)
    try:
        return folder, LaunchPlan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PlanError) as problem:
        raise error(CHECKPOINT_UNUSABLE, f"{folder / 'plan.json'} cannot be used: {problem}") from problem


def _training(plan: LaunchPlan, name: str | None) -> TrainingPlan:
    names = [training.name for training in plan.trainings]
    if name is None and len(names) == 1:
        return plan.trainings[0]
    if name not in names:
        wanted = f"no training {name}" if name is not None else "several trainings"
        raise error(CHECKPOINT_UNUSABLE, f"the run has {wanted}; its trainings are {', '.join(names)}")
    return plan.training(str(name))
