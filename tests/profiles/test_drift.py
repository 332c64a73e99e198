"""Rates without the drift of the machine: against a general least squares solution, and on drifts that are known."""

import dataclasses
import math
import random

import pytest
import torch
from search_support import measured

from gmiflow.ir.search import Point
from gmiflow.profiles.drift import level, levelled
from gmiflow.profiles.local_level import Observation, inverted, solve
from gmiflow.profiles.workload import Look


def point(gmis, num_env=256):
    return Point(template="dp_only", gmis=gmis, num_env=num_env, execution="eager", backend="cpu")


def seen(name, looks):
    looks = tuple(Look(at_s=at, steps_per_s=rate, run=run) for at, rate, run in looks)
    return dataclasses.replace(measured(name, looks[0].steps_per_s), looks=looks)


def test_the_fit_is_that_of_generalised_least_squares():
    """y ~ N(X p, W^-1 + K), where K is the inverse of the walk's precision: p = (X' V^-1 X)^-1 X' V^-1 y."""
    draw = random.Random(3)
    times = [0.0, 1.5, 2.0, 4.5, 7.0, 7.5, 9.0]
    groups = [0, 1, 0, 2, 1, 2, 0]
    y = [draw.gauss(0, 1) for _ in times]
    weights = [1.0, 0.4, 1.0, 1.0, 0.7, 1.0, 1.0]
    ratio = 0.5
    walk = torch.eye(7, dtype=torch.float64) * 0.03 / 7
    for k in range(6):
        stiff = 1 / (ratio**2 * (times[k + 1] - times[k]))
        walk[k, k] += stiff
        walk[k + 1, k + 1] += stiff
        walk[k, k + 1] -= stiff
        walk[k + 1, k] -= stiff
    v = torch.diag(1 / torch.tensor(weights, dtype=torch.float64)) + torch.linalg.inv(walk)
    x = torch.nn.functional.one_hot(torch.tensor(groups)).double()
    covariance = torch.linalg.inv(x.T @ torch.linalg.solve(v, x))
    target = torch.tensor(y, dtype=torch.float64)
    effects = covariance @ x.T @ torch.linalg.solve(v, target)
    left = target - x @ effects

    observations = [Observation(group=g, at_s=t, value=value) for g, t, value in zip(groups, times, y, strict=True)]
    fit = solve(observations, weights, ratio)
    assert fit.effects == pytest.approx(effects.tolist())
    assert [value for row in fit.covariance for value in row] == pytest.approx(covariance.flatten().tolist())
    assert fit.objective == pytest.approx(float(left @ torch.linalg.solve(v, left)))
    expected = torch.logdet(v) + torch.logdet(torch.linalg.inv(covariance))
    assert fit.log_determinant == pytest.approx(float(expected))
    assert [a + b + fit.effects[g] for a, b, g in zip(fit.drift, fit.residuals, groups, strict=True)] == (
        pytest.approx(y)
    )


def test_an_inverse_and_its_determinant():
    """[[4, 2], [2, 3]] has the determinant 8 and the inverse [[3, -2], [-2, 4]] / 8."""
    inverse, logarithm = inverted([[4.0, 2.0], [2.0, 3.0]])
    assert [value for row in inverse for value in row] == pytest.approx([3 / 8, -2 / 8, -2 / 8, 4 / 8])
    assert logarithm == pytest.approx(math.log(8))


def test_a_machine_that_slows_down_does_not_make_the_later_point_look_slow():
    """The speed halves within a minute. Two points of 1,000 and 1,100 steps/s are looked at in turns, the second one
    always two seconds later, when the machine has lost 2.3 % more; the third once, at the end, 1,200 x 0.5 = 600."""

    def rate(usual, at):
        return usual * 0.5 ** (at / 60)

    looks = {
        point(1): [(at, rate(1000, at), False) for at in range(0, 61, 4)],
        point(2): [(at, rate(1100, at), False) for at in range(2, 60, 4)],
        point(4): [(61, rate(1200, 61), False)],
    }
    levels = level([seen(name, found) for name, found in looks.items()], "cpu")
    assert levels.rates[point(2)] / levels.rates[point(1)] == pytest.approx(1.1, rel=0.01)
    assert levels.rates[point(4)] / levels.rates[point(1)] == pytest.approx(1.2, rel=0.03)
    assert levels.drift[0] / levels.drift[-1] == pytest.approx(2, rel=0.05)
    assert levels.rates[point(1)] == pytest.approx(1000 * 0.5**0.5, rel=0.03)  # at the median of the speeds
    assert 0.2 < levels.spread < 0.6


def test_one_stalled_look_moves_nothing_and_a_single_look_is_not_trusted():
    looks = {name: [(2.0 * turn + name.gmis / 4, 1000.0, False) for turn in range(5)] for name in (point(1), point(2))}
    looks[point(2)][2] = (4.5, 400.0, False)
    looks[point(4)] = [(9.5, 1000.0, False)]
    levels = level([seen(name, found) for name, found in looks.items()], "cpu")
    assert levels.rates[point(2)] / levels.rates[point(1)] == pytest.approx(1, abs=0.05)
    assert levels.error_between(point(1), point(2)) < 0.15 < 0.6 < levels.error_between(point(1), point(4))


def test_noise_is_estimated_from_the_looks_and_errors_shrink_with_them():
    draw = random.Random(5)

    def levels(noise, turns):
        return level(
            [
                seen(name, [(t * 2 + i, 1000 * math.exp(draw.gauss(0, noise)), False) for t in range(turns)])
                for i, name in enumerate((point(1), point(2)))
            ],
            "cpu",
        )

    assert levels(0.2, 40).noise == pytest.approx(0.2, rel=0.4)
    assert levels(0.01, 40).noise < 0.03
    few, many = levels(0.05, 4), levels(0.05, 36)
    assert many.error_between(point(1), point(2)) < 0.6 * few.error_between(point(1), point(2))


def test_a_run_moves_all_points_alike():
    """It was 20 % slower than the profile says: so are all, and what is between them stays."""
    looks = {name: [(2.0 * turn + name.gmis / 4, 500.0 * name.gmis, False) for turn in range(3)]
             for name in (point(1), point(2))}  # fmt: skip
    before = level([seen(name, found) for name, found in looks.items()], "cpu")
    looks[point(2)].append((90.0, 800.0, True))
    known = [seen(name, found) for name, found in looks.items()]
    after = level(known, "cpu")
    assert before.rates[point(2)] == pytest.approx(1000)
    assert after.rates[point(2)] == pytest.approx(800)
    assert after.rates[point(1)] / after.rates[point(2)] == pytest.approx(0.5)
    found = levelled(known, after)[1]
    assert found.steps_per_s == pytest.approx(800)
    assert found.steps_per_s_low < 800 < found.steps_per_s_high
    assert found.iteration_s == pytest.approx(256 * 16 / 800)  # it was 256 x 16 / 1000 when it ran at 1,000


def test_measurements_without_looks_are_left_as_they_are():
    known = [measured(point(1), 1000.0)]
    assert levelled(known, level(known, "cpu")) == known
    assert level([], "cpu").rates == {}
