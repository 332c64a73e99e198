"""What happens to a rollout before the minibatches, one kernel each: advantages, order, packed rows."""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from collections.abc import Mapping

import triton
import triton.language as tl
from torch import Tensor

from gmiflow.hashing import MULTIPLIER_1, MULTIPLIER_2, signed
from gmiflow.rl.minibatches import ITERATION_STRIDE, StratifiedMinibatches
from gmiflow.rl.models import OBSERVATION_LIMIT
from gmiflow.rl.returns import AdvantageEstimator
from gmiflow.rl.samples import SampleBuffer

__all__ = ["TritonAdvantageEstimator", "TritonMinibatches", "TritonSampleBuffer"]

_MULTIPLIER_1 = tl.constexpr(signed(MULTIPLIER_1))
_MULTIPLIER_2 = tl.constexpr(signed(MULTIPLIER_2))
_ENV_TILE = 64
_SAMPLE_TILE = 32


@triton.jit
def advantage_kernel(
    reward,
    terminated,
    truncated,
    value,
    bootstrap,
    advantage,
    returns,
    horizon,
    num_env,
    GAMMA: tl.constexpr,
    LAM: tl.constexpr,
    REWARD_SCALE: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program per TILE environments walks the rollout backwards."""
    env = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = env < num_env
    following = tl.load(bootstrap + env, mask=inside, other=0.0)
    running = tl.zeros((TILE,), tl.float32)
    for back in range(0, horizon):
        place = (horizon - 1 - back) * num_env + env
        now = tl.load(value + place, mask=inside, other=0.0)
        cut = tl.load(truncated + place, mask=inside, other=0) != 0
        over = cut | (tl.load(terminated + place, mask=inside, other=0) != 0)
        going = tl.where(over, 0.0, GAMMA)
        paid = tl.load(reward + place, mask=inside, other=0.0) * REWARD_SCALE + tl.where(cut, GAMMA * now, 0.0)
        running = paid + going * following - now + going * LAM * running
        tl.store(advantage + place, running, mask=inside)
        tl.store(returns + place, running + now, mask=inside)
        following = now


class TritonAdvantageEstimator(AdvantageEstimator):
    """See `AdvantageEstimator`."""

    def compute(
        self, *, reward: Tensor, terminated: Tensor, truncated: Tensor, value: Tensor, bootstrap: Tensor
    ) -> None:
        """See `AdvantageEstimator.compute`; all inputs contiguous."""
        horizon, num_env = reward.shape
        advantage_kernel[(triton.cdiv(num_env, _ENV_TILE),)](
            reward,
            terminated,
            truncated,
            value,
            bootstrap,
            self.advantage,
            self.returns,
            horizon,
            num_env,
            GAMMA=self.gamma,
            LAM=self.lam,
            REWARD_SCALE=self.reward_scale,
            TILE=_ENV_TILE,
            num_warps=2,
        )


@triton.jit
def mix(value):
    """`gmiflow.hashing.mix_` on int32; shifts keep the sign, hence the masks."""
    value = (value ^ ((value >> 16) & 0xFFFF)) * _MULTIPLIER_1
    value = (value ^ ((value >> 15) & 0x1FFFF)) * _MULTIPLIER_2
    return value ^ ((value >> 16) & 0xFFFF)


@triton.jit
def order_kernel(
    keys,
    sample_keys,
    iteration,
    order,
    cuts,
    strata,
    num_env,
    ITERATION_STRIDE: tl.constexpr,
    STRATUM: tl.constexpr,
    SAMPLES: tl.constexpr,
    MASK: tl.constexpr,
    MINIBATCHES: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program per epoch and stratum: sort the hashed keys, write where each sample goes.

    ``cuts`` is i32 [MINIBATCHES + 1], the share of a stratum that minibatches take.
    """
    stratum = tl.program_id(0)
    epoch = tl.program_id(1)
    counter = tl.load(iteration).to(tl.int32) * ITERATION_STRIDE
    state = mix(tl.load(keys + epoch * strata + stratum) ^ counter)
    index = tl.arange(0, TILE)
    used = index < SAMPLES
    hashed = mix(tl.load(sample_keys + index, mask=used, other=0) + state)
    # Unused places get the largest key, so that they sort to the end.
    hashed = tl.where(used, (hashed & ~MASK) | index, 0x7FFFFFFF)
    picked = tl.sort(hashed) & MASK
    source = (picked // STRATUM) * num_env + stratum * STRATUM + picked % STRATUM
    # Sorted place p belongs to minibatch m with cuts[m] <= p < cuts[m + 1]; minibatches lie one
    # after the other, and inside of each the strata do.
    start = tl.zeros((TILE,), tl.int32)
    length = tl.zeros((TILE,), tl.int32)
    for minibatch in range(0, MINIBATCHES):
        low = tl.load(cuts + minibatch)
        high = tl.load(cuts + minibatch + 1)
        here = (index >= low) & (index < high)
        start = tl.where(here, low, start)
        length = tl.where(here, high - low, length)
    target = start * strata + stratum * length + (index - start)
    base = epoch.to(tl.int64) * strata * SAMPLES
    tl.store(order + base + target, source.to(tl.int64), mask=used)


class TritonMinibatches(StratifiedMinibatches):
    """See `StratifiedMinibatches`; the same order, bit by bit."""

    def shuffle(self, iteration: Tensor) -> None:
        """See `StratifiedMinibatches.shuffle`."""
        epochs, strata = self._keys.shape
        samples = self._sample_keys.numel()
        order_kernel[(strata, epochs)](
            self._keys,
            self._sample_keys,
            iteration,
            self.order,
            self._cuts_tensor,
            strata,
            self._num_env,
            ITERATION_STRIDE=signed(ITERATION_STRIDE),
            STRATUM=self._stratum,
            SAMPLES=samples,
            MASK=self._index_mask,
            MINIBATCHES=len(self._cuts) - 1,
            TILE=triton.next_power_of_2(samples),
            num_warps=2,
        )


@triton.jit
def rows_kernel(
    order,
    obs,
    action,
    mean,
    std,
    log_prob,
    value,
    advantage,
    returns,
    obs_scale,
    obs_shift,
    value_scale,
    value_shift,
    advantage_factors,
    target,
    samples,
    width,
    OBSERVATION: tl.constexpr,
    INPUT: tl.constexpr,
    ACTION: tl.constexpr,
    NORMALIZE: tl.constexpr,
    LIMIT: tl.constexpr,
    OBSERVATION_TILE: tl.constexpr,
    ACTION_TILE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Gather samples in minibatch order from the rollout, normalised, as packed rows."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = row < samples
    source = tl.load(order + row, mask=valid, other=0)
    line = target + row.to(tl.int64) * width
    column = tl.arange(0, OBSERVATION_TILE)
    used = column < OBSERVATION
    inside = valid[:, None] & used[None, :]
    seen = tl.load(obs + source[:, None] * OBSERVATION + column[None, :], mask=inside, other=0.0)
    if NORMALIZE:
        scale = tl.load(obs_scale + column, mask=used, other=0.0)
        shift = tl.load(obs_shift + column, mask=used, other=0.0)
        seen = tl.minimum(tl.maximum(seen * scale[None, :] + shift[None, :], -LIMIT), LIMIT)
    tl.store(line[:, None] + column[None, :], seen, mask=inside)
    tl.store(line + OBSERVATION, tl.full((TILE,), 1.0, tl.float32), mask=valid)
    place = tl.arange(0, ACTION_TILE)
    inside = valid[:, None] & (place < ACTION)[None, :]
    local = source[:, None] * ACTION + place[None, :]
    packed = line[:, None] + INPUT + place[None, :]
    tl.store(packed, tl.load(action + local, mask=inside, other=0.0), mask=inside)
    tl.store(packed + ACTION, tl.load(mean + local, mask=inside, other=0.0), mask=inside)
    tl.store(packed + 2 * ACTION, tl.load(std + local, mask=inside, other=0.0), mask=inside)
    scalar = line + INPUT + 3 * ACTION
    scale = tl.load(value_scale)
    shift = tl.load(value_shift)
    tl.store(scalar, tl.load(log_prob + source, mask=valid, other=0.0), mask=valid)
    tl.store(scalar + 1, tl.load(value + source, mask=valid, other=0.0) * scale + shift, mask=valid)
    gain = tl.load(advantage + source, mask=valid, other=0.0)
    gain = gain * tl.load(advantage_factors) + tl.load(advantage_factors + 1)
    tl.store(scalar + 2, gain, mask=valid)
    tl.store(scalar + 3, tl.load(returns + source, mask=valid, other=0.0) * scale + shift, mask=valid)


class TritonSampleBuffer(SampleBuffer):
    """See `SampleBuffer`; reads the rollout in place every epoch instead of packing it first."""

    def _allocate(self, flat: Tensor) -> None:
        self._sources: tuple[Tensor, ...] = ()

    def _pack(self, experience: Mapping[str, Tensor], advantage: Tensor, returns: Tensor) -> None:
        names = ("obs", "action", "mean", "std", "log_prob", "value")
        self._sources = (*(experience[name].contiguous() for name in names), advantage, returns)

    def shuffle(self, order: Tensor) -> None:
        """See `SampleBuffer.shuffle`."""
        policy, layout = self._policy, self.layout
        normalizer, value = policy.observation_normalizer, policy.value_normalizer
        rows_kernel[(triton.cdiv(self._samples, _SAMPLE_TILE),)](
            order,
            *self._sources,
            normalizer.scale,
            normalizer.shift,
            value.scale,
            value.shift,
            self._advantage_factors,
            self.shuffled,
            self._samples,
            layout.width,
            OBSERVATION=layout.observation,
            INPUT=layout.input,
            ACTION=layout.action,
            NORMALIZE=policy.normalize_obs,
            LIMIT=OBSERVATION_LIMIT,
            OBSERVATION_TILE=triton.next_power_of_2(layout.observation),
            ACTION_TILE=triton.next_power_of_2(layout.action),
            TILE=_SAMPLE_TILE,
            num_warps=4,
        )
