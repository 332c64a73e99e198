import math

import mujoco
import numpy as np
import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.quaternion import RandomTurn, TurnBetween
from gmiflow.tasks.shadow_hand import ShadowHand

# The published limits, rad: wrist; a finger; the little finger's metacarpal; the thumb.
FINGER = [(-20, 20), (0, 90), (0, 90), (0, 90)]
LIMITS = [
    (math.degrees(-0.489), math.degrees(0.14)),
    (math.degrees(-0.698), math.degrees(0.489)),
    *FINGER * 3,
    (0, 45),
    *FINGER,
    *((-60, 60), (0, 70), (-12, 12), (-30, 30), (0, 90)),
]
COUPLED = {5: 4, 9: 8, 13: 12, 18: 17}
HELD = [0.0, -0.39, 0.56]
AS_IT_IS = [1.0, 0.0, 0.0, 0.0]
TIPS = ("FF", "MF", "RF", "LF", "TH")


@pytest.fixture
def task():
    return make_task(ShadowHand, 1)


def turned(axis, radians):
    return [math.cos(radians / 2), *(math.sin(radians / 2) * component for component in axis)]


def state(task, place=HELD, orientation=AS_IT_IS, goal=AS_IT_IS, joints=(0.0,) * 24, velocity=(0.0,) * 30, **rest):
    return snapshot(task, [*joints, *place, *orientation], velocity, memory={"goal": goal}, **rest)


def test_the_hand_is_the_published_one(task):
    model = task.engine.model
    np.testing.assert_allclose(np.degrees(model.jnt_range[:24]), LIMITS, atol=1e-2)
    assert dict(zip(model.eq_obj1id.tolist(), model.eq_obj2id.tolist(), strict=True)) == COUPLED
    driven = [joint for joint in range(24) if joint not in COUPLED]
    assert model.actuator_trnid[:, 0].tolist() == driven
    assert model.actuator_gainprm[:, 0].tolist() == [5.0] * 2 + [1.0] * 18
    assert model.body("cube").mass[0] == pytest.approx(0.05**3 * 567)
    # Stretched out, the first finger is 45 + 25 mm and its pad long, beyond its knuckle at 95 mm of the palm.
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    reach = data.site("FF_tip").xpos - data.body("palm").xpos
    np.testing.assert_allclose(reach, [-0.033, -(0.095 + 0.045 + 0.025 + 0.0185), 0], atol=1e-9)


def test_joints_are_observed_with_their_scales(task):
    low, high = np.radians(LIMITS).T
    joints = np.where(np.arange(24) % 2, high, (low + high) / 2)
    fields = {
        "qfrc_actuator": [0.1 * joint for joint in range(24)] + [7.0] * 6,
        "qfrc_passive": [0.2] * 24 + [7.0] * 6,
        "qfrc_constraint": [-0.5] * 24 + [7.0] * 6,
    }
    obs = observation(task, state(task, joints=joints, velocity=range(30), **fields))
    torch.testing.assert_close(obs[:24], torch.tensor([0.0, 1.0] * 12), atol=1e-3, rtol=0)
    torch.testing.assert_close(obs[24:48], 0.2 * torch.arange(24.0))
    torch.testing.assert_close(obs[48:72], torch.arange(24.0) - 3.0, atol=1e-5, rtol=0)


def test_cube_and_goal_are_observed(task):
    quarter = turned((0, 0, 1), math.pi / 2)
    velocity = [0.0] * 24 + [1, 2, 3, 5, 10, 15]
    obs = observation(task, state(task, [0.1, -0.3, 0.5], quarter, turned((0, 0, 1), math.pi / 6), velocity=velocity))
    torch.testing.assert_close(obs[72:79], torch.tensor([0.1, -0.3, 0.5, *quarter]))
    # The spin (5, 10, 15) of the cube's frame is (-10, 5, 15) in the world.
    torch.testing.assert_close(obs[79:85], torch.tensor([1.0, 2, 3, -2, 1, 3]))
    torch.testing.assert_close(obs[85:92], torch.tensor([*HELD, *turned((0, 0, 1), math.pi / 6)]))
    torch.testing.assert_close(obs[92:96], torch.tensor(turned((0, 0, 1), math.pi / 3)), atol=1e-6, rtol=0)


def test_fingertips_and_action_are_observed(task):
    action = [0.05 * joint for joint in range(20)]
    obs = observation(task, state(task, sensordata=[float(number) for number in range(95)], action=action))
    torch.testing.assert_close(obs[96:161], torch.arange(65.0))
    torch.testing.assert_close(obs[161:191], 10.0 * torch.arange(65.0, 95.0))
    torch.testing.assert_close(obs[191:211], torch.tensor(action))


