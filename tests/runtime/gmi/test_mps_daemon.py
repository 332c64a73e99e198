"""The life of private MPS daemons, against a program that speaks the control daemon's protocol."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gmiflow.runtime.gmi.mps_control import MPSControlError, binary_version, find_binary
from gmiflow.runtime.gmi.mps_daemon import (
    DaemonRecord,
    MPSDaemon,
    daemons_root,
    raise_open_file_limit,
    reap_stale,
)
from gmiflow.runtime.gmi.process import ProcessIdentity, wait_until

UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-99999999-2222-3333-4444-555555555555"


@pytest.fixture
def daemon(control_binary, daemons):
    daemon = MPSDaemon.start(UUID, control_binary)
    yield daemon
    daemon.stop()


def test_a_daemon_starts_answers_and_leaves_nothing(control_binary, daemons):
    daemon = MPSDaemon.start(UUID, control_binary)
    control = daemon.record.control
    assert daemon.alive and daemon.control.servers() == (control.pid,)
    assert control.environment()["CUDA_VISIBLE_DEVICES"] == UUID
    daemon.stop()
    assert not control.alive
    assert list(daemons_root().iterdir()) == []
    daemon.stop()  # again is fine


def test_its_directory_is_private_short_and_recorded(daemon):
    directory = daemon.control.pipe_directory.parent
    assert stat.S_IMODE(daemons_root().stat().st_mode) == 0o700
    assert len(str(daemon.control.pipe_directory / "control_privileged")) < 108
    record = json.loads((directory / "record.json").read_text())
    assert record["uuid"] == UUID
    assert record["uid"] == os.getuid()
    assert record["owner"][0] == os.getpid()
    assert record["control"][0] == daemon.control.servers()[0]


def test_a_long_temporary_directory_is_not_used(monkeypatch, tmp_path, daemons):
    long = daemons / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    root = daemons_root()
    assert root == Path(f"/tmp/gmiflow-mps-{os.getuid()}")


def test_two_jobs_do_not_disturb_each_other(daemon, control_binary):
    script = (
        "import sys; from gmiflow.runtime.gmi.mps_daemon import MPSDaemon, reap_stale\n"
        f"reap_stale(); other = MPSDaemon.start({OTHER!r}, {control_binary!r})\n"
        "print(other.control.servers()[0], flush=True); sys.stdin.read(); other.stop()"
    )
    job = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    second = ProcessIdentity.of(int(job.stdout.readline()))
    assert second.alive and daemon.alive
    assert reap_stale() == ()  # the other job lives
    assert second.alive
    job.communicate("", timeout=120)
    assert not second.alive
    assert daemon.alive and daemon.control.servers() == (daemon.record.control.pid,)


def crash_with_daemon(control_binary):
    """A job that starts a daemon and dies without cleaning up; returns the daemon."""
    script = (
        "import os; from gmiflow.runtime.gmi.mps_daemon import MPSDaemon\n"
        f"daemon = MPSDaemon.start({OTHER!r}, {control_binary!r})\n"
        "print(daemon.record.control.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    job = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert job.returncode == -signal.SIGKILL
    return ProcessIdentity.of(int(job.stdout))


def test_the_daemon_of_a_dead_job_is_cleaned_up_and_a_living_one_is_not(daemon, control_binary):
    orphan = crash_with_daemon(control_binary)
    assert orphan.alive
    assert reap_stale() == (OTHER,)
    assert not orphan.alive
    assert daemon.alive
    assert [entry.name for entry in daemons_root().iterdir()] == [daemon.control.pipe_directory.parent.name]


def test_records_of_other_users_and_machines_are_left_alone(control_binary, daemons):
    orphan = crash_with_daemon(control_binary)
    directory = next(daemons_root().iterdir())
    mine = (directory / "record.json").read_text()
    for field, value in (("uid", os.getuid() + 1), ("host", "elsewhere")):
        (directory / "record.json").write_text(json.dumps({**json.loads(mine), field: value}))
        assert reap_stale() == ()
        assert orphan.alive and directory.exists()
    (directory / "record.json").write_text(mine)
    assert reap_stale() == (OTHER,)


def test_a_reused_process_id_is_not_mistaken_for_the_daemon(control_binary, daemons):
    """The record names a process id that now belongs to something else: it survives."""
    root = daemons_root()
    directory = root / "0badcafe"
    directory.mkdir()
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        dead = ProcessIdentity(pid=bystander.pid, start_ticks=1)
        record = DaemonRecord(uid=os.getuid(), host=os.uname().nodename, owner=dead, control=dead, uuid=UUID)
        record.write(directory)
        assert reap_stale() == ()
        assert bystander.poll() is None
        assert not directory.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_an_unreadable_record_is_removed_only_when_it_is_old(daemons):
    root = daemons_root()
    fresh, old = root / "fresh", root / "old"
    for directory in (fresh, old):
        directory.mkdir()
        (directory / "record.json").write_text("{")
    os.utime(old, (0, 0))
    assert reap_stale() == ()
    assert fresh.exists() and not old.exists()


def test_a_daemon_that_ignores_quit_is_ended_all_the_same(control_binary, daemons, monkeypatch):
    monkeypatch.setattr("gmiflow.runtime.gmi.mps_daemon.QUIT_TIMEOUT_S", 0.5)
    monkeypatch.setattr("gmiflow.runtime.gmi.mps_daemon.FORCE_TIMEOUT_S", 0.5)
    daemon = MPSDaemon.start(UUID, control_binary)
    assert daemon.control.command("fake deaf") == "ok"
    daemon.stop()
    assert not daemon.record.control.alive
    assert list(daemons_root().iterdir()) == []


def test_a_daemon_that_does_not_start_says_why_and_leaves_nothing(control_binary, daemons, monkeypatch):
    monkeypatch.setenv("FAKE_MPS_BROKEN", "1")
    with pytest.raises(MPSControlError, match="already running"):
        MPSDaemon.start(UUID, control_binary)
    assert list(daemons_root().iterdir()) == []


def test_only_the_process_that_started_a_daemon_stops_it(daemon):
    child = os.fork()
    if child == 0:
        try:
            daemon.stop()
        except MPSControlError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert daemon.alive


def test_logs_can_live_in_the_run_directory(control_binary, daemons, tmp_path):
    logs = tmp_path / "run" / "logs" / "mps"
    daemon = MPSDaemon.start(UUID, control_binary, log_directory=logs)
    daemon.control.servers()
    daemon.stop()
    assert "get_server_list" in (logs / "control.log").read_text()


def test_the_launchers_own_mps_variables_do_not_reach_the_daemon(control_binary, daemons, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    daemon = MPSDaemon.start(UUID, control_binary)
    started_with = daemon.record.control.environment()
    daemon.stop()
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in started_with
    assert started_with["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon.control.pipe_directory)


def test_commands_to_a_dead_daemon_are_errors(daemon):
    daemon.record.control.signal(signal.SIGKILL)
    assert wait_until(lambda: not daemon.alive, 120)
    with pytest.raises(MPSControlError, match="get_server_list"):
        daemon.control.servers()


def test_clients_are_listed_and_attachment_is_seen(daemon):
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    server = daemon.control.servers()[0]
    try:
        assert daemon.control.attached(client.pid) is None
        daemon.control.command(f"fake connect {client.pid}")
        assert daemon.control.clients(server) == (client.pid,)
        assert daemon.control.attached(client.pid) == server
    finally:
        client.kill()
        client.wait()


def test_static_partitions_need_their_mode(daemon, control_binary):
    with pytest.raises(MPSControlError, match="not enabled"):
        daemon.control.add_static_partition(UUID, 4)
    static = MPSDaemon.start(OTHER, control_binary, static_partitions=True)
    try:
        partition = static.control.add_static_partition(OTHER, 4)
        assert partition.id == f"{OTHER}/Dx01AA"
        assert partition.chunks == 4
    finally:
        static.stop()


def test_the_binary_is_found_and_says_its_version(control_binary, monkeypatch):
    assert find_binary() == control_binary
    assert binary_version(control_binary) == 13000
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_binary() is None
    assert binary_version("/nowhere/nvidia-cuda-mps-control") == 0


def test_the_open_file_limit_is_raised_as_far_as_allowed():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert raise_open_file_limit(512) == 512
        assert raise_open_file_limit(300) == 512  # never lowered
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
