"""Checks and times the GPU collectives on this machine. Needs no launcher: it starts its own processes and MPS.

    PYTHONPATH=. python3 benchmarks/collectives.py --gpus 1 --budget 480
    PYTHONPATH=. python3 benchmarks/collectives.py --gpus 2 --budget 400

One line of JSON per row goes to standard output and to ``$OUT/collectives.jsonl`` (or ``--out``); members' messages
go to one file each. A configuration that fails or hangs is stopped, its last words are printed, and the next begins.
The latency table at the end repeats the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
SAFE = {
    # NVLink multicast stays off: on shared hosts it can take the GPUs out of service.
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


@dataclass
class Configuration:
    """A group of member processes.

    Attributes:
        name: for the rows.
        job: function in ``collective_member.py``.
        gpus: GPUs it spans.
        per_gpu: members on each of them.
        mps: "none", "one" daemon for all GPUs, or one "each".
        limit_s: how long it may take.
        options: further entries of the members' specification.
    """

    name: str
    job: str
    gpus: int = 1
    per_gpu: int = 4
    mps: str = "one"
    limit_s: float = 90.0
    options: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)


class Output:
    """Rows, to standard output and to a file, at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._file = (folder / "collectives.jsonl").open("a", buffering=1)
        self.rows: list[dict] = []

    def row(self, **values: object) -> None:
        """Write one row."""
        line = json.dumps(values)
        self._file.write(line + "\n")
        print(line, flush=True)
        self.rows.append(values)


class Daemon:
    """A private MPS daemon for some GPUs; stops the one it started and no other."""

    def __init__(self, uuids: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gmb", dir="/tmp"))  # short: sockets live in it
        (self.folder / "log").mkdir()
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log"),
            "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        }
        words = self.folder / "start.txt"  # a file: the daemon would keep a pipe open
        with words.open("w") as target:
            environment = {**os.environ, **self.environment}
            command = ["nvidia-cuda-mps-control", "-d"]
            started = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=target, stderr=target, timeout=40
            )
        if started.returncode != 0:
            raise RuntimeError(f"the MPS daemon did not start: {words.read_text()}")

    def stop(self) -> str:
        """Quit; what the daemon logged about trouble."""
        pid = self._pid()
        with contextlib.suppress(subprocess.TimeoutExpired):
            environment = {**os.environ, **self.environment}
            subprocess.run(
                ["nvidia-cuda-mps-control"], input="quit -t 5\n", env=environment, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, text=True, timeout=20,
            )  # fmt: skip
        for sign in (0, signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 5
            while pid and _alive(pid) and time.monotonic() < deadline:
                time.sleep(0.1)
            if pid and _alive(pid) and sign:
                os.kill(pid, sign)
        logs = "".join(path.read_text(errors="replace") for path in sorted((self.folder / "log").glob("*.log")))
        trouble = [
            line for line in logs.splitlines() if any(w in line for w in ("fatal", "INACTIVE", "sticky", "rror"))
        ]
        if pid and _alive(pid):
            trouble.append(f"the daemon {pid} is still there")
        shutil.rmtree(self.folder, ignore_errors=True)
        return "\n".join(trouble[-6:])

    def _pid(self) -> int:
        try:
            return int((self.folder / "nvidia-cuda-mps-control.pid").read_text().strip())
        except (OSError, ValueError):
            return 0


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def run(configuration: Configuration, uuids: list[str], deadline: float, out: Output) -> None:
    """Run one configuration to its end, or stop it; report rows, exit codes and last words."""
    started = time.monotonic()
    limit = min(configuration.limit_s, deadline - started)
    if limit < 20:
        out.row(kind="skipped", configuration=configuration.name, reason="no time left")
        return
    folder = Path(tempfile.mkdtemp(prefix="gmiflow-bench-"))
    daemons: list[Daemon] = []
    members: list[subprocess.Popen] = []
    try:
        chosen = uuids[: configuration.gpus]
        groups = {"none": [], "one": [chosen], "each": [[uuid] for uuid in chosen]}[configuration.mps]
        daemons.extend(Daemon(group) for group in groups)
        members.extend(start_members(configuration, chosen, daemons, folder))
        watch(configuration, members, folder, started + limit, out)
    except Exception as failure:
        out.row(kind="failed", configuration=configuration.name, error=f"{type(failure).__name__}: {failure}")
    finally:
        stop(members)
        trouble = "\n".join(filter(None, (daemon.stop() for daemon in daemons)))
        keep_logs(configuration, folder, out)
        shutil.rmtree(folder, ignore_errors=True)
        left = [member.pid for member in members if _alive(member.pid)]
        out.row(
            kind="configuration", configuration=configuration.name, mps=configuration.mps,
            exit_codes=[member.returncode for member in members], left=left, mps_trouble=trouble,
            seconds=round(time.monotonic() - started, 1),
        )  # fmt: skip


def start_members(
    configuration: Configuration, uuids: list[str], daemons: list[Daemon], folder: Path
) -> list[subprocess.Popen]:
    size = len(uuids) * configuration.per_gpu if uuids else configuration.per_gpu
    cpus = sorted(os.sched_getaffinity(0))
    each = max(1, len(cpus) // size)
    members = []
    for rank in range(size):
        gpu = rank // configuration.per_gpu
        spec = {
            "configuration": configuration.job,
            "rank": rank,
            "size": size,
            "folder": str(folder),
            "device": "cpu" if not uuids else "cuda:0" if configuration.mps == "each" else f"cuda:{gpu}",
            "segment": f"gmiflow-bench-{os.getpid()}-{folder.name[-8:]}",
            "cpus": [cpus[(rank * each + i) % len(cpus)] for i in range(each)],
            **configuration.options,
        }
        path = folder / f"member.{rank}.json"
        path.write_text(json.dumps(spec))
        environment = {**os.environ, **SAFE, **configuration.environment}
        environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
        if daemons:
            environment |= daemons[gpu if configuration.mps == "each" else 0].environment
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // configuration.per_gpu)
        elif uuids:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
        with (folder / f"member.{rank}.log").open("wb") as log:
            command = [sys.executable, str(HERE / "collective_member.py"), str(path)]
            members.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=HERE.parent))
    return members


