"""Counter-based noise: the implementation of `gmiflow.api.Noise`.

Every number is a pure function of (seed, purpose, global environment id, step, index). So a run
gives the same numbers however its environments are cut into GMIs, whichever execution lowering
drives it, and after a resume; nothing has to be saved.

The function is a chain of the 32-bit finaliser `gmiflow.hashing.mix_int`, in which every input bit
flips every output bit with a probability close to one half::

    key(environment) = mix(mix(seed ^ purpose) + environment * ODD_1)    once per purpose, cached
    state            = mix(key ^ (step * ODD_2))                         one per environment
    bits(index)      = mix(state + index * ODD_3)                        one per number

Arithmetic is 32-bit with wraparound: by NumPy on the CPU, by one Triton kernel per call on a GPU, or by torch
on a GPU without Triton; CUDA graphs capture both. Steps repeat after 2**32.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gmiflow.api import Floats, Integers
from gmiflow.hashing import Words, mix_, mix_int, mix_words_, signed

__all__ = ["CounterNoise"]

_BITS = 32
# Odd constants that spread consecutive counters over the whole range (Weyl sequences of the golden
# ratio, the plastic number and the silver ratio).
_ENVIRONMENT_STRIDE = 0x9E3779B1
_STEP_STRIDE = 0xC13FA9A9
_INDEX_STRIDE = 0x6A09E667
_UNIT = 2.0**-24
_STEP_FACTOR, _EIGHT = np.array(_STEP_STRIDE, np.uint32), np.array(8, np.uint32)
_UNIT_FACTOR = np.array(_UNIT, np.float32)


def _purpose_code(purpose: str) -> int:
    """32 bits of a cryptographic hash of the name: the same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.blake2s(purpose.encode(), digest_size=4).digest(), "little")


