"""What every task does with episodes: restarts inside a step, time-outs, slices, resuming, blow-ups."""

import mujoco
import pytest
import torch
from task_support import TASK_CLASSES, actions, make_task

from gmiflow.tasks.ant import Ant
from gmiflow.tasks.ball_balance import BallBalance
from gmiflow.tasks.base import Task
from gmiflow.tasks.cartpole import CartPole, CartPoleSwingUp

every_task = pytest.mark.parametrize("cls", TASK_CLASSES)


def copied(out):
    return {name: tensor.clone() for name, tensor in out.items()}


@every_task
def test_random_actions_stay_finite_for_1000_steps(cls):
    num_env = 8
    task = make_task(cls, num_env)
    task.reset()
    limits = torch.tensor(task.engine.model.jnt_range, dtype=torch.float32)
    limited = torch.tensor(task.engine.model.jnt_limited).bool()
    joints = torch.tensor(task.engine.model.jnt_qposadr)[limited]
    fastest = 0.0
    for action in actions(task, 1000):
        out = task.step({"action": action})
        assert all(torch.isfinite(out[name]).all() for name in ("obs", "reward"))
        fastest = max(fastest, float(task.engine.qvel.abs().max()))
        if joints.numel():
            excess = (task.engine.qpos[:, joints] - limits[limited, 1]).maximum(
                limits[limited, 0] - task.engine.qpos[:, joints]
            )
            assert excess.max() < 0.5  # rad; limits are springs, and hold
    assert fastest < 150.0  # rad/s of the lightest joint; a blow-up passes thousands
    assert task.diagnostics()["diverged"] == 0


@every_task
def test_energy_of_a_relaxed_body_does_not_grow(cls):
    """Without motor power, kinetic energy stays below what the fall from the start releases."""
    task = make_task(cls, 4)
    task.reset()
    model = task.engine.model
    data = mujoco.MjData(model)

    def energies():
        values = []
        for qpos, qvel in zip(task.engine.qpos, task.engine.qvel, strict=True):
            data.qpos[:], data.qvel[:] = qpos.numpy(), qvel.numpy()
            mujoco.mj_forward(model, data)
            mujoco.mj_energyPos(model, data)
            mujoco.mj_energyVel(model, data)
            values.append(data.energy.sum())
        return torch.tensor(values)

    start = energies()
    weight = 9.81 * float(model.body_subtreemass[0])
    for _ in range(150):
        out = task.step({"action": torch.zeros(4, cls.info.action_size)})
        if out["terminated"].any():
            break
        assert (energies() <= start + 0.01 * weight).all()  # 1 cm of height


@every_task
@pytest.mark.parametrize("engine_masks", [False, True])
def test_slices_start_and_restart_in_the_same_states(cls, engine_masks):
    """Environment k is the same whatever num_env and env_offset, at the start and after a restart."""
    whole = make_task(cls, 32)
    parts = [make_task(cls, 16, env_offset=offset) for offset in (0, 16)]
    for task in (whole, *parts):
        task.engine.masked = engine_masks
    starts = [task.reset()["obs"].clone() for task in parts]
    assert torch.equal(torch.cat(starts), whole.reset()["obs"])
    assert len(torch.cat(starts).unique(dim=0)) == 32
    for action in actions(whole, 60, seed=4):
        expected = copied(whole.step({"action": action}))
        got = [copied(task.step({"action": action[16 * part : 16 * part + 16]})) for part, task in enumerate(parts)]
        for name, tensor in expected.items():
            assert torch.equal(torch.cat([out[name] for out in got]), tensor), name


@every_task
def test_restarting_by_mask_equals_restarting_by_index(cls):
    by_index, by_mask = make_task(cls, 16), make_task(cls, 16)
    by_mask.engine.masked = True
    by_index.reset(), by_mask.reset()
    # Short episodes, so that everyone restarts several times.
    for task in (by_index, by_mask):
        task._episode_step[::2] = cls.info.episode_length - 25
    restarts = 0
    for action in actions(by_index, 60):
        one, other = by_index.step({"action": action}), by_mask.step({"action": action})
        restarts += int((one["terminated"] | one["truncated"]).sum())
        for name, tensor in one.items():
            assert torch.equal(tensor, other[name]), name
    assert restarts >= 8
    assert torch.equal(by_index.engine.qpos, by_mask.engine.qpos)


