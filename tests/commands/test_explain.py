"""`gmiflow explain` and `gmiflow completion`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow import cli, resources
from gmiflow.codes import TITLES
from gmiflow.commands import completion
from gmiflow.commands.explain import command

QUICKSTART = str(Path(__file__).parents[2] / "examples" / "quickstart.gmi")


def call(*arguments):
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize("code", TITLES)
def test_every_code_has_an_answer(code):
    done = call(code)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"# {code}: {TITLES[code]}\n")


def test_the_page_is_shown_in_small_letters_too():
    page = resources.error_pages_path() / "W0203.md"
    assert call("w0203").stdout == page.read_text()


@pytest.mark.parametrize(
    ("code", "hint"), [("E0392", "Did you mean E0302"), ("E0999", "mapping, sizing, comm"), ("nonsense", "mapping")]
)
def test_unknown_codes(code, hint):
    done = call(code)
    assert done.exit_code == 2
    assert hint in done.stderr


@pytest.mark.parametrize(
    ("stage", "expected"),
    [("mapping", "mapping dp_only"), ("sizing", "gmi_per_gpu  2 "), ("comm", "among GMIs 0, 1")],
)
def test_decisions(stage, expected):
    done = call(stage, QUICKSTART)
    assert done.exit_code == 0
    assert expected in done.stdout


def test_rejected_mappings_are_given_with_reasons():
    lines = call("mapping", QUICKSTART).stdout.splitlines()
    refused = [
        line.split()[0] for line in lines[lines.index("not taken") + 1 :] if line.startswith("  ") and line[2] != " "
    ]
    assert sorted(refused) == ["dp_mp", "e_at", "ea_t", "mp_dp"]


def test_usage():
    assert call("mapping").exit_code == 2
    assert call("E0302", QUICKSTART).exit_code == 2
    assert call("mapping", "no-such-file.gmi").exit_code == 1


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_scripts_call_gmiflow(shell):
    done = CliRunner().invoke(completion.command, [shell])
    assert done.exit_code == 0
    assert f"_GMIFLOW_COMPLETE={shell}_complete" in done.stdout


def test_completing_a_command_imports_none():
    script = (
        "import sys\nfrom gmiflow.cli import main\n"
        "try:\n    main(prog_name='gmiflow')\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('gmiflow.commands.')))\n"
    )
    environment = {
        **os.environ, "_GMIFLOW_COMPLETE": "bash_complete", "COMP_WORDS": "gmiflow c", "COMP_CWORD": "1"
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    *names, modules = done.stdout.splitlines()
    assert names == [f"plain,{name}" for name in cli.COMMANDS if name.startswith("c")]
    assert modules == "[]"
