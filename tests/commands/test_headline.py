"""The line that says how a training is cut and what crosses between its GMIs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
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
    ],
)  # fmt: skip
def test_the_cut_and_what_crosses(example, overrides, size, crossing):
    options = Options(overrides=tuple((name, str(value)) for name, value in overrides.items()))
    machine = Hardware(cores=2, gpus=())
    plan = compile_file(str(EXAMPLES / f"{example}.gmi"), options, hardware=machine, stop_after="plan").plan
    line = headline(plan)[1]
    assert line.partition(", horizon")[0].partition(": ")[2] == size
    assert line.endswith(f"execution eager, {crossing}")


def test_a_prediction_says_of_how_many_trainings_it_is_one():
    shown = CliRunner().invoke(main, ["plan", str(EXAMPLES / "quickstart.gmi"), "--set", "train.replicas=3"])
    assert "\npredicted for each of 3 trainings\n" in shown.stdout