@every_task
def test_a_time_out_is_truncated_and_already_restarted(cls):
    task = make_task(cls, 4)
    first = task.reset()["obs"].clone()
    last_step = cls.info.episode_length
    task._episode_step[1] = last_step - 1
    out = task.step({"action": torch.zeros(4, cls.info.action_size)})
    assert out["truncated"].tolist() == [False, True, False, False]
    assert not out["terminated"].any()
    assert task._episode_step.tolist() == [1, 0, 1, 1]
    # The observation is that of a new episode: it is drawn anew, and the engine holds its state.
    qpos, qvel = task.start(task.start_noise()[1:2])
    torch.testing.assert_close(task.engine.qpos[1:2], qpos)
    torch.testing.assert_close(task.engine.qvel[1:2], qvel)
    assert not torch.equal(out["obs"][1], first[1])


def test_termination_wins_over_a_time_out_and_keeps_its_reward():
    task = make_task(Ant, 2)
    task.reset()
    qpos = task.engine.qpos[:1].clone()
    qpos[0, 2] = 0.25
    task.engine.write(torch.tensor([0]), qpos, torch.zeros(1, 14))
    task._episode_step.fill_(Ant.info.episode_length - 1)
    out = task.step({"action": torch.zeros(2, 8)})
    assert out["terminated"].tolist() == [True, False]
    assert out["truncated"].tolist() == [False, True]
    assert float(out["reward"][0]) == -2.0
    assert float(out["obs"][0, 0]) == pytest.approx(0.44)


def test_memory_restarts_with_the_episode():
    ant, tray = make_task(Ant, 2), make_task(BallBalance, 2)
    first = {"last_place": [1000.0, 0.0, 1000.0, 0.0, 0.0], "targets": [0.0, 0.0, 0.0]}
    for task, name in ((ant, "last_place"), (tray, "targets")):
        task.reset()
        memory = task._memory[name]
        assert memory.tolist() == [first[name]] * 2
        memory.fill_(0.3)
        task._episode_step[0] = task.info.episode_length - 1
        task.step({"action": torch.zeros(2, task.info.action_size)})
        assert memory[0].tolist() == first[name]
        assert memory[1].tolist() != first[name]


def test_actions_are_clamped():
    tasks = [make_task(CartPole, 4) for _ in range(2)]
    for task in tasks:
        task.reset()
    limited = tasks[0].step({"action": torch.tensor([[1.0], [-1.0], [1.0], [0.5]])})
    beyond = tasks[1].step({"action": torch.tensor([[3.0], [-1.5], [torch.inf], [0.5]])})
    assert torch.equal(limited["obs"], beyond["obs"])


@every_task
def test_a_resumed_task_goes_on_exactly(cls):
    original = make_task(cls, 8)
    original.reset()
    stream = actions(original, 40)
    original._episode_step[3] = cls.info.episode_length - 25  # restarts after the checkpoint
    for action in stream[:20]:
        original.step({"action": action})
    state = original.state_dict()
    assert all(value.shape[:1] in (torch.Size([8]), torch.Size([])) for value in state.values())
    resumed = make_task(cls, 8)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.observe()["obs"], original.observe()["obs"])
    for action in stream[20:]:
        expected, got = original.step({"action": action}), resumed.step({"action": action})
        for name, tensor in expected.items():
            assert torch.equal(tensor, got[name]), name


def test_a_slice_resumes_its_own_rows():
    whole = make_task(CartPoleSwingUp, 32)
    whole.reset()
    stream = actions(whole, 30)
    for action in stream[:10]:
        whole.step({"action": action})
    part = make_task(CartPoleSwingUp, 16, env_offset=16)
    part.load_state_dict({name: value[16:] if value.ndim else value for name, value in whole.state_dict().items()})
    for action in stream[10:]:
        expected = whole.step({"action": action})["obs"][16:]
        assert torch.equal(part.step({"action": action[16:]})["obs"], expected)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_physics_that_blows_up_ends_the_episode_and_is_counted():
    task = make_task(Ant, 3)
    task.reset()
    task.engine.write(torch.tensor([1]), task.engine.qpos[1:2].clone(), torch.full((1, 14), torch.nan))
    out = task.step({"action": torch.zeros(3, 8)})
    assert out["terminated"].tolist() == [False, True, False]
    assert float(out["reward"][1]) == 0.0
    assert torch.isfinite(out["obs"]).all() and float(out["obs"][1, 0]) == pytest.approx(0.44)
    diagnostics = task.diagnostics()
    assert diagnostics["diverged"] == 1
    assert any(name.startswith("warning_bad") for name in diagnostics)
    for _ in range(5):
        assert torch.isfinite(task.step({"action": torch.zeros(3, 8)})["obs"]).all()


@every_task
def test_the_short_way_to_observe_a_start_gives_the_same_numbers(cls):
    task = make_task(cls, 32)
    qpos, qvel = task.start(task.start_noise())
    full = torch.full((32, cls.info.observation_size), torch.nan)
    Task.observe_start(task, qpos, qvel, full)
    task.observe_start(qpos, qvel, task.start_columns)
    assert torch.equal(task.start_columns, full)
