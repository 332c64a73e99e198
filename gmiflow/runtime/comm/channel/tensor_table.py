"""Named tensors side by side in shared memory: a table of where each lies, and views of them."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.packer import ALIGNMENT_BYTES, PAGE_BYTES

__all__ = ["Entry", "entries_of", "size_of", "views_of"]


class Entry(TypedDict):
    """One tensor: ``offset`` in bytes from the start of its buffer."""

    name: str
    dtype: str
    shape: list[int]
    offset: int


def entries_of(tensors: Mapping[str, Tensor]) -> list[Entry]:
    """The table of ``tensors``, in their order."""
    entries: list[Entry] = []
    offset = 0
    for name, value in tensors.items():
        dtype = str(value.dtype).removeprefix("torch.")
        entries.append({"name": name, "dtype": dtype, "shape": list(value.shape), "offset": offset})
        offset += -(-value.numel() * value.element_size() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return entries


def size_of(entries: Sequence[Entry]) -> int:
    """Bytes of one buffer, whole pages."""
    if not entries:
        return PAGE_BYTES
    last = entries[-1]
    end = last["offset"] + torch.Size(last["shape"]).numel() * _dtype(last).itemsize
    return -(-max(end, 1) // PAGE_BYTES) * PAGE_BYTES


def views_of(entries: Sequence[Entry], memory: mmap.mmap, start: int = 0) -> dict[str, Tensor]:
    """Views of a buffer that begins at byte ``start``, by name; tensors without elements are left out."""
    found: dict[str, Tensor] = {}
    for entry in entries:
        count = torch.Size(entry["shape"]).numel()
        if count:
            flat = torch.frombuffer(memory, dtype=_dtype(entry), count=count, offset=start + entry["offset"])
            found[entry["name"]] = flat.view(entry["shape"])
    return found


def _dtype(entry: Entry) -> torch.dtype:
    return cast("torch.dtype", getattr(torch, entry["dtype"]))
