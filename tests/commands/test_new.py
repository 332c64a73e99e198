"""`gmiflow new`: the project runs as it is, and nothing is overwritten."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
from gmiflow.commands.new import FILES, class_name, command
from gmiflow.passes.lint import lint
from gmiflow.source import Source
from gmiflow.syntax.formatter import format_source

FILES_OF_DEMO = {".gitignore", "README.md", "air_hockey.gmi", "air_hockey_sim.py"}


def call(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "air_hockey"
    assert call(folder).exit_code == 0
    return folder


def test_files(project):
    assert {path.name for path in project.iterdir()} == FILES_OF_DEMO
    assert len(FILES) == len(FILES_OF_DEMO)
    for path in project.iterdir():
        assert "$" not in path.read_text()
    ast.parse((project / "air_hockey_sim.py").read_text())


def test_the_workflow_is_formatted_and_without_warnings(project):
    file = project / "air_hockey.gmi"
    assert format_source(Source("x", file.read_text())).text == file.read_text()
    assert lint(str(file)) == ()


COMMANDS = ["check", "lint --strict", "fmt --check", "compile", "graph", "doc", "explain sizing", "run --dry-run"]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_takes_it(project, monkeypatch, words):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(main, [*words.split(), "air_hockey.gmi"])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("inside", [True, False], ids=["from inside the folder", "from outside"])
def test_it_runs(project, tmp_path, inside):
    folder = project if inside else tmp_path
    file = "air_hockey.gmi" if inside else "air_hockey/air_hockey.gmi"
    arguments = ["run", file, "--iterations", "2", "--num-env", "64", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *arguments], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report


@pytest.mark.parametrize("name", ["Ant", "1a", "a-b", "a b", "", "größe", "param", "import", "ppo", "x" * 41, "."])
def test_names_that_are_refused(tmp_path, name):
    done = call(tmp_path / name if name not in ("", ".") else name)
    assert done.exit_code == 2
    assert not any(tmp_path.iterdir())


def test_an_existing_folder_must_be_empty(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "is not empty" in call(tmp_path / "full").stderr
    (tmp_path / "file").touch()
    assert "is no folder" in call(tmp_path / "file").stderr
    (tmp_path / "empty").mkdir()
    assert call(tmp_path / "empty").exit_code == 0


def test_class_names():
    assert class_name("air_hockey2") == "AirHockey2"


def test_templates_are_part_of_the_package():
    folder = Path(sys.modules["gmiflow.commands.new"].__file__).parent / "project"
    assert {path.name for path in folder.iterdir()} == set(FILES)
