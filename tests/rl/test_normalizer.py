"""The normaliser against moments of all samples together."""

import pytest
import torch

from gmiflow.rl.normalizer import RunningNormalizer


def test_is_the_identity_before_the_first_merge():
    value = torch.tensor([[1.5, -2.0]])
    normalizer = RunningNormalizer((2,))
    assert torch.equal(normalizer.normalize(value), value)
    assert torch.equal(normalizer.denormalize(value), value)


def test_two_batches_by_hand():
    # {1, 3}: mean 2, variance 1. {6, 6, 9}: mean 7, variance 2. All five: mean 5, variance
    # ((1-5)^2 + (3-5)^2 + 1 + 1 + 16) / 5 = 38 / 5.
    normalizer = RunningNormalizer((1,), epsilon=0.0)
    normalizer.merge(torch.tensor([2.0]).double(), torch.tensor([1.0]).double(), 2)
    assert normalizer.normalize(torch.tensor([3.0])).item() == pytest.approx(1.0)
    normalizer.merge(torch.tensor([7.0]).double(), torch.tensor([2.0]).double(), 3)
    assert normalizer.mean.item() == pytest.approx(5.0)
    assert normalizer.variance.item() == pytest.approx(7.6)
    assert normalizer.count.item() == 5
    assert normalizer.normalize(torch.tensor([9.0])).item() == pytest.approx(4.0 / 7.6**0.5)
    assert normalizer.denormalize(torch.tensor([1.0])).item() == pytest.approx(5.0 + 7.6**0.5)


def test_many_merges_equal_one_pass_over_everything():
    generator = torch.Generator().manual_seed(3)
    offsets = torch.tensor([0.0, 1e3, -5.0], dtype=torch.float64)
    batches = [torch.randn(count, 3, generator=generator).double() * 2.0 + offsets for count in (5, 64, 17, 1, 900)]
    normalizer = RunningNormalizer((3,))
    for batch in batches:
        normalizer.merge(batch.mean(0), batch.var(0, correction=0), len(batch))
    everything = torch.cat(batches)
    torch.testing.assert_close(normalizer.mean, everything.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(normalizer.variance, everything.var(0, correction=0), rtol=1e-9, atol=1e-12)


def test_merge_keeps_the_buffers_in_place():
    normalizer = RunningNormalizer((2,))
    pointers = {name: buffer.data_ptr() for name, buffer in normalizer.named_buffers()}
    normalizer.merge(torch.ones(2).double(), torch.ones(2).double(), 4)
    assert {name: buffer.data_ptr() for name, buffer in normalizer.named_buffers()} == pointers
