"""Lint rules: each with a file that triggers it and one that does not; allow comments; fixes."""

import re
from pathlib import Path

import pytest

from gmiflow.codes import TITLES
from gmiflow.commands.lint import mended
from gmiflow.hardware import GPU, Hardware
from gmiflow.passes.check import check
from gmiflow.passes.lint import lint
from gmiflow.syntax.comments import places

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("stdlib/**/*.gmi"), *ROOT.glob("examples/**/*.gmi")])

PROGRAM = """\
edition 1

import std.tasks.cartpole
import std.algo.ppo
import std.targets
{head}
simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner(minibatches = 2)

workflow train {{
  mode    = sync
  num_env = {num_env}
  horizon = {horizon}

  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{{reward, terminated, truncated}} -> learner
  learner.weights                     -> actor.weights
}}

target here {{
  base = targets.{target}
}}
{tail}"""


def program(head="", tail="", num_env="1024", horizon="16", target="cpu") -> str:
    return PROGRAM.format(head=head, tail=tail, num_env=num_env, horizon=horizon, target=target)


def found(text: str) -> list[tuple[str, str]]:
    """Code and marked text of every diagnostic."""
    return [(d.code, d.span.text) for d in lint("test.gmi", text=text)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_files_of_the_project_have_no_warnings(path):
    assert lint(str(path)) == ()


def test_a_clean_program_has_none():
    assert found(program()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"head": "import std.tasks.ant"}, [("W0201", "std.tasks.ant")]),
        ({"head": "import std.algo.ppo as again"}, [("W0201", "std.algo.ppo"), ("W0202", "std.algo.ppo")]),
        ({"head": "param spare : int = 1"}, [("W0203", "spare")]),
        ({"head": "simulator second = cartpole.CartPole()"}, [("W0204", "second")]),
        ({"head": "record R { a : f32[env] }"}, [("W0205", "R")]),
        ({"head": 'simulator S { entry = py "gmiflow.tasks.cartpole:CartPole" }'}, [("W0205", "S")]),
        ({"head": 'param min : int = 1\nrequire min > 0 else ""'}, [("W0206", "min")]),
        ({"tail": "target t(sim : int = 1) { devices = sim }"}, [("W0206", "sim")]),
        ({"tail": "target t(spare : int = 1) { devices = 1 }"}, [("W0203", "spare")]),
        ({"num_env": "1040", "target": "h200"}, [("W0503", "1040")]),
        ({"num_env": "1040", "target": "cpu"}, []),
        ({"num_env": "64", "horizon": "16", "target": "h200"}, [("W0506", "64")]),
        ({"num_env": "auto", "target": "h200"}, []),
        ({"horizon": "1"}, [("W0504", "1")]),
        ({"num_env": "16", "horizon": "16"}, [("W0505", "learner")]),
        ({"num_env": "32", "horizon": "16"}, []),  # 32 x 16 / 2 = 256 samples
    ],
)
def test_rule(changes, expected):
    assert found(program(**changes)) == expected


def test_a_library_may_declare_what_it_does_not_use():
    text = "edition 1\nparam spare : int = 1\nrecord R { a : f32[env] }\n"
    assert found(text) == []


def test_a_name_in_place_is_used():
    text = program().replace("  horizon", "  place { sim = devices(0) }\n  horizon")
    assert found(text) == []


def test_an_error_is_reported_alone():
    assert [code for code, _ in found(program(head="param spare : int = 1\nparam x : nothing = 1"))] == ["E0306"]


def test_every_target_of_the_file_is_looked_at():
    text = program(num_env="1040", tail="target gpu { base = targets.h200 }")
    assert found(text) == [("W0503", "1040")]


class TestAllow:
    def test_on_the_line(self):
        assert found(program(head="param spare : int = 1 // gmi: allow(W0203) for later")) == []

    def test_on_the_line_before_also_above_documentation(self):
        assert found(program(head="// gmi: allow(W0203) for later\n\n/// Spare.\nparam spare : int = 1")) == []

    def test_two_codes(self):
        head = "// gmi: allow(W0203, W0206) for later\nparam min : int = 1"
        assert found(program(head=head)) == []

    def test_not_two_lines_below(self):
        head = "// gmi: allow(W0203) for later\nparam a : int = 1\nparam b : int = 1"
        assert found(program(head=head)) == [("W0203", "b")]

    def test_without_reason(self):
        comment = "// gmi: allow(W0203)"
        head = f"{comment}\nparam spare : int = 1"
        assert found(program(head=head)) == [("W0101", comment), ("W0203", "spare")]

    def test_that_allows_nothing(self):
        comment = "// gmi: allow(W0504) on purpose"
        assert found(program(tail=comment)) == [("W0102", comment)]

    @pytest.mark.parametrize(
        "comment", ["// gmi: allow W0203", "// gmi: allow(E0201) no", "// gmi: allow(W9999) no", "// gmi: ignore"]
    )
    def test_that_cannot_be_read(self, comment):
        assert found(program(tail=comment)) == [("W0103", comment)]

    def test_holds_for_warnings_of_the_checker_too(self):
        """`check` is silent about an allowed warning, and `lint` knows that the comment is of use."""
        twice = (
            "import std.tasks.ant\nimport std.tasks.ant as again{}\nsimulator a = ant.Ant()\nsimulator b = again.Ant()"
        )
        allowed = twice.format("  // gmi: allow(W0202) compared side by side")
        for head, expected in ((twice.format(""), ["W0202"]), (allowed, [])):
            result = check("test.gmi", text=program(head=head))
            assert [d.code for d in result.diagnostics] == expected
            assert [d.code for d in result.allowed] == ([] if expected else ["W0202"])
            assert [code for code, _ in found(program(head=head)) if code != "W0204"] == expected

    def test_in_a_string_is_text(self):
        head = 'require 1 > 0 else "// gmi: allow(W0203) x"'
        assert found(program(head=head)) == []


def test_fixes_are_applied_until_nothing_is_left(tmp_path):
    path = tmp_path / "test.gmi"
    head = (
        "// kept\n/// Size.\nparam size : int = 8\nimport std.tasks.ant\nsimulator spare = ant.Ant()\n"
        "// gmi: allow(W0203) nothing\n"
    )
    path.write_text(program(head=head, num_env="1040", target="h200"))
    assert mended(str(path)) == program(head="// kept\n", num_env="1024", target="h200")


def test_places_of_comments_are_found_outside_strings_and_documentation():
    text = 'edition 1 // a\n/// doc // no\n//// b\nrequire x else "// no" // c\n  // d'
    assert [text[start:end] for start, end in places(text)] == ["// a", "//// b", "// c", "// d"]


def test_a_file_without_target_is_judged_by_this_machine():
    text = program(num_env="1040").partition("target here")[0].replace("import std.targets\n", "")
    gpu = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=2**37, mig=False)
    assert lint("test.gmi", text=text) == ()
    assert [d.code for d in lint("test.gmi", text=text, hardware=Hardware(cores=8, gpus=(gpu,)))] == ["W0503"]


PAGES = sorted((ROOT / "docs" / "errors").glob("W*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_examples_of_the_warning_pages(page):
    text = page.read_text()
    assert text.startswith(f"# {page.stem}: {TITLES[page.stem]}\n")
    wrong, right = re.findall(r"```gmi\n(.*?)```", text, re.DOTALL)
    assert page.stem in {code for code, _ in found(wrong)}
    assert found(right) == []


def test_every_warning_has_a_page():
    assert [page.stem for page in PAGES] == sorted(code for code in TITLES if code.startswith("W"))
