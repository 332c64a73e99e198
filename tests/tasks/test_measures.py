"""What an evaluation reads from a task, on states made by hand."""

import math

import pytest
import torch
from task_support import TASK_CLASSES, make_task, measured, snapshot

from gmiflow.tasks.ant import Ant
from gmiflow.tasks.anymal import DEFAULT_ANGLES, Anymal
from gmiflow.tasks.ball_balance import BallBalance
from gmiflow.tasks.cartpole import CartPole, CartPoleSwingUp
from gmiflow.tasks.catalog import TASKS
from gmiflow.tasks.franka_cabinet import FrankaCabinet
from gmiflow.tasks.goals import Goal, Measure
from gmiflow.tasks.humanoid import Humanoid
from gmiflow.tasks.shadow_hand import ShadowHand

UPRIGHT = (1.0, 0.0, 0.0, 0.0)
TO_THE_LEFT = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))  # a quarter about z


@pytest.mark.parametrize(("task_class", "joints"), [(Ant, 8), (Humanoid, 21)])
def test_forward_is_towards_the_target_whatever_way_the_torso_faces(task_class, joints):
    task = make_task(task_class, 1)
    place, velocity = [5.0, 1.0, 1.3], [2.5, -1.0, 0.2, 0.0, 0.0, 3.0]
    for orientation in (UPRIGHT, TO_THE_LEFT):
        state = snapshot(
            task,
            [*place, *orientation, *[0.0] * joints],
            [*velocity, *[0.0] * joints],
            memory={"last_place": [995.0, -1.0, 995.0, 5.0, 1.0]},
        )
        assert measured(task, state) == {"forward_speed": 2.5}


def test_velocities_are_compared_in_the_frame_of_the_base():
    task = make_task(Anymal, 1)
    # The base looks along +y: moving by (-0.4, 1.5) in the world is 1.5 forwards and 0.4 to its left.
    state = snapshot(
        task,
        [0.0, 0.0, 0.6, *TO_THE_LEFT, *DEFAULT_ANGLES],
        [-0.4, 1.5, 0.0, 0.0, 0.0, 0.25, *[0.0] * 12],
        memory={"commands": [1.2, 0.0, -0.5]},
    )
    values = measured(task, state)
    assert values["velocity_error"] == pytest.approx(math.hypot(0.3, 0.4), abs=1e-6)
    assert values["turning_error"] == pytest.approx(0.75, abs=1e-6)


def ball_at(task, place):
    model = task.engine.model
    qpos = torch.zeros(model.nq)
    position = int(model.joint("ball").qposadr[0])
    qpos[position : position + 7] = torch.tensor([*place, *UPRIGHT])
    return snapshot(task, qpos.tolist(), memory={"targets": [0.0] * 3})


@pytest.mark.parametrize(
    ("ball", "distance"), [((0.0, 0.0, 0.7), 0.0), ((0.3, -0.4, 0.7), 0.5), ((0.06, 0.08, 0.46), 0.26)]
)
def test_the_ball_s_distance(ball, distance):
    task = make_task(BallBalance, 1)
    assert measured(task, ball_at(task, ball))["ball_distance"] == pytest.approx(distance, abs=1e-6)


@pytest.mark.parametrize(
    ("motion", "held"),
    [
        (lambda step: 0.0, 1.0),
        (lambda step: 0.03 * (-1) ** step, 1.0),  # trembles, at 6 m/s
        (lambda step: 0.09 * 0.01 * step, 1.0),  # drifts at 0.09 m/s: 0.045 m in half a second
        (lambda step: 0.11 * 0.01 * step, 0.0),
        (lambda step: 0.0 if step < 299 else 0.06, 0.0),
    ],
    ids=["rests", "trembles", "drifts slowly", "drifts", "leaves"],
)
def test_a_ball_is_held_that_stays_where_it_was(motion, held):
    task = make_task(BallBalance, 1)
    for step in range(300):  # six times the half second over which a place is averaged
        values = measured(task, ball_at(task, (motion(step), -0.1, 0.5)))
    assert values["held"] == held


@pytest.mark.parametrize(("opening", "opened"), [(0.0, 0.0), (0.29, 0.0), (0.31, 1.0), (0.395, 1.0)])
def test_the_drawer_s_opening(opening, opened):
    task = make_task(FrankaCabinet, 1)
    state = snapshot(task, [*[0.0] * 3, -1.0, *[0.0] * 5, opening], memory={"targets": [0.0] * 9})
    assert measured(task, state) == {"drawer_opening": pytest.approx(opening), "opened": opened}


@pytest.mark.parametrize(("radians", "reached"), [(0.09, 1.0), (0.11, 0.0)])
def test_a_cube_turned_to_its_goal_is_a_success(radians, reached):
    task = make_task(ShadowHand, 1)
    task.reset()
    watched = task.watch()
    half = radians / 2
    task._goal.copy_(torch.tensor([UPRIGHT]))
    state = snapshot(
        task,
        [*[0.0] * 24, 0.0, -0.39, 0.56, math.cos(half), 0.0, math.sin(half), 0.0],
        memory={"goal": UPRIGHT},
    )
    assert measured(task, state) == {"successes": reached}
    assert watched.shape == (1, 1)


@pytest.mark.parametrize(("task_class", "turns"), [(CartPole, 0), (CartPoleSwingUp, 0), (CartPoleSwingUp, 2)])
def test_the_pole_s_angle(task_class, turns):
    task = make_task(task_class, 1)
    state = snapshot(task, [1.0, -0.25 + 2 * math.pi * turns])
    assert measured(task, state)["pole_angle"] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("task_class", TASK_CLASSES)
def test_steps_write_the_measures_before_they_restart(task_class):
    """Of an environment whose episode ends in the step as well: the numbers are those of its last state."""
    watched, other = make_task(task_class, 4), make_task(task_class, 4)
    values = watched.watch()
    for task in (watched, other):
        task.reset()
        task._episode_step.fill_(task.info.episode_length - 1)
    action = torch.zeros(4, watched.info.action_size)
    out = watched.step({"action": action})
    expected = torch.zeros_like(values)
    # The same step by hand, without the restart.
    other.apply(other._action.copy_(action))
    other.engine.step()
    other.observe_into(other._now, other._columns)
    other.judge(other._now, other._columns, other._reward, other._terminated)
    other.measure(other._now, other._columns, expected)
    torch.testing.assert_close(values, expected)
    assert (out["truncated"] | out["terminated"]).all()


def test_a_goal_needs_everything_that_it_bounds():
    speed = Measure(name="speed", unit="m/s", over="mean", meaning="speed", at_least=2.0)
    error = Measure(name="error", unit="m", over="last", meaning="error", at_most=0.1)
    goal = Goal(mean_return=100.0, survival=0.5, measures=(speed, error))
    assert goal.reached(100.0, 0.5, {"speed": 2.0, "error": 0.1})
    assert not goal.reached(99.0, 0.5, {"speed": 2.0, "error": 0.1})
    assert not goal.reached(100.0, 0.4, {"speed": 2.0, "error": 0.1})
    assert not goal.reached(100.0, 0.5, {"speed": 1.9, "error": 0.1})
    assert not goal.reached(100.0, 0.5, {"speed": 2.0, "error": float("nan")})
    assert (speed.bound, error.bound) == (">= 2 m/s", "<= 0.1 m")


@pytest.mark.parametrize("info", TASKS.values(), ids=TASKS.keys())
def test_every_task_has_a_goal(info):
    assert info.goal.mean_return > 0
    assert len({measure.name for measure in info.goal.measures}) == len(info.goal.measures) > 0
