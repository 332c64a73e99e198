"""Ant and Humanoid in random states, every observation and the whole reward against float64 formulas in NumPy.

The tests beside this file set one thing at a time by hand; here everything moves at once.
"""

import math

import mujoco
import numpy as np
import pytest
import torch
from task_support import make_task

from gmiflow.tasks.ant import Ant
from gmiflow.tasks.humanoid import Humanoid
from gmiflow.tasks.snapshot import Snapshot

COUNT = 256
DT = 0.0166


def random_states(task, seed):
    """Torso anywhere and turned anyhow, joints up to 20 % beyond their limits, everything moving."""
    generator, model = np.random.default_rng(seed), task.engine.model
    low, high = model.jnt_range[1:].T
    quaternion = generator.normal(size=(COUNT, 4))
    return {
        "qpos": np.concatenate(
            (
                generator.uniform([-300, -300, 0.2], [300, 300, 1.4], (COUNT, 3)),
                quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True),
                (low + high) / 2 + 0.6 * (high - low) * generator.uniform(-1, 1, (COUNT, low.size)),
            ),
            axis=1,
        ),
        "qvel": generator.normal(0.0, 4.0, (COUNT, model.nv)),
        "action": generator.uniform(-1, 1, (COUNT, model.nu)),
        **{name: generator.normal(0.0, 30.0, (COUNT, field.shape[1])) for name, field in task.engine.derived.items()},
    }


def as_snapshot(states):
    tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in states.items()}
    plain = {name: tensors.pop(name) for name in ("qpos", "qvel", "action")}
    return Snapshot(**plain, derived=tensors)


def torso(states, spin_scale):
    """The first twelve observations, f64 [COUNT, 12]."""
    rows = []
    for qpos, qvel in zip(states["qpos"], states["qvel"], strict=True):
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, qpos[3:7])
        matrix = matrix.reshape(3, 3)
        target = np.array([1000.0, 0.0]) - qpos[:2]
        yaw = math.atan2(matrix[1, 0], matrix[0, 0])
        angle = math.atan2(target[1], target[0]) - yaw
        heading = matrix[:2, 0] @ target / np.linalg.norm(target)
        rows.append(
            [
                qpos[2],
                *(matrix.T @ qvel[:3]),
                *(spin_scale * qvel[3:6]),
                yaw,
                math.atan2(matrix[2, 1], matrix[2, 2]),
                math.atan2(math.sin(angle), math.cos(angle)),
                matrix[2, 2],
                heading,
            ]
        )
    return np.array(rows)


def scaled_positions(task, states):
    low, high = task.engine.model.jnt_range[1:].T
    return (2.0 * states["qpos"][:, 7:] - high - low) / (high - low)


def posture(observed, alive):
    """Alive, upright and heading."""
    up, heading = observed[:, 10], observed[:, 11]
    return alive + 0.1 * (up > 0.93) + np.where(heading > 0.8, 0.5, 0.5 * heading / 0.8)


def progress(before, after):
    """Metres per second towards the target."""
    target = np.array([1000.0, 0.0])
    distances = [np.linalg.norm(target - states["qpos"][:, :2], axis=1) for states in (before, after)]
    return (distances[0] - distances[1]) / DT


def expected_ant(task, before, after):
    positions, rates, action = scaled_positions(task, after), 0.2 * after["qvel"][:, 6:], after["action"]
    observed = np.concatenate((torso(after, 1.0), positions, rates, 0.1 * after["sensordata"], action), axis=1)
    costs = 0.005 * (action**2).sum(1) + 0.05 * np.abs(action * rates).sum(1) + 0.1 * (positions > 0.99).sum(1)
    reward = progress(before, after) + posture(observed, 0.5) - costs
    return observed, np.where(observed[:, 0] < 0.31, -2.0, reward), observed[:, 0] < 0.31


def expected_humanoid(task, before, after):
    positions, rates, action = scaled_positions(task, after), 0.1 * after["qvel"][:, 6:], after["action"]
    forces = sum(after[f"qfrc_{name}"][:, 6:] for name in ("actuator", "passive", "constraint"))
    observed = np.concatenate(
        (torso(after, 0.25), positions, rates, 0.01 * forces, 0.01 * after["sensordata"], action), axis=1
    )
    gear = task.engine.model.actuator_gear[:, 0] / 135.0
    beyond = np.maximum(np.abs(positions) - 0.98, 0.0) / 0.02
    costs = 0.01 * (action**2).sum(1) + 0.05 * (np.abs(action * rates) * gear).sum(1) + 0.25 * (gear * beyond).sum(1)
    reward = progress(before, after) + posture(observed, 2.0) - costs
    return observed, np.where(observed[:, 0] < 0.8, -1.0, reward), observed[:, 0] < 0.8


@pytest.mark.parametrize(("cls", "expected"), [(Ant, expected_ant), (Humanoid, expected_humanoid)])
def test_observation_and_reward_of_random_states(cls, expected):
    task = make_task(cls, COUNT)
    task.reset()
    before = random_states(task, seed=11)
    after = random_states(task, seed=12)
    # A step covers centimetres.
    generator = np.random.default_rng(13)
    after["qpos"][:, :2] = before["qpos"][:, :2] + generator.uniform(-0.05, 0.05, (COUNT, 2))
    obs, reward, terminated = torch.empty(COUNT, cls.info.observation_size), torch.empty(COUNT), torch.empty(COUNT) > 0
    for states in (before, after):
        state = as_snapshot(states)
        task.observe_into(state, obs)
        task.judge(state, obs, reward, terminated)
    observed, rewards, ends = expected(task, before, after)
    np.testing.assert_allclose(obs.numpy(), observed, rtol=2e-5, atol=2e-5)
    assert (terminated.numpy() == ends).all() and 10 < ends.sum() < COUNT - 10
    # The position at 300 m has steps of 3e-5 m in float32, which is 2e-3 m/s.
    np.testing.assert_allclose(reward.numpy(), rewards, rtol=1e-4, atol=4e-3)


def test_feet_and_motors_are_in_the_documented_order():
    ant, humanoid = make_task(Ant, 1).engine.model, make_task(Humanoid, 1).engine.model
    feet = ("front_left", "back_left", "back_right", "front_right")
    assert [ant.sensor(i).name for i in range(ant.nsensor)] == [f"{f}_{k}" for f in feet for k in ("force", "torque")]
    assert [ant.actuator(i).name for i in range(ant.nu)] == [f"{f}_{k}" for f in feet for k in ("hip", "ankle")]
    sides = ("right", "left")
    assert [humanoid.sensor(i).name for i in range(humanoid.nsensor)] == [
        f"{side}_{kind}" for side in sides for kind in ("force", "torque")
    ]
    for model in (ant, humanoid):
        joints = [model.joint(i).name for i in range(1, model.njnt)]
        assert [model.actuator(i).name for i in range(model.nu)] == joints
        assert model.actuator_trnid[:, 0].tolist() == list(range(1, model.njnt))
