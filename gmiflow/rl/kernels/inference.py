"""`PolicyInference` in three kinds of kernel: prepare the input, the layers, sample."""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import triton
import triton.language as tl
from torch import Tensor

from gmiflow.rl.inference import PolicyInference
from gmiflow.rl.kernels.network import Tiling, TritonNetwork
from gmiflow.rl.models import OBSERVATION_LIMIT

__all__ = ["TritonInference"]

_TILE = 32
_HALF_LOG_TWO_PI = tl.constexpr(0.9189385332046727)


@triton.jit
def prepare_kernel(
    obs,
    scale,
    shift,
    kept,
    rows,
    num_env,
    OBSERVATION: tl.constexpr,
    ROWS: tl.constexpr,
    NORMALIZE: tl.constexpr,
    LIMIT: tl.constexpr,
    KEEP: tl.constexpr,
    COLUMNS_TILE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Normalised observations into ``rows`` [num_env, ROWS]; a copy of the raw ones into ``kept``."""
    env = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, COLUMNS_TILE)
    used = column < OBSERVATION
    inside = (env < num_env)[:, None] & used[None, :]
    place = env[:, None] * OBSERVATION + column[None, :]
    value = tl.load(obs + place, mask=inside, other=0.0)
    if KEEP:
        tl.store(kept + place, value, mask=inside)
    if NORMALIZE:
        factor = tl.load(scale + column, mask=used, other=0.0)[None, :]
        value = value * factor + tl.load(shift + column, mask=used, other=0.0)[None, :]
        value = tl.minimum(tl.maximum(value, -LIMIT), LIMIT)
    tl.store(rows + env[:, None] * ROWS + column[None, :], value, mask=inside)


@triton.jit
def sample_kernel(
    output,
    noise,
    noise_row,
    log_std,
    center,
    deviation,
    action,
    mean,
    std,
    log_prob,
    value,
    num_env,
    ACTION: tl.constexpr,
    SAMPLE: tl.constexpr,
    ACTION_TILE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Denormalise the value and, where SAMPLE, draw the action and record its distribution."""
    env = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = env < num_env
    raw = tl.load(output + (num_env + env) * ACTION, mask=valid, other=0.0)
    tl.store(value + env, raw * tl.load(deviation) + tl.load(center), mask=valid)
    if SAMPLE:
        column = tl.arange(0, ACTION_TILE)
        used = column < ACTION
        inside = valid[:, None] & used[None, :]
        place = env[:, None] * ACTION + column[None, :]
        logarithm = tl.load(log_std + column, mask=used, other=0.0)
        middle = tl.load(output + place, mask=inside, other=0.0)
        drawn = tl.load(noise + env[:, None] * noise_row + column[None, :], mask=inside, other=0.0)
        tl.store(mean + place, middle, mask=inside)
        tl.store(action + place, middle + drawn * tl.exp(logarithm)[None, :], mask=inside)
        total = tl.sum(logarithm, axis=0) + ACTION * _HALF_LOG_TWO_PI
        tl.store(log_prob + env, -0.5 * tl.sum(drawn * drawn, axis=1) - total, mask=valid)
        if tl.program_id(0) == 0:
            tl.store(std + column, tl.exp(logarithm), mask=used)


class TritonInference(PolicyInference):
    """See `PolicyInference`; ``precision`` holds for this object's matrix products alone."""

    tiling = Tiling(batch=64, warps=4)

    def _allocate(self) -> None:
        policy, flat = self._policy, self._flat
        self._network = TritonNetwork(
            policy.layout,
            policy.activation,
            flat,
            self._num_env,
            precision=self._precision,
            trains=False,
            tiling=self.tiling,
        )
        self._rows = flat.new_zeros((self._num_env, policy.layout.layers[0].rows))
        self._rows[:, policy.layout.observation] = 1.0

    def act(self, obs: Tensor, noise: Tensor) -> None:
        """See `PolicyInference.act`."""
        self._launch(obs, noise, self._value, sample=True)

    def evaluate(self, obs: Tensor) -> None:
        """See `PolicyInference.evaluate`."""
        self._launch(obs, self._action, self.bootstrap, sample=False)

    def _launch(self, obs: Tensor, noise: Tensor, value: Tensor, *, sample: bool) -> None:
        policy, layout = self._policy, self._policy.layout
        grid = (triton.cdiv(self._num_env, _TILE),)
        prepare_kernel[grid](
            obs.contiguous(),
            policy.observation_normalizer.scale,
            policy.observation_normalizer.shift,
            self._obs,
            self._rows,
            self._num_env,
            OBSERVATION=layout.observation,
            ROWS=layout.layers[0].rows,
            NORMALIZE=policy.normalize_obs,
            LIMIT=OBSERVATION_LIMIT,
            KEEP=sample,
            COLUMNS_TILE=triton.next_power_of_2(layout.observation),
            TILE=_TILE,
        )
        sample_kernel[grid](
            self._network.forward(self._rows),
            noise,
            noise.stride(0),
            self._log_std,
            policy.value_normalizer.center,
            policy.value_normalizer.deviation,
            self._action,
            self._mean,
            self._std,
            self._log_prob,
            value,
            self._num_env,
            ACTION=layout.action,
            SAMPLE=sample,
            ACTION_TILE=triton.next_power_of_2(layout.action),
            TILE=_TILE,
        )
