"""Means and intervals of curves, times to a return, tables and pictures; numbers by hand."""

import math

import pytest
from bench_support import evaluation, row

from gmiflow.bench.curves import band, common_return, estimate, first_reached, thinned
from gmiflow.bench.report import draw, draw_against_steps, markdown


def test_the_mean_of_two_curves_is_that_of_lines_between_their_points():
    found = band([[(0.0, 0.0), (4.0, 8.0)], [(1.0, 4.0), (2.0, 4.0), (5.0, 4.0)]])
    assert (found.x[0], found.x[-1], len(found.x)) == (1.0, 4.0, 200)
    assert found.mean[0] == pytest.approx((2.0 + 4.0) / 2)
    assert found.mean[-1] == pytest.approx((8.0 + 4.0) / 2)
    # Two values a and b: the interval's half width is t(1) |a - b| / 2 with t(1) = 12.71.
    assert found.high[-1] - found.mean[-1] == pytest.approx(12.71 * 2.0, rel=1e-3)
    assert found.mean[0] - found.low[0] == pytest.approx(12.71 * 1.0, rel=1e-3)


def test_curves_without_a_common_place_have_no_mean():
    assert band([[(0.0, 1.0), (1.0, 1.0)], [(2.0, 1.0)]]) is None
    assert band([[], []]) is None
    alone = band([[(1.0, 5.0), (3.0, 7.0)]])
    assert alone.low == alone.mean == alone.high


def test_a_point_is_enough_for_a_place():
    found = band([[(2.0, 5.0)], [(0.0, 0.0), (4.0, 2.0)]])
    assert (found.x, found.mean) == ((2.0,), (3.0,))


def test_the_interval_is_student_s():
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-4)
    assert estimate([5.0]).half_width is None
    assert estimate([]) is None


def test_a_return_that_all_reach():
    first = [(0.0, 0, 10.0), (1.0, 1, 110.0), (2.0, 2, 60.0)]
    second = [(0.0, 0, 0.0), (1.0, 1, 210.0)]
    assert common_return([[first], [second]]) == pytest.approx(10.0 + 0.95 * 100.0)
    assert first_reached(first, 105.0) == first_reached(first, 110.0) == (1.0, 1, 110.0)
    assert first_reached(first, 111.0) is None
    assert common_return([[first], [[(0.0, 0, 500.0)]]]) is None
    assert common_return([[first], [[]]]) is None


def test_thinning_keeps_both_ends():
    points = [(float(index), index, 0.0) for index in range(1001)]
    kept = thinned(points, 5)
    assert [index for _, index, _ in kept] == [0, 250, 500, 750, 1000]
    assert thinned(points[:3], 5) == points[:3]


ROWS = [
    row(seed=0, steps_per_s=900.0, evaluation=evaluation(4500.0, 3.5), curve=[(1.0, 100, 0.0), (2.0, 200, 100.0)]),
    row(seed=1, steps_per_s=1100.0, evaluation=evaluation(3500.0, 2.5, solved=False), goal_s=None, goal_env_steps=None,
        curve=[(1.0, 100, 0.0), (4.0, 200, 100.0)]),
    row(side="rsl_rl", seed=0, steps_per_s=500.0, curve=[(2.0, 100, 0.0), (12.0, 400, 100.0)]),
    row(side="rsl_rl", seed=1, steps_per_s=500.0, curve=[]),
    row(task="cartpole", replicas=3),
]  # fmt: skip


def lines_of(text, title):
    parts = (part.splitlines() for part in text.split("\n\n") if part.startswith("|"))
    table = next(lines for lines in parts if " ".join(lines[0].split()).startswith(f"| {title}"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_tables():
    text = markdown(ROWS[:3])
    titles, _, ours, theirs = lines_of(text, "task | side | seeds")
    found = dict(zip(titles, ours, strict=True))
    assert (found["task"], found["side"], found["seeds"]) == ("ant", "gmiflow", "2")
    # 900 and 1,100: the half width is 12.71 x 100.
    assert found["env steps/s"] == "1,000 +- 1,271"
    assert found["seconds to the goal"] == "3.0 (1 of 2 seeds)"
    assert theirs[3] == "500"
    titles, _, ours = lines_of(text, "task | side | return")
    found = dict(zip(titles, ours, strict=True))
    assert found["solved"] == "1 of 2"
    assert found["behaviour"].startswith("forward_speed 3.000 +- 6.3") and found["behaviour"].endswith(" m/s")
    titles, _, ours = lines_of(text, "task | side | against")
    found = dict(zip(titles, ours, strict=True))
    # All reach 95 of 100, at their last points: after 2 and 4 s, and after 12 s.
    assert (found["return that all reach"], found["seconds of the other"]) == ("95.0", "12.0")
    assert (found["sooner"], found["env steps/s"]) == ("4.00x", "2.00x")


def test_replicas_are_marked_and_compared_with_nobody():
    text = markdown([ROWS[4], row(task="cartpole", side="rsl_rl")])
    assert "| cartpole | gmiflow, 3 side by side |" in text
    assert "against" not in text


def test_a_side_that_reaches_nothing():
    text = markdown(ROWS[:4])
    assert lines_of(text, "task | side | against")[2][3] == "none"


def test_the_picture(tmp_path):
    draw(ROWS, tmp_path / "curves.png")
    data = (tmp_path / "curves.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1300, int(2 * 3.3 * 130))  # a line of pictures per task


def test_the_picture_against_steps_has_two_tasks_in_a_line(tmp_path):
    three = [*ROWS, row(task="cartpole", side="gmiflow")]
    tasks = {one["task"] for one in three}
    draw_against_steps(three, tmp_path / "curves.png")
    data = (tmp_path / "curves.png").read_bytes()
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1100, int(-(-len(tasks) // 2) * 3.1 * 110))
