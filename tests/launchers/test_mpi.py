"""Runs under `mpirun`: the same numbers as on the fork server, and failures that are named."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from plans import apart_plan, launch_plan, training_plan
from safetensors.torch import load_file
from waiting import until

from gmiflow.runtime.events import Iteration
from gmiflow.runtime.launchers.local import LocalLauncher
from gmiflow.runtime.launchers.mpi import MPILauncher, find_mpirun
from gmiflow.runtime.launchers.rank import rank_order, starter_environment
from gmiflow.runtime.supervisor import Limits

pytestmark = pytest.mark.usefixtures("clean")


def policy_of(run_dir: Path):
    return load_file(run_dir / "checkpoints" / "last" / "policy.safetensors")


@pytest.mark.usefixtures("needs_mpi")
def test_two_ranks_give_the_same_bits_as_the_local_launcher(run, tmp_path) -> None:
    local, _ = run(LocalLauncher(), name="local")
    ranks, events = run(MPILauncher(), name="ranks")
    assert (ranks.status, ranks.exit_code) == ("finished", 0)
    assert ranks.checksums == local.checksums
    assert [event.iteration for event in events if isinstance(event, Iteration)] == [1, 2, 3]
    report = json.loads((tmp_path / "ranks" / "report.json").read_text())
    assert [gmi["env_offset"] for gmi in report["trainings"]["train"]["gmis"]] == [0, 32]
    assert not (tmp_path / "ranks" / "launch.json").exists()


@pytest.mark.usefixtures("needs_mpi")
def test_ranks_of_two_machines_reduce_by_mpi(run, tmp_path) -> None:
    """Ranks 0 and 1 share memory, rank 2 does not: sums are in another order, so the last bits may differ."""
    run(LocalLauncher(), name="local", gmis=2, num_env=96)
    ranks, _ = run(MPILauncher(ranks_per_node=2), name="ranks", gmis=3, num_env=96)
    assert ranks.exit_code == 0
    report = json.loads((tmp_path / "ranks" / "report.json").read_text())
    assert report["trainings"]["train"]["weights"]["equal_on_all_gmis"]
    expected = policy_of(tmp_path / "local")
    for name, value in policy_of(tmp_path / "ranks").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("needs_mpi")
def test_reductions_between_machines_equal_float64(tmp_path) -> None:
    ranks = 4
    options = MPILauncher().command(str(find_mpirun()), ranks, tmp_path)
    words = [*options[: options.index("-m")], str(Path(__file__).with_name("mpi_group.py")), str(tmp_path)]
    done = subprocess.run(words, env=starter_environment(sys.path), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} is done" for rank in range(ranks)]


@pytest.mark.usefixtures("needs_mpi")
def test_a_rank_that_dies_in_a_reduction_between_machines_is_named(run, tmp_path) -> None:
    result, _ = run(MPILauncher(ranks_per_node=1), simulator="Dying")
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0]
    assert failure.failure.message == "GMI 1 was killed by SIGKILL while sim was at work"
    assert (failure.failure.stage, failure.failure.line) == ("sim", 3)
    assert failure.log_tail == ("a last word",)
    assert failure.log == tmp_path / "run" / "logs" / "gmi_01.log"


@pytest.mark.usefixtures("needs_mpi")
def test_a_rank_that_stalls_is_named(run) -> None:
    limits = Limits(silence_s=4)
    result, _ = run(MPILauncher(ranks_per_node=1), simulator="Freezing", limits=limits)
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0]
    assert failure.failure.message == "GMI 1 is stopped while sim was at work"
    assert failure.reason.startswith("silent for ")


def test_without_mpirun_it_says_how_to_get_it(run, monkeypatch) -> None:
    monkeypatch.setattr("gmiflow.runtime.launchers.mpi.find_mpirun", lambda: None)
    result, _ = run(MPILauncher())
    assert result.failures[0].failure.message == "mpirun is not installed"
    assert result.failures[0].failure.notes[0] == "`pip install 'gmiflow[mpi]'` installs Open MPI without root"


def test_a_host_file_that_is_missing_is_named(run, tmp_path) -> None:
    result, _ = run(MPILauncher(tmp_path / "hosts"))
    assert result.failures[0].failure.message == f"the host file {tmp_path}/hosts does not exist"


def test_an_mpirun_that_fails_is_reported_with_what_it_wrote(run, tmp_path) -> None:
    broken = tmp_path / "mpirun"
    broken.write_text("#!/bin/sh\necho there are no slots here\nexit 3\n")
    broken.chmod(0o755)
    result, _ = run(MPILauncher(mpirun=str(broken)))
    (failure,) = result.failures
    assert (failure.failure.code, failure.failure.message) == ("E0711", "mpirun ended with status 3")
    assert failure.log_tail == ("there are no slots here",)


def test_a_stranger_at_the_door_is_sent_away(run) -> None:
    result, _ = run(MPILauncher(mpirun=str(Path(__file__).with_name("stranger.py"))))
    assert result.failures[0].failure.message == "mpirun ended with status 0"
    assert result.failures[0].log_tail == ("sent away",)


def test_ranks_go_by_device_and_agents_follow_their_simulators() -> None:
    """So two machines with half of the slots each get whole devices, and whole pairs."""
    pairs = apart_plan(training_plan(), "dp_mp", pairs=2)  # GMIs 0 and 1 simulate, 2 and 3 act, 4 trains
    assert rank_order(pairs) == [0, 2, 1, 3, 4]
    two = launch_plan(training_plan(), gmis=4)
    gmis = tuple(dataclasses.replace(gmi, device=gmi.id % 2) for gmi in two.gmis)
    assert rank_order(dataclasses.replace(two, gmis=gmis)) == [0, 2, 1, 3]


KILLED_LAUNCHER = """
import os, signal, sys, time
from pathlib import Path
from plans import launch_plan, training_plan
from gmiflow.runtime.launchers.rank import RankOptions
from gmiflow.runtime.launchers.rank_server import RankServer
from gmiflow.runtime.rendezvous import Rendezvous

folder = Path(sys.argv[1])
(folder / "logs").mkdir()
options = RankOptions(command=(str(folder / "mpirun"),))
RankServer(launch_plan(training_plan(), gmis=2), folder, Rendezvous.join(folder), options)
while not (folder / "started").exists():
    time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_mpirun_may_clean_up_when_its_launcher_is_killed(tmp_path) -> None:
    """Killed by force it would leave MPI's shared memory behind."""
    starter = tmp_path / "mpirun"
    cleaned = tmp_path / "cleaned"
    lines = (
        "#!/bin/sh",
        f"trap 'touch {cleaned}; exit' TERM",
        f"touch {tmp_path}/started",
        "while :; do sleep 0.1; done",
    )
    starter.write_text("\n".join(lines))
    starter.chmod(0o755)
    words = [sys.executable, "-c", KILLED_LAUNCHER, str(tmp_path)]
    assert subprocess.run(words, env=starter_environment(sys.path), check=False).returncode == -signal.SIGKILL
    until(cleaned.exists, "the end of mpirun in order")


def test_the_command_line_is_open_mpis(tmp_path) -> None:
    hosts = tmp_path / "hosts"
    words = MPILauncher(hosts, ["--mca", "btl", "tcp,self"]).command("mpirun", 4, tmp_path)
    assert words[:3] == ["mpirun", "-n", "4"]
    assert words[words.index("--hostfile") + 1] == str(hosts)
    assert words[-3:] == ["-m", "gmiflow.runtime.launchers.agent", str(tmp_path)]
    assert "--oversubscribe" in MPILauncher().command("mpirun", 4, tmp_path)
