import math

import mujoco
import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.anymal import Anymal

UPRIGHT = [1.0, 0.0, 0.0, 0.0]
# HAA, HFE, KFE of left front, left hind, right front, right hind.
DEFAULT = [0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8]
LEGS = ("left_front", "left_hind", "right_front", "right_hind")
DT = 0.02


@pytest.fixture
def task():
    return make_task(Anymal, 1)


def state(
    task, quaternion=UPRIGHT, joints=DEFAULT, velocity=(0.0,) * 6, rates=(0.0,) * 12, commands=(0.0,) * 3, **rest
):
    return snapshot(
        task, [3.0, -2.0, 0.6, *quaternion, *joints], [*velocity, *rates], memory={"commands": commands}, **rest
    )


def test_the_body_is_the_published_one(task):
    model = task.engine.model
    assert sum(model.body_mass) == pytest.approx(52.1)
    assert [model.joint(i).name for i in range(1, 13)] == [
        f"{leg}_{part}" for leg in LEGS for part in ("haa", "hfe", "kfe")
    ]
    assert [model.actuator(i).name for i in range(12)] == [model.joint(i).name for i in range(1, 13)]
    assert (model.actuator_gainprm[:, 0] == 85).all() and (model.actuator_biasprm[:, 1:3] == [-85, -2]).all()
    assert (model.actuator_forcerange == [-80, 80]).all()
    default = torch.tensor(DEFAULT)
    bounds = torch.tensor(model.actuator_ctrlrange, dtype=torch.float32)
    torch.testing.assert_close(bounds, torch.stack((default - 0.5, default + 0.5), 1))


def test_base_turned_left_by_a_quarter(task):
    half = math.sqrt(0.5)
    obs = observation(task, state(task, quaternion=[half, 0, 0, half], velocity=[1, 2, 3, 0.4, 0.8, -0.4]))
    # Ahead is +y and left is -x of the world; the angular velocity is in the base's frame already.
    expected = [4, -2, 6, 0.1, 0.2, -0.1, 0, 0, -1]
    torch.testing.assert_close(obs[:9], torch.tensor(expected), atol=1e-6, rtol=1e-6)


def test_gravity_is_seen_from_the_base(task):
    pitched = [math.cos(math.radians(15)), 0, math.sin(math.radians(15)), 0]  # nose down by 30 degrees
    torch.testing.assert_close(
        observation(task, state(task, quaternion=pitched))[6:9],
        torch.tensor([0.5, 0.0, -math.sqrt(3) / 2]),
        atol=1e-6,
        rtol=0,
    )


