"""The mapping model against numbers worked out by hand from the paper's equations."""

import pytest

from gmiflow.profiles.model import (
    Link,
    Load,
    RoleCost,
    Roles,
    Sharing,
    dominant,
    group_shares,
    project,
    rank,
    roles_from,
)
from gmiflow.profiles.volumes import Volumes, bytes_text
from gmiflow.profiles.workload import Measurement, Point

EXACT = Link(bytes_per_s=1.0)
"""One byte per second and no latency: COM in bytes is its time in seconds, as in the paper."""


def costs(simulator, agent, trainer=None):
    """Roles from (R, T) pairs."""
    made = [RoleCost(resource=r, seconds=t) for r, t in filter(None, (simulator, agent, trainer))]
    return Roles(simulator=made[0], agent=made[1], trainer=made[2] if trainer else None)


def load(mode, state=0, action=0, reward=0, policy=0, **more):
    volumes = Volumes(state=state, action=action, reward=reward, policy=policy)
    return Load(mode=mode, volumes=volumes, steps=more.pop("steps", 1), **more)


def test_the_papers_worked_number_for_serving():
    """alpha = 0.2, R_s = 10 R_a, T_s = 6 T_a, COM/BW = 2 (T_s + T_a) = 14: R = (60 + 0.2) / 7 = 8.6 and 21 seconds
    against R = 10 and 7 seconds, so 8.6 x 21 / 70 = 2.58."""
    roles = costs((10.0, 6.0), (1.0, 1.0))
    one_sided = load("serve", state=7)  # 2 S = 14
    split = project("mp_dp", roles, one_sided, EXACT, Sharing(alpha=0.2))
    together = project("dp_only", roles, one_sided, EXACT, Sharing(alpha=0.2))
    assert split.resource == pytest.approx(8.6)
    assert together.rate / split.rate == pytest.approx(2.58)


def test_the_papers_worked_number_for_training():
    """alpha = 0.2, beta = 0.3, R = 10, 1, 2 and T = 6, 1, 2, COM/BW = 7 x 9 = 63: R = (60 + 0.2 + 1.2) / 9 and 72
    seconds against R = 10 and 9 seconds, so 61.4 x 8 / 90 = 5.458."""
    roles = costs((10.0, 6.0), (1.0, 1.0), (2.0, 2.0))
    work = load("sync", state=50, action=8, reward=5)  # S + A + W = 63, one trainer reduces nothing
    split = project("ea_t", roles, work, EXACT, Sharing(alpha=0.2, beta=0.3))
    together = project("dp_only", roles, work, EXACT)
    assert split.resource == pytest.approx(61.4 / 9)
    assert together.rate / split.rate == pytest.approx(5.46, abs=0.005)


@pytest.mark.parametrize(
    ("mode", "template", "expected"),
    [
        ("serve", "dp_only", 0),
        ("serve", "mp_dp", 16 * 3 * (2 * 40 + 8 + 6)),
        ("serve", "dp_mp", 16 * 3 * (2 * 40 + 8 + 6)),
        # With four trainers 2 x 3 x 1000 / 4 = 1500 bytes are reduced.
        ("sync", "dp_only", 1500),
        ("sync", "ea_t", 16 * 3 * (40 + 8 + 6) + 1000 + 1500),
        ("sync", "e_at", 16 * 3 * (40 + 8 + 6) + 1500),
        ("sync", "dp_mp", 16 * 3 * (2 * 40 + 2 * 8 + 6) + 1000 + 1500),
        ("async", "ea_t", 16 * 3 * (40 + 8 + 6) + 1000 + 1500),
    ],
)
def test_bytes_that_cross_in_16_steps_of_3_environments(mode, template, expected):
    trainer = None if mode == "serve" else (1.0, 1.0)
    work = load(mode, state=40, action=8, reward=6, policy=1000, steps=16, num_env=3, trainers=4)
    assert project(template, costs((1.0, 1.0), (1.0, 1.0), trainer), work, EXACT).com_bytes == expected


def test_an_agent_of_its_own_is_not_shared_when_serving():
    """DP-MP has alpha = 1 whatever the sharing: (6 x 10 + 1 x 1) / 7."""
    roles = costs((10.0, 6.0), (1.0, 1.0))
    found = project("dp_mp", roles, load("serve"), EXACT, Sharing(alpha=0.2))
    assert found.resource == pytest.approx(61 / 7)


