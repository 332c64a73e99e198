"""Minibatches: every sample once per epoch, every stratum evenly, the same however it is sliced."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from gmiflow.hashing import mix_, mix_int, mix_words_, signed
from gmiflow.rl.minibatches import StratifiedMinibatches


def make(num_env=64, env_offset=0, num_env_total=64, horizon=6, stratum=16, epochs=3, minibatches=4, seed=5):
    return StratifiedMinibatches(
        horizon=horizon,
        num_env=num_env,
        env_offset=env_offset,
        num_env_total=num_env_total,
        stratum=stratum,
        epochs=epochs,
        minibatches=minibatches,
        seed=seed,
    )


def contents(part, env_offset, num_env, iteration):
    """Per epoch and minibatch the set of (time, global environment)."""
    part.shuffle(torch.tensor(iteration))
    result = []
    for order in part.order.tolist():
        for start, end in pairwise(part.bounds):
            result.append({(sample // num_env, sample % num_env + env_offset) for sample in order[start:end]})
    return result


def test_hash_of_tensors_and_arrays_equals_hash_of_integers():
    values = [0, 1, 2, 12345, 2**31 - 1, 2**31, 2**32 - 1, 0x9E3779B1]
    mixed = mix_(torch.tensor([signed(value) for value in values], dtype=torch.int32))
    assert mixed.tolist() == [signed(mix_int(value)) for value in values]
    assert mix_words_(np.array(values, dtype=np.uint32)).tolist() == [mix_int(value) for value in values]


def test_every_epoch_uses_every_sample_once():
    part = make()
    part.shuffle(torch.tensor(0))
    for order in part.order:
        assert sorted(order.tolist()) == list(range(6 * 64))


def test_every_minibatch_takes_the_same_share_of_every_stratum():
    part = make()
    for minibatch in contents(part, 0, 64, 0):
        strata = [environment // 16 for _, environment in minibatch]
        assert [strata.count(stratum) for stratum in range(4)] == [24] * 4


@pytest.mark.parametrize("iteration", [0, 1, 7])
@pytest.mark.parametrize("slices", [[(0, 32), (32, 32)], [(0, 16), (16, 48)]])
def test_slices_make_the_same_minibatches(slices, iteration):
    whole = contents(make(), 0, 64, iteration)
    parts = [contents(make(num_env=n, env_offset=start), start, n, iteration) for start, n in slices]
    assert [set.union(*group) for group in zip(*parts, strict=True)] == whole


def test_epochs_iterations_seeds_and_strata_differ():
    part = make(stratum=16)
    orders = []
    for iteration in (0, 1):
        part.shuffle(torch.tensor(iteration))
        orders += [tuple(order.tolist()) for order in part.order]
    other = make(seed=6)
    other.shuffle(torch.tensor(0))
    orders += [tuple(order.tolist()) for order in other.order]
    assert len(set(orders)) == 9
    first = {(t, e % 16) for t, e in contents(part, 0, 64, 0)[0] if e < 16}
    second = {(t, e % 16) for t, e in contents(part, 0, 64, 0)[0] if 16 <= e < 32}
    assert first != second


def test_positions_are_uniform():
    # Each of 96 samples of a stratum falls into the first of 4 minibatches with probability 1/4:
    # over 4000 draws the count has mean 1000 and deviation 27.4.
    part = make(num_env=16, num_env_total=16, epochs=4)
    hits = torch.zeros(96)
    for iteration in range(1000):
        part.shuffle(torch.tensor(iteration))
        hits.index_add_(0, part.order[:, : part.bounds[1]].flatten(), torch.ones(4 * part.bounds[1]))
    assert (hits - 1000.0).abs().max() < 5 * 27.4


def test_uneven_cuts_cover_everything_and_report_global_counts():
    part = make(num_env=32, horizon=5, minibatches=3)  # 80 samples per stratum: 26, 27, 27
    assert part.bounds == [0, 52, 106, 160]
    assert part.global_counts == [104, 108, 108]
    part.shuffle(torch.tensor(2))
    assert sorted(part.order[0].tolist()) == list(range(160))


def test_rejects_half_strata_and_too_many_minibatches():
    with pytest.raises(ValueError, match="whole strata of 16"):
        make(num_env=24)
    with pytest.raises(ValueError, match="97 minibatches of 96 samples"):
        make(minibatches=97)
