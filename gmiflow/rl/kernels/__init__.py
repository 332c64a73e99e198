"""Triton kernels for CUDA: the same maths as the torch operations, in far fewer launches.

Importing this package imports triton, so only `gmiflow.rl.backend` does, and only for CUDA devices.
"""

from gmiflow.rl.backend import Backend
from gmiflow.rl.kernels.gradient import TritonGradient
from gmiflow.rl.kernels.inference import TritonInference
from gmiflow.rl.kernels.moments import TritonMoments
from gmiflow.rl.kernels.optimizer import TritonAdam
from gmiflow.rl.kernels.rollout import TritonAdvantageEstimator, TritonMinibatches, TritonSampleBuffer

__all__ = ["TRITON"]

TRITON = Backend(
    name="triton",
    inference=TritonInference,
    estimator=TritonAdvantageEstimator,
    moments=TritonMoments,
    minibatches=TritonMinibatches,
    samples=TritonSampleBuffer,
    gradient=TritonGradient,
    optimizer=TritonAdam,
)
