"""What one measurement rules out by itself, without the help of a model."""

from dataclasses import replace

from search_support import cpu_space, measured

from gmiflow.ir.search import Point
from gmiflow.profiles.surface import Surface
from gmiflow.profiles.walls import Walls
from gmiflow.profiles.workload import Measurement


def point(gmis, num_env):
    return Point(template="dp_only", gmis=gmis, num_env=num_env, execution="eager", backend="cpu")


def terms(known, *points):
    space = cpu_space()
    walls = Walls(space, known, Surface(space, known))
    found = [walls.against(each) for each in points]
    return [None if wall is None else wall.term for wall in found]


def test_what_is_as_large_as_a_point_out_of_memory_is_ruled_out_whatever_is_projected():
    """One GMI worked with 64 GB, so nothing smaller is projected to fail: two GMIs with 512 environments did."""
    worked = [measured(point(1, 64), 500.0, 1e9), measured(point(1, 4096), 1000.0, 64e9)]
    known = [*worked, measured(point(2, 512), 1.0, status="out_of_memory")]
    assert terms(known, point(2, 1024), point(4, 512)) == ["memory", "memory"]
    assert terms(known, point(2, 256), point(1, 1024)) == [None, None]


def test_a_row_ends_where_doubling_gains_less_than_2_percent():
    flat = [measured(point(1, 256), 1000.0), measured(point(1, 512), 1010.0)]
    assert terms(flat, point(1, 1024), point(1, 128), point(2, 1024)) == ["saturation", None, None]
    rising = [measured(point(1, 256), 1000.0), measured(point(1, 512), 1030.0)]
    assert terms(rising, point(1, 1024)) == [None]


def test_a_size_that_does_not_compile_says_nothing_of_other_sizes():
    for message, term in (("E0401: too few", None), ("E0701: sim raised ValueError", "failed")):
        known = [Measurement(point=point(1, size), status="failed", message=message) for size in (64, 128, 256)]
        assert terms(known, point(1, 512)) == [term]


def failed(num_env, message, execution="eager"):
    where = replace(point(1, num_env), execution=execution)
    return Measurement(point=where, status="failed", message=message)


def test_what_fails_may_work_at_another_size_until_three_have_failed():
    two = [failed(256, "a"), failed(64, "a")]
    assert terms(two, point(1, 512), point(2, 512)) == [None, None]
    assert terms([*two, failed(1024, "a")], point(1, 512), point(2, 512)) == ["failed", "failed"]
    assert terms([*two, failed(1024, "a"), measured(point(1, 2048), 1000.0)], point(1, 512)) == [None]


def test_what_cannot_be_captured_is_given_up_unless_the_size_is_to_blame():
    graph = replace(point(1, 512), execution="graph")
    assert terms([failed(256, "a", "graph")], graph, point(1, 512)) == ["failed", None]
    assert terms([failed(256, "a", "graph"), failed(256, "a")], graph) == [None]
