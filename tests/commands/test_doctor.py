"""`gmiflow doctor`: on whatever machine the tests run, and its single checks in situations made up for them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.cli import main
from gmiflow.commands import doctor_checks, doctor_gpu, doctor_python
from gmiflow.commands.doctor import as_json, as_text
from gmiflow.commands.doctor_checks import Check
from gmiflow.hardware import GPU

H200 = GPU(index=0, uuid="GPU-0", name="NVIDIA H200", sm_count=132, memory_bytes=140 << 30, mig=False)
HAS_GPU = shutil.which("nvidia-smi") is not None


@pytest.fixture(scope="module")
def report():
    result = CliRunner().invoke(main, ["doctor", "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_promised_line_is_there(report):
    names = {check["name"] for check in report["checks"]}
    assert {"CPU", "/dev/shm", "open files", "torch", "mujoco", "mujoco-warp", "gymnasium", "mpi4py", "mpirun"} <= names
    assert {"NVIDIA driver", "MPS", "CUDA IPC"} <= names


def test_whatever_is_missing_comes_with_its_mend(report):
    for check in report["checks"]:
        assert check["status"] in ("ok", "missing", "not applicable")
        assert check["detail"]
        assert bool(check["mend"]) == (check["status"] == "missing"), check


@pytest.mark.skipif(HAS_GPU, reason="describes a machine without a GPU")
def test_a_machine_without_a_gpu_is_usable_and_told_so(report):
    found = {check["name"]: check for check in report["checks"]}
    assert report["usable"]
    for name in ("NVIDIA driver", "MPS", "CUDA IPC", "torch on the GPU", "NCCL", "green contexts"):
        assert found[name]["status"] == "not applicable", name
    assert found["torch"]["status"] == found["mujoco"]["status"] == "ok"


def test_a_gpu_without_its_driver_is_seen(tmp_path):
    for number, vendor in enumerate(("0x8086", "0x1af4")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{vendor}\n")
    assert not doctor_checks.has_nvidia_device(tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "vendor").write_text("0x10de\n")
    assert doctor_checks.has_nvidia_device(tmp_path)


def test_only_what_needs_a_gpu_becomes_not_applicable_without_one():
    lacking = {"group": "g", "status": "missing", "detail": "d", "mend": "m"}
    assert doctor_checks.without_gpu(Check(name="NCCL", gpu=True, **lacking)).status == "not applicable"
    assert doctor_checks.without_gpu(Check(name="torch", **lacking)).status == "missing"


@pytest.mark.gpu
def test_a_machine_with_a_gpu_shows_it(report):
    found = {check["name"]: check for check in report["checks"]}
    assert found["NVIDIA driver"]["status"] == found["GPU 0"]["status"] == found["CUDA IPC"]["status"] == "ok"


def test_interpreters_for_simulators_are_looked_at(tmp_path):
    (here,) = (c for c in doctor_python.interpreter_checks(sys.executable) if c.name == "Python")
    assert here.status == "ok" and here.group == f"interpreter {sys.executable}"
    names = [check.name for check in doctor_python.interpreter_checks(sys.executable)]
    assert names[:2] == ["Python", "numpy"] and "torch" in names and "isaacgym" not in names
    (missing,) = doctor_python.interpreter_checks(str(tmp_path / "python"))
    assert (missing.status, missing.detail) == ("missing", "there is no such interpreter")
    (other,) = doctor_python.interpreter_checks("/bin/true")
    assert other.detail == "it is not a Python" and other.mend
    old = tmp_path / "python2.7"
    old.write_text("#!/bin/sh\necho '{\"version\": [2, 7, 18]}'\n")
    old.chmod(0o755)
    assert doctor_python.interpreter_checks(str(old))[0].mend == "it must be 3.8 or later"
    assert doctor_python.kernel_check().status == "ok"


def test_neither_torch_nor_a_simulator_is_loaded_here():
    script = (
        "import sys; from gmiflow.hardware import detect\n"
        "from gmiflow.commands import doctor, doctor_checks, doctor_gpu\n"
        "doctor_checks.machine_checks(detect()); doctor_checks.package_checks(); doctor_gpu.gpu_checks(())\n"
        "sys.exit(', '.join({'torch', 'mujoco', 'warp', 'gymnasium', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


CHECKS = (
    Check(group="machine", name="CPU", status="ok", detail="4 usable cores"),
    Check(group="GPU", name="MPS", status="missing", detail="not installed", mend="install it"),
    Check(group="machine", name="/dev/shm", status="missing", detail="none", mend="mount it", required=True),
)


def test_text_puts_lines_under_headings_and_mends_under_lines():
    assert as_text(CHECKS).splitlines() == [
        "machine",
        "  ok       CPU       4 usable cores",
        "  missing  /dev/shm  none",
        "                     mend: mount it",
        "",
        "GPU",
        "  missing  MPS       not installed",
        "                     mend: install it",
        "",
        "2 missing, 1 of them needed by every run",
    ]
    assert as_text(CHECKS[:1]).endswith("nothing is missing")
    assert not json.loads(as_json(CHECKS))["usable"]


def test_something_that_every_run_needs_gives_exit_code_1(monkeypatch):
    monkeypatch.setattr("gmiflow.commands.doctor.all_checks", lambda interpreters: CHECKS)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "needed by every run" in result.stdout


def test_shared_memory_that_is_missing_or_small(tmp_path, monkeypatch):
    assert doctor_checks.shared_memory_check(tmp_path / "none").required
    monkeypatch.setattr(doctor_checks, "SHARED_MEMORY_MIB", 10**9)
    check = doctor_checks.shared_memory_check(Path("/dev/shm"))
    assert check.status == "missing" and "--shm-size" in check.mend


def test_open_files_count_by_their_hard_limit():
    assert doctor_checks.open_files_check(1024, 16_384).status == "ok"
    assert doctor_checks.open_files_check(1024, -1).detail == "limit 1,024, may be raised to unlimited"
    low = doctor_checks.open_files_check(1024, 4096)
    assert low.status == "missing" and "ulimit -Hn" in low.mend


def test_a_package_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setattr(doctor_checks, "PACKAGES", (("packages", "no-such-package", "gpu"),))
    (check,) = doctor_checks.package_checks()
    assert check.status == "missing" and check.mend == "pip install 'gmiflow[gpu]'" and not check.required


@pytest.mark.parametrize(
    ("facts", "details"),
    [
        (
            {
                "version": "2.11",
                "cuda_build": "13.0",
                "cuda": True,
                "devices": 1,
                "nccl": [2, 28, 9],
                "green": [64, 64],
            },
            ["2.11 (CUDA 13.0) sees 1 GPU(s)", "2.28.9; one rank per GPU", "two halves of 64 and 64 SMs"],
        ),
        (
            {"version": "2.14", "cuda_build": "13.1", "cuda": True, "devices": 2, "nccl": [2, 30, 7], "green": None},
            ["2.14 (CUDA 13.1) sees 2 GPU(s)", "2.30.7; can put several ranks on one GPU (experimental)", "no package"],
        ),
        (
            {"version": "2.13+cpu", "cuda_build": None, "cuda": False},
            ["2.13+cpu (CPU only) sees no GPU", "needs torch on a GPU", "need torch on a GPU"],
        ),
        ({"error": "ImportError: libcudart"}, ["ImportError: libcudart"]),
    ],
)
def test_what_torch_says_is_told(monkeypatch, facts, details):
    monkeypatch.setattr(doctor_gpu, "torch_facts", lambda: {"green_error": "no package", **facts})
    assert [check.detail for check in doctor_gpu.torch_checks((H200,))] == details


def test_a_torch_that_hangs_is_given_up():
    assert "does not load within" in doctor_gpu.torch_facts(timeout_s=0.0)["error"]


def test_mps_without_its_tool_or_without_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in doctor_gpu.mps_checks((H200,))[0].detail
    tool = tmp_path / "nvidia-cuda-mps-control"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    assert "no GPU to serve" in doctor_gpu.mps_checks(())[0].detail
    assert doctor_gpu.mps_checks((H200,))[0].status == "missing"  # it does not start


@pytest.mark.parametrize(("python", "code"), [(sys.executable, 0), ("/nowhere/python", 1)])
def test_an_interpreter_that_was_asked_about_and_will_not_do_is_an_error(python, code, monkeypatch):
    checks = doctor_python.interpreter_checks(python)
    monkeypatch.setattr("gmiflow.commands.doctor.all_checks", lambda interpreters: checks)
    assert CliRunner().invoke(main, ["doctor", "--python", python]).exit_code == code
