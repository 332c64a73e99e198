"""Drive a simulator without a runtime: for trying one's own, for pictures and for measurements.

simulator = MySimulator()
simulator.setup(standalone_context(num_env=64, engine="mujoco"))
obs = simulator.reset()["obs"]
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from gmiflow.api import Floats, Integers, Noise, StageContext

__all__ = ["GeneratorNoise", "SoloCommunicator", "standalone_context"]


class SoloCommunicator:
    """The communicator of a single member: every collective leaves its tensor as it is."""

    rank = 0
    size = 1

    def all_reduce(self, flat: Tensor, op: str = "sum") -> None:
        """Leave ``flat`` as it is."""

    def broadcast(self, flat: Tensor, root: int = 0) -> None:
        """Leave ``flat`` as it is."""

    def barrier(self) -> None:
        """Return at once."""


class GeneratorNoise:
    """`gmiflow.api.Noise` from torch generators.

    Repeatable for one sequence of calls, but not the runtime's noise: its numbers depend on the
    calls made before, so a slice of the environments sees other numbers than the whole. A generator counts on
    the host: on a GPU a step that draws from it cannot be captured.
    """

    def __init__(self, *, num_env: int, device: torch.device, seed: int) -> None:
        """Noise for ``num_env`` environments on ``device``."""
        self._num_env = num_env
        self._device = device
        self._seed = seed
        self._generators: dict[str, torch.Generator] = {}

    def uniform(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Uniform numbers in [0, 1), f32 [k, width]."""
        return torch.rand(self._rows(env), width, generator=self._generator(purpose), device=self._device)

    def uniform_array(self, purpose: str, step: Integers, width: int, env: Integers) -> Floats:
        """Uniform numbers in [0, 1), f32 [k, width]."""
        return self.uniform(purpose, torch.from_numpy(step), width, torch.from_numpy(env)).numpy()

    def normal(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Standard normal numbers, f32 [k, width]."""
        return torch.randn(self._rows(env), width, generator=self._generator(purpose), device=self._device)

    def _rows(self, env: Tensor | None) -> int:
        return self._num_env if env is None else env.numel()

    def _generator(self, purpose: str) -> torch.Generator:
        if purpose not in self._generators:
            generator = torch.Generator(device=self._device)
            self._generators[purpose] = generator.manual_seed(self._seed ^ zlib.crc32(purpose.encode()))
        return self._generators[purpose]


def standalone_context(
    num_env: int,
    *,
    device: str | torch.device = "cpu",
    seed: int = 1,
    env_offset: int = 0,
    num_env_total: int | None = None,
    threads: int = 1,
    noise: Noise | None = None,
    **params: bool | int | float | str,
) -> StageContext:
    """A stage context for one simulator on its own; ``params`` are the stage's parameters."""
    place = torch.device(device)
    return StageContext(
        stage="sim",
        device=place,
        num_env=num_env,
        env_offset=env_offset,
        num_env_total=num_env_total or num_env,
        horizon=16,
        stratum=16,
        seed=seed,
        params=params,
        communicator=SoloCommunicator(),
        noise=noise or GeneratorNoise(num_env=num_env, device=place, seed=seed),
        threads=threads,
    )
