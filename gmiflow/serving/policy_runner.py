"""A run's policy as what a server's workers call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmiflow.runtime import load_policy
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, NOT_SUPPORTED, error
from gmiflow.runtime.policy import find_training
from gmiflow.serving.batching import Answer

_TENSOR = re.compile(r"f32\[env, (\d+)\]")


class PolicyRunner:
    """One worker's copy of a policy, on a stream of its own where there is a GPU.

    The module's first output (for `std.algo.ppo` the mean of the action) is the action. With ``stochastic`` it is the
    mean of a normal distribution whose standard deviation is the second output, and the action is drawn from that.
    """

    def __init__(self, run: Path, training: str | None, device: torch.device, *, stochastic: bool = False) -> None:
        """Load it; raises as `load_policy`. Draws differ from worker to worker and from start to start."""
        self._policy = load_policy(run, training=training, device=device)
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._generator = torch.Generator(device) if stochastic else None
        if self._generator is not None:
            self._generator.seed()

    @torch.inference_mode()
    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions f32 [rows, A] for observations f32 [rows, O].

        Raises:
            GMIError: E0710 when actions are to be drawn and the module does not give a deviation.
        """
        with torch.cuda.stream(self._stream):
            # A copy: what came from a socket is read-only memory, which torch cannot wrap.
            output = self._policy(torch.tensor(observations, device=self._device))
            action = output[0] if isinstance(output, tuple) else output
            if self._generator is not None:
                noise = torch.randn(action.shape, generator=self._generator, device=self._device)
                action = action + _deviation(output, action) * noise
            return action.float().cpu().numpy()


def _deviation(output: object, mean: Tensor) -> Tensor:
    """The second output of a policy, [A] or [rows, A]."""
    second = cast("tuple[object, ...]", output)[1] if isinstance(output, tuple) and len(output) > 1 else None
    if not isinstance(second, Tensor) or second.shape not in (mean.shape, mean.shape[1:]):
        needed = "a policy whose second output is the action's standard deviation"
        raise error(NOT_SUPPORTED, f"--stochastic needs {needed}; without it, the first output is the action")
    return second


def make_runners(
    run: Path, training: str | None, device: torch.device, workers: int, *, stochastic: bool = False
) -> Sequence[PolicyRunner]:
    """One runner per worker; raises as `load_policy`."""
    return [PolicyRunner(run, training, device, stochastic=stochastic) for _ in range(workers)]


def sizes(run: Path, training: str | None, answer: Answer) -> tuple[int, int]:
    """Numbers in one observation and one action.

    Raises:
        GMIError: E0710 when the agent takes anything but one tensor f32[env, O] from the simulator, or when actions
            are to be drawn from a policy without a deviation; E0707 when the policy does not answer with one row of
            actions per observation.
    """
    _, chosen = find_training(run, training)
    roles = {stage.name: stage.role for stage in chosen.stages}
    taken = [
        edge.type
        for edge in chosen.edges
        if roles[edge.source.split(".")[0]] == "simulator" and roles[edge.target.split(".")[0]] == "agent"
    ]
    match = _TENSOR.fullmatch(taken[0]) if len(taken) == 1 and isinstance(taken[0], str) else None
    if match is None:
        raise error(NOT_SUPPORTED, "a server answers for agents that take one tensor f32[env, O] from the simulator")
    observation = int(match[1])
    try:
        shape = answer(np.zeros((2, observation), np.float32)).shape
    except (RuntimeError, TypeError, ValueError) as problem:
        raise error(CHECKPOINT_UNUSABLE, f"the policy cannot act on an observation of zeros: {problem}") from problem
    if len(shape) != 2 or shape[0] != 2:
        raise error(CHECKPOINT_UNUSABLE, f"the policy answers two observations with {list(shape)}")
    return observation, shape[1]
