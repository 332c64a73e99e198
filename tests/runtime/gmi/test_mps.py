"""The mps backend in the launcher, against a stand-in for the control daemon; the real one is tested on a GPU."""

import subprocess
import sys

import pytest
from gpus import gmi, gpu, hardware
from test_mps_logs import FAULT, MESSAGES

from gmiflow.runtime.failure import GPU_FAULT, GPU_MEMORY, LAUNCH_FAILED, GMIError
from gmiflow.runtime.gmi.mps import MPSBackend
from gmiflow.runtime.gmi.mps_client import max_clients, most_sms, static_partitions_fit, thread_percentage
from gmiflow.runtime.gmi.mps_daemon import daemons_root
from gmiflow.runtime.gmi.probe import CUDAView
from gmiflow.runtime.gmi.process import wait_until


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr("gmiflow.runtime.gmi.gpu.detect", lambda: hardware(gpu(0), gpu(1)))


@pytest.fixture
def backend(control_binary, daemons, two_gpus, tmp_path):
    backend = MPSBackend()
    yield backend
    backend.release()
    assert list(daemons_root().iterdir()) == []


GMIS = (gmi(0, memory_mib=4096), gmi(1), gmi(2, device=1, share=1.0), gmi(3, device=1, share=0.5))


def test_every_gpu_gets_a_daemon_and_every_gmi_its_variables(backend, tmp_path):
    backend.prepare(GMIS, tmp_path)
    variables = [backend.environment(one) for one in GMIS]
    pipes = [each["CUDA_MPS_PIPE_DIRECTORY"] for each in variables]
    assert pipes[0] == pipes[1] and pipes[2] == pipes[3] and pipes[0] != pipes[2]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in variables] == [gpu(one.device).uuid for one in GMIS]
    assert [each.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") for each in variables] == ["25", "25", None, "50"]
    assert variables[0]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in variables[1]
    assert variables[0]["CUDA_MPS_LOG_DIRECTORY"] == str(tmp_path / "logs" / "mps_gpu_0")
    assert backend.check() is None


def test_a_fault_in_the_server_log_stands_for_the_whole_gpu(backend, tmp_path):
    backend.prepare(GMIS, tmp_path)
    (tmp_path / "logs" / "mps_gpu_0" / "server.log").write_text(FAULT)
    failure = backend.check()
    assert failure.code == GPU_FAULT
    assert failure.message == "a fault on GPU 0 hit every GMI there (0, 1)"
    assert "the MPS server blames process 4102" in failure.notes
    assert backend.check() is None  # told once


def test_a_daemon_that_died_is_noticed(backend, tmp_path):
    backend.prepare(GMIS, tmp_path)
    control = backend.daemons[1].record.control
    control.signal(9)
    assert wait_until(lambda: not control.alive, 120)
    failure = backend.check()
    assert failure.code == GPU_FAULT
    assert failure.message == "the MPS daemon of GPU 1 ended under its GMIs (2, 3)"


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        (MESSAGES[807], GPU_FAULT, "recovering from a GPU fault"),
        (MESSAGES[808], LAUNCH_FAILED, "no room for one more client"),
        (MESSAGES[810], "E0702", "ended this client"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB.", GPU_MEMORY, "its cap of 4096 MiB"),
    ],
)
def test_what_a_client_printed_is_explained(backend, tmp_path, output, code, words):
    backend.prepare(GMIS, tmp_path)
    failure = backend.explain(GMIS[0], "lines before\n" + output)
    assert failure.code == code
    assert words in failure.message
    assert failure.message.startswith("GMI 0 ")


def test_output_that_has_nothing_to_do_with_mps_is_not_explained(backend):
    assert backend.explain(GMIS[0], "ValueError: no") is None


def test_a_client_is_taken_off_the_gpu_before_it_is_killed(backend, tmp_path):
    backend.prepare(GMIS, tmp_path)
    control = backend.daemons[1].control
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        control.command(f"fake connect {client.pid}")
        backend.quiesce(bystander.pid)  # no client of any daemon
        backend.quiesce(client.pid)
        said = (control.log_directory / "control.log").read_text()
        assert f"terminate_client {control.servers()[0]} {client.pid}" in said
        assert str(bystander.pid) not in said
        assert client.wait(120) != 0  # the stand-in ends it with a signal
        assert bystander.poll() is None
    finally:
        for process in (client, bystander):
            process.kill()
            process.wait()


