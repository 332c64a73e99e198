"""Stratified minibatches whose contents do not depend on how the environments are sliced.

A stratum is ``stratum`` consecutive global environments (see CONTRACT: slice invariance). Inside
it, the horizon * stratum samples are permuted by a hash of (seed, iteration, epoch, stratum) and
cut evenly, so every minibatch takes the same share of every stratum, and a replica that owns whole
strata knows its part of every minibatch without talking to the others.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from gmiflow.hashing import mix_, mix_int, signed

__all__ = ["ITERATION_STRIDE", "StratifiedMinibatches"]

_STRATUM_STRIDE = 0x9E3779B1
ITERATION_STRIDE = 0xC13FA9A9
_SAMPLE_STRIDE = 0x6A09E667


class StratifiedMinibatches:
    """Sample indices of the minibatches of one replica.

    A sample is row ``time * num_env + environment`` of a [horizon, num_env] rollout.

    Attributes:
        bounds: minibatch ``m`` is ``order[epoch, bounds[m]:bounds[m + 1]]``.
        global_counts: samples of each minibatch over all replicas.
    """

    def __init__(
        self,
        *,
        horizon: int,
        num_env: int,
        env_offset: int,
        num_env_total: int,
        stratum: int,
        epochs: int,
        minibatches: int,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Prepare the constants.

        Raises:
            ValueError: when the slice is not whole strata, or a stratum has fewer samples than
                there are minibatches.
        """
        samples = horizon * stratum
        if num_env % stratum or env_offset % stratum or num_env_total % stratum:
            raise ValueError(f"a slice of {num_env} environments from {env_offset} is not whole strata of {stratum}")
        if minibatches > samples:
            raise ValueError(f"{minibatches} minibatches of {samples} samples (horizon {horizon} x stratum {stratum})")
        strata, first = num_env // stratum, env_offset // stratum
        cuts = [minibatch * samples // minibatches for minibatch in range(minibatches + 1)]
        self.bounds = [cut * strata for cut in cuts]
        self.global_counts = [(end - start) * (num_env_total // stratum) for start, end in pairwise(cuts)]
        self._cuts = cuts
        self._cuts_tensor = torch.tensor(cuts, dtype=torch.int32, device=device)
        self._num_env = num_env
        self._stratum = stratum
        self._index_mask = (1 << (samples - 1).bit_length()) - 1
        self.order = torch.empty((epochs, strata * samples), dtype=torch.int64, device=device)
        self._chunks = [
            [order[start:end].view(strata, -1) for start, end in pairwise(self.bounds)] for order in self.order
        ]

        def numbers(start: int, count: int, stride: int) -> Tensor:
            return torch.arange(start, start + count, dtype=torch.int32, device=device).mul_(signed(stride))

        epoch_keys = [signed(mix_int(mix_int(seed) + mix_int(seed >> 32) + epoch)) for epoch in range(epochs)]
        keys = torch.tensor(epoch_keys, dtype=torch.int32, device=device)
        self._keys = mix_(keys[:, None] + numbers(first, strata, _STRATUM_STRIDE))
        self._sample = torch.arange(samples, dtype=torch.int32, device=device)
        self._sample_keys = numbers(0, samples, _SAMPLE_STRIDE)
        self._column = torch.arange(strata, device=device)[:, None] * stratum

    def shuffle(self, iteration: Tensor) -> None:
        """Fill `order` for one iteration.

        Args:
            iteration: i64 scalar tensor; a counter on the device, so that a captured graph advances.
        """
        state = mix_(self._keys ^ (iteration.to(torch.int32) * signed(ITERATION_STRIDE)))
        keys = mix_(state.unsqueeze(-1) + self._sample_keys)
        # The sample's own index in the low bits breaks ties and is what the sorted keys are read for.
        keys.bitwise_and_(~self._index_mask).bitwise_or_(self._sample)
        picked = torch.sort(keys, dim=-1).values.bitwise_and_(self._index_mask).to(torch.int64)
        time = torch.div(picked, self._stratum, rounding_mode="floor")
        rows = picked.add_(time.mul_(self._num_env - self._stratum)).add_(self._column)
        for chunks, permuted in zip(self._chunks, rows, strict=True):
            for chunk, (start, end) in zip(chunks, pairwise(self._cuts), strict=True):
                chunk.copy_(permuted[:, start:end])
