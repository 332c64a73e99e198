"""`gmiflow plan` and `explain sizing` on a stored profile: expected numbers are worked out from it by hand.

The profile is of Ant on an H200 with round times of an iteration: 8,192 environments take 37.6 ms in one GMI and
40 ms in two, of which 3.1 ms go to communication.
"""

import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
from gmiflow.commands.plan_report import slowest_term
from gmiflow.hardware import detect
from gmiflow.ir.search import Candidate, Estimate, Point
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.workload import WorkloadProfile
from gmiflow.profiles.workload_key import key_of

ROOT = Path(__file__).parents[2]
RECORDED = WorkloadProfile.from_json((Path(__file__).parent / "ant_h200.profile.json").read_text())
RATE = 8192 * 16 / 0.0376
"""Steps per second of 8,192 environments and a horizon of 16 in one GMI."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ant.gmi and the profile beside it, as valid as if it had been measured here."""
    place = tmp_path_factory.mktemp("grounds")
    shutil.copy(ROOT / "examples" / "ant.gmi", place)
    keep(place, key=key_of(workflow(place), detect()))
    return place


def workflow(place):
    compiled = compile_file(str(place / "ant.gmi"), Options(workflow="train", target="h200"), stop_after="check")
    return compiled.workflow


def keep(place, **changed):
    (place / "ant.h200.profile.json").write_text(replace(RECORDED, **changed).to_json())