def test_commands_joints_and_action_are_scaled(task):
    joints = [angle + 0.01 * joint for joint, angle in enumerate(DEFAULT)]
    action = [0.05 * joint for joint in range(12)]
    obs = observation(task, state(task, joints=joints, rates=range(12), commands=[1.5, -0.5, 0.8], action=action))
    torch.testing.assert_close(obs[9:12], torch.tensor([3.0, -1.0, 0.2]))
    torch.testing.assert_close(obs[12:24], 0.01 * torch.arange(12.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(obs[24:36], 0.05 * torch.arange(12.0))
    torch.testing.assert_close(obs[36:48], torch.tensor(action))


def test_following_the_commands_earns_the_most(task):
    follows = state(task, velocity=[1, -0.5, 0.3, 0.2, 0.3, 0.8], commands=[1, -0.5, 0.8])
    assert verdict(task, follows) == (pytest.approx(1.5 * DT), False)


def test_errors_and_torques_cost(task):
    torques = [10.0] * 11 + [-30.0]
    tells = state(task, velocity=[0.7, 0.4, 0, 0, 0, -0.3], commands=[1, 0, 0], actuator_force=torques)
    # Velocity error (0.3, 0.4), turning error 0.3; 11 x 100 + 900 = 2000 (N m)^2.
    expected = DT * (math.exp(-0.25 / 0.25) + 0.5 * math.exp(-0.09 / 0.25) - 2.5e-5 * 2000)
    assert verdict(task, tells)[0] == pytest.approx(expected, rel=1e-5)


def test_the_reward_is_never_negative(task):
    assert verdict(task, state(task, commands=[2, 1, 1], actuator_force=[80.0] * 12))[0] == 0.0


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize(("force", "ends"), [(0.9, False), (1.1, True)])
def test_base_or_thigh_contact_ends(task, part, force, ends):
    touch = [0.0] * 5
    touch[part] = force
    assert verdict(task, state(task, sensordata=touch))[1] is ends


def test_actions_move_the_targets_around_the_default():
    task = make_task(Anymal, 1)
    task.apply(torch.tensor([[1.0, -1.0, 0.5] + [0.0] * 9]))
    expected = torch.tensor(DEFAULT) + torch.tensor([0.5, -0.5, 0.25] + [0.0] * 9)
    torch.testing.assert_close(task.engine.ctrl[0], expected)


def test_start_distribution():
    task = make_task(Anymal, 4096)
    obs = task.reset()["obs"]
    qpos, qvel = task.engine.qpos, task.engine.qvel
    assert qpos[:, :7].unique(dim=0).tolist() == [[0, 0, pytest.approx(0.62), 1, 0, 0, 0]]
    assert (qvel[:, :6] == 0).all()
    factors, rates, commands = (
        qpos[:, 7:] / torch.tensor(DEFAULT),
        qvel[:, 6:],
        obs[:, 9:12] / torch.tensor([2, 2, 0.25]),
    )
    for values, low, high in (
        (factors, 0.5, 1.5),
        (rates, -0.1, 0.1),
        (commands[:, 0], -2, 2),
        (commands[:, 1], -1, 1),
        (commands[:, 2], -1, 1),
    ):
        assert low - 1e-6 <= values.min() and values.max() <= high + 1e-6
        assert float(values.mean()) == pytest.approx((low + high) / 2, abs=0.03 * (high - low))
        assert float(values.std()) == pytest.approx((high - low) / math.sqrt(12), rel=0.04)


def test_commands_hold_until_the_episode_ends():
    task = make_task(Anymal, 2)
    first = task.reset()["obs"][:, 9:12].clone()
    task._episode_step[1] = task.info.episode_length - 3
    for _ in range(2):
        assert torch.equal(task.step({"action": torch.zeros(2, 12)})["obs"][:, 9:12], first)
    out = task.step({"action": torch.zeros(2, 12)})
    assert out["truncated"].tolist() == [False, True]
    assert torch.equal(out["obs"][0, 9:12], first[0]) and not torch.equal(out["obs"][1, 9:12], first[1])


def test_it_stands_when_no_action_is_taken():
    task = make_task(Anymal, 8)
    task.reset()
    for _ in range(100):
        out = task.step({"action": torch.zeros(8, 12)})
        assert not out["terminated"].any()
    obs, height = out["obs"], task.engine.qpos[:, 2]
    assert (height > 0.45).all() and (height < 0.56).all()
    assert (obs[:, 8] < -0.99).all()  # level
    assert task.engine.qvel.abs().max() < 0.2


@pytest.mark.parametrize(
    ("quaternion", "touching"), [([0, 1, 0, 0], "base"), ([math.sqrt(0.5), math.sqrt(0.5), 0, 0], "thigh")]
)
def test_the_contact_sensors_feel_a_fallen_body(quaternion, touching):
    """On its back it lies on its trunk, on its side on the drives of its thighs."""
    task = make_task(Anymal, 1)
    task.reset()
    qpos = task.engine.qpos.clone()
    qpos[0, 2:7] = torch.tensor([0.35, *quaternion])
    task.engine.write(torch.tensor([0]), qpos, torch.zeros(1, 18))
    felt = torch.zeros(5)
    for _ in range(25):
        task.engine.step()
        felt = torch.maximum(felt, task.engine.derived["sensordata"][0])
    assert (felt[0] if touching == "base" else felt[1:].max()) > 100.0


def test_only_feet_thighs_and_trunk_meet_the_floor_and_nothing_else():
    model = make_task(Anymal, 1).engine.model
    meets = [model.geom(i).name for i in range(model.ngeom) if model.geom_conaffinity[i]]
    assert meets == [
        "front_touch",
        "hind_touch",
        *(f"{leg}_{part}" for leg in LEGS for part in ("shoulder_touch", "knee_touch", "foot")),
    ]
    assert [model.geom(i).name for i in range(model.ngeom) if model.geom_contype[i]] == ["floor"]
    assert all(model.geom_type[model.geom(name).id] == int(mujoco.mjtGeom.mjGEOM_SPHERE) for name in meets)
