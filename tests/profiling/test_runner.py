"""Single points: real programs in processes of their own; whatever becomes of one, the next is measured."""

import dataclasses
import os
from pathlib import Path

import pytest
from small import HANGING, KILLED, MACHINE, MEMORY_ERROR, PACE, RAISING, TOO_LARGE, make_project, point, workflow_of

from gmiflow.hardware import detect
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiling.runner import Runner
from gmiflow.profiling.trial import PACES


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    file = make_project(folder)
    workflow, options = workflow_of(file)
    with Runner(workflow, options, MACHINE, PACE) as running:
        yield running
        place = running._folder
    assert not place.exists()


def children():
    """Processes whose parent is this one, by name of their file of the command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_point_is_measured(runner):
    found = runner.measure(point(64, gmis=2))
    assert found.status == "ok", found.message
    assert 0 < found.steps_per_s_low <= found.steps_per_s <= found.steps_per_s_high
    assert found.iterations >= 1
    # 64 environments times 8 steps an iteration; both are medians, so they differ on a busy machine.
    assert 0.1 < found.iteration_s * found.steps_per_s / 512 < 10
    assert list(found.stage_s) == ["simulate", "infer", "update", "communicate"]
    assert all(seconds > 0 for seconds in found.stage_s.values())
    assert found.host_memory_bytes > 30 << 20
    assert found.device_memory_bytes == 0 and found.sm_occupancy is None
    assert found.startup_s > 0


@pytest.mark.parametrize(
    ("num_env", "status", "words"),
    [
        (MEMORY_ERROR, "out_of_memory", "sim raised MemoryError"),
        (TOO_LARGE, "out_of_memory", "memory"),
        (KILLED, "out_of_memory", "killed by SIGKILL"),
        (RAISING, "failed", "sim raised ValueError: the pendulum broke"),
        (HANGING, "timed_out", "no iteration was measured within"),
    ],
)
def test_a_point_that_cannot_run_is_a_measurement(runner, monkeypatch, num_env, status, words):
    if num_env == HANGING:
        monkeypatch.setattr(runner, "_pace", dataclasses.replace(PACE, timeout_s=1.0))
    found = runner.measure(point(num_env, gmis=2))
    assert (found.status, found.point) == (status, point(num_env, gmis=2))
    assert words in found.message and "\n" not in found.message
    assert found.steps_per_s == 0 and found.stage_s == {}


def test_a_point_that_does_not_compile_has_failed(runner):
    found = runner.measure(point(16, gmis=2))
    assert found.status == "failed"
    assert found.message.startswith("E0502: num_env = 16 cannot be cut into 2 GMIs")


def test_a_point_for_which_no_time_is_left_is_no_measurement(runner):
    assert runner.measure(point(64), deadline=0.0) is None


def test_one_fork_server_serves_all_points_and_nothing_else_is_left(runner):
    assert runner.measure(point(32)).status == "ok"
    before = children()
    assert runner.measure(point(64)).status == "ok"
    assert children() == before
    assert [entry.name for entry in runner._folder.iterdir()] == ["forkserver.log"]


@pytest.mark.gpu
@pytest.mark.parametrize(("gmis", "backend"), [(1, "timeshare"), (2, "mps")])
def test_a_point_on_a_gpu_has_memory_and_hides_its_rollout_in_a_graph(tmp_path, gmis, backend):
    machine = detect()
    file = make_project(tmp_path)
    compiled = compile_file(str(file), Options(), hardware=machine, stop_after="ir")
    with Runner(compiled.workflow, Options(), machine, PACES["cuda"]) as running:
        found = running.measure(point(1024, gmis=gmis, execution="graph", backend=backend))
    assert found.status == "ok", found.message
    assert list(found.stage_s) == ["collect", "update", "communicate"]
    assert found.device_memory_bytes > 100 << 20
    assert found.sm_occupancy is None or 0 < found.sm_occupancy <= 1