def test_agent_and_trainer_of_one_gmi_are_shared_alike():
    """E-AT with alpha = 0.5: (6 x 10 + 0.5 x 1 x 1 + 0.5 x 2 x 2) / 9."""
    roles = costs((10.0, 6.0), (1.0, 1.0), (2.0, 2.0))
    found = project("e_at", roles, load("sync"), EXACT, Sharing(alpha=0.5, beta=0.9))
    assert found.resource == pytest.approx(62.5 / 9)


def test_asynchronous_channels_hide_what_they_move():
    """COM of 5 s under 9 s of work costs nothing, and of 20 s it is what counts; in sync it is added."""
    roles = costs((1.0, 6.0), (1.0, 1.0), (1.0, 2.0))
    assert project("ea_t", roles, load("async", state=5), EXACT).seconds == pytest.approx(9)
    assert project("ea_t", roles, load("async", state=20), EXACT).seconds == pytest.approx(20)
    assert project("ea_t", roles, load("sync", state=5), EXACT).seconds == pytest.approx(14)


def test_latency_counts_every_crossing_and_is_ours():
    roles = costs((1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    slow = Link(bytes_per_s=1.0, latency_s=0.5)
    seconds = {item.template: item.seconds for item in rank(roles, load("sync", steps=4), slow)}
    # Two crossings with the rollout and the weights; two in each of four steps; both.
    assert seconds == {"dp_only": 3.0, "ea_t": 4.0, "e_at": 7.0, "dp_mp": 8.0}


def test_all_roles_in_one_gmi_come_first_among_equals():
    roles = costs((1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    assert rank(roles, load("sync"), EXACT)[0].template == "dp_only"
    assert rank(costs((1.0, 1.0), (1.0, 1.0)), load("serve"), EXACT)[0].template == "dp_only"


def test_templates_of_another_mode_are_refused():
    with pytest.raises(ValueError, match="mp_dp is no template of sync"):
        project("mp_dp", costs((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)), load("sync"), EXACT)


def test_eq_1_takes_the_larger_part_of_the_gpu():
    assert dominant(0.5, 0.3) == "sm"
    assert dominant(0.5, 0.5) == "sm"
    assert dominant(0.2, 0.3) == "memory"


def test_split_groups_get_shares_in_proportion_to_their_work():
    """R x T = 0.8 x 6, 0.4 x 1, 0.4 x 2 = 4.8, 0.4, 0.8: simulator and agent get 5.2 / 6, the trainer 0.8 / 6."""
    roles = costs((0.8, 6.0), (0.4, 1.0), (0.4, 2.0))
    shares = group_shares((("simulator", "agent"), ("trainer",)), roles)
    assert shares == pytest.approx((5.2 / 6, 0.8 / 6))


def test_roles_are_read_from_the_measurement_of_an_unsliced_point():
    point = Point(template="dp_only", gmis=1, num_env=64, execution="eager", backend="timeshare")
    measured = Measurement(
        point=point,
        status="ok",
        steps_per_s=1.0,
        stage_s={"simulate": 0.6, "infer": 0.1, "update": 0.2, "communicate": 0.0},
        device_memory_bytes=30,
        sm_occupancy=0.25,
    )
    roles = roles_from(measured, trainer=True, memory_bytes=100)
    assert roles is not None and roles.trainer is not None
    assert (roles.simulator.seconds, roles.agent.seconds, roles.trainer.seconds) == (0.6, 0.1, 0.2)
    assert roles.simulator.resource == 0.3  # memory dominates: 30 of 100, and a quarter of the SMs
    assert (roles.origin_of_seconds, roles.origin_of_resources) == ("measured", "modelled")
    hidden_by_a_graph = Measurement(point=point, status="ok", steps_per_s=1.0)
    assert roles_from(hidden_by_a_graph, trainer=True, memory_bytes=100) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (81_920, "81.9 kB"), (999_600, "1 MB"), (9_158_000_000, "9.16 GB")],
)
def test_bytes_have_three_digits_in_decimal_units(count, text):
    assert bytes_text(count) == text
