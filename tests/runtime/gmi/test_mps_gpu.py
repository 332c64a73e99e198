"""The mps and timeshare backends with the real daemon, on a GPU. Kills and creation times are in benchmarks/."""

import pytest
from gpus import gmi

from gmiflow.hardware import detect
from gmiflow.runtime.gmi.ipc_probe import probe_ipc
from gmiflow.runtime.gmi.mps import MPSBackend
from gmiflow.runtime.gmi.mps_client import most_sms
from gmiflow.runtime.gmi.mps_daemon import daemons_root
from gmiflow.runtime.gmi.probe import probe_cuda
from gmiflow.runtime.gmi.timeshare import TimeshareBackend

pytestmark = pytest.mark.gpu


def test_a_quarter_is_a_quarter_and_nothing_stays_behind(tmp_path):
    backend = MPSBackend()
    backend.prepare([gmi(0), gmi(1)], tmp_path)
    daemon = backend.daemons[0]
    try:
        view = probe_cuda(backend.environment(gmi(0)))
        assert view.ok, view.error
        assert 0 < view.sm_count <= most_sms(0.25, detect().gpus[0].sm_count)
        assert len(daemon.control.servers()) == 1
        assert backend.check() is None
    finally:
        backend.release()
    assert not daemon.alive
    assert not daemon.control.pipe_directory.exists()
    assert daemon.control.pipe_directory.parent not in daemons_root().iterdir()


def test_clients_of_mps_share_memory_through_cuda_ipc(tmp_path):
    backend = MPSBackend()
    backend.prepare([gmi(0), gmi(1)], tmp_path)
    try:
        assert probe_ipc(backend.environment(gmi(0))) is None
    finally:
        backend.release()


def test_timeshare_has_the_whole_gpu(tmp_path):
    backend, one = TimeshareBackend(), gmi(0, backend="timeshare", share=0.5)
    backend.prepare([one], tmp_path)
    view = probe_cuda(backend.environment(one))
    assert view.ok, view.error
    assert view.sm_count == detect().gpus[0].sm_count
    backend.release()
