"""What a GMI's runtime does with the device, it does on its turn and on its own stream."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch

from gmiflow.runtime.context import GMIContext


class HasContext(Protocol):
    """Something that works for a GMI."""

    context: GMIContext


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Runtime = TypeVar("Runtime", bound=HasContext)


def at_work(
    method: Callable[Concatenate[Runtime, Parameters], Result],
) -> Callable[Concatenate[Runtime, Parameters], Result]:
    """Run a method with the turn of the process, on the GMI's own stream (both belong to the thread)."""

    @functools.wraps(method)
    def working(self: Runtime, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with self.context.turn.mine(), torch.cuda.stream(self.context.stream):
            return method(self, *args, **kwargs)

    return working