def test_the_sensors_are_in_the_documented_order(task):
    model = task.engine.model
    expected = [f"{tip}_{kind}" for tip in TIPS for kind in ("pos", "quat", "linvel", "angvel")]
    expected += [f"{tip}_{kind}" for tip in TIPS for kind in ("force", "torque")]
    assert [model.sensor(index).name for index in range(model.nsensor)] == expected


def test_a_held_cube_is_rewarded_by_its_angle_to_the_goal(task):
    for radians in (0.5, 1.5, 3.0):
        for sign in (1.0, -1.0):  # a quaternion and its negative are one orientation
            orientation = [sign * part for part in turned((0.6, 0.0, 0.8), radians)]
            reward, ends = verdict(task, state(task, orientation=orientation))
            assert (reward, ends) == (pytest.approx(1 / (radians + 0.1), rel=1e-4), False)


def test_distance_and_actions_cost(task):
    far = state(task, [0.03, -0.35, 0.56], turned((1, 0, 0), 0.9), action=[0.5] * 20)
    assert verdict(task, far)[0] == pytest.approx(-10 * 0.05 + 1 / 1.0 - 0.0002 * 20 * 0.25, abs=1e-5)


@pytest.mark.parametrize(("height", "ends"), [(0.56 - 0.239, False), (0.56 - 0.241, True)])
def test_a_cube_0_24_metres_away_is_dropped(task, height, ends):
    assert verdict(task, state(task, [0.0, -0.39, height]))[1] is ends


@pytest.mark.parametrize(("radians", "reached"), [(0.09, True), (0.11, False)])
def test_a_reached_goal_is_rewarded_and_replaced(radians, reached):
    task = make_task(ShadowHand, 2)
    task.reset()
    both = state(task, orientation=turned((0, 1, 0), radians))
    goal = torch.tensor([AS_IT_IS, turned((0, 1, 0), 2.0)])
    task._goal.copy_(goal)
    rows = snapshot(task, both.qpos[0].tolist(), memory={"goal": AS_IT_IS})
    expanded = type(rows)(
        qpos=rows.qpos.expand(2, -1).clone(),
        qvel=rows.qvel.expand(2, -1),
        action=rows.action.expand(2, -1),
        derived={name: values.expand(2, -1) for name, values in rows.derived.items()},
        memory={"goal": task._goal},
    )
    obs, reward, terminated = torch.zeros(2, 211), torch.zeros(2), torch.zeros(2, dtype=torch.bool)
    task.observe_into(expanded, obs)
    before = obs.clone()
    task.judge(expanded, obs, reward, terminated)
    assert float(reward[0]) == pytest.approx(1 / (radians + 0.1) + (250 if reached else 0), rel=1e-4)
    assert float(reward[1]) < 1.0 and not terminated.any()
    assert task.diagnostics()["goals_reached"] == int(reached)
    # The new goal is shown at once, with the turn from it; the other environment keeps its own.
    assert torch.equal(obs[0], before[0]) is not reached
    assert torch.equal(obs[1], before[1]) and torch.equal(task._goal[1], goal[1])
    torch.testing.assert_close(obs[:, 88:92], task._goal)
    assert float(task._goal[0].norm()) == pytest.approx(1.0)
    if reached:
        cosine = float(obs[0, 92].abs())
        assert cosine == pytest.approx(abs(float(obs[0, 75:79] @ task._goal[0])), abs=1e-6)


def test_actions_are_places_between_the_limits():
    task = make_task(ShadowHand, 1)
    driven = [limit for joint, limit in enumerate(LIMITS) if joint not in COUPLED]
    for action, expected in ((-1.0, [low for low, _ in driven]), (0.0, [(a + b) / 2 for a, b in driven])):
        task.apply(torch.full((1, 20), action))
        np.testing.assert_allclose(np.degrees(task.engine.ctrl[0].numpy()), expected, atol=1e-2)


def test_turns_are_those_of_mujoco():
    generator = np.random.default_rng(5)
    quaternions = generator.normal(size=(2, 64, 4))
    quaternions /= np.linalg.norm(quaternions, axis=2, keepdims=True)
    to, start = (torch.tensor(part.T, dtype=torch.float32) for part in quaternions)
    out = torch.zeros(4, 64)
    TurnBetween(64, torch.device("cpu"))(to, start, out)
    expected, inverse = np.zeros(4), np.zeros(4)
    for index in range(64):
        mujoco.mju_negQuat(inverse, quaternions[1, index])
        mujoco.mju_mulQuat(expected, quaternions[0, index], inverse)
        np.testing.assert_allclose(out[:, index].numpy(), expected, atol=1e-6)


