"""MuJoCo Warp against MuJoCo, on the CPU.

The first run compiles kernels, without optimizing them; later ones use Warp's cache.
"""

import re

import pytest
import torch
import warp

from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim import mjwarp
from gmiflow.sim.standalone import standalone_context
from gmiflow.tasks import ant, anymal, base, cartpole, humanoid, shadow_hand
from gmiflow.tasks.ant import Ant
from gmiflow.tasks.anymal import Anymal
from gmiflow.tasks.ball_balance import BallBalance
from gmiflow.tasks.cartpole import CartPole, CartPoleSwingUp
from gmiflow.tasks.franka_cabinet import FrankaCabinet
from gmiflow.tasks.humanoid import Humanoid
from gmiflow.tasks.shadow_hand import ShadowHand

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def quickly_compiled(request, monkeypatch):
    """On the CPU most of the time would go into optimizing kernels that then run for a few milliseconds."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(warp.config, "optimization_level", 0)


def make(cls, engine, num_env=4, device="cpu", seed=1):
    noise = CounterNoise(seed=seed, num_env=num_env, env_offset=0, device=device)
    task = cls()
    task.setup(standalone_context(num_env, device=device, engine=engine, noise=noise))
    return task


def start_inside_the_limits(task):
    """Reset, with joints off their limits: on a limit, float32's rounding decides whether it acts.

    Where the body has a keyframe in which it holds something, the last environment begins there.
    """
    task.reset()
    model = task.engine.model
    qpos = task.engine.qpos.clone()
    if model.nkey > 1:
        qpos[-1] = torch.tensor(model.key_qpos[-1])
    for joint in range(model.njnt):
        if model.jnt_limited[joint]:
            low, high = model.jnt_range[joint]
            margin = 0.01 * (high - low)
            qpos[:, model.jnt_qposadr[joint]].clamp_(low + margin, high - margin)
    task.engine.write_where(torch.ones(qpos.shape[0], dtype=torch.bool), qpos, task.engine.qvel.clone())


def start_holding_the_cube(task):
    """Reset, with the cube in the half-closed hand, shifted by up to 3 mm; returns the actions that hold it."""
    task.reset()
    key = task.engine.model.key("rest")
    num_env = task.engine.qpos.shape[0]
    qpos = torch.tensor(key.qpos, dtype=torch.float32).repeat(num_env, 1)
    qpos[:, 24:26] += torch.linspace(-0.003, 0.003, num_env).unsqueeze(1)
    task.engine.write_where(torch.ones(num_env, dtype=torch.bool), qpos, torch.zeros_like(task.engine.qvel))
    low, high = torch.tensor(task.engine.model.actuator_ctrlrange, dtype=torch.float32).unbind(1)
    return (2.0 * torch.tensor(key.ctrl, dtype=torch.float32) - low - high) / (high - low)


def start(task):
    """Start a task for a comparison; returns the middle and the spread of its actions.

    A cube that is thrown about is chaotic, so the hand moves a little around its grip.
    """
    if isinstance(task, ShadowHand):
        return start_holding_the_cube(task), 0.3
    start_inside_the_limits(task)
    return 0.0, 1.0


# Largest difference after 50 steps of random actions: positions (m, rad), velocities (m/s, rad/s), sensors and
# joint forces (N, N m), observation, reward. Float32 against float64 through contacts: errors of 1e-7 grow.
TOLERANCES = {
    CartPole: (1e-5, 1e-4, 0.0, 1e-4, 1e-5),
    CartPoleSwingUp: (1e-5, 1e-4, 0.0, 1e-4, 1e-5),
    Ant: (1e-3, 2e-2, 5e-2, 2e-2, 1e-2),
    Humanoid: (1e-3, 5e-2, 5.0, 5e-2, 2e-2),
    BallBalance: (1e-4, 2e-3, 5e-2, 5e-3, 1e-4),
    ShadowHand: (1e-4, 2e-3, 1e-2, 2e-2, 1e-4),
    FrankaCabinet: (1e-4, 1e-3, 0.0, 1e-4, 1e-3),
    Anymal: (1e-4, 2e-3, 5e-2, 1e-3, 1e-5),
}

# Enough solver iterations where the tasks' own are not; MuJoCo Warp makes all of them, so no more than that.
ITERATIONS = {"ant": 50, "humanoid": 50, "ball_balance": 50, "anymal": 30, "franka_cabinet": 30, "shadow_hand": 30}


@pytest.fixture
def converged_solver(tmp_path, monkeypatch):
    """The same bodies with enough solver iterations.

    Their own 3 to 7 stop short of convergence in some physics steps (one in a thousand to one in twenty, with random
    actions), and there each engine has its own way of being unconverged.
    """
    for model in base.ASSETS.glob("*.xml"):
        text = model.read_text()
        if enough := ITERATIONS.get(model.stem):
            options = f'iterations="{enough}" ls_iterations="{enough}"'
            text = re.sub(r'iterations="\d+" ls_iterations="\d+"', options, text)
        (tmp_path / model.name).write_text(text)
    monkeypatch.setattr(base, "ASSETS", tmp_path)


@pytest.fixture
def no_falling(monkeypatch):
    """Episodes that go on when the body has fallen, so that all environments are compared to the end."""
    monkeypatch.setattr(cartpole, "FALLEN_RAD", 1e9)
    monkeypatch.setattr(ant, "FALLEN_M", -1e9)
    monkeypatch.setattr(humanoid, "FALLEN_M", -1e9)
    monkeypatch.setattr(anymal, "CONTACT_N", 1e9)
    monkeypatch.setattr(shadow_hand, "DROPPED_M", 1e9)


@pytest.mark.usefixtures("converged_solver", "no_falling")
@pytest.mark.parametrize("cls", TOLERANCES)
def test_engines_agree_over_50_steps(cls):
    reference, warp = make(cls, "mujoco"), make(cls, "mjwarp")
    middle, spread = start(reference)
    start(warp)
    assert torch.equal(reference.engine.qpos, warp.engine.qpos)
    generator = torch.Generator().manual_seed(7)
    worst = [0.0] * 5
    for _ in range(50):
        action = middle + spread * (torch.rand(4, cls.info.action_size, generator=generator) * 2 - 1)
        expected, got = reference.step({"action": action}), warp.step({"action": action})
        assert not (expected["terminated"].any() or got["terminated"].any())
        groups = [
            [(reference.engine.qpos, warp.engine.qpos)],
            [(reference.engine.qvel, warp.engine.qvel)],
            [(field, warp.engine.derived[name]) for name, field in reference.engine.derived.items()],
            [(expected["obs"], got["obs"])],
            [(expected["reward"], got["reward"])],
        ]
        for index, group in enumerate(groups):
            worst[index] = max([worst[index], *(float((one - other).abs().max()) for one, other in group)])
    assert all(found <= allowed for found, allowed in zip(worst, TOLERANCES[cls], strict=True)), worst
    assert warp.diagnostics()["overflow_contacts"] == warp.diagnostics()["overflow_constraints"] == 0


@pytest.mark.usefixtures("no_falling")
@pytest.mark.parametrize("cls", [Ant, Humanoid, BallBalance])
def test_most_environments_agree_with_the_tasks_own_iterations_too(cls):
    """A solver stopped short, in one engine at another place than in the other, parts a few of them."""
    reference, warp = make(cls, "mujoco", 12), make(cls, "mjwarp", 12)
    for task in (reference, warp):
        start_inside_the_limits(task)
    generator = torch.Generator().manual_seed(7)
    for _ in range(50):
        action = torch.rand(12, cls.info.action_size, generator=generator) * 2 - 1
        reference.step({"action": action}), warp.step({"action": action})
    difference = (reference.engine.qpos - warp.engine.qpos).abs().amax(1)
    assert float(difference.median()) <= TOLERANCES[cls][0], difference


def test_tensors_are_views_of_the_simulator():
    task = make(CartPole, "mjwarp")
    task.reset()
    engine = task.engine
    assert engine.qpos.data_ptr() == engine._data.qpos.ptr
    assert engine.ctrl.data_ptr() == engine._data.ctrl.ptr
    addresses = [tensor.data_ptr() for tensor in (engine.qpos, engine.qvel, engine.ctrl)]
    task.step({"action": torch.zeros(4, 1)})
    assert addresses == [tensor.data_ptr() for tensor in (engine.qpos, engine.qvel, engine.ctrl)]


def test_a_checkpoint_moves_from_one_engine_to_the_other():
    one, other = make(CartPole, "mujoco"), make(CartPole, "mjwarp")
    one.reset()
    for _ in range(20):
        one.step({"action": torch.full((4, 1), 0.2)})
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other.engine.qpos, one.engine.qpos)
    for _ in range(10):
        action = {"action": torch.full((4, 1), -0.1)}
        torch.testing.assert_close(one.step(action)["obs"], other.step(action)["obs"], atol=1e-5, rtol=1e-4)


def test_finished_environments_restart_by_mask():
    task = make(CartPole, "mjwarp")
    task.reset()
    task._episode_step[2] = 499
    out = task.step({"action": torch.zeros(4, 1)})
    assert out["truncated"].tolist() == [False, False, True, False]
    qpos, _ = task.start(task.start_noise())
    torch.testing.assert_close(task.engine.qpos[2], qpos[2])
    assert not torch.equal(task.engine.qpos[1], qpos[1])


def test_environments_of_several_trainings_are_as_those_alone():
    seeds, num_env = (3, 4), 16  # a stratum: of fewer, torch's vectors end elsewhere and round differently
    noises = [CounterNoise(seed=seed, num_env=num_env, env_offset=0) for seed in seeds]
    together, alone = Ant(), [make(Ant, "mjwarp", num_env, seed=seed) for seed in seeds]
    together.setup(standalone_context(2 * num_env, engine="mjwarp", noise=CounterNoise.joined(noises)))
    assert torch.equal(together.reset()["obs"], torch.cat([task.reset()["obs"] for task in alone]))
    for task in (together, *alone):
        task._episode_step[1::num_env] = Ant.info.episode_length - 3
    generator = torch.Generator().manual_seed(7)
    for _ in range(20):  # they touch the ground
        action = torch.rand(2 * num_env, 8, generator=generator) * 2 - 1
        out = together.step({"action": action})
        parts = [task.step({"action": own}) for task, own in zip(alone, action.split(num_env), strict=True)]
        assert all(torch.equal(value, torch.cat([part[port] for part in parts])) for port, value in out.items())


def test_buffers_are_sized_by_a_trial():
    model = make(Ant, "mujoco").engine.model
    contacts, constraints = mjwarp.measure_buffers(model, 2)
    # On its side an ant touches the floor with several of nine spheres, each contact is four rows of a pyramid.
    assert 8 <= contacts <= 32 and contacts % 8 == 0
    assert 4 * 4 <= constraints <= 8 + 4 * 9 * 2 and constraints % 8 == 0
    assert mjwarp.measure_buffers(model, 2) == (contacts, constraints), "the trial is repeatable"


def test_contacts_that_do_not_fit_are_reported(monkeypatch):
    monkeypatch.setattr(mjwarp, "measure_buffers", lambda model, substeps: (1, 8))
    task = make(Ant, "mjwarp")
    task.reset()
    for _ in range(40):
        task.step({"action": torch.zeros(4, 8)})
    diagnostics = task.diagnostics()
    assert diagnostics["contacts_per_world"] == 1 and diagnostics["constraints_per_world"] == 8
    assert diagnostics["overflow_contacts"] > 0
    assert diagnostics["overflow_constraints"] > 0 or diagnostics["overflow_contacts"] == 4


@pytest.mark.gpu
@pytest.mark.parametrize("cls", [CartPole, Ant, Anymal, FrankaCabinet, ShadowHand])
def test_a_captured_step_replays_like_an_eager_one(cls):
    eager, graphed = (make(cls, "auto", num_env=64, device="cuda") for _ in range(2))
    assert graphed.capturable
    generator = torch.Generator(device="cuda").manual_seed(3)
    action = torch.zeros(64, cls.info.action_size, device="cuda")
    for task in (eager, graphed):
        task.reset()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        state = graphed.state_dict()
        graphed.step({"action": action})  # loads the kernels
        graphed.load_state_dict(state)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        out = graphed.step({"action": action})
    graphed.load_state_dict(state)
    tolerance = 1e-5 if cls is CartPole else 1e-3
    for _ in range(30):
        action.uniform_(-1.0, 1.0, generator=generator)
        # From the same state every time: a GPU adds up contacts in no fixed order, and a hand's would drift apart.
        eager.load_state_dict(graphed.state_dict())
        graph.replay()
        expected = eager.step({"action": action})
        torch.testing.assert_close(out["obs"], expected["obs"], atol=tolerance, rtol=tolerance)
    assert torch.equal(graphed._clock.cpu(), torch.full((64,), 30))


@pytest.mark.gpu
@pytest.mark.parametrize("cls", TOLERANCES)
def test_a_thousand_random_steps_on_the_gpu_stay_finite(cls):
    task = make(cls, "auto", num_env=256, device="cuda")
    task.reset()
    for _ in range(1000):
        out = task.step({"action": torch.rand(256, cls.info.action_size, device="cuda") * 2 - 1})
    assert torch.isfinite(out["obs"]).all()
    diagnostics = task.diagnostics()
    assert diagnostics["diverged"] == diagnostics["overflow_contacts"] == diagnostics["overflow_constraints"] == 0