class CounterNoise:
    """Noise for the environments ``env_offset .. env_offset + num_env - 1`` of one training.

    The first call with a new purpose or width computes constants and keeps them; so call each once
    before capturing a CUDA graph (any warm-up run does).
    """

    def __init__(self, *, seed: int, num_env: int, env_offset: int, device: torch.device | str = "cpu") -> None:
        """Make the noise of one slice; ``seed`` may be any integer."""
        self.num_env = num_env
        self.env_offset = env_offset
        self.device = torch.device(device)
        self._seed = mix_int(seed) ^ mix_int((seed >> _BITS) + 1)
        self._keys: dict[str, Tensor] = {}
        self._indices: dict[tuple[int, int, int], Tensor] = {}
        # The same memory as arrays: asking torch for one costs more than what is done with it.
        self._words: dict[int, Words] = {}
        self._fused = self.device.type == "cuda" and importlib.util.find_spec("triton") is not None
        self._by_numpy = self.device.type == "cpu"
        self._parts: tuple[CounterNoise, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[CounterNoise]) -> CounterNoise:
        """Noise for the environments of several trainings on one device, one training after the other.

        Each has its own seed and its own ids, and gets the numbers that it gets alone.
        """
        noise = cls(seed=0, num_env=sum(part.num_env for part in parts), env_offset=0, device=parts[0].device)
        noise._parts = tuple(parts)
        return noise

    def uniform(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Uniform numbers in [0, 1) with 24 bits; see `gmiflow.api.Noise.uniform`."""
        if self._fused:
            return self._draw(purpose, step, width, env, normal=False)
        (numbers,) = self._units(purpose, step, width, env, every=1)
        return numbers

    def uniform_array(self, purpose: str, step: Integers, width: int, env: Integers) -> Floats:
        """The same numbers as `uniform`, from and to arrays; on the CPU only."""
        (numbers,) = self._units_by_numpy(purpose, step, width, env, every=1)
        return numbers

    def normal(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Standard normal numbers by Box and Muller (1958); |z| < 5.77; see `gmiflow.api.Noise.normal`.

        Numbers 2k and 2k + 1 are the cosine and the sine of one pair, so number i does not depend
        on ``width``.
        """
        if self._fused:
            return self._draw(purpose, step, width, env, normal=True)
        pairs = (width + 1) // 2
        radius, angle = self._units(purpose, step, 2 * pairs, env, every=2)
        radius.neg_().add_(1.0).log_().mul_(-2.0).sqrt_()
        angle.mul_(2.0 * math.pi)
        result = torch.empty((radius.shape[0], pairs, 2), dtype=torch.float32, device=self.device)
        torch.mul(radius, torch.cos(angle), out=result[:, :, 0])
        torch.mul(radius, angle.sin_(), out=result[:, :, 1])
        return result.view(radius.shape[0], 2 * pairs)[:, :width]

    def _units(self, purpose: str, step: Tensor, width: int, env: Tensor | None, *, every: int) -> list[Tensor]:
        """The uniform numbers 0 .. width - 1 dealt in turn to ``every`` tensors, each f32 [k, width / every]."""
        if self._by_numpy:
            rows = None if env is None else env.numpy()
            numbers = self._units_by_numpy(purpose, step.numpy(), width, rows, every=every)
            return [torch.from_numpy(part) for part in numbers]
        offsets = [self._offsets(first, every, width) for first in range(every)]
        keys = self._keys_of(purpose, env)
        state = mix_((step.to(torch.int32) * signed(_STEP_STRIDE)).bitwise_xor(keys)).unsqueeze(1)
        bits = [mix_(state + offset) for offset in offsets]
        return [b.bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).to(torch.float32).mul_(_UNIT) for b in bits]

    def _units_by_numpy(
        self, purpose: str, step: Integers, width: int, env: Integers | None, *, every: int
    ) -> list[Floats]:
        """As torch does it in `_units`, bit for bit."""
        keys = self._words_of(self._keys_of(purpose, None))
        state = step.astype(np.uint32).reshape(-1)  # the low 32 bits
        np.multiply(state, _STEP_FACTOR, out=state)
        state = mix_words_(np.bitwise_xor(state, keys if env is None else keys[env]))[:, np.newaxis]
        offsets = [self._words_of(self._offsets(first, every, width)) for first in range(every)]
        bits = [mix_words_(np.add(state, offset)) for offset in offsets]
        return [np.right_shift(word, _EIGHT).astype(np.float32) * _UNIT_FACTOR for word in bits]

    def _words_of(self, constant: Tensor) -> Words:
        """The memory of an int32 tensor that is kept for life, as unsigned words."""
        words = self._words.get(id(constant))
        if words is None:
            words = self._words[id(constant)] = constant.numpy().view(np.uint32)
        return words

    def _offsets(self, first: int, stride: int, width: int) -> Tensor:
        """What the numbers ``first, first + stride, ...`` below ``width`` add to the state, int32."""
        key = (first, stride, width)
        offsets = self._indices.get(key)
        if offsets is None:
            index = torch.arange(first, width, stride, dtype=torch.int32, device=self.device)
            offsets = self._indices[key] = index.mul_(signed(_INDEX_STRIDE))
        return offsets

    def _draw(self, purpose: str, step: Tensor, width: int, env: Tensor | None, *, normal: bool) -> Tensor:
        """The same numbers by one kernel; logarithm and cosine may differ from torch's in the last bits."""
        from gmiflow.runtime.noise_kernel import draw

        return draw(
            self._keys_of(purpose, env),
            step,
            width,
            normal=normal,
            step_stride=_STEP_STRIDE,
            index_stride=_INDEX_STRIDE,
        )

    def _keys_of(self, purpose: str, env: Tensor | None) -> Tensor:
        """The cached part of the hash, int32 [k]."""
        keys = self._keys.get(purpose)
        if keys is None:
            keys = self._keys[purpose] = self._make_keys(purpose)
        return keys if env is None else keys.index_select(0, env)

    def _make_keys(self, purpose: str) -> Tensor:
        """The cached part of the hash, int32 [num_env]."""
        if self._parts:
            return torch.cat([part._make_keys(purpose) for part in self._parts])
        base = mix_int(self._seed ^ _purpose_code(purpose))
        first, last = self.env_offset, self.env_offset + self.num_env
        ids = torch.arange(first, last, dtype=torch.int32, device=self.device)
        return mix_(ids.mul_(signed(_ENVIRONMENT_STRIDE)).add_(signed(base)))
