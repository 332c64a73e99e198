"""The processes that a host started: by descent while it lives, by a mark in their environment afterwards."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gmiflow.runtime.gmi.process import ProcessIdentity

MARK = "GMIFLOW_HOST"
"""Variable that the host has, and with it every process that it starts."""


def descendants(pid: int) -> list[int]:
    """Ids of the processes that ``pid`` started, and those that they started."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found


def marked(mark: str) -> list[ProcessIdentity]:
    """The processes of a host: those whose environment holds its mark."""
    word = f"{MARK}={mark}".encode()
    found: list[ProcessIdentity] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
                if word in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found += filter(None, [ProcessIdentity.of(int(entry))])
    return found
