"""In which order points are measured on a machine like an H200, where each of them costs ten seconds of the budget."""

import math

import pytest
from search_support import cpu_space, formula, gpu_space, measured, profile, search

from gmiflow.ir.search import Candidate, Estimate, Point
from gmiflow.profiles.improved_search import choose
from gmiflow.profiles.search_order import expected_gain

UNSLICED = {1024: 0.83e6, 4096: 2.41e6, 16384: 4.41e6, 65536: 5.44e6}
"""Steps per second of one GMI with CUDA graphs, by environments."""

AT_16384 = {(2, "mps"): 4.09e6, (4, "mps"): 3.76e6, (2, "green"): 3.89e6}
"""The same sliced, by GMIs and backend."""

EAGER_AT_16384 = 0.81e6


def unsliced(num_env):
    """Between two entries of the table along a straight line in log-log."""
    low = max(known for known in UNSLICED if known <= num_env)
    high = min(known for known in UNSLICED if known >= num_env)
    if low == high:
        return UNSLICED[low]
    part = math.log(num_env / low) / math.log(high / low)
    return UNSLICED[low] ** (1 - part) * UNSLICED[high] ** part


def ant(point):
    """Sliced and eager points are slower by as much as with 16,384 environments; 7 % more for each doubling of GMIs."""
    rate = unsliced(point.num_env)
    if point.gmis > 1:
        near = min((gmis for gmis, backend in AT_16384 if backend == point.backend), key=lambda g: abs(g - point.gmis))
        further = 0.93 ** abs(math.log2(point.gmis / near))
        rate *= AT_16384[near, point.backend] / UNSLICED[16384] * further
    return measured(point, rate * (EAGER_AT_16384 / UNSLICED[16384] if point.execution == "eager" else 1.0))


@pytest.fixture(scope="module")
def seen():
    return search(gpu_space(), ant)


def names(found):
    return [(m.point.num_env, m.point.gmis, m.point.execution, m.point.backend) for m in found]


def test_the_unsliced_row_is_climbed_to_its_peak_before_anything_else(seen):
    assert names(seen[:3]) == [(size, 1, "graph", "timeshare") for size in (4096, 16384, 65536)]


def test_slicing_is_looked_at_where_the_row_is_best_and_four_gmis_not_after_two_have_lost(seen):
    assert names(seen[3:4]) == [(65536, 2, "graph", "mps")]
    assert (65536, 4, "graph", "mps") not in names(seen)


def test_the_eager_loop_is_the_last_thing_measured_and_green_contexts_are_tried_once(seen):
    assert [m.point.execution for m in seen].index("eager") == len(seen) - 1
    assert sum(m.point.backend == "green" for m in seen) <= 1


@pytest.mark.parametrize("budget", [3, 5, 8])
def test_the_choice_is_within_5_percent_of_the_best_after_a_few_points(seen, budget):
    best = max(ant(point).steps_per_s for point in gpu_space().points())
    chosen = choose(gpu_space(), profile(seen[:budget]).measurements).chosen
    assert chosen.steps_per_s.value >= 0.95 * best
    assert chosen.point == Point(template="dp_only", gmis=1, num_env=65536, execution="graph", backend="timeshare")


def test_the_search_ends_within_8_points(seen):
    assert len(seen) <= 8


def test_without_captures_the_eager_loop_is_climbed_instead():
    def run(point):
        return measured(point, 1.0, status="failed") if point.execution == "graph" else ant(point)

    found = names(search(gpu_space(), run))
    assert found[0] == (4096, 1, "graph", "timeshare")
    assert found[1:4] == [(size, 1, "eager", "timeshare") for size in (4096, 16384, 65536)]


@pytest.mark.parametrize(("works", "tried"), [(lambda n: n < 256, [256, 64]), (lambda n: n > 256, [256, 64, 1024])])
def test_what_fails_at_the_reference_is_tried_with_less_and_with_more(works, tried):
    def run(point):
        return measured(point, 1000.0, status="ok" if works(point.num_env) else "failed")

    seen = search(cpu_space(), run)
    assert [m.point.num_env for m in seen[: len(tried)]] == tried
    assert works(choose(cpu_space(), seen).chosen.point.num_env)


def test_gmis_that_gain_are_followed():
    """Two and four GMIs halve and quarter what they divide: 20 ms + 1 us E/g + 0.1 us E + 1 ms (g - 1)."""
    found = names(search(gpu_space(), formula(0.02, 1e-6, 1e-7, 1e-3)))
    assert found[3:5] == [(65536, gmis, "graph", "mps") for gmis in (2, 4)]


def test_a_row_that_falls_is_searched_downwards():
    """Fewer than the reference of 256 are best: 100 steps/s less per doubling."""
    space = cpu_space(gmis=(1,))
    found = [m.point.num_env for m in search(space, lambda p: measured(p, 2000 - 100 * math.log2(p.num_env)))]
    assert found[:3] == [256, 1024, 64]


def test_the_expected_gain_is_the_mean_of_what_is_above_the_best():
    """From 80 to 160, of which 100 to 160 gain 30 in the mean with probability 3/4; from 110 to 130 always."""

    def candidate(value, low, high):
        rate = Estimate(value=value, low=low, high=high, origin="modelled")
        point = Point(template="dp_only", gmis=1, num_env=1024, execution="graph", backend="timeshare")
        return Candidate(
            point=point, steps_per_s=rate, device_memory=rate, host_memory=rate, iteration=rate, terms={}, score=value
        )  # fmt: skip

    best = candidate(100, 100, 100)
    assert expected_gain(candidate(120, 80, 160), best) == pytest.approx(22.5)
    assert expected_gain(candidate(120, 110, 130), best) == pytest.approx(20)
    assert expected_gain(candidate(80, 70, 90), best) == 0
