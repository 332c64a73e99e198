"""`gmiflow bench channel`: sizes by hand, every way measured, mistakes named."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from gmiflow.commands.bench import command
from gmiflow.commands.bench_channel import TASKS, _task_names, markdown, plan_of, table
from gmiflow.hardware import GPU, Hardware, detect
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.measure import Crossing, measure_channel


def test_every_way_is_measured():
    arguments = [
        "channel",
        "--tasks",
        "cartpole",
        "--device",
        "cpu",
        "--num-env",
        "32",
        "--horizon",
        "4",
        "--rollouts",
        "10",
    ]
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


CPU = Hardware(cores=2, gpus=())
H200 = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)

PORTS = {
    "ball_balance": (24, 3),
    "ant": (60, 8),
    "humanoid": (108, 21),
    "anymal": (48, 12),
    "franka_cabinet": (23, 9),
    "shadow_hand": (211, 20),
}
"""Observations and actions of the paper's six tasks, as in their Isaac Gym versions."""


@pytest.mark.parametrize("task", PORTS)
def test_the_channel_of_a_task_holds_its_whole_experience(task):
    plan = plan_of(task, 64, 8, hardware=CPU)
    channel = plan.channels[0]
    assert (channel.kind, channel.producers, channel.consumer, channel.num_env) == ("host", (0,), 1, 64)
    # Per step and environment: observation, action, mean and deviation of the policy, log-probability, value and reward
    # of 4 bytes, two flags of 1; and once the value after the last step.
    observation, action = PORTS[task]
    expected = 64 * (8 * (4 * (observation + 3 * action + 3) + 2) + 4)
    kinds = Dispenser(plan.trainings[0]).kinds
    assert sum(kind.size_bytes(8, 64) for kind in kinds) == expected
    assert len(kinds) == 10
    assert sorted(name for group in channel.groups for name in group) == sorted(kind.name for kind in kinds)
    # The record and the reward, the flags, and what is taken once cannot share: 3 transfers in place of 10.
    assert len(channel.groups) == 3


def test_on_a_gpu_the_slots_are_in_its_memory():
    plan = plan_of("ant", 64, 8, hardware=Hardware(cores=4, gpus=(H200,)), cuda=True)
    assert plan.target.device == "cuda"
    assert [(channel.kind, channel.producers, channel.consumer) for channel in plan.channels] == [("ipc", (0,), 1)]
    assert {gmi.backend for gmi in plan.gmis} <= {"mps", "timeshare"}


def test_between_two_gpus_the_slots_are_in_the_memory_of_the_second():
    other = dataclasses.replace(H200, index=1, uuid="GPU-1")
    both = Hardware(cores=4, gpus=(H200, other), peer_access=True)
    plan = plan_of("ant", 64, 8, hardware=both, cuda=True, across=True)
    assert [gmi.device for gmi in plan.gmis] == [0, 1]
    assert [(channel.kind, channel.producers, channel.consumer) for channel in plan.channels] == [("p2p", (0,), 1)]
    done = CliRunner().invoke(command, ["channel", "--across", "--device", "cpu"])
    assert done.exit_code == 2
    assert "--across: needs two NVIDIA GPUs" in done.output


def test_through_the_host_a_rollout_is_copied_in_and_out():
    plan = plan_of("cartpole", 32, 4, hardware=CPU)
    (row,) = measure_channel("cartpole", plan, rollouts=10, ways=("host",))
    assert (row.way, row.messages, row.bytes) == ("host", 3, 32 * (4 * (10 * 4 + 2) + 4))
    assert row.lockstep_s > 0


@pytest.mark.gpu
def test_rollouts_cross_between_two_gpus():
    if detect().peer_access is False:
        pytest.skip("needs two GPUs that may write into each other's memory")
    done = CliRunner().invoke(
        command, ["channel", "--across", "--tasks", "ant", "--rollouts", "20", "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["way"] for row in rows] == ["packed", "host", "per_tensor", "socket"]


def test_a_gpu_that_is_not_there_is_not_measured(monkeypatch):
    monkeypatch.setattr("gmiflow.commands.bench_channel.detect", lambda: CPU)
    done = CliRunner().invoke(command, ["channel", "--device", "cuda"])
    assert done.exit_code == 2
    assert "no NVIDIA GPU" in done.output
    done = CliRunner().invoke(command, ["channel", "--across"])
    assert done.exit_code == 2
    assert "two NVIDIA GPUs that may write into each other's memory; this machine has 0" in done.output


def test_the_names_of_task_groups():
    assert _task_names("all") == list(TASKS)
    assert set(_task_names("paper")) == set(PORTS)
    assert _task_names("ant, cartpole") == ["ant", "cartpole"]


@pytest.mark.gpu
def test_every_way_is_measured_on_a_gpu():
    arguments = ["channel", "--device", "cuda", "--tasks", "ant", "--num-env", "64", "--rollouts", "10"]
    done = CliRunner().invoke(command, [*arguments, "--format", "json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(row["way"], row["device"]) for row in rows] == [
        (way, "cuda") for way in ("direct", "packed", "per_tensor", "socket")
    ]
    assert all(row["lockstep_s"] > 0 and row["pipelined_s"] > 0 for row in rows)


def test_the_table_compares_with_one_message_per_tensor():
    common = {"task": "ant", "device": "cpu", "bytes": 1000, "messages": 1, "low_s": 1e-6, "high_s": 1e-6}
    rows = [
        Crossing(way="packed", lockstep_s=2e-6, pipelined_s=1e-6, **common),
        Crossing(way="per_tensor", lockstep_s=8e-6, pipelined_s=3e-6, **common),
    ]
    assert table(rows).splitlines()[1].split()[-3:] == ["1.00", "3.00", "4.00"]
    explained = [line.partition(":")[0] for line in table(rows).splitlines()[-2:]]
    assert explained == ["packed", "per_tensor"]  # what was measured, and nothing else


def test_the_markdown_table_has_a_line_for_each_task():
    common = {"device": "cpu", "bytes": 3 << 20, "messages": 1, "lockstep_s": 1.0, "low_s": 1.0, "high_s": 1.0}
    times = {"direct": 1e-6, "packed": 2e-6, "per_tensor": 5e-6, "socket": 2e-3}
    rows = [
        Crossing(task=task, way=way, pipelined_s=s, **common) for task in ("ant", "anymal") for way, s in times.items()
    ]
    heading, _, *lines = markdown(rows).splitlines()
    assert heading.endswith("| per_tensor / direct | socket / direct | per_tensor / packed | socket / packed |")
    assert lines[0] == "| ant | cpu | 3.00 | 1.0 | 2.0 | 5.0 | 2,000.0 | 5.00x | 2000.00x | 2.50x | 1000.00x |"
    assert [line.split()[1] for line in lines] == ["ant", "anymal"]


def test_an_unknown_task_is_named():
    done = CliRunner().invoke(command, ["channel", "--tasks", "ant,aunt"])
    assert done.exit_code == 2
    assert "there is no task 'aunt'" in done.output
