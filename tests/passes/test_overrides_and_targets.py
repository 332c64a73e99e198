"""What replaces a setting keeps to the `where` of the parameter behind it; messages about a target point at it."""

from pathlib import Path

import pytest

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINE = Hardware(cores=2, gpus=())


def compiled(*overrides, file="quickstart.gmi", **options):
    return compile_file(str(EXAMPLES / file), Options(overrides=overrides, **options), hardware=MACHINE)


@pytest.mark.parametrize("path", ["num_env", "workflow.num_env", "train.num_env"])
def test_a_number_of_environments_keeps_to_the_where_of_its_parameter(path):
    """`param num_env : int = 256 where num_env >= 32`, and the workflow has `num_env = num_env`."""
    (found,) = compiled((path, "16")).diagnostics
    assert (found.code, found.span.text) == ("E0401", "16")
    assert found.message == "`num_env = 16` is outside what is allowed: `num_env >= 32`"
    assert compiled((path, "32")).plan is not None


def test_auto_fits_every_where():
    assert compiled(("workflow.num_env", "auto")).plan is not None


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("target.backend", "mps", "E0503"),
        ("target.gmi_per_gpu", "17", "E0502"),
        ("target.mapping", "mp_dp", "E0501"),
        ("target.devices", "2", "E0408"),
        ("train.execution", "graph", "E0503"),
    ],
)
def test_what_does_not_fit_is_pointed_at_where_it_is_said(setting, value, code):
    (found,) = compiled((setting, value)).diagnostics
    assert (found.code, found.span.source.name, found.span.text) == (code, f"--set {setting}", value)


def test_a_target_of_the_command_line_is_pointed_at_there():
    (found,) = compiled(target="cpu(cores = -1)").diagnostics
    assert (found.code, found.span.source.name, found.span.text) == ("E0401", "--target", "-1")
