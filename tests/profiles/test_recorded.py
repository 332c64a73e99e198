"""Both searches on a profile that was really measured, and not on a good day: two cores with a load of 20 beside it.

CartPole, the grid of 1, 2, 4 GMIs and 128 to 2,048 environments, `benchmarks/sizing.py --record`. The same point was
seen at 3,000 and at 35,000 steps a second, so the numbers say nothing of the machine; they show that a search lives
with what real looks are like.
"""

from pathlib import Path

import pytest
from search_support import cpu_space

from gmiflow.profiles.drift import level
from gmiflow.profiles.ranking import MAX_TIE
from gmiflow.profiles.search import choose
from gmiflow.profiles.workload import WorkloadProfile

FILE = Path(__file__).parent / "recorded" / "cartpole_two_busy_cores.json"
SPACE = cpu_space(num_env=(128, 256, 512, 1024, 2048))


@pytest.fixture(scope="module")
def profile():
    return WorkloadProfile.from_json(FILE.read_text(encoding="utf-8"))


def test_a_recorded_profile_is_read_and_written_as_it_is(profile):
    assert profile.to_json() == FILE.read_text(encoding="utf-8")
    assert sum(len(m.looks) for m in profile.measurements) > len(profile.measurements)


def test_the_improved_search_chooses_the_fastest_at_the_machine_s_usual_speed(profile):
    rates = level(profile.measurements, "cpu").rates
    found = choose(SPACE, profile)
    best = max(rate for point, rate in rates.items() if point in set(SPACE.points()))
    assert rates[found.chosen.point] >= (1 - MAX_TIE) * best
    assert found.unsliced is not None
    assert found.unsliced.point.num_env == found.chosen.point.num_env


def test_algorithm_1_never_does_better_and_leaves_points_uncompared(profile):
    published, improved = choose(SPACE, profile, "paper"), choose(SPACE, profile)
    assert improved.chosen.score >= (1 - MAX_TIE) * published.chosen.score
    terms = {verdict.candidate.point: verdict.term for verdict in published.verdicts}
    left_out = [point for point in SPACE.points() if terms.get(point) in ("first_of_row", "saturation", None)]
    assert any(point.gmis == 1 and point.num_env == 128 for point in left_out)


def test_the_noise_and_the_drift_of_a_busy_machine_are_seen(profile):
    levels = level(profile.measurements, "cpu")
    assert levels.noise > 0.05  # what is expected of an idle one
    assert levels.spread > 0.3
