"""The loss against numbers worked out by hand, and its closed-form gradient against autograd in float64."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from gmiflow.rl.losses import STATISTICS, LossSettings, LossWorkspace
from gmiflow.rl.samples import RowLayout, Rows

F64 = torch.float64


def run(settings, *, action, old_mean, old_std, old_log_prob, old_value, advantage, returns, mean, value, log_std):
    """Gradient with respect to mean, value and log_std, and the statistics by name."""
    batch, size = mean.shape
    layout = RowLayout(observation=3, input=8, action=size)
    rows = Rows(layout, torch.zeros((batch, layout.width), dtype=mean.dtype))
    for target, source in (
        (rows.action, action),
        (rows.mean, old_mean),
        (rows.std, old_std),
        (rows.log_prob, old_log_prob),
        (rows.value, old_value),
        (rows.advantage, advantage),
        (rows.returns, returns),
    ):
        target.copy_(source)
    output = torch.zeros((2, batch, size), dtype=mean.dtype)
    output[0], output[1, :, 0] = mean, value
    gradient, log_std_gradient = torch.zeros_like(output), torch.zeros_like(log_std)
    statistics = torch.zeros(len(STATISTICS), dtype=mean.dtype)
    LossWorkspace(settings, size, batch, output).gradient(
        rows=rows,
        output=output,
        log_std=log_std,
        weight=1.0 / batch,
        output_gradient=gradient,
        log_std_gradient=log_std_gradient,
        statistics=statistics,
    )
    assert not gradient[1, :, 1:].any()
    return gradient[0], gradient[1, :, 0], log_std_gradient, dict(zip(STATISTICS, statistics.tolist(), strict=True))


def one_sample(*, ratio=1.0, advantage=0.0, mean=0.0, value=0.0, old_value=0.0, returns=0.0, settings=None):
    """One sample of one action dimension with sigma = 1 and a - mu = 1."""
    log_prob = -0.5 - 0.5 * math.log(2.0 * math.pi)

    def tensor(number):
        return torch.tensor([number], dtype=F64)

    return run(
        settings or LossSettings(clip=0.2, value_coef=2.0, entropy=0.0, bounds_loss=0.0),
        action=tensor([mean + 1.0]),
        old_mean=tensor([mean]),
        old_std=tensor([1.0]),
        old_log_prob=tensor(log_prob - math.log(ratio)),
        old_value=tensor(old_value),
        advantage=tensor(advantage),
        returns=tensor(returns),
        mean=tensor([mean]),
        value=tensor(value),
        log_std=tensor(0.0),
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.2),  # inside: loss -A r, d loss / d log p = -A r
        (1.5, 2.0, -2.4, 0.0),  # gains stop at 1.2
        (0.5, 2.0, -1.0, -1.0),  # a pessimistic bound: losses do not stop
        (0.5, -2.0, 1.6, 0.0),  # stops at 0.8
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_clipped_surrogate(ratio, advantage, loss, slope):
    mean_gradient, _, log_std_gradient, statistics = one_sample(ratio=ratio, advantage=advantage)
    assert statistics["policy_loss"] == pytest.approx(loss)
    # d log p / d mu = (a - mu) / sigma^2 = 1 and d log p / d log sigma = z^2 - 1 = 0.
    assert mean_gradient.item() == pytest.approx(slope)
    assert log_std_gradient.item() == pytest.approx(0.0)
    assert statistics["clip_fraction"] == (0.0 if ratio == 1.1 else 1.0)


@pytest.mark.parametrize(
    ("value", "returns", "loss", "slope"),
    [
        (1.1, 3.0, 0.5 * 1.9**2, -1.9),  # inside the range of 0.2 around 1: the plain squared error
        (1.5, 3.0, 0.5 * 1.8**2, 0.0),  # moved 0.5 towards the return: only 0.2 count, no more pull
        (0.5, 3.0, 0.5 * 2.5**2, -2.5),  # moved away: the plain error is the larger one
        (2.5, 1.9, 0.5 * 0.7**2, 0.0),  # overshot, but less than the clipped one misses
    ],
)
def test_clipped_value_loss(value, returns, loss, slope):
    _, value_gradient, _, statistics = one_sample(value=value, old_value=1.0, returns=returns)
    assert statistics["value_loss"] == pytest.approx(loss)
    assert value_gradient.item() == pytest.approx(2.0 * slope)  # times value_coef


@pytest.mark.parametrize(("mean", "loss", "slope"), [(1.0, 0.0, 0.0), (1.6, 0.25, 1.0), (-1.3, 0.04, -0.4)])
def test_bounds_loss(mean, loss, slope):
    settings = LossSettings(bounds_loss=3.0)
    mean_gradient, _, _, statistics = one_sample(mean=mean, settings=settings)
    assert statistics["bounds_loss"] == pytest.approx(loss)
    assert mean_gradient.item() == pytest.approx(3.0 * slope)


def test_divergence_and_entropy_equal_torch_distributions():
    generator = torch.Generator().manual_seed(1)
    mean, old_mean = torch.randn(2, 6, 3, dtype=F64, generator=generator)
    old_std = torch.rand(6, 3, dtype=F64, generator=generator) + 0.5
    log_std = torch.tensor([0.1, -0.4, 0.3], dtype=F64)
    zero = torch.zeros(6, dtype=F64)
    *_, statistics = run(
        LossSettings(),
        action=mean,
        old_mean=old_mean,
        old_std=old_std,
        old_log_prob=zero,
        old_value=zero,
        advantage=zero,
        returns=zero,
        mean=mean,
        value=zero,
        log_std=log_std,
    )
    new = Normal(mean, log_std.exp().expand_as(mean))
    expected = kl_divergence(Normal(old_mean, old_std), new).sum(1).mean()
    assert statistics["kl"] == pytest.approx(expected.item())
    assert statistics["entropy"] == pytest.approx(new.entropy().sum(1).mean().item())


def test_gradient_equals_autograd_in_float64():
    generator = torch.Generator().manual_seed(2)
    batch, size = 500, 4

    def normal(*shape, scale=1.0):
        return scale * torch.randn(*shape, dtype=F64, generator=generator)

    settings = LossSettings(clip=0.2, value_coef=2.0, entropy=0.01, bounds_loss=0.1)
    mean, log_std, value = normal(batch, size), normal(size, scale=0.2), normal(batch)
    old_mean, old_std = mean + normal(batch, size, scale=0.1), normal(size, scale=0.2).exp().expand(batch, size)
    action, advantage, returns = old_mean + old_std * normal(batch, size), normal(batch), normal(batch)
    old_value = value + normal(batch, scale=0.3)
    old_log_prob = Normal(old_mean, old_std).log_prob(action).sum(1)
    leaves = [leaf.clone().requires_grad_() for leaf in (mean, value, log_std)]
    policy = Normal(leaves[0], leaves[2].exp())
    ratio = (policy.log_prob(action).sum(1) - old_log_prob).exp()
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    clipped_value = old_value + (leaves[1] - old_value).clamp(-0.2, 0.2)
    value_loss = 0.5 * torch.max((leaves[1] - returns) ** 2, (clipped_value - returns) ** 2).mean()
    bounds = ((leaves[0] - 1.1).clamp(min=0) ** 2 + (leaves[0] + 1.1).clamp(max=0) ** 2).sum(1).mean()
    entropy = policy.entropy().sum(1).mean()
    (policy_loss + 2.0 * value_loss - 0.01 * entropy + 0.1 * bounds).backward()
    *gradients, statistics = run(
        settings,
        action=action,
        old_mean=old_mean,
        old_std=old_std,
        old_log_prob=old_log_prob,
        old_value=old_value,
        advantage=advantage,
        returns=returns,
        mean=mean,
        value=value,
        log_std=log_std,
    )
    for gradient, leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-9, atol=1e-12)
    assert statistics["policy_loss"] == pytest.approx(policy_loss.item())
    assert statistics["value_loss"] == pytest.approx(value_loss.item())
    assert statistics["bounds_loss"] == pytest.approx(bounds.item())
    assert 0.1 < statistics["clip_fraction"] < 0.9
