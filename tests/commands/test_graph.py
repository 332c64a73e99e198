"""`gmiflow graph`: every stage and edge is in every format, and the SVG says where things are."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.commands.graph import DRAWERS, command
from gmiflow.graphs.colors import DARK, LIGHT
from gmiflow.graphs.diagram import diagram
from gmiflow.pipeline import Options, compile_file

ROOT = Path(__file__).parents[2]
ANT = str(ROOT / "examples" / "ant.gmi")
QUICKSTART = str(ROOT / "examples" / "quickstart.gmi")
SVG = "{http://www.w3.org/2000/svg}"

TWO = """\
edition 1

import std.tasks.cartpole
import std.algo.ppo

simulator a       = cartpole.CartPole()
agent     a_actor = ppo.Actor()
simulator b       = cartpole.CartPoleSwingUp()
agent     b_actor = ppo.Actor()

workflow play {
  mode    = serve
  num_env = 32
  a.obs          -> a_actor.obs
  a_actor.action -> a.action
  b.obs          -> b_actor.obs
  b_actor.action -> b.action
}
"""


def call(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def content(workflow="train_async"):
    compiled = compile_file(ANT, Options(workflow=workflow), stop_after="check")
    return diagram(compiled.workflow)


def test_content_is_that_of_the_file():
    [training] = content().trainings
    assert [(node.name, node.role) for node in training.nodes] == [
        ("sim", "simulator"),
        ("actor", "agent"),
        ("learner", "trainer"),
    ]
    links = {(link.source, link.source_port, link.target): (link.label, link.notes) for link in training.links}
    assert len(links) == 8
    assert links["sim", "obs", "actor"] == ("f32[env, 60]", ())
    assert links["actor", "experience", "learner"] == ("Experience", ("16 steps", "depth 2"))
    assert links["learner", "weights", "actor"] == ("weights", ())
    assert dict(training.records)["Experience"][1] == ("action", "f32[env, 8]")


@pytest.mark.parametrize("form", DRAWERS)
def test_a_stage_that_is_placed_says_where(form, tmp_path):
    file = tmp_path / "two.gmi"
    file.write_text(TWO.replace("num_env = 32", "num_env = 32\n  place { b = devices(0) }"))
    done = CliRunner().invoke(command, [str(file), "--format", form])
    assert done.exit_code == 0, done.output
    assert "simulator cartpole.CartPoleSwingUp, device 0" in done.stdout
    assert "simulator cartpole.CartPole," not in done.stdout


@pytest.mark.parametrize("form", DRAWERS)
def test_output_is_the_same_every_time(form):
    first, second = (call(QUICKSTART, "--format", form) for _ in range(2))
    assert first.exit_code == 0
    assert first.stdout == second.stdout


def test_mermaid_has_one_arrow_per_edge():
    text = call(QUICKSTART).stdout
    assert text.startswith("flowchart LR\n")
    assert text.count("-->") == 8
    assert 'stage_0_sim -->|"obs: f32[env, 4]"| stage_0_actor' in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_accepts_the_dot_text():
    text = call(QUICKSTART, "--format", "dot").stdout
    done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert sum(line.startswith("node ") for line in lines) == 3
    assert sum(line.startswith("edge ") for line in lines) == 8


class TestSvg:
    @pytest.fixture
    def root(self):
        return ElementTree.fromstring(DRAWERS["svg"](content()))

    def boxes(self, root):
        found = (e for e in root.iter(f"{SVG}rect") if "frame" in e.get("class", ""))
        return {e.get("class").split()[0]: [float(e.get(k)) for k in ("x", "y", "width", "height")] for e in found}

    def lines(self, root):
        """(start x, y, end x) of every edge."""
        paths = (e.get("d") for e in root.iter(f"{SVG}path") if "line" in e.get("class", "").split())
        return [tuple(map(float, re.fullmatch(r"M(\S+) (\S+) H(\S+)", d).groups())) for d in paths]

    def test_stages_stand_side_by_side_without_overlap(self, root):
        boxes = self.boxes(root)
        assert list(boxes) == ["simulator", "agent", "trainer"]
        for left, right in (("simulator", "agent"), ("agent", "trainer")):
            assert boxes[left][0] + boxes[left][2] < boxes[right][0]

    def test_no_line_crosses_a_stage_or_lies_on_another(self, root):
        lines = self.lines(root)
        assert len(lines) == 8
        for start, y, end in lines:
            for x, top, width, height in self.boxes(root).values():
                inside = max(start, end) > x and min(start, end) < x + width
                assert not (inside and top < y < top + height)
        for index, (a_start, a_y, a_end) in enumerate(lines):
            for b_start, b_y, b_end in lines[index + 1 :]:
                apart = max(a_start, a_end) < min(b_start, b_end) or max(b_start, b_end) < min(a_start, a_end)
                assert apart or abs(a_y - b_y) >= 30

    def test_everything_is_on_the_paper(self, root):
        width, height = float(root.get("width")), float(root.get("height"))
        for x, y, box_width, box_height in self.boxes(root).values():
            assert 0 < x < x + box_width < width
            assert 0 < y < y + box_height < height

    def test_it_names_shapes_and_follows_the_theme(self, root):
        texts = {element.text for element in root.iter(f"{SVG}text")}
        assert {"sim", "actor", "learner", "f32[env, 60]", "f32[env, 8]", "terminated"} <= texts
        assert "prefers-color-scheme:dark" in next(root.iter(f"{SVG}style")).text


def luminance(color: str) -> float:
    """Relative luminance, WCAG 2.1."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_have_a_contrast_of_4_5_on_every_background(palette):
    papers = [palette.paper, *(c for colors in palette.roles.values() for c in (colors.fill, colors.band))]
    for text in (palette.text, palette.faint):
        for paper in papers:
            bright, dark = sorted((luminance(text), luminance(paper)), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (text, paper)


def test_independent_trainings_are_all_drawn_and_unused_ports_named(tmp_path):
    file = tmp_path / "two.gmi"
    file.write_text(TWO)
    picture = call(file, "--format", "svg").stdout
    for name in ("a_actor", "b_actor", "terminated unused"):
        assert f">{name}</text>" in picture
    assert call(file).stdout.count("subgraph") == 2


def test_the_file_ending_chooses_the_format(tmp_path):
    output = tmp_path / "picture.svg"
    done = call(QUICKSTART, "-o", output)
    assert (done.exit_code, done.stdout) == (0, "")
    assert output.read_text().startswith("<svg ")


def test_mistakes_are_reported(tmp_path):
    assert call(ANT, "-w", "nothing").exit_code == 1
    library = tmp_path / "library.gmi"
    library.write_text("edition 1\n")
    assert call(library).exit_code == 2
    assert call(QUICKSTART, "-o", tmp_path / "no" / "folder.svg").exit_code == 2
