"""CUDA graphs without a GPU: the operations on tensors that a call makes, to be made again without its Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gmiflow.runtime.execution.replay import WARM_UP, Part, Span
from gmiflow.runtime.noise import CounterNoise


class Recording(TorchDispatchMode):
    """Records what is called within it, and runs it; `replay` runs it again on the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self._calls.append((operation, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for operation, args, kwargs, result in self._calls:
            for new, old in zip(tree_leaves(operation(*args, **kwargs)), tree_leaves(result), strict=True):
                if isinstance(new, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)

    def reset(self) -> None:
        self._calls.clear()


def record(call: Callable[[], object], device: str) -> Callable[[], None]:
    """What repeats the work of a call, as a `Part` would; on "cpu" by a recording."""
    if device == "cpu":
        with Recording() as recording:
            call()
        return recording.replay
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def record_parts(monkeypatch) -> None:
    """Let parts that only lack a GPU record their third call and replay it from then on; noise by torch alone."""

    def call(part: Part) -> object:
        part._calls += 1
        span = Span(None)
        if not part._planned or part.reason not in ("", "no CUDA device") or part._calls <= WARM_UP:
            result = part._function()
        elif part._graph is None:
            with Recording() as part._graph:  # type: ignore[assignment]
                result = part._result = part._function()
        else:
            part._graph.replay()
            result = part._result
        span.close()
        part.span = span
        return result

    make = CounterNoise.__init__

    def make_by_torch(noise: CounterNoise, **arguments: Any) -> None:
        make(noise, **arguments)
        noise._by_numpy = False

    monkeypatch.setattr(Part, "__call__", call)
    monkeypatch.setattr(CounterNoise, "__init__", make_by_torch)