def watch(
    configuration: Configuration, members: list[subprocess.Popen], folder: Path, deadline: float, out: Output
) -> None:
    """Pass rows on as they come, until all members ended, time is up, or the rest hangs after a failure."""
    seen: dict[Path, int] = {}
    grace = deadline
    while True:
        running = [member for member in members if member.poll() is None]
        for path in sorted(folder.glob("rows.*.jsonl")):
            lines = path.read_text().splitlines()
            for line in lines[seen.get(path, 0) :]:
                out.row(**json.loads(line), configuration=configuration.name)
            seen[path] = len(lines)
        if not running:
            return
        if any(member.returncode not in (None, 0) for member in members):
            grace = min(grace, time.monotonic() + 30)
        if time.monotonic() > min(grace, deadline):
            out.row(kind="stopped", configuration=configuration.name, running=[m.pid for m in running])
            return
        time.sleep(0.1)


def stop(members: list[subprocess.Popen]) -> None:
    """Ask, then end by force; only processes that this program started."""
    for member in members:
        if member.poll() is None:
            member.terminate()
    deadline = time.monotonic() + 5
    while any(member.poll() is None for member in members) and time.monotonic() < deadline:
        time.sleep(0.1)
    for member in members:
        if member.poll() is None:
            member.kill()
    for member in members:
        try:
            member.wait(10)
        except subprocess.TimeoutExpired:
            print(f"process {member.pid} does not end", file=sys.stderr)


def keep_logs(configuration: Configuration, folder: Path, out: Output) -> None:
    """Append all members' messages to one file of the output, and print the ends of those that failed."""
    with (out.folder / "collectives.log").open("a") as target:
        for path in sorted(folder.glob("member.*.log")):
            text = path.read_text(errors="replace")
            target.write(f"==== {configuration.name} {path.name}\n{text}\n")
            if "Traceback" in text:
                print(f"---- {configuration.name} {path.name}\n{text[-1500:]}", file=sys.stderr, flush=True)


