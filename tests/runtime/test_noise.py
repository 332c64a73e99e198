"""Counter-based noise: distribution, independence, slicing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gmiflow.runtime.noise import CounterNoise

NUM_ENV = 4096
WIDTH = 16
# Kolmogorov's limit: P(sqrt(n) D > 2.0) = 2 exp(-2 * 2**2) + ... < 7e-4. The seeds are fixed.
KS_LIMIT = 2.0


def step(number: int) -> Tensor:
    return torch.tensor(number, dtype=torch.int64)


def noise(seed: int = 1, num_env: int = NUM_ENV, env_offset: int = 0) -> CounterNoise:
    return CounterNoise(seed=seed, num_env=num_env, env_offset=env_offset)


def ks_statistic(samples: Tensor, cdf: Tensor) -> float:
    """sqrt(n) times the largest distance between the empirical and the expected distribution."""
    n = samples.numel()
    order = samples.flatten().argsort()
    expected = cdf.flatten()[order]
    ranks = torch.arange(n, dtype=torch.float64)
    distance = torch.maximum(expected - ranks / n, (ranks + 1) / n - expected).max()
    return math.sqrt(n) * distance.item()


def correlation(a: Tensor, b: Tensor) -> float:
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]).double())[0, 1].item()


@pytest.mark.parametrize("seed", [0, 1, -7, 2**40 + 3])
def test_uniform_distribution(seed: int) -> None:
    samples = noise(seed).uniform("reset", step(5), WIDTH).double()
    n = samples.numel()
    assert samples.min() >= 0 and samples.max() < 1
    assert abs(samples.mean().item() - 0.5) < 4 * math.sqrt(1 / 12 / n)
    # var(x**2 around the mean) of U(0,1): fourth central moment 1/80, minus (1/12)**2 = 1/180.
    assert abs(samples.var().item() - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
    assert ks_statistic(samples, samples) < KS_LIMIT


@pytest.mark.parametrize("seed", [0, 1, -7, 2**40 + 3])
def test_normal_distribution(seed: int) -> None:
    samples = noise(seed).normal("action", step(3), WIDTH).double()
    n = samples.numel()
    assert abs(samples.mean().item()) < 4 / math.sqrt(n)
    assert abs(samples.var().item() - 1) < 4 * math.sqrt(2 / n)
    assert abs((samples**4).mean().item() - 3) < 4 * math.sqrt(96 / n)
    assert samples.abs().max() < 5.77
    assert ks_statistic(samples, 0.5 * (1 + torch.erf(samples / math.sqrt(2)))) < KS_LIMIT


def test_uniform_over_time_of_one_environment() -> None:
    one = noise(num_env=1, env_offset=1234)
    samples = torch.stack([one.uniform("x", step(i), 1) for i in range(4000)]).double()
    assert ks_statistic(samples, samples) < KS_LIMIT
    assert abs(correlation(samples[1:], samples[:-1])) < 4 / math.sqrt(4000)


def test_neighbours_are_uncorrelated() -> None:
    base = noise(1).normal("x", step(0), WIDTH)
    limit = 4 / math.sqrt(base.numel())
    others = {
        "step": noise(1).normal("x", step(1), WIDTH),
        "seed": noise(2).normal("x", step(0), WIDTH),
        "purpose": noise(1).normal("y", step(0), WIDTH),
        "environment": noise(1, env_offset=1).normal("x", step(0), WIDTH),
        "far environment": noise(1, env_offset=NUM_ENV).normal("x", step(0), WIDTH),
        "index": base.roll(1, dims=1),
    }
    for name, other in others.items():
        assert abs(correlation(base, other)) < limit, name


def test_every_input_bit_flips_half_of_the_output_bits() -> None:
    def bits(number: int) -> Tensor:
        return (noise().uniform("x", step(number), 8) * 2**24).to(torch.int64)

    for bit in range(32):
        changed = bits(1000) ^ bits(1000 ^ (1 << bit))
        flips = sum(((changed >> i) & 1).double().mean().item() for i in range(24)) / 24
        assert abs(flips - 0.5) < 0.005, bit


def test_uniform_numbers_of_a_step_hardly_repeat() -> None:
    samples = noise().uniform("x", step(0), WIDTH)
    n = samples.numel()
    expected_pairs = n * n / 2 / 2**24
    repeated = n - samples.unique().numel()
    assert abs(repeated - expected_pairs) < 6 * math.sqrt(expected_pairs)


def test_slices_see_the_numbers_of_the_whole() -> None:
    whole = noise(3).normal("reset", step(9), 5)
    for offset in (0, 16, 4000):
        part = noise(3, num_env=96, env_offset=offset).normal("reset", step(9), 5)
        assert torch.equal(part, whole[offset : offset + 96])


def test_chosen_environments_with_their_own_steps() -> None:
    source = noise(3, num_env=64, env_offset=128)
    env = torch.tensor([5, 63, 0])
    steps = torch.tensor([7, 0, 2])
    chosen = source.uniform("reset", steps, 4, env)
    for row, (i, number) in enumerate([(5, 7), (63, 0), (0, 2)]):
        assert torch.equal(chosen[row], source.uniform("reset", step(number), 4)[i])
    per_environment = source.uniform("reset", torch.arange(64), 4)
    assert torch.equal(per_environment[5], source.uniform("reset", step(5), 4)[5])


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_a_number_does_not_depend_on_the_width(width: int) -> None:
    source = noise(num_env=32)
    assert torch.equal(source.uniform("x", step(1), width), source.uniform("x", step(1), 8)[:, :width])
    assert torch.equal(source.normal("x", step(1), width), source.normal("x", step(1), 8)[:, :width])


def test_the_hash_is_the_documented_one() -> None:
    """Against Python integers, so that another implementation can be checked in the same way."""

    def mix(x: int) -> int:
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
        x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
        return x ^ (x >> 16)

    purpose = 0x5DF61D46  # the first four bytes of BLAKE2s-32 of b"reset", little endian
    seed = mix(42) ^ mix(1)
    key = mix((mix(seed ^ purpose) + 70 * 0x9E3779B1) & 0xFFFFFFFF)
    state = mix(key ^ ((6 * 0xC13FA9A9) & 0xFFFFFFFF))
    expected = [(mix((state + i * 0x6A09E667) & 0xFFFFFFFF) >> 8) / 2**24 for i in range(3)]
    assert noise(42, num_env=8, env_offset=64).uniform("reset", step(6), 3)[6].tolist() == expected


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_numpy_draws_bit_for_bit_what_torch_draws(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU NumPy hashes; torch does so on a GPU without Triton."""
    by_numpy, by_torch = noise(11, num_env=100, env_offset=48), noise(11, num_env=100, env_offset=48)
    monkeypatch.setattr(by_torch, "_by_numpy", False)
    env = torch.tensor([3, 99, 17])
    for number, chosen in [(step(0), None), (step(2**31 + 5), env), (torch.tensor([7, 2**31, 2**32 + 1]), env)]:
        drawn = getattr(by_numpy, kind)("reset", number, 7, chosen)
        assert drawn.dtype == torch.float32
        assert torch.equal(drawn, getattr(by_torch, kind)("reset", number, 7, chosen))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("width", [1, 3, 8, 21])
