"""What a checkpoint says of itself (`meta.json`), and whether that can be. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, error
from gmiflow.runtime.run_directory import META

__all__ = ["TAKE_ANOTHER", "CheckpointMeta", "read_meta"]

VERSION = 1
TAKE_ANOTHER = "take another one of the run: those that are whole are in its `checkpoints`"
"""What to do about a checkpoint that cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointMeta:
    """What a checkpoint belongs to.

    Attributes:
        iteration: iterations made.
        slices: (env_offset, num_env) of every GMI.
        checksum: `weights_checksum` of the policy.
        mean_return: over the ``episodes`` that ended since the last checkpoint; None if none did.
    """

    version: int = VERSION
    training: str
    iteration: int
    num_env: int
    seed: int
    slices: tuple[tuple[int, int], ...]
    checksum: str
    episodes: int
    mean_return: float | None


def read_meta(path: Path) -> CheckpointMeta:
    """Of the checkpoint ``path``.

    Raises:
        GMIError: E0707 when it is no checkpoint, damaged, or of another version.
    """
    try:
        data: object = json.loads((path / META).read_text())
    except (OSError, ValueError, RecursionError) as problem:
        raise error(CHECKPOINT_UNUSABLE, f"{path} is not a checkpoint: {problem}", TAKE_ANOTHER) from problem
    version = data.get("version") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownMemberType]
    if _is_whole(version) and version != VERSION:
        raise error(CHECKPOINT_UNUSABLE, f"{path} has checkpoint version {version}, not {VERSION}", TAKE_ANOTHER)
    if problems := _mistakes(data):
        raise error(
            CHECKPOINT_UNUSABLE, f"{path} is not a checkpoint: in {META} {problems[0]}", *problems[1:], TAKE_ANOTHER
        )
    values = cast("dict[str, Any]", data)
    return CheckpointMeta(**{**values, "slices": tuple((o, n) for o, n in values["slices"])})


def _is_whole(value: object, least: int | None = None) -> bool:
    """Whether ``value`` is a whole number from ``least``; JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _mistakes(data: object) -> list[str]:
    """What is wrong with the contents of a `meta.json`, one clause each."""
    if not isinstance(data, dict):
        return ["there is no object"]
    values = cast("dict[str, object]", data)
    names = [field.name for field in fields(CheckpointMeta)]
    odd = [f"`{name}` is missing" for name in names if name not in values]
    odd += [f"`{name}` is not known" for name in values if name not in names]
    if odd:
        return odd
    least = {"version": None, "iteration": 0, "num_env": 1, "seed": None, "episodes": 0}
    for name, bound in least.items():
        if not _is_whole(values[name], bound):
            wanted = "a whole number" if bound is None else f"a whole number from {bound}"
            odd.append(f"`{name}` is {json.dumps(values[name])}, not {wanted}")
    odd += [
        f"`{name}` is {json.dumps(values[name])}, not a string"
        for name in ("training", "checksum")
        if not isinstance(values[name], str)
    ]
    mean = values["mean_return"]
    if mean is not None and not isinstance(mean, float) and not _is_whole(mean):
        odd.append(f"`mean_return` is {json.dumps(mean)}, not a number")
    return odd or _slice_mistakes(values["slices"], cast("int", values["num_env"]))


def _slice_mistakes(slices: object, num_env: int) -> list[str]:
    """Slices are pairs (first environment, count) that hold every environment once."""
    pairs: list[tuple[int, int]] = []
    for item in cast("list[object]", slices) if isinstance(slices, list) else [slices]:
        pair = cast("list[object]", item) if isinstance(item, list) else []
        if len(pair) != 2 or not (_is_whole(pair[0], 0) and _is_whole(pair[1], 1)):
            return [f"`slices` has {json.dumps(item)}, not a first environment and a count"]
        pairs.append((cast("int", pair[0]), cast("int", pair[1])))
    reached = 0
    for offset, count in sorted(pairs):
        if offset > reached:
            return [f"no slice holds the environments {reached} to {offset - 1}"]
        if offset < reached:
            return [f"two slices hold environment {offset}"]
        reached += count
    if reached < num_env:
        return [f"no slice holds the environments {reached} to {num_env - 1}"]
    return [f"the slices hold {reached} environments, not {num_env}"] if reached > num_env else []
