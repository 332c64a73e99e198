"""What a plan of a serve workflow must say: `gmiflow run plan.json` looks it through."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan, PlanError
from gmiflow.plan_check import validate

EXAMPLE = Path(__file__).parents[1] / "examples" / "ant_serve.gmi"


@pytest.fixture(scope="module")
def plan() -> LaunchPlan:
    """GMIs 0 and 1 simulate, GMI 2 acts for both."""
    found = compile_file(str(EXAMPLE), Options(), hardware=Hardware(cores=4, gpus=())).plan
    assert found is not None
    validate(found)
    return found


def changed(plan: LaunchPlan, channel: int, **fields: object) -> LaunchPlan:
    channels = list(plan.channels)
    channels[channel] = dataclasses.replace(channels[channel], **fields)
    return dataclasses.replace(plan, channels=tuple(channels))


def test_a_simulator_without_an_agent_asks_somebody(plan: LaunchPlan) -> None:
    with pytest.raises(PlanError, match="GMIs 0, 1 simulate alone, and channels come from 0"):
        validate(dataclasses.replace(plan, channels=plan.channels[:1]))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"consumer": 1}, "GMI 1 does not run the agent alone"),
        ({"producers": (2,)}, "GMI 2 does not run the simulator alone"),
        ({"num_env": 64}, "is not for the environments of GMI 1"),
        ({"groups": (("sim.obs", "actor.action"),)}, "has not one group there and one back"),
        ({"carries": "rollout"}, "serve serves, and makes no rollouts"),
    ],
)
def test_channels_join_a_simulator_with_its_agent(plan: LaunchPlan, fields: dict, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        validate(changed(plan, 1, **fields))


def test_an_agent_acts_for_all_environments_of_who_asks(plan: LaunchPlan) -> None:
    first = dataclasses.replace(plan.gmis[2], num_env=128)
    second = dataclasses.replace(plan.gmis[2], id=3, program="gmi_03.py", num_env=128, env_offset=128)
    wrong = dataclasses.replace(plan, gmis=(*plan.gmis[:2], first, second))
    with pytest.raises(PlanError, match=r"GMI 2 does not act for all environments of channel 'serve\.step\.1'"):
        validate(wrong)
    validate(changed(wrong, 1, consumer=3))
