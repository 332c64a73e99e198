"""Adapters for simulators in an interpreter of their own.

Isaac Gym cannot be had without an account, so its adapter is driven by a stand-in (tests/sim/standins) that reproduces
what IsaacGymEnvs publishes. Gymnasium is the real one.
"""

import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from foreign_support import foreign_stage
from in_process import run_in_threads
from plans import launch_plan, training_plan

from gmiflow.plan import EdgePlan
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.foreign.simulator import ForeignSimulator
from gmiflow.sim.standalone import standalone_context

STANDINS = Path(__file__).parent / "standins"
ISAAC = "gmiflow.sim.hosted.isaacgym_task:IsaacGymTask"
POINT = {"task": "Point", "obs_size": 4, "action_size": 2}
CART = {"id": "CartPole-v1", "package": "gymnasium", "obs_size": 4, "action_size": 1}


def stage_of(python, entry, params, folder):
    return dataclasses.replace(foreign_stage(python), entry=entry, params=params, file=str(folder / "training.gmi"))


@pytest.fixture
def host():
    made = []

    def make(python, entry, params, *, folder=STANDINS, training=None, num_env=32, **context):
        made.append(ForeignSimulator(stage_of(python, entry, params, folder), training or training_plan()))
        made[-1].setup(standalone_context(num_env, **context, **params))
        return made[-1]

    yield make
    for simulator in made:
        simulator.close()


def test_isaac_gym_task(host, interpreters, capfd):
    simulator = host(interpreters[1], ISAAC, POINT, seed=3, env_offset=32)
    obs = simulator.reset()["obs"].clone()
    expected = torch.rand(32, 2, generator=torch.Generator().manual_seed(3 + 32)) - 0.5
    assert torch.equal(obs[:, :2], expected) and bool((obs[:, 2:] == 7.0).all())
    force = torch.tensor([[9.0, 0.0]]).repeat(32, 1)  # clipped to 1: half a metre per step
    force[16:] = 0.0
    ends = []
    for step in range(1, 5):
        out = simulator.step({"action": force})
        assert out["reward"].dtype == torch.float32 and out["terminated"].dtype == torch.bool
        moved = expected + 0.5 * step * force.clamp(-1, 1)
        over = moved.norm(dim=1) > 2.0
        if step < 4:
            torch.testing.assert_close(out["obs"][~over, :2], moved[~over])
            torch.testing.assert_close(out["reward"][~over], -moved[~over].norm(dim=1))
        ends.append((int(out["terminated"][16:].sum()), int(out["truncated"][16:].sum())))
        assert not bool((out["terminated"] & out["truncated"]).any())
        assert torch.equal(out["terminated"], over & ~out["truncated"]) or step == 4
    assert ends == [(0, 0), (0, 0), (0, 0), (0, 16)]  # a time limit is no failure
    simulator.close()
    assert "simulation destroyed" in capfd.readouterr().err


def test_an_isaac_gym_task_trains(interpreters):
    training = training_plan(iterations=2)
    hosted = stage_of(interpreters[1], ISAAC, POINT, STANDINS)
    training = dataclasses.replace(training, stages=(hosted, *training.stages[1:]))
    runtimes, collectors, errors = run_in_threads(launch_plan(training, gmis=2))
    assert errors == [] and [runtime.iteration for runtime in runtimes] == [2, 2]
    assert all(len(collector.of("Progress")) == 2 for collector in collectors)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"obs_size": 60}, "Point: the observation has size 4, but the .gmi file declares 60"),
        ({"task": "Ant"}, "KeyError: 'Ant'"),
    ],
)
def test_an_isaac_gym_task_of_another_shape(host, interpreters, params, message):
    with pytest.raises(GMIError, match=message):
        host(interpreters[1], ISAAC, {**POINT, **params})


def test_where_isaac_gym_is_missing_the_error_says_where_it_comes_from(host, interpreters, tmp_path):
    with pytest.raises(GMIError) as caught:
        host(interpreters[0], ISAAC, POINT, folder=tmp_path)
    message = caught.value.failure.message
    assert "ImportError: isaacgym cannot be imported in this interpreter (No module named 'isaacgym')" in message
    assert "comes from NVIDIA's developer site" in message and "std.tasks" in message and "std.sim.mjlab" in message


def test_where_mjlab_is_missing_the_error_says_how_to_get_it(host, interpreters, tmp_path):
    params = {"task": "Any", "obs_size": 4, "action_size": 2}
    with pytest.raises(GMIError, match="`pip install mjlab` there"):
        host(interpreters[0], "gmiflow.sim.hosted.mjlab_task:MjlabTask", params, folder=tmp_path)


ONE_NUMBER = EdgePlan(source="actor.action", target="sim.action", type="f32[env, 1]", lift=False)


def test_gymnasium_in_another_interpreter(host, interpreters):
    training = training_plan()
    edges = tuple(ONE_NUMBER if edge.target == "sim.action" else edge for edge in training.edges)
    entry = "gmiflow.sim.hosted.gym_environments:GymEnvironments"
    training = dataclasses.replace(training, edges=edges)
    simulator = host(interpreters[1], entry, CART, training=training, num_env=2, seed=5, env_offset=16)
    environment = gymnasium.make("CartPole-v1")
    obs, _ = environment.reset(seed=5 + 16 + 1)
    np.testing.assert_array_equal(simulator.reset()["obs"][1], obs)
    terminated, steps = False, 0
    while not terminated:
        obs, reward, terminated, _, _ = environment.step(1)
        out = simulator.step({"action": torch.full((2, 1), 0.3)})  # the upper half of -1..1: push to the right
        steps += 1
        assert (float(out["reward"][1]), bool(out["terminated"][1])) == (reward, terminated)
        if not terminated:
            np.testing.assert_array_equal(out["obs"][1], np.float32(obs))
    assert 5 < steps < 20
    np.testing.assert_array_equal(out["obs"][1], environment.reset()[0])  # started anew in the same step
