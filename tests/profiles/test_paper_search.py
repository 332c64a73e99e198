"""Algorithm 1 as published, replayed on a recorded table; and where the improved search beats it."""

import pytest
from search_support import GIB, gpu_space, measured, profile, search

from gmiflow.ir.search import Point
from gmiflow.profiles.paper_search import choose
from gmiflow.profiles.search import choose as choose_any

# (GMIs, environments over all of them): (steps per second, GiB), of the whole GPU.
TABLE = {
    (2, 256): (200, 2.0),
    (2, 512): (360, 2.2),
    (2, 1024): (600, 2.6),
    (2, 2048): (700, 7.8),
    (2, 4096): (710, 16.0),
    (1, 128): (150, 1.0),
    (1, 256): (290, 1.1),
    (1, 512): (500, 1.3),
    (1, 1024): (650, 1.9),
    (1, 2048): (660, 3.8),
    (1, 4096): (661, 7.0),
}
SPACE = gpu_space(
    gmis=(1, 2),
    num_env=(256, 512, 1024, 2048, 4096),
    executions=("graph",),
    backends=(("timeshare",), ("mps",)),
    memory_bytes=12 * GIB,
    reference=256,
)


def point(gmis, num_env):
    return Point(
        template="dp_only",
        gmis=gmis,
        num_env=num_env,
        execution="graph",
        backend="timeshare" if gmis == 1 else "mps",
    )


def machine(wanted):
    steps_per_s, gib = TABLE[wanted.gmis, wanted.num_env]
    status = "ok" if gib < 12 else "out_of_memory"
    return measured(wanted, steps_per_s, gib * GIB, status)


def test_algorithm_1_profiles_and_keeps_what_it_should():
    """By hand, with a threshold of 0.1. Two GMIs, each: 128 is remembered; 256 has 180 against 100 and 1.1 against
    1.0 GiB, Sat = 0.8 / 0.1 = 8, so 360; 512 is projected at 256/128 x 0.1 + 1.1 = 1.3 of 6 GiB, Sat = 0.667 / 0.182
    = 3.7, so 600; 1,024 has Sat = (350/300 - 1) / (3.9/1.3 - 1) = 0.083: the row ends, and its 700 are dropped.
    One GMI: 128 remembered; Sat = 0.933 / 0.1 at 256, 0.724 / 0.182 at 512, 0.3 / 0.46 at 1,024, so 650; and
    0.0154 / 1 at 2,048 ends it."""
    seen = search(SPACE, machine, "paper")
    visited = [(m.point.gmis, m.point.num_env) for m in seen]
    assert visited == [(2, 256), (2, 512), (2, 1024), (2, 2048), (1, 128), (1, 256), (1, 512), (1, 1024), (1, 2048)]
    found = choose_any(SPACE, profile(seen), "paper")
    assert found.chosen.point == point(1, 1024)
    assert found.chosen.steps_per_s.value == 650
    terms = {(v.candidate.point.gmis, v.candidate.point.num_env): v.term for v in found.verdicts}
    assert terms[2, 256] == terms[1, 128] == "first_of_row"
    assert terms[2, 2048] == terms[1, 2048] == "saturation"
    assert terms[2, 4096] == "not_visited"


def test_the_improved_search_compares_what_algorithm_1_drops():
    """2,048 environments over two GMIs make 700 steps a second, 7.7 % more than Algorithm 1's 650."""
    seen = search(SPACE, machine)
    found = choose_any(SPACE, profile(seen))
    assert found.chosen.point == point(2, 2048)
    assert found.chosen.steps_per_s.value / 650 == pytest.approx(1.077, abs=0.001)
    assert found.unsliced is not None
    assert found.unsliced.point == point(1, 2048)
    assert found.unsliced.steps_per_s.origin == "measured"


def test_the_first_point_of_a_row_never_wins():
    """The throughput falls from the start: 128 environments are the best, and nothing is compared."""
    falling = [measured(point(1, 128 * 2**i), 1000 / 2**i, (1 + i) * GIB) for i in range(3)]
    with pytest.raises(ValueError, match="compared no point"):
        choose(gpu_space(gmis=(1,)), falling)


def test_projected_memory_ends_a_row_before_it_is_profiled():
    """Eq. 4 from (128, 1 GiB) and (256, 2 GiB): 512 need 256/128 x 1 + 2 = 4 GiB, and there are 3."""
    seen = search(
        gpu_space(gmis=(1,), memory_bytes=3 * GIB),
        lambda p: measured(p, p.num_env, p.num_env / 128 * GIB),
        "paper",
    )
    assert [m.point.num_env for m in seen] == [128, 256]


def test_the_threshold_is_a_parameter():
    """With 0.05 the saturated 700 of two GMIs count (Sat 0.083); 4,096 are projected at
    (2048 - 1024)/512 x 2.6 + 3.9 = 9.1 of 6 GiB."""
    measurements = [machine(point(*key)) for key in TABLE]
    assert choose(SPACE, measurements, threshold=0.05).chosen.point == point(2, 2048)
    assert choose(SPACE, measurements, threshold=0.1).chosen.point == point(1, 1024)


def test_a_profile_with_gaps_says_what_the_algorithm_would_profile_next():
    found = choose(SPACE, [machine(point(*key)) for key in TABLE if key != (2, 1024)])
    assert any("1024 environments, 2 GMIs" in note for note in found.notes)