def call(place, *arguments, command=("plan",), code=0):
    words = [*command, str(place / "ant.gmi"), "-w", "train", "--target", "h200", *map(str, arguments)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def data(place, *arguments, **more):
    return json.loads(call(place, *arguments, "--format", "json", **more))


@pytest.fixture(scope="module")
def given(folder):
    """The plan for 8,192 environments."""
    return data(folder, "--num-env", 8192)


def row(report, gmis, execution="graph", backend=None):
    return next(
        r
        for r in report["rows"]
        if (r["gmis"], r["execution"]) == (gmis, execution) and backend in (None, r["backend"])
    )


class TestPlan:
    def test_not_slicing_is_chosen_and_said(self, given):
        chosen = row(given, 1)
        assert chosen["chosen"]
        assert chosen["unsliced"]
        assert given["plan"]["target"]["gmi_per_gpu"] == 1
        assert chosen["steps_per_s"]["value"] == pytest.approx(RATE, rel=1e-6)
        assert chosen["steps_per_s"]["low"] == pytest.approx(0.98 * RATE, rel=1e-6)
        assert chosen["device_memory_bytes"]["value"] == 1900 << 20
        assert chosen["terms"]["update"]["value"] == pytest.approx(0.0116)

    def test_a_rollout_that_a_graph_hides_is_a_part_of_the_iteration(self, given, folder):
        """26 + 11.6 ms are the 37.6 of the iteration; sizes and slices that nobody measured have the same parts."""
        chosen = row(given, 1)
        assert chosen["iteration_s"]["value"] == pytest.approx(0.0376)
        assert chosen["iteration_s"]["mark"] == "cached"
        assert sum(term["value"] for term in chosen["terms"].values()) == pytest.approx(0.0376)
        assert {name for r in given["rows"] if r["execution"] == "graph" for name in r["terms"]} == {
            "collect", "update", "communicate",
        }  # fmt: skip
        text = call(folder, "--num-env", 8192)
        assert re.search(r"iteration +37\.6 ms .*\n +collect +26\.0 ms +cached\n +update +11\.6 ms +cached\n", text)

    def test_a_split_mapping_is_not_searched_and_what_was_measured_of_it_is_told(self, folder, tmp_path):
        shutil.copy(folder / "ant.gmi", tmp_path)
        point = Point(template="e_at", gmis=2, num_env=8192, execution="graph", backend="mps")
        first = replace(RECORDED.measurements[0], steps_per_s=2e6, steps_per_s_low=1.9e6, steps_per_s_high=2.2e6)
        measurements = (*RECORDED.measurements, replace(first, point=point))
        keep(tmp_path, key=key_of(workflow(tmp_path), detect()), measurements=measurements)
        options = ("--num-env", 8192, "--mapping", "e_at", "--gmi-per-gpu", 2)
        text = call(tmp_path, *options)
        assert f"profile of {RECORDED.source}: {len(measurements)} points measured" in text
        assert "nothing: sizes of `e_at` are not searched" in text
        assert "- this plan was measured: 2,000,000 environment steps/s (1,900,000 to 2,200,000)" in text
        assert "this plan was measured" not in call(tmp_path, *options, "--num-env", 4096)

    def test_two_gmis_are_rejected_with_the_term_that_decided(self, given):
        two = row(given, 2, backend="mps")
        assert two["relative"] == pytest.approx(37.6 / 40)
        assert two["slowest"] == "the update's communication takes 3.10 ms of 40.0 ms (chosen: 0)"
        assert row(given, 1, "eager")["slowest"] == "the rollout takes 46.0 ms of 60.0 ms (chosen: 26.0 ms)"

    def test_every_number_is_marked(self, given):
        for found in given["rows"]:
            measured = (found["gmis"], found["execution"], found["backend"]) in {
                (1, "graph", "timeshare"), (1, "eager", "timeshare"), (2, "graph", "mps"), (4, "graph", "mps"),
            }  # fmt: skip
            assert found["steps_per_s"]["mark"] == ("cached" if measured else "modelled")
            speed = found["steps_per_s"]
            assert speed["low"] <= speed["value"] <= speed["high"]
        assert given["grounds"]["measurements"] == 12
        assert given["grounds"]["date"] == "2026-11-30"

    def test_the_text_says_what_the_json_says(self, folder, given):
        text = call(folder, "--num-env", 8192, "--all")
        assert "12 points measured on NVIDIA H200, 2026-11-30" in text
        lines = [line for line in text.splitlines() if re.match(r"  [* ] +8192 +\d", line)]
        assert len(lines) == len(given["rows"])
        for line, found in zip(lines, given["rows"], strict=True):
            words = line.replace("*", " ").split()
            assert int(words[1]) == found["gmis"]
            assert words[2:4] == [found["execution"], found["backend"]]
            assert words[5] == "M"
            assert float(words[4]) == pytest.approx(found["steps_per_s"]["value"] / 1e6, abs=0.0051)
            assert f"{found['relative']:.2f}x" in words
            assert found["steps_per_s"]["mark"] in words
            assert line.startswith("  *") == found["chosen"]

    def test_the_table_is_the_issue_s_sentence(self, folder):
        lines = call(folder, "--num-env", 8192).splitlines()
        assert any("0.94x  the update's communication takes 3.10 ms of 40.0 ms" in line for line in lines)

    def test_it_is_the_same_every_time(self, folder, tmp_path):
        for form in ("text", "json", "svg"):
            assert call(folder, "--format", form) == call(folder, "--format", form)
        for name in ("a.svg", "b.svg"):
            call(folder, "--set", "num_env=auto", "--surface", tmp_path / name)
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

    def test_a_profile_of_something_else_is_refused_with_the_field(self, folder, tmp_path):
        shutil.copy(folder / "ant.gmi", tmp_path)
        keep(tmp_path, key=replace(key_of(workflow(tmp_path), detect()), torch="1.0"))
        found = data(tmp_path, "--num-env", 8192)
        assert found["grounds"] is None
        assert any("torch 1.0" in note for note in found["notes"])
        assert {r["steps_per_s"]["mark"] for r in found["rows"]} == {"modelled"}


class TestQuestions:
    def test_one_gpu_of_one_is_the_plan_itself(self, folder, given):
        asked = data(folder, "--num-env", 8192, "--what-if", "gpus=1")
        assert {**asked, "what_if": "", "difference": None} == {**given, "difference": None}

    def test_another_gpu_is_modelled_from_this_one(self, folder):
        asked = data(folder, "--num-env", 8192, "--what-if", "target=h100")
        chosen = next(r for r in asked["rows"] if r["chosen"])
        speed, factor = chosen["steps_per_s"], math.sqrt(3350 / 4800)
        assert speed["value"] == pytest.approx(RATE * factor, rel=1e-6)
        assert speed["low"] == pytest.approx(0.98 * RATE * 3350 / 4800 / 1.1, rel=1e-6)
        assert speed["high"] == pytest.approx(1.02 * RATE * 1.1, rel=1e-6)
        assert {r["steps_per_s"]["mark"] for r in asked["rows"]} == {"modelled"}
        assert "bandwidth 0.70x" in asked["grounds"]["basis"]
        assert "bandwidth 0.70x" in call(folder, "--num-env", 8192, "--what-if", "target=h100")

    def test_eight_gpus_take_a_part_of_the_environments_each(self, folder):
        asked = data(folder, "--num-env", 65536, "--what-if", "gpus=8")
        chosen = next(r for r in asked["rows"] if r["chosen"])
        assert chosen["num_env"] == 8192
        assert chosen["steps_per_s"]["value"] > 4 * RATE
        assert chosen["steps_per_s"]["mark"] == "modelled"
        assert asked["plan"]["target"]["devices"] == 8

    def test_the_cpu_cannot_be_modelled_from_a_gpu(self, folder):
        asked = data(folder, "--num-env", 8192, "--what-if", "target=cpu")
        assert asked["grounds"] is None
        assert {r["steps_per_s"]["mark"] for r in asked["rows"]} == {"modelled"}
        assert any("nothing was measured" in note for note in asked["notes"])


class TestSurface:
    @pytest.fixture(scope="class")
    @classmethod
    def root(cls, folder, tmp_path_factory):
        file = tmp_path_factory.mktemp("surface") / "s.svg"
        call(folder, "--set", "num_env=auto", "--surface", file)
        return ElementTree.parse(file).getroot()

    def test_every_measured_point_is_a_cell(self, root):
        groups = [g for g in root.iter() if g.tag.endswith("}g")]
        words = [[t.text for t in g if t.tag.endswith("}text")] for g in groups if g.get("class") == "measured"]
        assert ["3.49 M", "measured"] in words  # 8,192 environments in one GMI
        assert len(words) == 10  # twelve points, of which eager is behind graph, and one ran out of memory
        assert [g for g in groups if g.get("class") == "out_of_memory"]

    def test_files_that_cannot_be_drawn_are_refused(self, folder, tmp_path, monkeypatch):
        assert "must end in .svg or .png" in call(folder, "--surface", "a.pdf", code=2)
        assert "cannot write" in call(folder, "--surface", tmp_path / "no" / "a.svg", code=2)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert "pip install matplotlib" in call(folder, "--surface", tmp_path / "a.png", code=2)


class TestExplain:
    def test_sizing_shows_what_was_measured_and_where_rows_stopped(self, folder):
        text = call(folder, "--set", "num_env=auto", command=("explain", "sizing"))
        assert "algorithm improved: ours" in text
        assert "measured: 11 points" in text
        assert re.search(r"4 GMIs .*mps +65536 +it ran out of memory", text)
        assert "... and" in text
        assert "... and" not in call(folder, "--set", "num_env=auto", "--all", command=("explain", "sizing"))

    def test_json_and_text_agree(self, folder):
        found = data(folder, "--set", "num_env=auto", command=("explain", "sizing"))
        text = call(folder, "--set", "num_env=auto", command=("explain", "sizing"))
        measured = [r for r in found["rows"] if r["steps_per_s"]["mark"] == "cached"]
        assert f"measured: {len(measured)} points" in text
        assert next(r for r in found["rows"] if r["chosen"])["term"] == "throughput"

    def test_mapping_and_communication_as_json(self, folder):
        mapping = data(folder, command=("explain", "mapping"))
        assert mapping["mapping"] == "dp_only"
        assert mapping["roles"]["trainer"]["seconds"] == pytest.approx(0.014)
        assert mapping["roles"]["trainer"]["seconds_mark"] == "cached"
        comm = data(folder, "--gmi-per-gpu", 2, command=("explain", "comm"))
        assert comm["collectives"][0]["name"] == "train.gradient"

    def test_mapping_has_the_terms_of_the_paper(self, folder):
        """The eager point, 8,192 environments, 16 steps: f32[60] + f32[8] + f32, bool, bool are 278 bytes of a step."""
        found = data(folder, command=("explain", "mapping"))
        terms = {line["template"]: line for line in found["templates"]}
        rollout, weights = 16 * 8192 * 278, 456_580
        assert terms["dp_only"]["com_bytes"] == 0
        assert terms["ea_t"]["com_bytes"] == rollout + weights
        assert terms["e_at"]["com_bytes"] == rollout
        assert terms["dp_mp"]["com_bytes"] == rollout + 16 * 8192 * (240 + 32) + weights
        for line in terms.values():
            assert line["seconds"] == pytest.approx(0.060)
            assert line["rate"] == pytest.approx(1 / (line["resource"] * (0.060 + line["com_s"])))
            assert line["relative"] == pytest.approx(line["rate"] / terms["dp_only"]["rate"])
        assert terms["dp_only"]["chosen"]
        assert terms["ea_t"]["term"].startswith("COM: ")
        text = call(folder, command=("explain", "mapping"))
        for line in terms.values():
            assert re.search(rf"{line['template']} .* {line['relative']:.3f}x  modelled", text)


def test_a_rollout_hidden_in_a_graph_is_compared_as_a_whole():
    """Eager tells simulation and policy apart, a graph does not: 30 + 6 ms stand against 26 ms."""

    def candidate(score, **terms):
        def exact(value):
            return Estimate(value=value, low=value, high=value, origin="measured")

        point = Point(template="dp_only", gmis=1, num_env=4096, execution="graph", backend="timeshare")
        return Candidate(
            point=point, steps_per_s=exact(score), device_memory=exact(1.0), host_memory=exact(1.0),
            iteration=exact(sum(terms.values()) / 1e3), terms={name: exact(ms / 1e3) for name, ms in terms.items()},
            score=score,
        )  # fmt: skip

    graph, eager = candidate(2.0, collect=26, update=14), candidate(1.0, simulate=30, infer=6, update=15)
    assert slowest_term(eager, graph) == "the rollout takes 36.0 ms of 51.0 ms (chosen: 26.0 ms)"
    assert (
        slowest_term(candidate(1.0, collect=27, update=20), graph)
        == "the update takes 20.0 ms of 47.0 ms (chosen: 14.0 ms)"
    )
    assert slowest_term(graph, graph) == ""
    assert slowest_term(candidate(1.0, iteration=60), graph) == ""