def test_recovery_restarts_a_daemon_that_stays_in_its_fault(backend, tmp_path, monkeypatch):
    """Without a GPU the probe that follows cannot succeed, and says so."""
    monkeypatch.setattr("gmiflow.runtime.gmi.mps.RECOVER_TIMEOUT_S", 0.3)
    backend.prepare(GMIS[:2], tmp_path)
    old = backend.daemons[0]
    old.control.command("fake status FAULT")
    with pytest.raises(GMIError) as raised:
        backend.recover()
    assert raised.value.failure.code == LAUNCH_FAILED
    assert "GPU 0 does not recover" in raised.value.failure.message
    assert not old.alive
    assert backend.daemons[0].alive


def test_recovery_tries_again_when_the_first_client_meets_the_fault(backend, tmp_path, monkeypatch):
    """A server may find a fault with its next client; that client is the probe, and a new daemon is well."""
    backend.prepare(GMIS[:2], tmp_path)
    old = backend.daemons[0]
    views = [
        CUDAView(ok=False, error="cuDevicePrimaryCtxRetain: unspecified launch failure (719)"),
        CUDAView(ok=True, sm_count=32),
    ]
    monkeypatch.setattr("gmiflow.runtime.gmi.mps.probe_cuda", lambda environment, timeout_s: views.pop(0))
    backend.recover()
    assert views == []
    assert not old.alive
    assert backend.daemons[0].alive
    assert backend.environment(GMIS[0])["CUDA_MPS_PIPE_DIRECTORY"] != str(old.control.pipe_directory)


def test_no_tool_is_a_clear_error(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GMIError) as raised:
        backend.prepare(GMIS, tmp_path)
    assert raised.value.failure.code == LAUNCH_FAILED
    assert "nvidia-cuda-mps-control is not installed" in raised.value.failure.message


def test_a_gpu_that_is_not_there_is_a_clear_error(backend, tmp_path):
    with pytest.raises(GMIError) as raised:
        backend.prepare((gmi(0, device=5),), tmp_path)
    assert raised.value.failure.message == "the plan uses GPU 5, but this machine has 2 GPUs"


def test_more_clients_than_mps_admits_are_refused(backend, tmp_path):
    with pytest.raises(GMIError) as raised:
        backend.prepare([gmi(index, share=0.01) for index in range(49)], tmp_path)
    assert raised.value.failure.message == "49 GMIs on GPU 0, but MPS admits 48 per GPU"


def test_mig_mode_is_refused(backend, tmp_path, monkeypatch):
    monkeypatch.setattr("gmiflow.runtime.gmi.gpu.detect", lambda: hardware(gpu(0, mig=True)))
    with pytest.raises(GMIError, match="MIG mode"):
        backend.prepare(GMIS[:1], tmp_path)


def test_without_static_partitions_asking_for_them_fails(control_binary, daemons, two_gpus, tmp_path):
    """The stand-in makes partitions, but no process sees their SMs: the proof fails and nothing stays behind."""
    backend = MPSBackend(static_partitions=True)
    with pytest.raises(GMIError, match="no static SM partitions"):
        backend.prepare(GMIS[:2], tmp_path)
    backend.release()
    assert list(daemons_root().iterdir()) == []


def test_shares_round_as_mps_rounds_them():
    assert [thread_percentage(share) for share in (0.25, 1 / 3, 0.29, 0.001)] == [25, 33, 29, 1]
    assert most_sms(0.25, 132) == 33  # MPS shows 32
    assert most_sms(0.001, 132) == 8  # MPS shows 8 for 1 %
    assert most_sms(1.0, 132) == 132


def test_limits_follow_the_cuda_version():
    assert (max_clients(12040), max_clients(13000), max_clients(13010)) == (48, 48, 60)


def test_static_partitions_need_shares_that_fit_side_by_side():
    assert static_partitions_fit([gmi(0, share=0.5), gmi(1, share=0.5)])
    assert not static_partitions_fit([gmi(0, share=0.75), gmi(1, share=0.5)])
    assert not static_partitions_fit([gmi(0, share=1.0)])
