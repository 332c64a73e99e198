"""The line that says how a training is cut and what crosses between its GMIs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
from gmiflow.codegen.render import render
from gmiflow.commands.plan_view import headline
from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "overrides", "size", "crossing"),
    [
        ("quickstart", {}, "num_env 256 = 128 on each of 2 GMIs", "gradients reduced by ip"),
        ("quickstart", {"target.gmi_per_gpu": 1}, "num_env 256 on 1 GMI", "no collective"),
        ("cartpole_async", {}, "num_env 256 on 1 GMI that collects, 1 that trains", "rollouts cross by host"),
        (
            "cartpole_a3c", {}, "num_env 128 = 64 on each of 2 GMIs that collect, 2 that train",
            "rollouts cross by host, gradients applied one by one",
        ),
        (
            "cartpole_async", {"target.trainers": 2}, "num_env 256 on 1 GMI that collects, 2 that train",
            "rollouts cross by host, gradients reduced by ip",
        ),
        (
            "ant_serve", {}, "num_env 256 = 128 on each of 2 GMIs that simulate, 1 for the actions",
            "steps cross by host",
        ),
        (
            "quickstart", {"target.mapping": "e_at", "target.gmi_per_gpu": 4},
            "num_env 256 = 128 on each of 2 GMIs that simulate, 2 that act and train",
            "steps cross by host, gradients reduced by ip",
        ),
        (
            "quickstart", {"target.mapping": "dp_mp", "target.gmi_per_gpu": 3},
            "num_env 256 on 1 GMI that simulates, 1 that acts, 1 that trains",
            "steps cross by host, rollouts cross by host",
        ),
    ],
)  # fmt: skip
def test_the_cut_and_what_crosses(example, overrides, size, crossing):
    options = Options(overrides=tuple((name, str(value)) for name, value in overrides.items()))
    machine = Hardware(cores=2, gpus=())
    plan = compile_file(str(EXAMPLES / f"{example}.gmi"), options, hardware=machine, stop_after="plan").plan
    line = headline(plan)[1]
    assert line.partition(", horizon")[0].partition(": ")[2] == size
    assert line.endswith(f"execution eager, {crossing}")


def test_a_program_says_for_whom_it_works():
    options = Options(overrides=(("target.mapping", "dp_mp"), ("target.gmi_per_gpu", "3")))
    file = str(EXAMPLES / "quickstart.gmi")
    plan = compile_file(file, options, hardware=Hardware(cores=2, gpus=()), stop_after="plan").plan
    simulates, acts, trains = (" ".join(text.split()) for text in render(plan).values())
    assert "Makes the steps of GMI 1." in simulates and "rollouts" not in simulates
    assert "Acts for GMI 0. Hands its rollouts to GMI 2." in acts
    assert "Trains on the rollouts of GMI 1." in trains and "GMI 0." not in trains


def test_a_prediction_says_of_how_many_trainings_it_is_one():
    shown = CliRunner().invoke(main, ["plan", str(EXAMPLES / "quickstart.gmi"), "--set", "train.replicas=3"])
    assert "\npredicted for each of 3 trainings\n" in shown.stdout