def test_the_kernel_draws_what_torch_draws(kind, width) -> None:
    arguments = {"seed": 11, "num_env": 1000, "env_offset": 48}
    on_cpu, on_gpu = CounterNoise(**arguments), CounterNoise(**arguments, device="cuda")
    for step in (0, 7, 2**31 + 5):
        expected = getattr(on_cpu, kind)("reset", torch.tensor(step), width)
        drawn = getattr(on_gpu, kind)("reset", torch.tensor(step, device="cuda"), width)
        torch.testing.assert_close(drawn.cpu(), expected, rtol=1e-4, atol=1e-5)
    chosen = torch.tensor([3, 999, 17])
    expected = getattr(on_cpu, kind)("reset", torch.tensor(9), width, chosen)
    drawn = getattr(on_gpu, kind)("reset", torch.tensor(9, device="cuda"), width, chosen.cuda())
    torch.testing.assert_close(drawn.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_arrays_get_the_numbers_of_tensors() -> None:
    source, env, steps = noise(7, num_env=64), torch.tensor([3, 60, 4]), torch.tensor([5, 2**33 + 1, 9])
    numbers = source.uniform_array("reset", steps.numpy(), 5, env.numpy())
    assert torch.equal(torch.from_numpy(numbers), source.uniform("reset", steps, 5, env))
