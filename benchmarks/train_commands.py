"""The sections of train_gpu.py that run other programs: `gmiflow run` and simulators.py."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from train_setting import SOURCE

HERE = Path(__file__).resolve().parent


def slicing(bench):
    """The same training cut into GMIs of each backend, with a fixed total and with as many environments on each.

    Then replicas: whole trainings side by side, as streams of one process and as clients of MPS.
    """
    options = bench.options
    base = (options.num_env or [4096])[0]
    cuts = [(1, base), *((k, base) for k in options.slices), *((k, k * base) for k in options.slices)]
    for backend in options.backends:
        for gmis, num_env in cuts if backend == options.backends[0] else cuts[1:]:
            guarded(bench, gmis, num_env, 1, backend)
    for backend in ("auto", "mps"):
        guarded(bench, 1, base, options.replicas, backend)


def guarded(bench, gmis, num_env, copies, backend):
    """`run_command`, if there is time."""
    name = f"slicing {gmis} GMIs, {num_env} env, {copies} replicas, {backend}"
    if bench.left() < 45:
        bench.emit("skipped", name=name, reason="no time left for it")
        return
    run_command(bench, name, gmis, num_env, copies, backend)


def run_command(bench, name, gmis, num_env, copies, backend):
    """One `gmiflow run`; steps per second from the times of its iterations, the first third left out."""
    options = bench.options
    directory = bench.directory / name.replace(" ", "_").replace(",", "")
    setting = bench.setting("ant", num_env=num_env)
    cuda = options.device == "cuda"
    place = {
        "workflow.iterations": options.iterations,
        "workflow.execution": "graph" if cuda else "eager",
        "workflow.replicas": copies,
        "target.gmi_per_gpu": gmis,
        "target.backend": "cpu" if not cuda else "timeshare" if gmis * copies == 1 else backend,
    }
    if copies == 1:
        del place["workflow.replicas"]
    pairs = [f"--set={path}={value}" for path, value in (*setting.overrides(), *place.items())]
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(SOURCE), "-w", "train_ant", "--format", "json"]
    command += [*pairs, "--run-dir", str(directory / "run")]
    command += [] if cuda else ["--target", "cpu"]
    directory.mkdir()
    out, log = directory / "stdout", directory / "stderr"
    environment = with_paths(HERE.parent, HERE)
    with out.open("w") as stdout, log.open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, env=environment, cwd=HERE.parent, start_new_session=True
        )
        code = wait(process, min(options.limit_s, bench.left() - 10))
    where = {"gmis": gmis, "num_env": num_env, "replicas": copies, "backend": place["target.backend"]}
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    steps = [row for row in rows if row.get("event") == "Iteration"]
    if code != 0 or not steps:
        bench.emit("error", name=name, **where, code=code, error=log.read_text()[-900:])
        return
    rates, shares = {}, []
    for training in sorted({row["training"] for row in steps}):
        own = [row for row in steps if row["training"] == training]
        own = own[len(own) // 3 :]
        rates[training] = statistics.median(row["env_steps"] / row["seconds"] for row in own)
        shares += [row["communicate_s"] / row["seconds"] for row in own]
    bench.emit(
        "slicing",
        **where,
        execution=place["workflow.execution"],
        steps_per_s=round(sum(rates.values())),
        communication_share=round(statistics.median(shares), 4),
        iterations=options.iterations,
        start_s=next((row.get("start_s") for row in rows if row.get("event") == "Started"), None),
    )


def with_paths(*paths):
    """The environment with ``paths`` in front of where Python looks."""
    known = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *known])}


def wait(process, limit_s):
    """Exit code within ``limit_s``; else stop the run as Ctrl-C does, then harder. Only what was started here ends."""
    for number, patience_s in ((signal.SIGINT, limit_s), (signal.SIGINT, 15), (signal.SIGKILL, 15)):
        try:
            return process.wait(max(1.0, patience_s))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    return process.wait()


def simulators(bench):
    """Bare simulators: MuJoCo Warp in graphs on the GPU, `mujoco.batch` on all cores beside it."""
    options = bench.options
    sizes = [str(size) for size in options.num_env or [1024, 4096, 16384, 65536]]
    cores = str(len(os.sched_getaffinity(0)))
    shared = ["--task", *options.tasks, "--rounds", str(options.rounds)]
    cpu = [
        "--num-env",
        *sizes[:2],
        "--engine",
        "mujoco",
        "--threads",
        cores,
        "--env-steps",
        str(options.env_steps // 10),
    ]
    cuda = ["--num-env", *sizes, "--device", "cuda", "--graph", "--env-steps", str(options.env_steps)]
    for name, own in (("mjwarp", cuda), ("mujoco", cpu))[0 if options.device == "cuda" else 1 :]:
        out, log = bench.directory / f"{name}.out", bench.directory / f"{name}.log"
        with out.open("w") as stdout, log.open("w") as stderr:
            command = [sys.executable, str(HERE / "simulators.py"), *shared, *own]
            environment = with_paths(HERE.parent)
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment, cwd=bench.directory)
            code = wait(process, min(options.limit_s, bench.left() - 5))
        for line in out.read_text().splitlines():
            if line.startswith("{"):
                bench.emit("simulator", **json.loads(line))
        if code != 0:
            bench.emit("error", name=f"simulators {name}", code=code, error=log.read_text()[-900:])
