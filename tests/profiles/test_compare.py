"""Which points are measured in turns, when that ends, and what two measurements of a point make."""

import dataclasses

import pytest
from search_support import GIB, cpu_space, gpu_space, measured

from gmiflow.ir.search import Point
from gmiflow.profiles.compare import MAX_LOOKS, anchor, combined, next_round
from gmiflow.profiles.workload import Look


def point(gmis, num_env):
    return Point(template="dp_only", gmis=gmis, num_env=num_env, execution="eager", backend="cpu")


def in_turns(rates, rounds):
    """Every point looked at in each round, one in a second."""
    names = list(rates)
    return [
        dataclasses.replace(
            measured(name, rates[name]),
            looks=tuple(Look(at_s=len(names) * turn + place, steps_per_s=rates[name]) for turn in range(rounds)),
        )
        for place, name in enumerate(names)
    ]


def test_a_point_that_was_looked_at_once_is_looked_at_again_beside_the_best():
    known = in_turns({point(1, 256): 1000.0, point(2, 256): 700.0}, 1)
    assert set(next_round(cpu_space(), known)) == {point(1, 256), point(2, 256)}


def test_it_ends_when_no_other_can_be_better():
    """Thirty per cent are six times the expected noise of two looks; two per cent are not enough to tell."""
    assert next_round(cpu_space(), in_turns({point(1, 256): 1000.0, point(2, 256): 700.0}, 4)) == ()
    close = in_turns({point(1, 256): 1000.0, point(2, 256): 980.0}, 4)
    assert set(next_round(cpu_space(), close)) == {point(1, 256), point(2, 256)}
    assert next_round(cpu_space(), in_turns({point(1, 256): 1000.0, point(2, 256): 980.0}, MAX_LOOKS)) == ()


def test_the_order_is_turned_round_after_every_look():
    rates = {point(1, 256): 1000.0, point(2, 256): 990.0}
    orders = [next_round(cpu_space(), in_turns(rates, rounds)) for rounds in (2, 3)]
    assert orders[0] == orders[1][::-1]


@pytest.mark.parametrize(("rates", "rivals"), [((700.0, 700.0), set()), ((400.0, 800.0), {point(2, 256)})])
def test_two_looks_that_do_not_agree_are_followed_by_a_third(rates, rivals):
    """The best point was looked at every second, and the other one in between."""
    best = [Look(at_s=at, steps_per_s=1000.0) for at in range(9)]
    other = [Look(at_s=at, steps_per_s=rate) for at, rate in zip((2.5, 5.5), rates, strict=True)]
    known = [
        dataclasses.replace(measured(point(1, 256), 1000.0), looks=tuple(best)),
        dataclasses.replace(measured(point(2, 256), 600.0), looks=tuple(other)),
    ]
    assert set(next_round(cpu_space(), known)) - {point(1, 256)} == rivals


def test_what_does_not_fit_or_was_not_allowed_is_no_rival():
    known = [
        measured(point(1, 256), 1000.0, 1 * GIB),
        measured(point(1, 512), 2000.0, 9 * GIB),
        measured(point(2, 256), 3000.0, 1 * GIB),
    ]
    assert next_round(cpu_space(gmis=(1,), memory_bytes=4 * GIB), known) == ()
    assert next_round(cpu_space(), []) == ()


def test_new_points_are_measured_beside_the_unsliced_one_on_the_cpu_alone():
    known = [measured(point(2, 64), 3000.0), measured(point(1, 256), 1000.0), measured(point(1, 4096), 2000.0)]
    assert anchor(cpu_space(), known) == point(1, 256)
    assert anchor(cpu_space(), []) is None
    on_gpu = Point(template="dp_only", gmis=1, num_env=4096, execution="graph", backend="timeshare")
    assert anchor(gpu_space(), [measured(on_gpu, 1000.0)]) is None


def test_two_measurements_are_averaged_and_a_failure_does_not_undo_a_success():
    first = dataclasses.replace(
        measured(point(1, 256), 1000.0, 100),
        steps_per_s_low=900.0,
        steps_per_s_high=1050.0,
        stage_s={"update": 2.0},
        looks=(Look(at_s=1.0, steps_per_s=1000.0),),
    )
    second = dataclasses.replace(
        measured(point(1, 256), 1100.0, 120),
        steps_per_s_low=1090.0,
        steps_per_s_high=1200.0,
        stage_s={"update": 3.0},
        looks=(Look(at_s=3.0, steps_per_s=1100.0),),
    )
    both = combined(first, second)
    assert (both.steps_per_s, both.steps_per_s_low, both.steps_per_s_high) == (1050.0, 900.0, 1200.0)
    assert (both.stage_s, both.host_memory_bytes) == ({"update": 2.5}, 120)
    assert both.looks == (Look(at_s=1.0, steps_per_s=1000.0), Look(at_s=3.0, steps_per_s=1100.0))
    third = combined(both, measured(point(1, 256), 1200.0))
    assert third.steps_per_s == pytest.approx((1000 + 1100 + 1200) / 3)
    gone = Look(at_s=5.0, steps_per_s=0.0)
    failed = dataclasses.replace(measured(point(1, 256), 1.0, status="failed"), looks=(gone,))
    assert combined(first, failed) == dataclasses.replace(first, looks=(*first.looks, gone))
    assert combined(failed, first) == dataclasses.replace(first, looks=(gone, *first.looks))