def test_random_turns_are_about_y_and_then_x():
    noise = torch.tensor([[0.5, 0.75, 0.5, 0.75], [0.5, 0.5, 0.25, 0.25]])
    out = torch.zeros(4, 4)
    RandomTurn(4, torch.device("cpu"))(noise, out)
    half = math.sqrt(0.5)
    # No turn; a quarter about x; a quarter back about y; both.
    expected = [[1, 0, 0, 0], [half, half, 0, 0], [half, 0, -half, 0], [0.5, 0.5, -0.5, -0.5]]
    torch.testing.assert_close(out.T, torch.tensor(expected), atol=1e-6, rtol=0)


def test_start_distribution():
    task = make_task(ShadowHand, 4096)
    obs = task.reset()["obs"]
    qpos = task.engine.qpos
    assert (task.engine.qvel == 0).all()
    low, high = 0.2 * torch.tensor(np.radians(LIMITS).T, dtype=torch.float32)
    for joint in range(24):
        values = qpos[:, joint]
        assert low[joint] - 1e-4 <= values.min() and values.max() <= high[joint] + 1e-4
        assert float(values.std()) == pytest.approx(float(high[joint] - low[joint]) / math.sqrt(12), rel=0.05)
    for follower, leader in COUPLED.items():
        assert torch.equal(qpos[:, follower], qpos[:, leader])
    offset = qpos[:, 24:27] - torch.tensor([0.0, -0.39, 0.6])
    assert offset.abs().max() <= 0.01 + 1e-6 and offset.mean(0).abs().max() < 5e-4
    for orientation in (qpos[:, 27:31], obs[:, 88:92]):
        torch.testing.assert_close(orientation.norm(dim=1), torch.ones(4096))
        assert orientation.mean(0).abs().max() < 0.45  # cosines of half angles up to 90 degrees average 4 / pi^2
        assert len(orientation.unique(dim=0)) > 4000
    assert not torch.equal(qpos[:, 27:31], obs[:, 88:92])


def test_the_fingertips_of_a_start_are_near_where_they_are_measured_next():
    task = make_task(ShadowHand, 16)
    first = task.reset()["obs"][:, 96:161].clone().view(16, 5, 13)
    # What is measured is the state before the last substep: one more is needed for it to be close to the start.
    task.engine.step()
    measured = task.engine.derived["sensordata"][:, :65].reshape(16, 5, 13)
    assert (first[..., :3] - measured[..., :3]).norm(dim=2).max() < 0.05
    assert (first[..., 3:7] * measured[..., 3:7]).sum(2).abs().min() > 0.85


def test_the_hand_holds_the_cube():
    task = make_task(ShadowHand, 1)
    task.reset()
    key = task.engine.model.key("rest")
    task.engine.write(torch.tensor([0]), torch.tensor(key.qpos[None], dtype=torch.float32), torch.zeros(1, 30))
    hold = ((torch.tensor(key.ctrl, dtype=torch.float32) - task._middle) / task._half).unsqueeze(0)
    for _ in range(180):
        out = task.step({"action": hold})
        assert not out["terminated"].any()
    obs = out["obs"][0]
    assert (obs[72:75] - torch.tensor(HELD)).norm() < 0.06
    assert obs[79:82].abs().max() < 0.05
    assert obs[161:191].abs().max() > 0.1  # a fingertip feels it


def test_fingers_close_and_their_last_joints_follow():
    task = make_task(ShadowHand, 1)
    task.reset()
    qpos = task.engine.qpos.clone()
    qpos[0, 24:27] = torch.tensor([0.0, -0.39, 5.0])  # out of the way
    task.engine.write(torch.tensor([0]), qpos, torch.zeros(1, 30))
    action = torch.zeros(1, 20)
    action[0, [4, 7, 10, 14]] = 0.5  # J2 of four fingers to 67.5 degrees
    for _ in range(60):
        task.apply(action)
        task.engine.step()
    angles = task.engine.qpos[0]
    for follower, leader in COUPLED.items():
        assert float(angles[leader]) == pytest.approx(math.radians(67.5), abs=0.05)
        assert float(angles[follower]) == pytest.approx(float(angles[leader]), abs=0.02)


def test_the_hand_collides_with_the_cube_only():
    model = make_task(ShadowHand, 1).engine.model
    assert [model.geom(i).name for i in range(model.ngeom) if model.geom_contype[i]] == ["cube"]
    hand = [i for i in range(model.ngeom) if model.geom_conaffinity[i]]
    assert len(hand) == 4 + 5 * 3
    assert (model.geom_type[hand] == int(mujoco.mjtGeom.mjGEOM_CAPSULE)).all()
