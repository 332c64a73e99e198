"""The guide's code is run as it is printed."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim.standalone import standalone_context

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "own-simulator.md"


@pytest.fixture
def blocks():
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def pendulum(blocks, tmp_path, monkeypatch):
    """The class of the guide, imported from a file as the guide says."""
    path = tmp_path / "pendulum.py"
    path.write_text(blocks[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("pendulum", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pendulum", module)
    return module.Pendulum


def make(cls, num_env, env_offset=0):
    simulator = cls()
    noise = CounterNoise(seed=1, num_env=num_env, env_offset=env_offset)
    simulator.setup(standalone_context(num_env, env_offset=env_offset, noise=noise))
    return simulator


def test_trying_it_alone_works_as_printed(pendulum, blocks):
    exec(compile(blocks[1], "own-simulator.md", "exec"), {})


def test_the_recipe_is_about_forty_lines(blocks):
    code = [line for line in blocks[0].splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 50


def test_slicing_and_resuming_change_nothing(pendulum):
    whole, parts = make(pendulum, 32), [make(pendulum, 16, offset) for offset in (0, 16)]
    assert torch.equal(whole.reset()["obs"], torch.cat([part.reset()["obs"] for part in parts]))
    generator = torch.Generator().manual_seed(0)
    stream = torch.rand(230, 32, 1, generator=generator) * 2 - 1
    for step, action in enumerate(stream):
        out = whole.step({"action": action})
        halves = [part.step({"action": action[16 * index :][:16]}) for index, part in enumerate(parts)]
        for name, tensor in out.items():
            assert torch.equal(tensor, torch.cat([half[name] for half in halves])), (step, name)
        if step == 100:
            state = whole.state_dict()
    resumed = make(pendulum, 32)
    resumed.load_state_dict(state)
    for action in stream[101:]:
        again = resumed.step({"action": action})
    assert torch.equal(again["obs"], out["obs"])
