"""`gmiflow plan`: what would run and why, against the last plan, and what if the machine were another."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
ANT = str(EXAMPLES / "ant.gmi")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GMIFLOW_PROFILES", str(tmp_path / "profiles"))


def call(*arguments, code=0):
    done = CliRunner().invoke(main, ["plan", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def ant(*arguments, code=0):
    return call(ANT, "-w", "train", "--target", "h200", *arguments, code=code)


class TestPlan:
    def test_it_says_what_runs_where(self):
        text = ant().stdout
        assert "workflow train of" in text
        assert "GPU 0: NVIDIA H200, 132 SMs, 140 GiB" in text
        assert "sim, actor, learner" in text
        assert "mappings not taken" in text

    def test_it_is_the_same_every_time(self):
        for form in ("text", "json", "svg"):
            assert ant("--format", form).stdout == ant("--format", form).stdout

    def test_json_holds_the_plan_that_run_takes(self, tmp_path):
        data = json.loads(ant("--format", "json").stdout)
        built = tmp_path / "build"
        arguments = ["compile", ANT, "-w", "train", "--target", "h200", "-o", str(built)]
        assert CliRunner().invoke(main, arguments).exit_code == 0
        assert data["plan"] == json.loads((built / "plan.json").read_text())

    def test_output_goes_to_a_file_by_its_ending(self, tmp_path):
        assert ant("-o", tmp_path / "plan.svg").stdout == ""
        assert ElementTree.parse(tmp_path / "plan.svg").getroot().tag.endswith("svg")
        ant("-o", tmp_path / "plan.json")
        assert json.loads((tmp_path / "plan.json").read_text())["workflow"] == "train"
        assert "no format is known" in ant("-o", tmp_path / "plan.pdf", code=2).stderr
        assert "cannot write" in ant("-o", tmp_path / "nowhere" / "plan.txt", code=2).stderr

    def test_mistakes_in_the_file_end_with_1(self, tmp_path):
        (tmp_path / "a.gmi").write_text("edition 1\nworkflow w {}\n")
        assert "error[" in call(tmp_path / "a.gmi", code=1).stderr
        assert json.loads(call(tmp_path / "a.gmi", "--format", "json", code=1).stdout)


class TestDifference:
    def test_without_a_last_plan_nothing_is_compared(self):
        assert "last plan" not in ant().stdout
        assert "there is no last plan" in ant("--check", code=2).stderr

    def test_the_last_plan_is_the_one_that_was_kept(self):
        assert "kept as the last plan" in ant("--save").stderr
        assert "same plan as the last plan" in ant("--check").stdout
        changed = ant("--num-env", 8192, "--gmi-per-gpu", 2, "--check", code=3).stdout
        assert "changed since the last plan:" in changed
        assert "gmi_per_gpu 1 -> 2, num_env 4096 -> 8192" in changed
        assert "same plan as the last plan" in ant("--check").stdout  # looking does not keep

    def test_looking_changes_nothing(self, tmp_path):
        ant()
        assert not (tmp_path / "profiles").exists()

    @pytest.mark.parametrize("name", ["plan.json", "report.json"])
    def test_another_plan_can_be_named(self, tmp_path, name):
        if name == "plan.json":
            CliRunner().invoke(main, ["compile", ANT, "-w", "train", "--target", "h200", "-o", str(tmp_path)])
        else:
            ant("-o", tmp_path / name)
        file = tmp_path / name
        assert f"same plan as {file}" in ant("--against", file, "--check").stdout
        changed = json.loads(ant("--against", file, "--horizon", 32, "--format", "json", "--check", code=3).stdout)
        assert changed["difference"]["changes"] == [{"name": "horizon", "before": "16", "after": "32"}]

    def test_a_file_that_is_no_plan_is_refused(self, tmp_path):
        (tmp_path / "a.json").write_text("[]")
        assert "not a plan" in ant("--against", tmp_path / "a.json", code=2).stderr
        assert "cannot read" in ant("--against", tmp_path / "b.json", code=2).stderr

    def test_run_keeps_what_it_runs(self, tmp_path):
        quick = [
            str(EXAMPLES / "quickstart.gmi"),
            "--target",
            "cpu",
            "--num-env",
            "32",
            "--set",
            "target.gmi_per_gpu=1",
        ]
        arguments = ["run", *quick, "--iterations", "1", "--run-dir", str(tmp_path / "run")]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        assert "same plan as the last plan" in call(*quick, "--iterations", 1, "--check").stdout
        assert "iterations 1 -> " in call(*quick, "--check", code=3).stdout


class TestQuestions:
    def test_one_gpu_of_one_is_the_plan_itself(self):
        plain, asked = (json.loads(ant(*more, "--format", "json").stdout) for more in ((), ("--what-if", "gpus=1")))
        assert asked["plan"] == plain["plan"]
        assert asked["rows"] == plain["rows"]
        assert asked["difference"]["changes"] == []

    def test_more_gpus_take_the_same_environments(self):
        text = ant("--what-if", "gpus=8").stdout
        assert text.startswith("what if gpus=8\n")
        assert "GPUs 0 to 7, each" in text
        assert "512 env" in text
        assert "devices 1 -> 8" in text

    def test_another_target_keeps_the_number_of_gpus(self):
        data = json.loads(
            call(
                ANT, "-w", "train", "--target", "h200(gpus = 4)", "--what-if", "target=h100", "--format", "json"
            ).stdout
        )
        assert data["target"]["gpu"] == "NVIDIA H100 80GB HBM3"
        assert data["target"]["devices"] == 4

    def test_a_cpu_has_no_number_of_gpus_to_keep(self):
        train = ("-w", "train", "--target", "h200(gpus = 2)", "--what-if", "target=cpu")
        data = json.loads(call(ANT, *train, "--format", "json").stdout)
        assert (data["target"]["device"], data["target"]["devices"]) == ("cpu", 1)
        assert not {"span", "said"} & data["target"].keys()  # places in files are nobody's business
        assert "target `cpu` is the CPU" in call(ANT, *train, "--what-if", "gpus=2", code=2).stderr

    def test_questions_combine(self):
        asked = ("--what-if", "gpus=2", "--what-if", "target=a100", "--what-if", "num_env=6400")
        data = json.loads(ant(*asked, "--format", "json").stdout)
        assert data["what_if"] == "gpus=2, target=a100, num_env=6400"
        assert data["target"]["devices"] == 2
        assert data["plan"]["trainings"][0]["num_env"] == 6400

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ("gpu=8", "did you mean gpus?"),
            ("colour=red", "known are gpus, target, cores, num_env"),
            ("gpus", "expected gpus=VALUE"),
            ("gpus=0", "expected a whole number"),
            ("cores=many", "expected a whole number"),
            ("target=h20", "did you mean `h200`?"),
        ],
    )
    def test_wrong_questions_are_named(self, question, words):
        assert words in ant("--what-if", question, code=2).stderr

    def test_questions_about_gpus_need_some(self):
        done = call(ANT, "-w", "train", "--target", "cpu", "--what-if", "gpus=2", code=2)
        assert "target `cpu` is the CPU" in done.stderr
        call(ANT, "-w", "train", "--target", "cpu", "--what-if", "gpus=2", "--what-if", "target=h200")

    def test_the_same_question_twice_and_keeping_an_answer_are_refused(self):
        assert "given twice" in ant("--what-if", "gpus=2", "--what-if", "gpus=4", code=2).stderr
        assert "--what-if makes none" in ant("--what-if", "gpus=2", "--save", code=2).stderr
