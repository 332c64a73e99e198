import mujoco
import numpy as np
import pytest
import torch

from gmiflow.sim.base import EngineSpec, create_engine
from gmiflow.sim.standalone import standalone_context
from gmiflow.tasks.ant import Ant
from gmiflow.tasks.base import ASSETS


def spec(**changes):
    settings = {
        "model_path": ASSETS / "ant.xml",
        "num_env": 6,
        "substeps": 2,
        "derived": ("sensordata", "qfrc_actuator"),
        "device": torch.device("cpu"),
        "threads": 2,
    }
    return EngineSpec(**{**settings, **changes})


def random_states(model, count, seed=5):
    generator = np.random.default_rng(seed)
    qpos = np.tile(model.qpos0, (count, 1))
    qpos[:, 2] = 0.45
    qpos[:, 7:] = generator.uniform(0.55, 0.65, (count, model.nq - 7))
    qvel = generator.normal(0.0, 0.5, (count, model.nv))

    def as_float32(values):
        return torch.tensor(values, dtype=torch.float32)

    return as_float32(qpos), as_float32(qvel)


def test_steps_are_those_of_mj_step():
    engine = create_engine("auto", spec())
    model = engine.model
    qpos, qvel = random_states(model, 6)
    engine.write(torch.arange(6), qpos, qvel)
    singles = [mujoco.MjData(model) for _ in range(6)]
    for data, position, velocity in zip(singles, qpos, qvel, strict=True):
        data.qpos[:], data.qvel[:] = position.numpy(), velocity.numpy()
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        engine.ctrl.copy_(torch.rand(6, model.nu, generator=generator) * 2 - 1)
        engine.step()
        for data, ctrl in zip(singles, engine.ctrl, strict=True):
            data.ctrl[:] = ctrl.numpy()
            mujoco.mj_step(model, data, 2)
    for name, tensor in {"qpos": engine.qpos, "qvel": engine.qvel, **engine.derived}.items():
        expected = np.stack([getattr(data, name) for data in singles]).astype(np.float32)
        assert tensor.dtype == torch.float32 and tensor.T.is_contiguous()
        np.testing.assert_array_equal(tensor.numpy(), expected, err_msg=name)


def control_steps(model, states):
    """Positions and velocities after one control step from each state (qpos, qvel, warm start, ctrl)."""
    data, after = mujoco.MjData(model), []
    for qpos, qvel, warmstart, ctrl in states:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:], data.ctrl[:] = qpos, qvel, warmstart, ctrl
        mujoco.mj_step(model, data, 2)
        after.append((data.qpos.copy(), data.qvel.copy()))
    return [np.stack(part) for part in zip(*after, strict=True)]


@pytest.mark.parametrize("name", ["ant", "humanoid", "ball_balance", "anymal", "franka_cabinet", "shadow_hand"])
def test_the_solver_has_enough_iterations(name):
    """In 99 of 100 control steps of random motion its result is the converged one, to 0.001 rad and 0.1 rad/s."""
    model = mujoco.MjModel.from_xml_path(str(ASSETS / f"{name}.xml"))
    generator, data, states = np.random.default_rng(2), mujoco.MjData(model), []
    low, high = model.actuator_ctrlrange.T if model.actuator_ctrllimited.all() else (-1.0, 1.0)
    for _ in range(8):
        mujoco.mj_resetData(model, data)
        for step in range(100):
            data.ctrl[:] = generator.uniform(low, high, model.nu)
            if step >= 20:
                states.append([part.copy() for part in (data.qpos, data.qvel, data.qacc_warmstart, data.ctrl)])
            mujoco.mj_step(model, data, 2)
    qpos, qvel = control_steps(model, states)
    model.opt.iterations, model.opt.ls_iterations, model.opt.tolerance = 100, 100, 1e-14
    converged_qpos, converged_qvel = control_steps(model, states)
    assert np.quantile(np.abs(qpos - converged_qpos).max(1), 0.99) < 1e-3
    assert np.quantile(np.abs(qvel - converged_qvel).max(1), 0.99) < 0.1


def test_the_number_of_threads_changes_nothing():
    results = []
    for threads in (1, 2, 3):
        engine = create_engine("mujoco", spec(num_env=50, threads=threads))
        engine.write(torch.arange(50), *random_states(engine.model, 50))
        for _ in range(20):
            engine.ctrl.fill_(0.7)
            engine.step()
        results.append(engine.qpos.clone())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("by_mask", [False, True])
def test_a_written_state_goes_on_as_a_fresh_one(by_mask):
    """Nothing of the old episode is left, in particular not the solver's warm start."""
    used, fresh = (create_engine("mujoco", spec()) for _ in range(2))
    used.ctrl.fill_(-1.0)
    for _ in range(30):
        used.step()
    before = used.qpos.clone()
    qpos, qvel = random_states(used.model, 6)
    chosen = torch.tensor([1, 4])
    mask = torch.zeros(6, dtype=torch.bool).index_fill_(0, chosen, True)
    if by_mask:
        used.write_where(mask, qpos, qvel)
    else:
        used.write(chosen, qpos[chosen], qvel[chosen])
    assert torch.equal(used.qpos[chosen], qpos[chosen])
    assert torch.equal(used.qpos[~mask], before[~mask])
    fresh.write(torch.arange(6), qpos, qvel)
    for engine in (used, fresh):
        engine.ctrl.fill_(0.3)
        for _ in range(20):
            engine.step()
    assert torch.equal(used.qpos[chosen], fresh.qpos[chosen])


def test_state_dict_is_exact_in_float64():
    one, other = (create_engine("mujoco", spec()) for _ in range(2))
    for _ in range(10):
        one.step()
    state = one.state_dict()
    assert {name: tensor.dtype for name, tensor in state.items()} == dict.fromkeys(
        ("qpos", "qvel", "qacc_warmstart"), torch.float64
    )
    other.load_state_dict(state)
    for engine in (one, other):
        for _ in range(10):
            engine.step()
    assert torch.equal(one.qpos, other.qpos) and torch.equal(one.qvel, other.qvel)


def test_warnings_of_the_physics_are_counted():
    engine = create_engine("mujoco", spec())
    assert engine.diagnostics() == {}
    engine.write(torch.tensor([2]), engine.qpos[2:3].clone(), torch.full((1, engine.model.nv), torch.inf))
    engine.step()
    assert engine.diagnostics()["warning_badqvel"] >= 1


def test_an_unknown_engine_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown engine 'physx'; choose one of auto, mujoco, mjwarp"):
        Ant().setup(standalone_context(4, engine="physx"))


def test_the_cpu_engine_refuses_a_gpu():
    with pytest.raises(ValueError, match="runs on the CPU, not on cuda"):
        create_engine("mujoco", spec(device=torch.device("cuda")))
