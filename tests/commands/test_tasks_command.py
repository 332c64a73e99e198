"""`gmiflow tasks` as a user meets it."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gmiflow import resources
from gmiflow.commands.tasks import command
from gmiflow.tasks.catalog import TASKS


def call(*arguments):
    return CliRunner().invoke(command, arguments)


def test_the_list_has_a_line_for_every_task():
    heading, *lines = call("list").stdout.splitlines()
    assert heading.split() == ["task", "obs", "act", "steps", "envs", "what", "it", "is"]
    assert [line.split()[:5] for line in lines] == [
        ["cartpole", "4", "1", "500", "256"],
        ["cartpole_swing_up", "5", "1", "500", "256"],
        ["ant", "60", "8", "1000", "4096"],
        ["humanoid", "108", "21", "1000", "4096"],
        ["ball_balance", "24", "3", "500", "4096"],
        ["anymal", "48", "12", "2500", "4096"],
        ["franka_cabinet", "23", "9", "500", "4096"],
        ["shadow_hand", "211", "20", "600", "16384"],
    ]


def test_the_command_alone_lists_them():
    assert call().stdout == call("list").stdout


def test_a_task_is_shown_whole():
    shown = call("show", "ball_balance").stdout
    assert shown.startswith("ball_balance: A tray on three legs")
    for line in (
        "  declared as   std.tasks.ball_balance: BallBalance",
        "  engines       mujoco (CPU), mjwarp (GPU)",
        "  control step  10 ms = 2 physics steps of 5 ms",
        "  episode       500 control steps = 5 s",
        "  12..23  tray force at leg 0, torques at legs 0, 1, 2, / 20",
        "  rest at the goal  1 / (1 + |ball - (0, 0, 0.7)|) x 1 / (1 + |ball velocity|)",
        "  ball 0.001..0.5 m from the axis in a uniform direction, 1..2 m high, both uniform",
        "  the ball is below 0.15 m",
    ):
        assert line in shown.splitlines()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_can_be_shown(name):
    for section in ("Observation", "Reward of one step, a sum", "Start of an episode", "Terminated when"):
        assert f"\n{section}\n  " in call("show", name).stdout


def test_json():
    listed = json.loads(call("list", "--format", "json").stdout)
    assert [task["name"] for task in listed] == list(TASKS)
    shown = json.loads(call("show", "ant", "--format", "json").stdout)
    assert shown == listed[2]
    assert (shown["observation_size"], shown["action_size"], shown["episode_length"]) == (60, 8, 1000)
    assert sum(part["size"] for part in shown["observation"]) == 60
    assert shown["reward"][4] == {"name": "actions", "formula": "-0.005 sum a^2"}
    assert shown["engines"] == ["mujoco", "mjwarp"]


@pytest.mark.parametrize("info", TASKS.values(), ids=TASKS.keys())
def test_the_standard_library_declares_the_task_where_it_is_said_to(info):
    path = resources.stdlib_path() / "tasks" / f"{info.module.removeprefix('std.tasks.')}.gmi"
    text = path.read_text()
    declaration = text[text.index(f"simulator {info.stage}(") :].split("\n}")[0]
    assert f'entry = py "{info.entry}"' in declaration
    assert f"f32[env, {info.observation_size}]" in declaration
    assert f"f32[env, {info.action_size}]" in declaration
    assert f"enum(auto, {', '.join(info.engines)}) = auto" in declaration


@pytest.mark.parametrize(
    ("name", "hint"), [("ants", "did you mean ant?"), ("kuka", "there are cartpole, cartpole_swing_up, ant")]
)
def test_an_unknown_task_is_wrong_usage(name, hint):
    done = call("show", name)
    assert done.exit_code == 2
    assert hint in done.stderr


def test_neither_torch_nor_a_simulator_is_imported():
    code = (
        "import sys\nfrom gmiflow.cli import main\nmain(['tasks', 'show', 'ant'], standalone_mode=False)\n"
        "print({'torch', 'mujoco', 'numpy'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout.splitlines()[-1] == "set()"
