"""Which points are measured a second time, and what two looks at a point make."""

import dataclasses

import pytest
from search_support import GIB, cpu_space, measured

from gmiflow.ir.search import Point
from gmiflow.profiles.confirm import combined, shortlist


def point(gmis, num_env):
    return Point(template="dp_only", gmis=gmis, num_env=num_env, execution="eager", backend="cpu")


def test_the_best_and_those_close_to_it_are_looked_at_again_but_never_a_third_time():
    known = [
        measured(point(1, 256), 1000.0),
        measured(point(2, 256), 980.0),
        measured(point(2, 512), 960.0),
        measured(point(4, 512), 955.0),  # close too, but three are enough
        measured(point(4, 256), 500.0),
    ]
    assert shortlist(cpu_space(), known) == (point(1, 256), point(2, 256), point(2, 512))
    again = [dataclasses.replace(m, looks=2) if m.point == point(1, 256) else m for m in known]
    assert shortlist(cpu_space(), again) == (point(2, 256), point(2, 512))


def test_a_point_far_from_the_best_is_a_rival_when_its_bar_reaches_it():
    wide = dataclasses.replace(measured(point(2, 256), 900.0), steps_per_s_high=970.0)
    assert shortlist(cpu_space(), [measured(point(1, 256), 1000.0), wide]) == (point(1, 256), point(2, 256))


def test_what_does_not_fit_or_was_not_allowed_is_no_rival():
    known = [
        measured(point(1, 256), 1000.0, 1 * GIB),
        measured(point(1, 512), 2000.0, 9 * GIB),
        measured(point(2, 256), 3000.0, 1 * GIB),
    ]
    assert shortlist(cpu_space(gmis=(1,), memory_bytes=4 * GIB), known) == (point(1, 256),)
    assert shortlist(cpu_space(), []) == ()


def test_two_looks_are_averaged_and_a_failure_does_not_undo_a_success():
    first = dataclasses.replace(
        measured(point(1, 256), 1000.0, 100), steps_per_s_low=900.0, steps_per_s_high=1050.0, stage_s={"update": 2.0}
    )
    second = dataclasses.replace(
        measured(point(1, 256), 1100.0, 120), steps_per_s_low=1090.0, steps_per_s_high=1200.0, stage_s={"update": 3.0}
    )
    both = combined(first, second)
    assert (both.steps_per_s, both.steps_per_s_low, both.steps_per_s_high) == (1050.0, 900.0, 1200.0)
    assert (both.stage_s, both.host_memory_bytes, both.looks) == ({"update": 2.5}, 120, 2)
    third = combined(both, measured(point(1, 256), 1200.0))
    assert third.steps_per_s == pytest.approx((1000 + 1100 + 1200) / 3)
    failed = measured(point(1, 256), 1.0, status="failed")
    assert combined(first, failed) == dataclasses.replace(first, looks=2)
    assert combined(failed, first) == dataclasses.replace(first, looks=2)
