"""Which implementation of acting and updating runs: torch operations, or Triton kernels on CUDA."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from gmiflow.rl.gradient import MinibatchGradient
from gmiflow.rl.inference import PolicyInference
from gmiflow.rl.minibatches import StratifiedMinibatches
from gmiflow.rl.moments import RolloutMoments
from gmiflow.rl.optimizer import FlatAdam
from gmiflow.rl.returns import AdvantageEstimator
from gmiflow.rl.samples import SampleBuffer

__all__ = ["REFERENCE", "Backend", "select_backend"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """Classes with one interface each; those of another backend are subclasses with the same maths."""

    name: str
    inference: type[PolicyInference]
    estimator: type[AdvantageEstimator]
    moments: type[RolloutMoments]
    minibatches: type[StratifiedMinibatches]
    samples: type[SampleBuffer]
    gradient: type[MinibatchGradient]
    optimizer: type[FlatAdam]


REFERENCE = Backend(
    name="torch",
    inference=PolicyInference,
    estimator=AdvantageEstimator,
    moments=RolloutMoments,
    minibatches=StratifiedMinibatches,
    samples=SampleBuffer,
    gradient=MinibatchGradient,
    optimizer=FlatAdam,
)


def select_backend(device: torch.device) -> Backend:
    """Triton kernels on a CUDA device where triton is installed, else torch operations."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        from gmiflow.rl.kernels import TRITON

        return TRITON
    return REFERENCE
