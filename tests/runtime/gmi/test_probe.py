"""The bounded CUDA probe."""

import shutil

import pytest

from gmiflow.runtime.gmi.probe import probe_cuda


def test_without_a_driver_the_probe_says_so():
    if shutil.which("nvidia-smi"):
        assert probe_cuda({"CUDA_VISIBLE_DEVICES": ""}).ok is False
        return
    view = probe_cuda()
    assert not view.ok
    assert "driver library cannot be loaded" in view.error


def test_a_probe_that_takes_too_long_is_given_up():
    view = probe_cuda(timeout_s=0.0)
    assert not view.ok
    assert "did not start within" in view.error


@pytest.mark.gpu
def test_a_gpu_is_seen():
    view = probe_cuda()
    assert view.ok, view.error
    assert view.sm_count > 0 and view.name and view.capability >= (7, 0)
