"""What is behind a fault of the GPU: a process that ends takes its slab along, and its peers' kernels fault on it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.failure import NOT_SUPPORTED, PEER_LOST, GMIError, error

__all__ = ["behind"]

PATIENCE_S = 2.0
"""How long the end of a process may take to be seen after its memory is gone."""

_POLL_S = 0.02


def behind(problem: Exception, collectives: Iterable[Collective], patience_s: float = PATIENCE_S) -> Exception:
    """The loss of a peer that explains ``problem`` if it is a fault of the GPU, else ``problem`` itself.

    Args:
        problem: what a GMI's work raised.
        collectives: groups that the GMI is in.
        patience_s: how long to look.

    Returns:
        A `GMIError` E0704 that names the peer and the collective, or ``problem``.
    """
    groups = [group for group in collectives if group.size > 1]
    if not groups or not _is_fault(problem):
        return problem
    deadline = time.monotonic() + patience_s
    while True:
        for group in groups:
            gmi = group.lost_peer()
            if gmi is not None:
                message = f"GMI {gmi} died while the collective {group.name} used its memory"
                return error(PEER_LOST, message, f"the GPU then reported: {str(problem).partition(chr(10))[0]}")
        if time.monotonic() > deadline:
            return problem
        time.sleep(_POLL_S)


def _is_fault(problem: Exception) -> bool:
    """Whether the CUDA runtime (through torch) or the driver (through us) refused to go on."""
    if isinstance(problem, GMIError):
        return problem.failure.code == NOT_SUPPORTED and "CUDA driver refused" in problem.failure.message
    return isinstance(problem, RuntimeError) and "CUDA error" in str(problem)
