import math

import mujoco
import numpy as np
import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.sim.mjwarp import measure_buffers
from gmiflow.tasks.franka_cabinet import FrankaCabinet
from gmiflow.tasks.kinematics import HingeChain

DEFAULT = [1.157, -1.066, -0.155, -2.239, -1.841, 1.003, 0.469, 0.035, 0.035]
LOW = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973, 0, 0]
HIGH = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973, 0.04, 0.04]
HANDLE = [0.3515, 0.0, 0.7172]
DT = 0.0166


@pytest.fixture
def task():
    return make_task(FrankaCabinet, 1)


@pytest.fixture
def grasp(task):
    """Arm with the handle exactly between its fingers: forward is -x and up is z."""
    return task.engine.model.key("grasp").qpos[:7].tolist()


def place(model, arm):
    """Gripper, and its y and z axes, in float64 by MuJoCo."""
    data = mujoco.MjData(model)
    data.qpos[:7] = arm
    mujoco.mj_kinematics(model, data)
    grip = model.site("grip").id
    matrix = data.site_xmat[grip].reshape(3, 3)
    return data.site_xpos[grip], matrix[:, 1], matrix[:, 2]


def test_the_arm_is_the_published_one(task):
    model = task.engine.model
    np.testing.assert_allclose(model.jnt_range[:9], np.transpose([LOW, HIGH]))
    np.testing.assert_allclose(model.jnt_range[9], [0, 0.4])
    assert (model.actuator_gainprm[:7, 0] == 400).all() and (model.dof_damping[:7] == 80).all()
    assert model.dof_damping[9] == 10
    # Denavit-Hartenberg: stretched upwards, the flange hangs 0.107 m below the wrist and 0.088 m before the base.
    position, _, forward = place(model, [0.0] * 7)
    np.testing.assert_allclose(position, [1 - 0.088, 0, 0.333 + 0.316 + 0.384 - 0.107 - 0.1034], atol=1e-9)
    np.testing.assert_allclose(forward, [0, 0, -1], atol=1e-9)


def test_kinematics_in_any_pose(task):
    generator, model = np.random.default_rng(3), task.engine.model
    arms = generator.uniform(LOW, HIGH, (64, 9))
    qpos = torch.tensor(np.c_[arms, np.zeros(64)], dtype=torch.float32)
    position, axes = HingeChain(model, [f"joint{n}" for n in range(1, 8)], "grip", 64, torch.device("cpu"))(qpos)
    for index, arm in enumerate(arms):
        for got, expected in zip((position, axes[1], axes[2]), place(model, arm[:7]), strict=True):
            np.testing.assert_allclose(got[:, index].numpy(), expected, atol=2e-6)


def test_a_chain_refuses_joints_that_it_cannot_turn():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><joint name="a" axis="0 1 0"/><geom size="1"/><site name="tip"/></body>'
        '<body euler="0 0 30"><joint name="b" axis="0 0 1"/><geom size="1"/></body></worldbody></mujoco>'
    )
    for joint, message in (("a", "no hinge about its body's z axis"), ("b", "not turned by quarters")):
        with pytest.raises(ValueError, match=message):
            HingeChain(model, [joint], "tip", 1, torch.device("cpu"))


def test_observation(task):
    joints = [
        (low + high) / 2 + 0.25 * (high - low) * (-1) ** k for k, (low, high) in enumerate(zip(LOW, HIGH, strict=True))
    ]
    obs = observation(task, snapshot(task, [*joints, 0.3], [*range(9), -0.7]))
    torch.testing.assert_close(obs[:9], torch.tensor([0.5, -0.5] * 4 + [0.5]), atol=1e-6, rtol=0)
    torch.testing.assert_close(obs[9:18], 0.1 * torch.arange(9.0))
    position, _, _ = place(task.engine.model, joints[:7])
    to_handle = np.add(HANDLE, [0.3, 0, 0]) - position
    torch.testing.assert_close(obs[18:21], torch.tensor(to_handle, dtype=torch.float32), atol=2e-6, rtol=0)
    torch.testing.assert_close(obs[21:], torch.tensor([0.3, -0.7]))


def test_the_gripper_starts_before_the_drawer_with_the_handle_between_its_fingers_in_height(task):
    obs = observation(task, snapshot(task, [*DEFAULT, 0]))
    assert obs[18] < -0.3  # the handle lies ahead, towards -x
    assert obs[18:21].norm() < 0.5


def test_holding_the_handle_of_a_closed_drawer(task, grasp):
    # D = 2 (within 0.02 m), R = 1, H = 0.5; each finger 0.012 m from the handle in height.
    expected = 2 * 2 + 0.5 * 1 + 0.25 * 0.5 + 5 * 2 * (0.04 - 0.012)
    assert verdict(task, snapshot(task, [*grasp, 0.012, 0.012, 0.0])) == (pytest.approx(expected, abs=1e-3), False)


@pytest.mark.parametrize(
    ("opening", "bonus", "ends"), [(0.009, 0, False), (0.011, 0.5, False), (0.21, 1.0, False), (0.395, 2.0, True)]
)
def test_opening_is_rewarded_and_ends_the_episode(task, grasp, opening, bonus, ends):
    """The arm stays where the closed drawer's handle was, so only the distance differs, and x differs alone."""
    distance = 2 / (1 + opening**2) ** 2 * (2 if opening <= 0.02 else 1)
    around = 0.25 * 0.5 + 7.5 * (opening * 0.5 + opening) + 5 * 2 * (0.04 - 0.012)
    reward, terminated = verdict(task, snapshot(task, [*grasp, 0.012, 0.012, opening]))
    assert (reward, terminated) == (pytest.approx(distance + 0.5 + around + bonus, abs=1e-3), ends)


