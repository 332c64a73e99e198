"""docs/guides/sizing.md shows what the commands print for its own file and the example profile (`--bless` to renew)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
from gmiflow.hardware import detect
from gmiflow.pipeline import compile_file
from gmiflow.profiles.workload import WorkloadProfile
from gmiflow.profiles.workload_key import key_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "sizing.md"
PICTURE = ROOT / "docs" / "images" / "search_surface.svg"
SHOWN = re.compile(r"```sh\n(gmiflow (?:plan|explain)[^\n]*)\n```\n\n```text\n(.*?)```", re.DOTALL)
CHANGED = re.compile(r"```text\n(changed since the last plan:.*?)```", re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Where the guide's file is train.gmi, with the example profile beside it as if it had been measured here."""
    place = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("GMIFLOW_PROFILES", str(place / "profiles"))
        block = re.search(r"```gmi\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
        (place / "train.gmi").write_text(block, encoding="utf-8")
        workflow = compile_file("train.gmi", stop_after="check").workflow
        recorded = (ROOT / "tests" / "commands" / "ant_h200.profile.json").read_text()
        profile = replace(WorkloadProfile.from_json(recorded), source="train.gmi train", key=key_of(workflow, detect()))
        (place / "train.h200.profile.json").write_text(profile.to_json())
        yield place


def output(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def renewed(text):
    """The page with what the commands print now."""

    def printed(found):
        return found[0].replace(found[2], output(*found[1].split()[1:]))

    text = SHOWN.sub(printed, text)
    output("plan", "train.gmi", "--num-env", 4096, "--gmi-per-gpu", 1, "--save")
    after = output("plan", "train.gmi", "--num-env", 8192, "--gmi-per-gpu", 2)
    return CHANGED.sub(lambda found: found[0].replace(found[1], after[after.index("changed since") :]), text)


def test_outputs_are_those_of_the_commands(request):
    text = PAGE.read_text(encoding="utf-8")
    assert len(SHOWN.findall(text)) == 2
    assert CHANGED.search(text)
    made = renewed(text)
    if request.config.getoption("--bless"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made, "run this test with --bless"


def test_the_picture_is_that_of_the_command(request, folder):
    output("plan", "train.gmi", "--surface", folder / "search.svg")
    made = (folder / "search.svg").read_text(encoding="utf-8")
    if request.config.getoption("--bless"):
        PICTURE.write_text(made, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == made, "run this test with --bless"
