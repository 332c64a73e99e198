"""`gmiflow bench channel`: sizes by hand, every way measured, mistakes named."""

import json

from click.testing import CliRunner

from gmiflow.commands.bench import command
from gmiflow.commands.bench_channel import plan_of, table
from gmiflow.runtime.comm.channel.measure import Crossing


def test_every_way_is_measured():
    arguments = ["channel", "--tasks", "cartpole", "--num-env", "32", "--horizon", "4", "--rollouts", "10"]
    done = CliRunner().invoke(command, [*arguments, "--format", "json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(row["way"], row["messages"]) for row in rows] == [
        ("direct", 1),
        ("packed", 3),
        ("per_tensor", 10),
        ("socket", 10),
    ]
    # Per step: obs 4, action, log_prob, mean, std, value and reward as f32, two flags; and once the bootstrap.
    assert {row["bytes"] for row in rows} == {32 * (4 * (10 * 4 + 2) + 4)}
    assert all(row["lockstep_s"] > 0 and row["pipelined_s"] > 0 for row in rows)


def test_the_plan_has_one_channel_for_the_whole_experience():
    plan = plan_of("ant", 64, 8)
    assert [(channel.producers, channel.consumer, channel.num_env) for channel in plan.channels] == [((0,), 1, 64)]


def test_the_table_compares_with_one_message_per_tensor():
    common = {"task": "ant", "bytes": 1000, "messages": 1, "low_s": 1e-6, "high_s": 1e-6}
    rows = [
        Crossing(way="packed", lockstep_s=2e-6, pipelined_s=1e-6, **common),
        Crossing(way="per_tensor", lockstep_s=8e-6, pipelined_s=3e-6, **common),
    ]
    assert table(rows).splitlines()[1].split()[-3:] == ["1.00", "3.00", "4.00"]


def test_an_unknown_task_is_named():
    done = CliRunner().invoke(command, ["channel", "--tasks", "ant,aunt"])
    assert done.exit_code == 2
    assert "there is no task 'aunt'" in done.output
