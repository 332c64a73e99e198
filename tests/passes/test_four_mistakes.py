"""Four independent mistakes in one file give exactly four diagnostics, in order, at the right places."""

import random

import pytest

from gmiflow.passes.check import check

HEAD = ["edition 1", "", "import std.tasks.cartpole", "import std.algo.ppo"]
TAIL = """
simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner()

workflow train {
  mode    = sync
  num_env = 64
  horizon = 8

  sim.obs          -> actor.obs
  actor.action     -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap  -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights  -> actor.weights
}
""".splitlines()

MISTAKES = [
    ("param a0 : int = 1;", "E0115", ";"),
    ("param a1 int = 2", "E0101", "int"),
    ("param a2 : int = max(1, 2", "E0103", "("),
    ('param a3 : string = "open', "E0104", '"open'),
    ("param a4 : int = 1_000", "E0117", "1_000"),
    ("param range : int = 1", "E0113", "range"),
    ("simulater a5 = cartpole.CartPole()", "E0101", "simulater"),
    ("param a6 : int = missing6 + 1", "E0201", "missing6"),
    ("param actor : int = 1", "E0202", None),
    ("import std.tasks.nothing7", "E0203", "std.tasks.nothing7"),
    ("simulator a8 = cartpole.Nothing8()", "E0206", "Nothing8"),
    ("agent a9 = cartpole.CartPole()", "E0207", "cartpole.CartPole"),
    ("trainer a10 = ppo.Learner(nothing10 = 1)", "E0210", "nothing10"),
    ('param a11 : int = "text"', "E0301", '"text"'),
    ("param a12 : bytes = 4 GB", "E0305", "GB"),
    ("param a13 : float = 1 + true", "E0307", "1 + true"),
    ("param a14 : int = 3 where a14 > 3", "E0401", "3"),
    ('require 1 > 2 else "no"', "E0402", "1 > 2"),
    ("param a15 : float = 1 / 0", "E0412", "0"),
    ("param a16 : int = a16 + 1", "E0413", "a16"),
    ("target a17 { devices = 0 }", "E0408", "0"),
    ("target a18 { backend = mpss }", "E0301", "mpss"),
    ("record A19 { x : f32[60, env] }", "E0306", "f32[60, env]"),
    ('simulator A20 { entry = py "gmiflow.nothing20:A" }', "E0212", 'py "gmiflow.nothing20:A"'),
]
"""A line, the code that it gives, and the text that is marked; None where another line is."""


def test_the_file_without_mistakes():
    assert check("file.gmi", text="\n".join(HEAD + TAIL)).diagnostics == ()


@pytest.mark.parametrize("seed", range(60))
def test_four_mistakes(seed):
    draw = random.Random(seed)
    chosen = draw.sample([m for m in MISTAKES if m[2] is not None], 4)
    lines = list(HEAD)
    expected = []
    for line, code, marked in chosen:
        lines += [""] * draw.randint(0, 2)
        lines.append(line)
        expected.append((code, len(lines), marked))
    targets = sum(line.startswith("target a1") for line, _, _ in chosen)
    found = check("file.gmi", text="\n".join(lines + TAIL), target="cpu" if targets else None).diagnostics
    assert [(d.code, d.span.line, d.span.text) for d in found] == expected


@pytest.mark.parametrize(("line", "code", "marked"), MISTAKES)
def test_one_mistake_gives_one_diagnostic(line, code, marked):
    result = check("file.gmi", text="\n".join([*HEAD, line, *TAIL]), target="cpu")
    [found] = result.diagnostics
    assert found.code == code
    if marked is not None:
        assert (found.span.line, found.span.text) == (len(HEAD) + 1, marked)
    assert result.workflow is None
