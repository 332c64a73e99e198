"""Two machines on one: network namespaces with host names of their own, joined by a bridge.

Open MPI starts its daemons there through a script in place of ssh, as it would on real machines.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid

import pytest
from in_process import run_in_threads
from plans import split_plan, training_plan, write_programs

from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.launchers.mpi import MPILauncher

SSH = """#!/bin/bash
# As `ssh HOST COMMAND...`, for hosts that are network namespaces.
while [[ $1 == -* ]]; do shift; done
host=$1; shift
name={prefix}${{host##*.}}
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=120)


@pytest.fixture
def machines(tmp_path, needs_mpi, clean):
    """Addresses of two namespaces and the words for mpirun that reach them."""
    mark = uuid.uuid4().hex[:6]
    prefix, bridge = f"g{mark}-", f"gb{mark}"
    network = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    addresses = [f"{network}.{number}" for number in (2, 3)]
    with contextlib.ExitStack() as stack:

        def later(*words: str) -> None:
            stack.callback(subprocess.run, ["ip", *words], capture_output=True, timeout=120)

        try:
            ip("link", "add", bridge, "type", "bridge")
            later("link", "del", bridge)
            ip("addr", "add", f"{network}.1/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for number, address in zip((2, 3), addresses, strict=True):
                name, here, there = f"{prefix}{number}", f"h{mark}{number}", f"t{mark}{number}"
                ip("netns", "add", name)
                later("netns", "del", name)
                ip("link", "add", here, "type", "veth", "peer", "name", there)
                ip("link", "set", here, "master", bridge, "up")
                ip("link", "set", there, "netns", name)
                ip("-n", name, "addr", "add", f"{address}/24", "dev", there)
                ip("-n", name, "link", "set", there, "up")
                ip("-n", name, "link", "set", "lo", "up")
            subprocess.run(["unshare", "--uts", "true"], check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.CalledProcessError) as problem:
            pytest.skip(f"this machine allows no network namespaces: {getattr(problem, 'stderr', '') or problem}")
        ssh = tmp_path / "ssh"
        ssh.write_text(SSH.format(prefix=prefix))
        ssh.chmod(0o755)
        hosts = tmp_path / "hosts"
        hosts.write_text("".join(f"{address} slots=1\n" for address in addresses))
        yield MPILauncher(hosts, ["--prtemca", "plm_ssh_agent", str(ssh)])


def test_two_machines_train_together(machines, run, tmp_path) -> None:
    result, _ = run(machines)
    assert (result.status, result.exit_code) == ("finished", 0), (tmp_path / "run/logs/ranks.log").read_text()
    assert result.checksums["train"]


def test_an_agent_and_its_trainer_train_together(machines, tmp_path) -> None:
    """Half a MiB for each rollout, so MPI does not send it at once."""
    plan = split_plan(training_plan(num_env=2048, mode="async", checkpoint_every=3))
    _, collectors, _ = run_in_threads(plan)
    programs = write_programs(plan, tmp_path / "programs")
    result = run_plan(plan, programs, tmp_path / "run", on_event=lambda event: None, launcher=machines)
    assert (result.status, result.exit_code) == ("finished", 0), (tmp_path / "run/logs/ranks.log").read_text()
    assert result.checksums["train"] == collectors[0].of("Done")[0].checksum


def test_a_rank_that_dies_on_another_machine_is_named(machines, run) -> None:
    result, _ = run(machines, simulator="Dying")
    assert result.exit_code == 1
    failure = result.failures[0]
    assert failure.failure.message == "GMI 1 was killed by SIGKILL while sim was at work"


def test_a_trainer_that_dies_on_another_machine_than_its_agent_is_named(machines, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    plan = split_plan(training_plan(trainer="FallingOnce", mode="async", max_staleness=1, iterations=100_000))
    programs = write_programs(plan, tmp_path / "programs")
    result = run_plan(plan, programs, tmp_path / "run", on_event=lambda event: None, launcher=machines)
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.failures[0].failure.message == "GMI 1 was killed by SIGKILL while learner was at work"
