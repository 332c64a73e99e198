"""The job script: what it says, and that it runs, with a stand-in for `srun` that starts processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import launch_plan, training_plan
from safetensors.torch import load_file

from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.launchers.slurm import job_script

ROOT = Path(__file__).parents[2]
ANT = str(ROOT / "examples" / "ant.gmi")
SMALL = ["--target", "targets.cpu", "--num-env", "64", "--iterations", "2", "--gmi-per-gpu", "2"]
SRUN = """#!/bin/bash
# Starts the ranks as srun does: numbered by SLURM_PROCID, all of them at once; its status is the worst of theirs.
while [[ $1 == --* ]]; do
  [[ $1 == --ntasks=* ]] && count=${1#--ntasks=}
  shift
done
for ((rank = 0; rank < count; rank++)); do SLURM_PROCID=$rank "$@" & ranks+=($!); done
worst=0
for rank in "${ranks[@]}"; do wait "$rank" || worst=$?; done
exit $worst
"""


def gmiflow(*arguments, cwd):
    command = [sys.executable, "-m", "gmiflow.cli", "run", ANT, *SMALL, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, env=environment)


def test_the_script_asks_for_what_the_plan_needs(tmp_path) -> None:
    plan = launch_plan(training_plan(), gmis=4)
    text = job_script(plan, tmp_path, nodes=2, options=["--partition=gpu"])
    directives = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        "--job-name=gmiflow-train",
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--cpus-per-task=1",
        f"--output={tmp_path}/logs/slurm-%j.log",
        "--partition=gpu",
    ]
    assert "srun --ntasks=4 --distribution=block --cpu-bind=none --mpi=pmix " in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    with pytest.raises(GMIError, match="4 processes do not spread evenly over 3 nodes"):
        job_script(plan, tmp_path, nodes=3)


@pytest.mark.usefixtures("clean")
def test_the_ant_example_runs_as_a_job_and_under_mpirun(tmp_path, needs_mpi) -> None:
    """The same policy three times, bit for bit: by the fork server, by `mpirun`, and by the job script."""
    written = gmiflow("--launcher", "slurm", "--run-dir", "job", cwd=tmp_path)
    assert (written.returncode, written.stdout) == (0, "job/job.sbatch\n"), written.stderr
    stub = tmp_path / "bin" / "srun"
    stub.parent.mkdir()
    stub.write_text(SRUN)
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    job = subprocess.run(
        ["bash", "job/job.sbatch"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert job.returncode == 0, job.stderr
    assert "finished after 2 iterations" in job.stdout
    for launcher in ("local", "mpi"):
        done = gmiflow("--launcher", launcher, "--run-dir", launcher, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    policies = [load_file(tmp_path / name / "checkpoints/last/policy.safetensors") for name in ("local", "mpi", "job")]
    for other in policies[1:]:
        assert all(bool((policies[0][name] == value).all()) for name, value in other.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hostfile", "hosts"], "--hostfile goes with --launcher mpi, not local"),
        (["--launcher", "mpi", "--nodes", "2"], "--nodes goes with --launcher slurm, not mpi"),
        (["--launcher", "slurm", "--nodes", "3"], "2 processes do not spread evenly over 3 nodes"),
    ],
)
def test_options_of_another_launcher_are_refused(tmp_path, options, message) -> None:
    refused = gmiflow(*options, cwd=tmp_path)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_a_dry_run_shows_what_would_start(tmp_path) -> None:
    shown = gmiflow("--launcher", "mpi", "--dry-run", cwd=tmp_path).stdout
    assert "mpirun -n 2 --bind-to none --oversubscribe" in shown
    assert "nothing was started" in shown
    assert gmiflow("--launcher", "slurm", "--dry-run", cwd=tmp_path).stdout.startswith("#!/bin/bash\n")
    assert not (tmp_path / "runs").exists()
