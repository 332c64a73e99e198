"""The GPU-slice backends on a real GPU: life of MPS daemons, proofs of slices, kills, leftovers, creation times.

    PYTHONPATH=. python benchmarks/gmi_backends.py --budget 140

Prints one JSON object per row, and writes the same to gmi_backends.jsonl in $OUT (or --output). Every row says in "ok"
whether what it shows came out as it should. It changes neither clocks nor compute mode nor MIG geometry.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gmi_children as children
from gmi_children import Child

from gmiflow.hardware import detect
from gmiflow.plan import GMIPlan
from gmiflow.runtime.gmi.ipc_probe import probe_ipc
from gmiflow.runtime.gmi.mig_geometry import read_mig
from gmiflow.runtime.gmi.mps import MPSBackend
from gmiflow.runtime.gmi.mps_client import most_sms
from gmiflow.runtime.gmi.mps_control import binary_version, find_binary
from gmiflow.runtime.gmi.mps_daemon import MPSDaemon, daemons_root, reap_stale
from gmiflow.runtime.gmi.nvml import cuda_driver_version
from gmiflow.runtime.gmi.probe import probe_cuda
from gmiflow.runtime.gmi.process import ProcessIdentity, wait_until
from gmiflow.runtime.gmi.timeshare import TimeshareBackend
from gmiflow.runtime.telemetry import Telemetry

CAP_MIB = 4096


def plan(number, backend="mps", share=0.25, memory_mib=0):
    return GMIPlan(
        id=number,
        training="bench",
        program="",
        backend=backend,
        device=0,
        share=share,
        cores=1,
        threads=1,
        stages=(),
        num_env=1024,
        env_offset=0,
        memory_mib=memory_mib,
    )


class Bench:
    """Directory, budget, rows and children of one run."""

    def __init__(self, budget_s, output):
        self.end = time.monotonic() + budget_s
        self.directory = Path(tempfile.mkdtemp(prefix="gmi_bench_"))
        self.output = output
        self.rows = (output / "gmi_backends.jsonl").open("w", buffering=1)
        self.children = []
        self.gpu = detect().gpus[0]
        self.binary = find_binary()
        self.shm_before = set(os.listdir("/dev/shm"))

    def left(self):
        """Seconds until the budget is spent."""
        return self.end - time.monotonic()

    def row(self, name, ok, /, **values):
        """Print and store one row."""
        line = json.dumps({"row": name, "ok": bool(ok), **values})
        print(line, flush=True)
        self.rows.write(line + "\n")

    def fork(self, name, function, environment, *arguments):
        """Start a child; `close` ends it."""
        child = Child(self.directory, f"{len(self.children):02d}_{name}", function, environment, *arguments)
        self.children.append(child)
        return child

    def section(self, function, needs_s):
        """Run one section if there is time; its failure is a row."""
        if self.left() < needs_s:
            self.row(function.__name__, False, error="no time left for it")
            return
        begun = time.monotonic()
        try:
            function(self)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            self.row(function.__name__, False, error=text[:600])
        self.row("section", True, name=function.__name__, wall_s=round(time.monotonic() - begun, 2))

    def close(self):
        """End all children and remove their files."""
        for child in self.children:
            child.kill()
        self.rows.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def machine(bench):
    mig = read_mig(bench.gpu.uuid)
    import torch

    bench.row(
        "machine",
        True,
        gpu=bench.gpu.name,
        sm_count=bench.gpu.sm_count,
        cuda_driver=cuda_driver_version(),
        torch=torch.__version__,
        python=sys.version.split()[0],
        mps_binary=bench.binary,
        mps_version=binary_version(bench.binary) if bench.binary else 0,
        cores=os.cpu_count(),
        mig_enabled=mig.enabled if mig else None,
        mig_profiles=[f"{p.name} x{p.most} {p.sm_count} SM" for p in mig.profiles] if mig else [],
    )
    view = probe_cuda({"CUDA_VISIBLE_DEVICES": bench.gpu.uuid})
    bench.row("probe", view.ok and view.sm_count == bench.gpu.sm_count, sm_count=view.sm_count, start_s=view.start_s)
    problem = probe_ipc({"CUDA_VISIBLE_DEVICES": bench.gpu.uuid})
    bench.row("cuda_ipc", problem is None, problem=problem)


def daemon_life(bench):
    """Start, first client, second client, stop; three times."""
    starts, firsts, seconds, stops = [], [], [], []
    for _ in range(3):
        begun = time.monotonic()
        daemon = MPSDaemon.start(bench.gpu.uuid, bench.binary)
        starts.append(time.monotonic() - begun)
        environment = {"CUDA_VISIBLE_DEVICES": bench.gpu.uuid, **daemon.control.environment()}
        views = [probe_cuda(environment), probe_cuda(environment)]
        firsts.append(views[0].start_s)
        seconds.append(views[1].start_s)
        begun = time.monotonic()
        daemon.stop()
        stops.append(time.monotonic() - begun)
        if not all(view.ok for view in views) or daemon.alive:
            bench.row("mps_daemon_life", False, errors=[view.error for view in views], alive=daemon.alive)
            return
    median = {
        name: round(statistics.median(values), 3)
        for name, values in (
            ("start_s", starts),
            ("first_client_s", firsts),
            ("next_client_s", seconds),
            ("stop_s", stops),
        )
    }
    bench.row("mps_daemon_life", not list(daemons_root().iterdir()), **median)


def shares(bench):
    """Each percentage as a client sees it, then the proof that a GMI process gives itself."""
    daemon = MPSDaemon.start(bench.gpu.uuid, bench.binary)
    try:
        environment = {"CUDA_VISIBLE_DEVICES": bench.gpu.uuid, **daemon.control.environment()}
        seen = {}
        for percentage in ("25", "50", "12.5", "10", "1", "100"):
            view = probe_cuda({**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage})
            seen[percentage] = view.sm_count if view.ok else view.error
        fits = all(
            isinstance(seen[p], int) and 0 < seen[p] <= most_sms(int(p) / 100, bench.gpu.sm_count)
            for p in ("25", "50", "10", "1", "100")
        )
        right = seen["25"] == 32 if bench.gpu.sm_count == 132 else fits
        bench.row("mps_shares", fits and right, sm_count_by_percentage=seen)
    finally:
        daemon.stop()


def memory_cap(bench):
    backend, gmi = MPSBackend(), plan(0, memory_mib=CAP_MIB)
    backend.prepare([gmi, plan(1)], bench.directory / "memory")
    try:
        child = bench.fork("memory", children.fill_memory, backend.environment(gmi), 256, 2 * CAP_MIB)
        status, found = child.wait(40), child.result()
        failure = backend.explain(gmi, child.output())
        bench.row(
            "mps_memory_cap",
            status == 0 and found["failed"] and found["allocated_mib"] < CAP_MIB and failure is not None,
            cap_mib=CAP_MIB,
            found=found,
            code=failure.code if failure else None,
            message=failure.message if failure else child.output()[-400:],
            notes=failure.notes if failure else None,
        )
    finally:
        backend.release()


def lifecycle(bench):
    """One job: proofs, a client killed in the safe order, one killed at once, recovery, and what is left."""
    gmis = [plan(number) for number in range(4)]
    backend = MPSBackend()
    run_dir = bench.directory / "lifecycle"
    begun = time.monotonic()
    backend.prepare(gmis, run_dir)
    bench.row("mps_prepare", True, prepare_s=round(time.monotonic() - begun, 3))
    try:
        environments = [backend.environment(gmi) for gmi in gmis]
        proofs = [bench.fork("prove", children.prove, environments[g.id], "mps", g) for g in gmis]
        statuses = [proof.wait(40) for proof in proofs]
        found = [proof.result() for proof in proofs]
        bench.row("mps_proofs", statuses == [0] * 4, found=found, output=proofs[0].output()[-400:])
        _kills(bench, backend, environments)
        _cohort(bench, backend, environments)
    finally:
        logs = run_dir / "logs" / "mps_gpu_0"
        for name in ("server.log", "control.log"):
            with contextlib.suppress(OSError):
                (bench.output / f"mps_{name}").write_text((logs / name).read_text(errors="replace")[-200_000:])
        control = backend.daemons[0].record.control if backend.daemons else None
        backend.release()
        bench.row("mps_released", control is None or not control.alive)


def _kills(bench, backend, environments):
    """A neighbour works while one client is ended in the safe order and another by SIGKILL."""
    neighbour = bench.fork("neighbour", children.work, environments[0], 14.0, False)
    stubborn = bench.fork("stubborn", children.work, environments[1], 60.0, True)
    if not (neighbour.wait_ready(30) and stubborn.wait_ready(30)):
        bench.row("mps_kill_safe_order", False, error="clients did not start", output=stubborn.output()[-400:])
        return
    begun = time.monotonic()
    os.kill(stubborn.pid, signal.SIGTERM)
    ignored = stubborn.wait(1.0) is None
    backend.quiesce(stubborn.pid)
    quiesced_s = time.monotonic() - begun
    ended_by_itself = stubborn.wait(5.0) is not None
    stubborn.kill()
    failure = backend.explain(plan(1), stubborn.output())
    bench.row(
        "mps_kill_safe_order",
        ignored and stubborn.status is not None and not neighbour.ended(),
        quiesce_s=round(quiesced_s, 3),
        ended_by_itself=ended_by_itself,
        status=stubborn.status,
        explained=failure.message if failure else None,
        output=stubborn.output()[-300:],
        check=str(backend.check()),
    )
    victim = bench.fork("victim", children.work, environments[2], 60.0, False)
    started = victim.wait_ready(30)
    begun = time.monotonic()
    victim.kill()
    replacement = bench.fork("replacement", children.first_kernel, environments[2])
    status = replacement.wait(30)
    replaced_s = time.monotonic() - begun
    neighbour.wait(40)
    bench.row(
        "mps_sigkill",
        started and status == 0 and neighbour.status == 0,
        new_client_after_s=round(replaced_s, 3),
        new_client=replacement.result() or replacement.output()[-300:],
        neighbour=neighbour.result() or neighbour.output()[-300:],
        check=str(backend.check()),
    )


def _cohort(bench, backend, environments):
    """`terminate_client` as the mildest fault: the cohort is ended as a whole, the backend recovers, the next works."""
    cohort = [bench.fork("cohort", children.work, environments[number], 60.0, False) for number in range(2)]
    ready = all(child.wait_ready(30) for child in cohort)
    control = backend.daemons[0].control
    server = control.attached(cohort[0].pid)
    listed = control.clients(server) if server else ()
    begun = time.monotonic()
    if server:
        control.terminate_client(server, cohort[0].pid)
    first_ended = cohort[0].wait(8.0)
    for child in cohort[1:]:
        os.kill(child.pid, signal.SIGTERM)
        if child.wait(3.0) is None:
            backend.quiesce(child.pid)
    for child in cohort:
        child.kill()
    backend.recover()
    recovered_s = time.monotonic() - begun
    following = bench.fork("next", children.first_kernel, backend.environment(plan(0)))
    status = following.wait(30)
    failure = backend.explain(plan(0), cohort[0].output())
    bench.row(
        "mps_cohort",
        ready and first_ended is not None and status == 0,
        clients_listed=len(listed),
        terminated_client_status=first_ended,
        explained=failure.message if failure else None,
        output=cohort[0].output()[-300:],
        recovered_s=round(recovered_s, 3),
        next_run=status,
    )


def two_jobs(bench):
    """Another job on the same GPU starts, works and ends; another one is killed, and cleaned up behind."""
    daemon = MPSDaemon.start(bench.gpu.uuid, bench.binary)
    environment = {
        "CUDA_VISIBLE_DEVICES": bench.gpu.uuid,
        **daemon.control.environment(),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    try:
        first = probe_cuda(environment)
        other, found = _start_job(bench, "polite")
        other_control = ProcessIdentity.of(found["control"])
        both = probe_cuda(environment)
        untouched = reap_stale() == () and other_control is not None and other_control.alive
        other.communicate(timeout=30)
        after = probe_cuda(environment)
        bench.row(
            "two_jobs",
            untouched and daemon.alive and not other_control.alive and all(v.ok for v in (first, both, after)),
            own_sm_count=[first.sm_count, both.sm_count, after.sm_count],
            other=found,
        )
        killed, found = _start_job(bench, "killed")
        orphan = ProcessIdentity.of(found["control"])
        killed.kill()
        killed.wait(10)
        left_behind = orphan is not None and orphan.alive
        reaped = reap_stale()
        view = probe_cuda(environment)
        bench.row(
            "killed_job",
            left_behind and not orphan.alive and reaped == (bench.gpu.uuid,) and daemon.alive and view.ok,
            orphan_was_left=left_behind,
            reaped=reaped,
            own_sm_count=view.sm_count,
        )
    finally:
        daemon.stop()


def _start_job(bench, name):
    ready = bench.directory / f"job_{name}.json"
    script = (
        f"import sys; sys.path[:0] = {sys.path[:2]!r}; import gmi_children\n"
        f"gmi_children.job({str(daemons_root())!r}, {bench.binary!r}, {bench.gpu.uuid!r}, {str(ready)!r})"
    )
    with (bench.directory / f"job_{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
    if not wait_until(lambda: ready.exists() and ready.stat().st_size > 0, 40):
        process.kill()
        raise RuntimeError((bench.directory / f"job_{name}.log").read_text()[-400:])
    return process, json.loads(ready.read_text())


def static_partitions(bench):
    """Where the driver has them; elsewhere the row says what the driver answered."""
    backend = MPSBackend(static_partitions=True)
    gmis = [plan(number) for number in range(4)]
    try:
        backend.prepare(gmis, bench.directory / "static")
        view = probe_cuda(backend.environment(gmis[0]))
        bench.row("static_partitions", view.ok, available=True, sm_count=view.sm_count)
    except Exception as error:
        bench.row("static_partitions", True, available=False, error=str(error)[:300])
    finally:
        backend.release()


def telemetry(bench):
    backend, gmi = MPSBackend(), plan(0, share=0.5)
    backend.prepare([gmi], bench.directory / "telemetry")
    child = bench.fork("watched", children.work, backend.environment(gmi), 5.0, False)
    try:
        child.wait_ready(30)
        with Telemetry(bench.directory, [bench.gpu.uuid], lambda: {child.pid: 0}, period_s=0.5) as watching:
            child.wait(15)
        summary = watching.summary()
        wanted = {"gpu_0/gpu_percent", "gpu_0/power_w", "gmi_0/gpu_memory_mib"}
        bench.row("telemetry", wanted <= summary.keys(), summary=summary)
    finally:
        child.kill()
        backend.release()


def creation(bench):
    """From the fork of a process with torch loaded to the end of its first kernel: one at a time, and four at once."""
    backends = {"timeshare": TimeshareBackend(), "mps": MPSBackend()}
    for name, backend in backends.items():
        gmis = [plan(number, backend=name) for number in range(4)]
        backend.prepare(gmis, bench.directory / f"creation_{name}")
        try:
            environments = [backend.environment(gmi) for gmi in gmis]
            bench.fork("warm", children.first_kernel, environments[0]).wait(30)
            singles = [_created([bench.fork("one", children.first_kernel, environments[0])]) for _ in range(6)]
            together = _created([bench.fork("four", children.first_kernel, each) for each in environments])
            bench.row(
                "gmi_creation",
                True,
                backend=name,
                one_s=round(statistics.median(single["total_s"] for single in singles[1:]), 4),
                context_s=round(statistics.median(single["context_s"] for single in singles[1:]), 4),
                four_at_once_s=round(together["total_s"], 4),
                paper_s=0.05,
            )
        finally:
            backend.release()


def _created(started):
    for child in started:
        if child.wait(30) != 0:
            raise RuntimeError(child.output()[-300:])
    first = started[0].started
    results = [child.result() for child in started]
    return {
        "total_s": max(result["end"] for result in results) - first,
        "context_s": max(result["context"] - result["begun"] for result in results),
    }


def green_contexts(bench):
    child = bench.fork("green", children.green, {"CUDA_VISIBLE_DEVICES": bench.gpu.uuid})
    status, found = child.wait(min(50.0, max(5.0, bench.left()))), child.result()
    child.kill()
    if found is None:
        bench.row("green", False, status=status, output=child.output()[-600:])
        return
    right = found["disjoint"] and found["sms_seen"] == found["part_sms"]
    bench.row("green", right, **{key: value for key, value in found.items() if key != "creation"})
    bench.row("gmi_creation", True, backend="green", one_s=found["creation"]["green_s"], **found["creation"])


def leftovers(bench):
    """No daemon, no shared memory, no process of this run."""
    for child in bench.children:
        child.kill()
    root = str(daemons_root())
    remaining = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := ProcessIdentity.of(int(entry.name))) is not None:
            pipe = process.environment().get("CUDA_MPS_PIPE_DIRECTORY", "")
            if pipe.startswith(root) and process.pid != os.getpid():
                remaining.append(process.command_line()[:100])
    shared = sorted(set(os.listdir("/dev/shm")) - bench.shm_before)
    directories = [entry.name for entry in daemons_root().iterdir()]
    view = probe_cuda({"CUDA_VISIBLE_DEVICES": bench.gpu.uuid})
    bench.row(
        "leftovers",
        not remaining and not shared and not directories and view.sm_count == bench.gpu.sm_count,
        processes=remaining,
        shared_memory=shared,
        daemon_directories=directories,
        gpu_works_afterwards=view.ok,
    )


SECTIONS = (
    (machine, 10),
    (daemon_life, 15),
    (shares, 10),
    (lifecycle, 45),
    (memory_cap, 10),
    (two_jobs, 15),
    (creation, 20),
    (green_contexts, 15),
    (telemetry, 12),
    (static_partitions, 8),
    (leftovers, 0),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=140.0, help="seconds")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--only", default="", help="comma-separated section names")
    options = parser.parse_args()
    if not detect().gpus:
        sys.exit("no NVIDIA GPU on this machine")
    import torch  # loaded once, here; the children are forks. CUDA stays untouched in this process.

    assert not torch.cuda.is_initialized()
    bench = Bench(options.budget, options.output)

    def out_of_time(number, frame):
        raise TimeoutError("the budget is spent")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGTERM, out_of_time)
    signal.alarm(int(options.budget) + 15)
    wanted = set(filter(None, options.only.split(",")))
    try:
        for function, needs_s in SECTIONS:
            if not wanted or function.__name__ in wanted:
                bench.section(function, needs_s)
    finally:
        signal.alarm(0)
        bench.close()


if __name__ == "__main__":
    main()
