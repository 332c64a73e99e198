"""A simulator in an interpreter of its own gives what it would give here, through memory that both share."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from foreign_support import NUM_ENV
from hosted_mass import PointMass
from plans import EDGES, training_plan

from gmiflow.plan import EdgePlan
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.foreign.layout import lay_out


class Buffers:
    """What a hosted class is set up with, in this process."""

    def __init__(self, num_env, seed, env_offset):
        self.num_env, self.seed, self.env_offset = num_env, seed, env_offset
        flags = {name: np.zeros(num_env, bool) for name in ("terminated", "truncated")}
        self.buffers = {"obs": np.zeros((num_env, 4), np.float32), "reward": np.zeros(num_env, np.float32), **flags}


def actions(steps):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(NUM_ENV, 2, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("name", ["PointMass", "OwnArrays"])
def test_it_gives_what_the_class_gives_here(hosted, name):
    here, there = PointMass(), hosted(name, seed=5, env_offset=64)
    here.setup(Buffers(NUM_ENV, 5, 64))
    np.testing.assert_array_equal(there.reset()["obs"], here.reset()["obs"])
    ended = 0
    for action in actions(25):
        expected = here.step({"action": action.numpy()})
        returned = there.step({"action": action})
        assert list(returned) == ["obs", "reward", "terminated", "truncated"]
        for port, value in returned.items():
            assert value.dtype == (torch.float32 if port in ("obs", "reward") else torch.bool)
            np.testing.assert_array_equal(value, expected[port], err_msg=port)
        ended += int(returned["truncated"].sum()) + int(returned["terminated"].sum())
    assert ended > 0


def test_what_it_returns_is_the_shared_memory(hosted):
    simulator = hosted()
    first = simulator.reset()["obs"]
    (action,) = actions(1)
    out = simulator.step({"action": action})
    assert out["obs"].data_ptr() == first.data_ptr()
    before = out["obs"].clone()
    simulator.step({"action": action})
    assert not torch.equal(out["obs"], before)  # written by the other process, without a copy here


def test_its_state_goes_out_and_in(hosted):
    one, other = hosted(seed=1), hosted(seed=2)
    one.reset()
    for action in actions(3):
        one.step({"action": action})
    state = one.state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == {"obs": (32, 4), "age": (32,), "tick": ()}
    assert state["age"].tolist() == [3] * NUM_ENV
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.observe()["obs"], one.observe()["obs"])
    assert one.diagnostics() == {"oldest": 3.0, "borrowed": 0.0}  # neither gmiflow nor torch is loaded there


def test_what_is_optional_may_be_left_out(hosted):
    simulator = hosted("OwnArrays")
    start = simulator.reset()["obs"].clone()
    simulator.step({"action": torch.ones(NUM_ENV, 2)})
    assert simulator.state_dict() == {} and simulator.diagnostics() == {}
    assert torch.equal(simulator.observe()["obs"], start)  # starts anew, as `Simulator.observe` says


def test_ports_may_be_records(hosted):
    observed = EdgePlan(
        source="sim.obs", target="actor.obs", type={"joints": "f32[env, 2]", "target": "f32[env]"}, lift=False
    )
    acted = EdgePlan(
        source="actor.action", target="sim.action", type={"force": "f32[env, 2]", "grip": "f32[env]"}, lift=False
    )
    simulator = hosted("Records", training=training_plan(edges=(observed, acted, *EDGES[2:])))
    assert simulator.reset()["obs"]["target"].tolist() == [2.0] * NUM_ENV
    action = {"force": torch.full((NUM_ENV, 2), 0.5), "grip": torch.full((NUM_ENV,), 3.0)}
    out = simulator.step({"action": action})
    assert out["reward"].tolist() == [4.0] * NUM_ENV
    assert out["obs"]["joints"].shape == (NUM_ENV, 2)


def test_ports_do_not_overlap_and_start_on_cache_lines():
    layout = lay_out(training_plan(), 33)
    places = [(field.offset, field.bytes) for field in (*layout.inputs, *layout.outputs)]
    assert [size for _, size in places] == [33 * 2 * 4, 33 * 4 * 4, 33 * 4, 33, 33]
    assert all(offset % 128 == 0 for offset, _ in places)
    assert all(offset + size <= after for (offset, size), (after, _) in itertools.pairwise(places))
    assert layout.first == ("obs",) and layout.size >= sum(places[-1])


def test_element_types_that_numpy_does_not_have_are_refused():
    edges = (dataclasses.replace(EDGES[0], type="bf16[env, 4]"), *EDGES[1:])
    with pytest.raises(GMIError, match=r"sim\.obs has elements of type bf16, which NumPy does not have"):
        lay_out(training_plan(edges=edges), 16)
