"""Flat Adam against torch.optim.Adam, and the learning-rate rule by hand."""

import pytest
import torch

from gmiflow.rl.optimizer import FlatAdam


def reduced(gradient, kl=0.0):
    return torch.cat([gradient, torch.tensor([kl])])


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_equals_torch_adam_with_clipped_gradients(max_grad_norm):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(1000, generator=generator)
    flat, reference = start.clone(), torch.nn.Parameter(start.clone().double())
    ours = FlatAdam(flat, learning_rate=3e-3, kl_target=0.0, max_grad_norm=max_grad_norm)
    adam = torch.optim.Adam([reference], lr=3e-3, eps=1e-8)
    norms = 0.0
    for step in range(20):
        gradient = torch.randn(1000, generator=generator) * (0.01 if step % 2 else 3.0)
        reference.grad = gradient.double()
        norms += torch.nn.utils.clip_grad_norm_([reference], max_grad_norm or 1e9).item()
        adam.step()
        ours.step(reduced(gradient, kl=0.5))
    torch.testing.assert_close(flat.double(), reference.detach(), rtol=1e-5, atol=1e-6)
    assert ours.sums.tolist() == pytest.approx([20 * 0.5, norms], rel=1e-5)


@pytest.mark.parametrize(
    ("kl", "rate", "expected"),
    [
        (0.0039, 3e-4, 4.5e-4),  # below half of the target 0.008: faster
        (0.0041, 3e-4, 3e-4),
        (0.0159, 3e-4, 3e-4),
        (0.0161, 3e-4, 2e-4),  # above twice: slower
        (0.0, 9e-3, 1e-2),  # never above 1e-2
        (1.0, 1.2e-6, 1e-6),  # never below 1e-6
        (float("nan"), 3e-4, 3e-4),
    ],
)
def test_learning_rate_follows_the_divergence(kl, rate, expected):
    optimizer = FlatAdam(torch.zeros(4), learning_rate=rate, kl_target=0.008, max_grad_norm=1.0)
    optimizer.step(reduced(torch.zeros(4), kl))
    assert optimizer.learning_rate.item() == pytest.approx(expected, rel=1e-6)


def test_no_target_keeps_the_rate():
    optimizer = FlatAdam(torch.zeros(4), learning_rate=3e-4, kl_target=0.0, max_grad_norm=1.0)
    optimizer.step(reduced(torch.zeros(4), 5.0))
    assert optimizer.learning_rate.item() == pytest.approx(3e-4)


def test_state_resumes_exactly():
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 50, generator=generator)

    def fresh():
        flat = torch.zeros(50)
        return flat, FlatAdam(flat, learning_rate=1e-2, kl_target=0.0, max_grad_norm=1.0)

    flat, optimizer = fresh()
    for gradient in gradients:
        optimizer.step(reduced(gradient))
    first_flat, first = fresh()
    for gradient in gradients[:3]:
        first.step(reduced(gradient))
    second_flat, second = fresh()
    second_flat.copy_(first_flat)
    for name, value in second.state_dict().items():
        value.copy_(first.state_dict()[name])
    for gradient in gradients[3:]:
        second.step(reduced(gradient))
    assert torch.equal(second_flat, flat)
