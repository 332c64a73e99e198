"""Parts of an iteration: an eager loop tells simulation and policy apart, a CUDA graph shows the rollout as one."""

from dataclasses import replace

import pytest
from search_support import gpu_space, measured

from gmiflow.ir.search import Point
from gmiflow.profiles.surface import Surface

GRAPH = Point(template="dp_only", gmis=1, num_env=4096, execution="graph", backend="timeshare")
EAGER = replace(GRAPH, execution="eager")


def with_parts(point, **milliseconds):
    total_s = sum(milliseconds.values()) / 1e3
    found = measured(point, point.num_env * 16 / total_s)
    return replace(found, stage_s={part: ms / 1e3 for part, ms in milliseconds.items()})


@pytest.fixture(scope="module")
def surface():
    seen = [with_parts(GRAPH, collect=26, update=14), with_parts(EAGER, simulate=30, infer=6, update=15)]
    return Surface(gpu_space(), seen)


@pytest.mark.parametrize(("point", "parts"), [(GRAPH, {"collect", "update"}), (EAGER, {"simulate", "infer", "update"})])
def test_a_point_has_the_parts_of_its_execution(surface, point, parts):
    assert set(surface.candidate(point).terms) == parts
    assert set(surface.candidate(replace(point, num_env=8192)).terms) == parts


def test_measured_parts_are_the_whole_iteration(surface):
    terms = surface.candidate(GRAPH).terms
    assert sum(term.value for term in terms.values()) == pytest.approx(0.040)
    assert {term.origin for term in terms.values()} == {"measured"}


def test_an_execution_that_nobody_measured_has_no_parts(surface):
    terms = surface.candidate(replace(GRAPH, execution="overlap")).terms
    assert set(terms) == {"iteration"}
    assert terms["iteration"].origin == "modelled"


def test_the_iteration_is_the_whole_whatever_its_parts_are(surface):
    """4,096 environments in 16 steps: 40 ms measured as 26 + 14; the rate says the same."""
    for point in (GRAPH, EAGER, replace(GRAPH, num_env=8192)):
        found = surface.candidate(point)
        assert found.iteration.value == pytest.approx(point.num_env * 16 / found.steps_per_s.value)
        assert found.iteration.low <= found.iteration.value <= found.iteration.high
        assert found.iteration.origin == found.steps_per_s.origin
    assert surface.candidate(GRAPH).iteration.value == pytest.approx(0.040)


def test_one_gmi_has_nobody_to_communicate_with():
    """Two GMIs were seen to reduce gradients, so a third would, and one alone would not."""
    point = replace(GRAPH, gmis=2, backend="mps")
    surface = Surface(gpu_space(), [with_parts(point, collect=20, update=9, communicate=3)])
    assert "communicate" in surface.candidate(replace(point, gmis=3)).terms
    assert set(surface.candidate(GRAPH).terms) == {"collect", "update"}