def plan(gpus: int, sizes: list[int], per_gpu: list[int], mps: bool) -> list[Configuration]:
    options = {"sizes": sizes, "variants": []}
    tuned = ["one_shot", "two_shot", "slab_4MiB", "slab_64MiB", "ctas_8", "ctas_16", "ctas_64"]
    lost = {"in_flight": False}
    if gpus > 1:
        return [
            Configuration(f"probe.{gpus}gpu", "probe", gpus, 1, "none", 60),
            Configuration(f"rp.{gpus}gpu", "ring", gpus, 1, "none", 90, options),
            *(
                Configuration(f"hybrid.{gpus}x{count}.mps_{kind}", "two_level", gpus, count, kind, 120, options)
                for count in per_gpu
                for kind in ("one", "each")
            ),
        ]
    if not mps:
        return [Configuration("without_mps.2", "without_mps", 1, 2, "none", 90, options)]
    first = per_gpu[0]
    return [
        Configuration("probe.none", "probe", 1, 1, "none", 60),
        Configuration("probe.mps", "probe", 1, first, "one", 60),
        *(
            Configuration(
                f"ipc.{count}", "one_gpu", 1, count, "one", 150,
                {**options, "variants": tuned if count == first else ["one_shot", "two_shot"]},
            )
            for count in per_gpu
        ),
        Configuration("lost.4", "lost_member", 1, 4, "one", 75, lost),
        Configuration("probe.after_loss", "probe", 1, 1, "one", 60),
        Configuration("without_mps.2", "without_mps", 1, 2, "none", 90, options),
        Configuration("killed.4", "lost_member", 1, 4, "one", 75, {"in_flight": True}),
        Configuration("probe.after_kill", "probe", 1, 1, "one", 60),
        Configuration(
            "symmetric.4", "symmetric", 1, 4, "one", 75, options, {"TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1"}
        ),
    ]  # fmt: skip


def table(rows: list[dict]) -> str:
    """Latencies as text: one line per configuration and collective, one column per size."""
    latencies: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row.get("kind") == "latency":
            for column in ("graph_us", "eager_us", "two_shot_us", "one_shot_us"):
                if column in row:
                    key = (str(row["configuration"]), str(row["collective"]), column.removesuffix("_us"))
                    latencies.setdefault(key, {})[row["bytes"]] = row[column]
    sizes = sorted({size for values in latencies.values() for size in values})
    head = f"{'microseconds per call':44}" + "".join(f"{size // 1024:>9}K" for size in sizes)
    lines = [head]
    for (configuration, collective, how), values in latencies.items():
        cells = "".join(f"{values[size]:>10.1f}" if size in values else f"{'-':>10}" for size in sizes)
        lines.append(f"{configuration + ' ' + collective + ' ' + how:44}{cells}")
    return "\n".join(lines)


def gpu_uuids() -> list[str]:
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
    except FileNotFoundError:
        return []
    return [line.split("UUID: ")[1].rstrip(")") for line in listing.splitlines() if "UUID: GPU-" in line]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--gmis", default="", help="members per GPU, for example 4,2,8")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes")
    parser.add_argument("--budget", type=float, default=480, help="seconds for everything")
    parser.add_argument("--only", default="", help="comma-separated beginnings of configuration names")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.budget - 15
    out = Output(arguments.out)
    uuids = gpu_uuids()
    out.row(kind="machine", gpus=uuids, cpus=len(os.sched_getaffinity(0)), date=time.strftime("%Y-%m-%d"))
    if len(uuids) < arguments.gpus:
        print(f"{arguments.gpus} GPUs wanted, {len(uuids)} found", file=sys.stderr)
        return 1
    per_gpu = [int(text) for text in (arguments.gmis or ("4,2,8" if arguments.gpus == 1 else "2")).split(",")]
    sizes = [int(text) for text in arguments.sizes.split(",")]
    mps = shutil.which("nvidia-cuda-mps-control") is not None
    wanted = tuple(filter(None, arguments.only.split(",")))
    for configuration in plan(arguments.gpus, sizes, per_gpu, mps):
        if not wanted or configuration.name.startswith(wanted):
            run(configuration, uuids, deadline, out)
    print(table(out.rows), flush=True)
    bad = [row for row in out.rows if row.get("ok") is False or row.get("kind") in ("failed", "stopped", "skipped")]
    print(f"{len(bad)} rows report trouble", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