def test_without_a_finger_on_each_side_only_the_pull_itself_counts(task, grasp):
    lifted = list(grasp)
    lifted[1] += 0.1  # both fingers above the handle
    state = snapshot(task, [*lifted, 0.012, 0.012, 0.25])
    position, up, forward = place(task.engine.model, lifted)
    assert position[2] - 0.012 * up[2] > HANDLE[2]
    squared = float(((np.add(HANDLE, [0.25, 0, 0]) - position) ** 2).sum())
    alignment = 0.25 * (forward[0] ** 2 + up[2] ** 2)
    expected = 2 / (1 + squared) ** 2 + alignment + 7.5 * 0.25 + 0.5
    assert verdict(task, state)[0] == pytest.approx(expected, abs=1e-4)


def test_a_hand_turned_around_is_punished(task, grasp):
    turned = list(grasp)
    turned[6] += math.pi  # up becomes down: R = (1 - 1) / 2, and the fingers are exchanged
    assert verdict(task, snapshot(task, [*turned, 0.012, 0.012, 0.0]))[0] == pytest.approx(4.0, abs=1e-3)


def test_actions_cost(task):
    free, moved = (verdict(task, snapshot(task, [*DEFAULT, 0], action=[a] * 9))[0] for a in (0.0, -0.5))
    assert free - moved == pytest.approx(0.01 * 9 * 0.25, abs=1e-5)


def test_actions_move_the_targets_from_where_the_joints_start():
    task = make_task(FrankaCabinet, 2)
    task.reset()
    start = task.engine.qpos[:, :9].clone()
    task.apply(torch.tensor([[1.0] * 9, [-0.5] * 9]))
    step = torch.tensor([7.5 * DT] * 7 + [0.75 * DT] * 2)
    expected = (start + torch.stack((step, -0.5 * step))).clamp(torch.tensor(LOW), torch.tensor(HIGH))
    torch.testing.assert_close(task.engine.ctrl, expected)
    for _ in range(100):
        task.apply(torch.tensor([[1.0] * 9, [-0.5] * 9]))
    torch.testing.assert_close(task.engine.ctrl, torch.tensor([HIGH, LOW]))


def test_start_distribution():
    task = make_task(FrankaCabinet, 4096)
    task.reset()
    qpos, default = task.engine.qpos, torch.tensor(DEFAULT)
    assert (task.engine.qvel == 0).all() and (qpos[:, 9] == 0).all()
    noise = qpos[:, :7] - default[:7]
    assert noise.abs().max() <= 0.125 + 1e-6 and noise.mean(0).abs().max() < 0.01
    torch.testing.assert_close(noise.std(0), torch.full((7,), 0.25 / math.sqrt(12)), rtol=0.04, atol=0)
    # Fingers travel 0.04 m only: most start at a limit.
    fingers = qpos[:, 7:9]
    assert fingers.min() == 0.0 and fingers.max() == pytest.approx(0.04)
    assert float((fingers == 0.0).float().mean()) == pytest.approx(0.09 / 0.25, abs=0.02)


def test_a_closed_hand_pulls_the_drawer_open():
    """Force through the contacts alone: the fingers close on the handle, then the arm's targets retreat."""
    task = make_task(FrankaCabinet, 1)
    task.reset()
    model, key = task.engine.model, task.engine.model.key("grasp")
    task.engine.write(torch.tensor([0]), torch.tensor(key.qpos[None], dtype=torch.float32), torch.zeros(1, 10))
    task._targets.copy_(torch.tensor(key.ctrl))
    data, jacobian = mujoco.MjData(model), np.zeros((3, 10))
    for step in range(60):
        data.qpos[:] = task.engine.qpos[0].numpy()
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian, None, model.site("grip").id)
        away = np.linalg.pinv(jacobian[:, :7]) @ [0.3 * DT if step > 10 else 0.0, 0, 0]
        action = torch.tensor([[*(away / (7.5 * DT)), -1.0, -1.0]], dtype=torch.float32)
        out = task.step({"action": action})
    assert out["obs"][0, 21] > 0.05
    assert float(out["reward"][0]) > 5.0


def test_the_buffers_hold_a_grasp():
    model = make_task(FrankaCabinet, 1).engine.model
    contacts, constraints = measure_buffers(model, 2)
    # Two fingers on the handle, palm and wrist on the furniture; four rows each, and the joints' limits.
    assert 8 <= contacts <= 16 and 8 * 4 <= constraints <= 96


def test_robot_and_furniture_collide_with_each_other_only():
    model = make_task(FrankaCabinet, 1).engine.model
    robot = {model.geom(i).name for i in range(model.ngeom) if model.geom_conaffinity[i]}
    furniture = {model.geom(i).name for i in range(model.ngeom) if model.geom_contype[i]}
    assert robot == {"wrist", "palm", "left_finger", "right_finger"}
    assert furniture == {"cabinet", "drawer", "handle"}
