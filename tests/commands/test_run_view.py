"""What a run shows on a terminal, from eighty columns on."""

import io

import pytest
from rich.console import Console

from gmiflow.commands.run_view import BarView, as_much_as_fits
from gmiflow.pipeline import Options, compile_file
from gmiflow.runtime.events import Iteration

FILE = """edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets
simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner()
workflow train {
  mode = sync, num_env = 64, horizon = 16, iterations = 1000
  sim.obs -> actor.obs
  actor.action -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights -> actor.weights
}
target here { base = targets.cpu }
"""


def iteration():
    return Iteration(
        training="train", iteration=500, env_steps=1024, total_env_steps=512_000, collect_s=0.01, learn_s=0.01,
        communicate_s=0.0, seconds=0.02, episodes=3, mean_return=123.4, episode_length=123.0, metrics={},
        diagnostics={}, stage_s={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        # 1,024 steps in 0.02 s, and 500 more iterations of that.
        (80, "500/1000 51,200 env steps/s  ETA 10 s  return 123.4"),
        (160, "51,200 env steps/s  ETA 10 s  return 123.4  episode length 123  (collect 50% learn 50% communicate 0%)"),
    ],
)
def test_the_bar_stays_whole_and_what_matters_most_stands_beside_it(columns, shown, monkeypatch):
    plan = compile_file("a.gmi", Options(), text=FILE, stop_after="plan").plan
    drawn = io.StringIO()
    console = Console(file=drawn, width=columns, force_terminal=True, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    with BarView(plan) as show:
        show(iteration())
    text = drawn.getvalue()
    assert shown in text and "\N{HORIZONTAL ELLIPSIS}" not in text
    assert ("episode length" in text) == (columns == 160)


def test_parts_are_left_out_from_the_end():
    assert as_much_as_fits(["1234", "56", "7"], 8) == "1234  56"
    assert as_much_as_fits(["1234", "56", "7"], 7) == "1234"
    assert as_much_as_fits(["1234"], 3) == ""
