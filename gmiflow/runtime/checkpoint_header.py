"""What the files of a checkpoint hold, by their headers: names and shapes of tensors. No torch.

The launcher looks here before it starts anything; a GMI that takes the tensors themselves says the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from safetensors import SafetensorError, safe_open

from gmiflow.runtime.checkpoint_meta import TAKE_ANOTHER, CheckpointMeta
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, GMIError, error
from gmiflow.runtime.run_directory import TRAINER, environments_file

__all__ = ["Shapes", "another_policy", "differences", "read_shapes", "require_environments", "require_whole"]

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shape of each tensor, by its name."""

_SHOWN = 4
"""How many differences are told."""


def read_shapes(path: Path) -> Shapes:
    """What a file of a checkpoint holds.

    Raises:
        GMIError: E0707 when it cannot be read, is no such file, or is cut off.
    """
    if not os.path.isfile(path):  # a pipe would wait for its writer
        what = "it is not a file" if os.path.lexists(path) else "there is no such file"
        raise error(CHECKPOINT_UNUSABLE, f"{path} cannot be read: {what}", TAKE_ANOTHER)
    try:
        with safe_open(path, "numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except OSError as problem:
        raise error(CHECKPOINT_UNUSABLE, f"{path} cannot be read: {problem.strerror or problem}") from problem
    except SafetensorError as problem:
        raise error(CHECKPOINT_UNUSABLE, f"{path} is damaged or cut off", str(problem), TAKE_ANOTHER) from problem


def require_whole(checkpoint: Path, meta: CheckpointMeta) -> None:
    """Look at what a training that goes on reads besides its policy.

    Raises:
        GMIError: E0707 when a file is missing or cut off.
    """
    for name in (TRAINER, *(environments_file(offset) for offset, _ in meta.slices)):
        read_shapes(checkpoint / name)


def require_environments(checkpoint: Path, meta: CheckpointMeta, training: str, num_env: int) -> None:
    """Raise `GMIError` E0707 unless a checkpoint fits a training with ``num_env`` environments."""
    if meta.num_env != num_env:
        raise error(
            CHECKPOINT_UNUSABLE,
            f"the checkpoint {checkpoint} has {meta.num_env} environments, but {training} has {num_env}",
            f"a run goes on with the environments that it began with: num_env = {meta.num_env}",
        )


def another_policy(checkpoint: Path, saved: Shapes, here: Shapes, *reasons: str) -> GMIError | None:
    """E0707 for a policy that has other tensors than the one that is to act; None when they are the same.

    Args:
        checkpoint: that holds the policy.
        saved: its tensors.
        here: those of the policy that is to take its place.
        reasons: what is known of the cause, one sentence each.
    """
    shown = differences(saved, here)
    if not shown:
        return None
    hint = "the agent has to be built with the parameters that it was trained with, for a simulator of the same sizes"
    return error(CHECKPOINT_UNUSABLE, f"the policy in {checkpoint} is another one", *reasons, *shown, hint)


def differences(saved: Shapes, here: Shapes) -> list[str]:
    """What tensors of a checkpoint are not as those that are to take their values: a few clauses; none when all are."""
    found = [f"`{name}` is in the checkpoint alone" for name in saved if name not in here]
    found += [f"`{name}` is not in the checkpoint" for name in here if name not in saved]
    found += [
        f"`{name}` is {list(saved[name])} in the checkpoint and {list(here[name])} here"
        for name in here
        if name in saved and saved[name] != here[name]
    ]
    return found if len(found) <= _SHOWN else [*found[: _SHOWN - 1], f"and {len(found) - _SHOWN + 1} more"]
