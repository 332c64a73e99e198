"""Recorded operations do to changed numbers what torch does to them, and recording itself leaves no trace."""

import warnings

import pytest
import torch
from task_support import TASK_CLASSES, actions, make_task

from gmiflow.tasks.tape import TapePerCount, record

ONE = torch.tensor(1, dtype=torch.int32)

OPERATIONS = {
    "abs": lambda t: t.out.copy_(t.a).abs_(),
    "add": lambda t: (torch.add(t.a, t.b, alpha=0.3, out=t.out), t.count.add_(ONE).add_(t.mask)),
    "addcmul": lambda t: torch.addcmul(t.a, t.b, t.column, out=t.out).addcmul_(t.a, t.b, value=-2.0),
    "atan2": lambda t: torch.atan2(t.a, t.b, out=t.out),
    "clamp": lambda t: (torch.clamp(t.a, t.low, t.high, out=t.out), t.out.clamp_(max=0.4)),
    "copy": lambda t: (t.out.copy_(t.a), t.count.copy_(t.mask)),
    "div": lambda t: torch.div(t.a, t.b, out=t.out).div_(3.0),
    "hypot": lambda t: torch.hypot(t.a, t.b, out=t.out),
    "comparisons": lambda t: (
        torch.gt(t.a, 0.5, out=t.out),
        torch.lt(t.a[:, 0], t.b[:, 0], out=t.mask),
        torch.le(t.other, t.mask, out=t.mask),
        torch.ge(t.count, ONE, out=t.other),
        t.other.logical_or_(t.mask),
    ),
    "index_select": lambda t: torch.index_select(t.a, 1, t.rows, out=t.out),
    "masked_fill": lambda t: t.out.copy_(t.a).masked_fill_(t.mask.unsqueeze(1), -2.0),
    "mul": lambda t: torch.mul(t.a, t.column, out=t.out).mul_(0.5),
    "sub": lambda t: (torch.sub(t.a, t.low, out=t.out), t.out.sub_(t.b, alpha=0.05)),
    "sum": lambda t: torch.sum(t.a, dim=1, out=t.total),
    "where": lambda t: torch.where(t.mask.unsqueeze(1), t.out, t.a, out=t.out),
    "an operation that stays torch's": lambda t: torch.sin(t.a, out=t.out).cos_(),
    "parts": lambda t: (t.out[:, 1:3].copy_(t.a[:, :2]), t.out.T[0].mul_(t.b.unbind(1)[2])),
}


class Tensors:
    """Some memory, f32 [5, 4] by columns and a few companions."""

    def __init__(self):
        self.a, self.b, self.out = (torch.zeros(4, 5).T for _ in range(3))
        self.column, self.low, self.high = torch.zeros(5, 1), torch.tensor([-0.5, 0.0, 0.1, 0.2]), torch.full((4,), 0.7)
        self.total, self.count = torch.zeros(5), torch.zeros(5, dtype=torch.int32)
        self.mask, self.other = torch.zeros(5, dtype=torch.bool), torch.zeros(5, dtype=torch.bool)
        self.rows = torch.tensor([3, 0, 0, 2])

    def fill(self, seed):
        generator = torch.Generator().manual_seed(seed)
        for tensor in (self.a, self.b, self.out, self.column):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        self.mask.copy_(torch.rand(5, generator=generator) < 0.5)
        self.other.copy_(torch.rand(5, generator=generator) < 0.5)
        self.count.copy_(torch.randint(0, 3, (5,), generator=generator))
        return self

    def values(self):
        return {name: tensor.clone() for name, tensor in vars(self).items()}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_tape_does_what_was_recorded_to_other_numbers(name):
    operation, memory, expected = OPERATIONS[name], Tensors().fill(1), Tensors().fill(2)
    before = memory.values()
    tape = record(lambda: operation(memory))
    torch.testing.assert_close(memory.values(), before, rtol=0.0, atol=0.0)
    memory.fill(2)
    tape()
    operation(expected)
    torch.testing.assert_close(memory.values(), expected.values(), rtol=1e-6, atol=1e-6)
    tape()
    operation(expected)
    torch.testing.assert_close(memory.values(), expected.values(), rtol=1e-6, atol=1e-6)


def test_an_operation_that_makes_a_tensor_is_refused_without_a_trace():
    tensor = torch.ones(3)
    with pytest.raises(ValueError, match=r"aten\.mul\.Tensor makes a new tensor"):
        record(lambda: tensor.add_(1.0).copy_(tensor * 2.0))
    assert tensor.tolist() == [1.0, 1.0, 1.0]


def test_numbers_that_are_not_finite_pass_as_in_torch():
    one, other = torch.tensor([0.0, torch.nan, torch.inf]), torch.tensor([0.0, 1.0, torch.inf])
    out, above = torch.zeros(3), torch.zeros(3, dtype=torch.bool)
    tape = record(lambda: (torch.div(one, other, out=out).clamp_(max=1.0), torch.gt(out, one, out=above)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape()
    assert out.isnan().all() and not above.any()


def test_every_number_of_rows_has_a_tape_of_its_own():
    doubled, calls = torch.zeros(100, 2), []

    def double(values):
        calls.append(values.shape[0])
        return torch.mul(values, 2.0, out=doubled[: values.shape[0]])

    tapes = TapePerCount(double, torch.zeros(100, 2))
    for count in (3, 1, 3, 100):
        values = torch.rand(count, 2)
        assert torch.equal(tapes(values), 2.0 * values)
    assert calls == [3, 1, 100]
    for count in range(1, 101):  # more than are kept
        assert torch.equal(tapes(torch.ones(count, 2)), torch.full((count, 2), 2.0))


@pytest.mark.parametrize("cls", [cls for cls in TASK_CLASSES if cls.taped])
def test_a_task_on_tape_is_the_task(cls):
    class Untaped(cls):
        taped = False

    on_tape, by_torch = make_task(cls, 8), make_task(Untaped, 8)
    torch.testing.assert_close(on_tape.reset(), by_torch.reset())
    restarts = 0
    for task in (on_tape, by_torch):
        task._episode_step[::2] = cls.info.episode_length - 9
    for action in actions(on_tape, 12):
        one, other = on_tape.step({"action": action}), by_torch.step({"action": action})
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        restarts += int((one["terminated"] | one["truncated"]).sum())
    assert restarts >= 4
