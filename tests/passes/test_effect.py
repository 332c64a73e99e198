"""Numbers of a target that its mapping ignores are pointed out."""

import pytest

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file

TRAINING = """
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights"""


def warned(target, *, mode="sync", place="", overrides=()):
    trains = mode != "serve"
    text = f"""edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets
simulator sim = cartpole.CartPole()
agent actor = ppo.Actor(hidden = [32])
{"trainer learner = ppo.Learner()" if trains else ""}
workflow go {{
  mode = {mode}, num_env = 64, horizon = 16
  {place}
  sim.obs      -> actor.obs
  actor.action -> sim.action{TRAINING if trains else ""}
}}
target box {{ base = targets.h200(gpus = 2), {target} }}
"""
    options = Options(overrides=overrides)
    done = compile_file("a.gmi", options, text=text, hardware=Hardware(cores=8, gpus=()), stop_after="mapping")
    assert [d.message for d in done.diagnostics if d.severity == "error"] == []
    assert {d.code for d in done.diagnostics} <= {"W0507"}
    return [(d.message.split("`")[1], d.span.text, *d.notes) for d in done.diagnostics]


@pytest.mark.parametrize(
    ("target", "mode", "expected"),
    [
        ("agents = 2", "sync", [("agents", "2", "`mapping = ea_t` parts them, or `place`")]),
        ("simulators = 2", "sync", [("simulators", "2", "`mapping = e_at` parts them, or `place`")]),
        ("mapping = ea_t, simulators = 2", "sync", [("simulators", "2", "`mapping = e_at` parts them, or `place`")]),
        ("agent_share = 60 %", "serve", [("agent_share", "60 %", "`mapping = mp_dp` parts them, or `place`")]),
        ("mapping = dp_mp, trainers = 2", "serve", [("trainers", "2", "it has `simulators` and `agents`")]),
        ("mapping = ea_t, agents = 2, trainers = 2, agent_share = 60 %", "sync", []),
        ("mapping = mp_dp, agents = 1, simulators = 2, agent_share = 60 %", "serve", []),
        ("agents = auto, gmi_per_gpu = 2", "sync", []),
    ],
)
def test_a_number_that_the_mapping_ignores_is_pointed_out(target, mode, expected):
    assert warned(target, mode=mode) == expected


def test_stages_that_place_parts_are_counted():
    assert warned("agents = 2", place="place { sim = devices(0), learner = devices(1) }") == []


def test_a_mapping_of_the_command_line_is_a_comparison():
    assert warned("mapping = ea_t, agents = 2", overrides=(("target.mapping", "dp_only"),)) == []
