"""Hands a stage back the state that a checkpoint holds of it; that of another stage is told as what it is."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gmiflow.api import Agent, Simulator, Trainer
from gmiflow.runtime.checkpoint_header import differences
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, error

__all__ = ["restore"]

_REFUSALS = (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError)
"""What a class raises when it misses a tensor, or cannot copy one of another size."""


def restore(stage: Simulator | Agent | Trainer, state: Mapping[str, Tensor], name: str, origin: str) -> None:
    """Have ``stage`` take back ``state``.

    Args:
        stage: set up.
        state: as its `state_dict` gave it, if it is its own.
        name: of the stage, for the message.
        origin: where the state is from, for the message.

    Raises:
        GMIError: E0707 when the stage does not take it and has other tensors itself; an exception of the stage that has
            the same ones is passed on.
    """
    try:
        stage.load_state_dict(state)
    except _REFUSALS as refused:
        saved, here = ({key: tuple(v.shape) for key, v in held.items()} for held in (state, stage.state_dict()))
        if not (found := differences(saved, here)):
            raise
        mend = f"a run goes on with the type of {name} that it began with, and its sizes"
        what = f"the state of {name} in {origin} is that of another stage"
        raise error(CHECKPOINT_UNUSABLE, what, *found, mend) from refused
