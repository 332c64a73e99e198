"""Generated programs: equal bytes for equal inputs, readable, and clean to the house's own tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from gmiflow.codegen.literals import WIDTH, assign, literal
from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan, PlanError

ROOT = Path(__file__).parents[2]
FOUR = Options(overrides=(("target.gmi_per_gpu", "4"),), target="cpu")


def gmiflow(*arguments, cwd=ROOT):
    return subprocess.run([sys.executable, "-m", "gmiflow.cli", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")]
    for folder in folders:
        done = gmiflow("compile", "examples/ant.gmi", "--target", "cpu", "-o", str(folder), "--gmi-per-gpu", "4")
        assert done.returncode == 0, done.stderr
    return folders


def test_two_compilations_give_equal_bytes(compiled):
    names = sorted(p.name for p in compiled[0].iterdir())
    assert names == ["gmi_00.py", "gmi_01.py", "gmi_02.py", "gmi_03.py", "plan.json"]
    for name in names:
        assert (compiled[0] / name).read_bytes() == (compiled[1] / name).read_bytes()


def test_programs_are_short_and_say_what_the_gmi_does(compiled):
    text = (compiled[0] / "gmi_02.py").read_text()
    assert text.count("\n") < 80
    assert "environments 2048 to 3071 of 4096" in " ".join(text.split())
    assert "Reduces gradients with GMIs 0, 1 and 3 (ip)." in " ".join(text.split())


def test_programs_pass_the_linters_and_the_type_checker(compiled):
    folder, config = str(compiled[0]), str(ROOT / "pyproject.toml")
    for tool in (
        ["ruff", "check", "--config", config, folder],
        ["ruff", "format", "--check", "--config", config, folder],
        ["pyright", "--pythonpath", sys.executable, *map(str, sorted(compiled[0].glob("*.py")))],
    ):
        done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_smaller_plan_leaves_no_stale_program(compiled):
    folder = compiled[1]
    gmiflow("compile", "examples/ant.gmi", "--target", "cpu", "-o", str(folder), "--gmi-per-gpu", "2")
    assert sorted(p.name for p in folder.glob("*.py")) == ["gmi_00.py", "gmi_01.py"]


def test_programs_rebuild_the_plan():
    """What a program says about its GMI and training is what the plan says."""
    compilation = compile_file(str(ROOT / "examples/ant.gmi"), FOUR, hardware=Hardware(cores=4, gpus=()))
    assert compilation.plan and compilation.programs
    for gmi in compilation.plan.gmis:
        scope: dict[str, object] = {"__name__": "program"}
        exec(compile(compilation.programs[gmi.program], gmi.program, "exec"), scope)
        assert scope["THIS"] == gmi
        assert scope["TRAINING"] == compilation.plan.training(gmi.training)
        assert scope["COLLECTIVES"] == compilation.plan.collectives


def test_plan_round_trips_and_wrong_plans_are_named():
    plan = compile_file(str(ROOT / "examples/ant.gmi"), FOUR, hardware=Hardware(cores=4, gpus=())).plan
    assert plan is not None
    text = plan.to_json()
    assert LaunchPlan.from_json(text) == plan
    for old, new, message in (
        ('"num_env": 4096', '"num_env": "many"', "plan.trainings[0].num_env: expected int, got str"),
        ('"execution": "eager"', '"execution": "warp"', "plan.trainings[0].execution: 'warp' is not one of"),
        ('"version": 1', '"version": 99', "plan version 99 is not supported"),
        ('"generator"', '"author"', "plan.author: unknown field"),
        ("{", "[", "not a plan"),
    ):
        with pytest.raises(PlanError, match="^" + message.replace("[", r"\[").replace("]", r"\]")):
            LaunchPlan.from_json(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True], "b": {"c": ["x" * 70, "y" * 70]}},
        ("one",),
        (),
        ["quote ' and \"", "new\nline", "üñí"],
        {f"name_{i}": float(i) for i in range(40)},
        1e300,
    ],
)
def test_literals_evaluate_to_their_value_and_stay_narrow(value):
    text = assign("VALUE", literal(value))
    scope: dict[str, object] = {}
    exec(text, scope)
    assert scope["VALUE"] == value
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_host_finds_the_constants_of_a_program(compiled):
    """GMIs that share a process are started from their own programs."""
    from gmiflow.runtime.host import load_program

    plan = LaunchPlan.from_json((compiled[0] / "plan.json").read_text())
    program = load_program(compiled[0] / "gmi_02.py")
    assert program.gmi == plan.gmis[2]
    assert program.training == plan.trainings[0]
    assert program.collectives == plan.collectives
    assert program.gmis == 4


def test_a_host_refuses_other_files(tmp_path):
    from gmiflow.runtime.host import load_program

    other = tmp_path / "other.py"
    other.write_text("PROGRAM = 1\n")
    with pytest.raises(ValueError, match="is not a program that gmiflow wrote"):
        load_program(other)
    with pytest.raises(ValueError, match="cannot read"):
        load_program(tmp_path / "missing.py")
