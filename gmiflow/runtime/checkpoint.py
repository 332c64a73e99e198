"""Checkpoints: written by all GMIs of a training together, complete or not there at all.

A checkpoint is a directory ``iter_000100`` with

- ``policy.safetensors`` and ``trainer.safetensors``: equal on all GMIs, written by rank 0;
- ``environments_<offset>.safetensors``: simulator, agent and episode state of one slice, written by
  its GMI. Tensors with a leading axis of the slice's size belong to its environments, so another
  slicing re-assembles them by global environment id; the others are taken from the first slice;
- ``meta.json``: what it belongs to.

It is built under a temporary name and renamed when every GMI has written; ``last`` and ``best`` are
symbolic links that are replaced atomically. ``best`` has the highest mean return of the episodes
that ended since the checkpoint before it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from gmiflow.runtime.checkpoint_header import another_policy, require_environments
from gmiflow.runtime.checkpoint_meta import CheckpointMeta, read_meta
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, WEIGHTS_DIFFER, GMIError, error
from gmiflow.runtime.run_directory import META, POLICY, REPLACED, UNFINISHED, checkpoint_name, environments_file

__all__ = [
    "CheckpointMeta",
    "CheckpointReader",
    "CheckpointWriter",
    "checksum_text",
    "require_equal_weights",
    "weights_checksum",
]

logger = logging.getLogger(__name__)


def weights_checksum(weights: Mapping[str, Tensor]) -> int:
    """62 bits of a hash over names, types, shapes and bytes, in order of name."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return int.from_bytes(digest.digest(), "little") >> 2


def require_equal_weights(smallest: int, largest: int, training: str) -> str:
    """The checksum as text, when the smallest and the largest over the GMIs are one.

    Raises:
        GMIError: E0706 otherwise.
    """
    if smallest != largest:
        raise error(
            WEIGHTS_DIFFER,
            f"the GMIs of {training} hold different weights",
            "a trainer must make the same update on every GMI: reduce what depends on the slice",
        )
    return checksum_text(largest)


def checksum_text(checksum: int) -> str:
    """A checksum as reports and checkpoints write it: 16 hexadecimal digits."""
    return f"{checksum:016x}"


