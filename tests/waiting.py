"""Waiting in tests: for what is to come, with far more patience than a busy machine needs.

How long things take is measured by benchmarks. A test that waits fails only when what it waits for never comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

PATIENCE_S = 120.0


def until(look: Callable[[], Seen], what: str, *, patience_s: float = PATIENCE_S) -> Seen:
    """What ``look`` sees as soon as that is true; an assertion error that tells ``what`` never came."""
    deadline = time.monotonic() + patience_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what}: not within {patience_s:g} s"
        time.sleep(0.02)
    return seen
