"""Shared fixtures and the rule that GPU tests are skipped, and listed, where there is no GPU."""

import atexit
import os
import shutil
import subprocess
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# What was measured on this machine must not change what the compiler is expected to say. Each worker has a place of
# its own, where nothing is.
os.environ["GMIFLOW_PROFILES"] = os.path.join(tempfile.gettempdir(), f"gmiflow-tests-have-no-profiles-{os.getpid()}")
atexit.register(shutil.rmtree, os.environ["GMIFLOW_PROFILES"], ignore_errors=True)  # the last plans of what ran

# A busy machine is no failure, and what fails once fails every time: the examples are the same ones in every run.
# `pytest --hypothesis-profile explore` looks for others.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", patient)
settings.register_profile("patient", patient, derandomize=True)
settings.load_profile("patient")


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=120)
    return listing.returncode == 0 and "GPU" in listing.stdout


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files; read the difference")
    parser.addoption("--bless", action="store_true", help="rewrite expected messages; read the difference")


def pytest_collection_modifyitems(config, items):
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items or has_gpu():
        return
    for item in gpu_items:
        item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


def pytest_terminal_summary(terminalreporter):
    # A module that is skipped as a whole has a report without keywords.
    skipped = [r for r in terminalreporter.getreports("skipped") if "gpu" in getattr(r, "keywords", ())]
    if skipped:
        terminalreporter.section("GPU tests not run here (no NVIDIA GPU)")
        for report in skipped:
            terminalreporter.write_line(f"  {report.nodeid}")