class CheckpointWriter:
    """Writes the checkpoints of one training; each GMI calls the same methods, with barriers between.

    Order: `begin` on rank 0, barrier, `write_slice` on all and `write_shared` on rank 0, barrier,
    `commit` on rank 0.
    """

    def __init__(self, directory: Path) -> None:
        """Write below ``directory``, which is made when missing."""
        self._directory = directory

    def begin(self, iteration: int) -> None:
        """Make an empty temporary directory."""
        with _writing(self._directory):
            temporary = self._temporary(iteration)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

    def write_slice(self, iteration: int, env_offset: int, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write the state of one slice; keys become "part.name"."""
        flat = {f"{part}.{name}": value for part, state in parts.items() for name, value in state.items()}
        self._write(self._temporary(iteration) / environments_file(env_offset), flat)

    def write_shared(self, iteration: int, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write what is equal on all GMIs, by file name."""
        for name, state in files.items():
            self._write(self._temporary(iteration) / name, state)

    def commit(self, meta: CheckpointMeta) -> Path:
        """Give the checkpoint its name, point ``last`` and perhaps ``best`` to it; return its path."""
        name = checkpoint_name(meta.iteration)
        temporary, final = self._temporary(meta.iteration), self._directory / name
        with _writing(self._directory):
            _write_durably(temporary / META, (json.dumps(asdict(meta), indent=2) + "\n").encode())
            replaced = self._directory / f"{REPLACED}{name}"
            shutil.rmtree(replaced, ignore_errors=True)
            if final.exists():
                final.rename(replaced)
            temporary.rename(final)
            shutil.rmtree(replaced, ignore_errors=True)
            if self._is_best(meta):
                self._link("best", name)
            self._link("last", name)
        return final

    def _is_best(self, meta: CheckpointMeta) -> bool:
        if meta.mean_return is None:
            return False
        best = self._directory / "best"
        if not (best / META).is_file():
            return True
        try:
            previous = CheckpointReader(best).meta.mean_return
        except GMIError as problem:  # nothing is known about it, and this one is whole
            logger.warning("the best checkpoint so far is replaced: %s", problem)
            return True
        return previous is None or not math.isfinite(previous) or meta.mean_return > previous

    def _link(self, link: str, target: str) -> None:
        temporary = self._directory / f".{link}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        temporary.replace(self._directory / link)

    def _temporary(self, iteration: int) -> Path:
        return self._directory / f"{UNFINISHED}{checkpoint_name(iteration)}"

    @staticmethod
    def _write(path: Path, state: Mapping[str, Tensor]) -> None:
        # Clones: safetensors refuses tensors that share memory, and views of larger buffers.
        copies = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
        with _writing(path):
            _write_durably(path, save(copies))


class CheckpointReader:
    """Reads one checkpoint."""

    def __init__(self, path: Path) -> None:
        """Open the checkpoint ``path``.

        Raises:
            GMIError: E0707 when it is not one, damaged, or of another version.
        """
        self.path = path
        self.meta = read_meta(path)

    def require(self, training: str, num_env: int) -> None:
        """Raise `GMIError` E0707 unless the checkpoint fits a training with ``num_env`` environments."""
        require_environments(self.path, self.meta, training, num_env)

    def shared(self, name: str) -> dict[str, Tensor]:
        """The tensors of a file that is equal on all GMIs."""
        return self._read(self.path / name)

    def restore_policy(self, policy: nn.Module) -> None:
        """Give ``policy`` its parameters and buffers, in place.

        Raises:
            GMIError: E0707 when they are another policy's, or no numbers.
        """
        state = self.shared(POLICY)
        saved, here = ({name: tuple(v.shape) for name, v in held.items()} for held in (state, policy.state_dict()))
        if (problem := another_policy(self.path, saved, here)) is not None:
            raise problem
        try:
            policy.load_state_dict(state)
        except RuntimeError as refused:
            reason = " ".join(str(refused).split())
            raise error(CHECKPOINT_UNUSABLE, f"the policy in {self.path} is another one: {reason}") from refused
        for name, values in policy.named_parameters():
            if values.isnan().any():
                raise error(CHECKPOINT_UNUSABLE, f"the policy in {self.path} cannot act: {name} holds NaN")

    def environments(self, env_offset: int, num_env: int) -> dict[str, dict[str, Tensor]]:
        """State of the environments ``env_offset ..`` by part, from however many slices hold them."""
        parts: dict[str, dict[str, list[Tensor]]] = {}
        for offset, count in sorted(self.meta.slices):
            first, last = max(offset, env_offset), min(offset + count, env_offset + num_env)
            if first >= last:
                continue
            for key, value in self._read(self.path / environments_file(offset)).items():
                part, _, name = key.partition(".")
                per_environment = value.dim() > 0 and value.shape[0] == count
                piece = value[first - offset : last - offset] if per_environment else value
                pieces = parts.setdefault(part, {}).setdefault(name, [])
                if per_environment or not pieces:
                    pieces.append(piece)
        if "simulator" in parts and "episodes" not in parts:
            raise error(CHECKPOINT_UNUSABLE, f"{self.path} has the state of a simulator, but not of its episodes")
        return {
            part: {name: self._joined(f"{part}.{name}", pieces) for name, pieces in state.items()}
            for part, state in parts.items()
        }

    def _joined(self, key: str, pieces: list[Tensor]) -> Tensor:
        """One tensor from those of the slices."""
        first = pieces[0]
        if any(piece.shape[1:] != first.shape[1:] or piece.dtype != first.dtype for piece in pieces):
            raise error(CHECKPOINT_UNUSABLE, f"the slices in {self.path} hold different types of {key}")
        return torch.cat(pieces) if len(pieces) > 1 else first

    @staticmethod
    def _read(path: Path) -> dict[str, Tensor]:
        try:
            return load(path.read_bytes())
        except (OSError, SafetensorError) as problem:
            raise error(CHECKPOINT_UNUSABLE, f"{path} cannot be read: {problem}") from problem


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        what = f"{path} cannot be written: {problem.strerror or problem}"
        mend = "make room for it" if problem.errno in _NO_ROOM else "see that the run can write there"
        rest = "`gmiflow run --resume` then goes on from the last checkpoint that is whole"
        raise error(CHECKPOINT_UNUSABLE, what, f"{mend}; {rest}") from problem


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
