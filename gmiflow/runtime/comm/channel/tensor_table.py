"""Named tensors side by side in one buffer: a table of where each lies, and views of them."""

from __future__ import annotations

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


def views_of(entries: Sequence[Entry], buffer: Tensor) -> dict[str, Tensor]:
    """Views of ``buffer``, u8 [`size_of` or more], by name."""
    found: dict[str, Tensor] = {}
    for entry in entries:
        dtype, start = _dtype(entry), entry["offset"]
        end = start + torch.Size(entry["shape"]).numel() * dtype.itemsize
        found[entry["name"]] = buffer[start:end].view(dtype).view(entry["shape"])
    return found


def _dtype(entry: Entry) -> torch.dtype:
    return cast("torch.dtype", getattr(torch, entry["dtype"]))
