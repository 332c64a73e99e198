"""What stages do between iterations is charged to them: a failure there names the stage, not the runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from torch import Tensor

from gmiflow.plan import StagePlan
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.failure import PORT_MISMATCH, error

T = TypeVar("T")

_STATE_CALLS = ("state_dict", "load_state_dict", "diagnostics")
"""Methods of stages that the runtime calls between iterations."""


def charged(stage: T, plan: StagePlan, clock: StageClock) -> T:
    """``stage``, which the clock names while it gives or takes back its state, or counts."""
    for name in _STATE_CALLS:
        if (call := getattr(stage, name, None)) is not None:
            object.__setattr__(stage, name, _clocked(call, plan.name, clock))
    return stage


def _clocked(call: Callable[..., Any], stage: str, clock: StageClock) -> Callable[..., Any]:
    """``call`` with the clock at ``stage``; it stays there when the call fails."""
    index = clock.index(stage)

    @functools.wraps(call)
    def clocked(*args: object, **kwargs: object) -> object:
        before = clock.current
        clock.enter(index)
        returned = call(*args, **kwargs)
        if call.__name__ == "state_dict":
            _check_state(stage, returned)
        clock.enter(before)
        return returned

    return clocked


def _check_state(stage: str, state: object) -> None:
    """Raise `GMIError` E0708 unless ``state`` is a mapping of names to tensors."""
    declared = f"`state_dict` of {stage} shall return tensors by name"
    if not isinstance(state, Mapping):
        raise error(PORT_MISMATCH, f"{declared}, but it returned {type(state).__name__}")
    for name, value in cast("Mapping[object, object]", state).items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise error(PORT_MISMATCH, f"{declared}, but {name!r} is {type(value).__name__}")


@contextmanager
def at_stage(clock: StageClock, plan: StagePlan) -> Generator[None]:
    """The clock is at a stage, and afterwards where it was."""
    before = clock.current
    clock.enter(clock.index(plan.name))
    try:
        yield
    finally:
        clock.enter(before)
