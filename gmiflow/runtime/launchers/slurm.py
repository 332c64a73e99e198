"""`slurm`: a job script that starts the ranks with `srun` and watches them. No torch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gmiflow import __version__
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.launchers.mpi import AGENT

SCRIPT = "job.sbatch"

_TEMPLATE = """\
#!/bin/bash
# Written by gmiflow {version}: workflow {workflow} of {file}, {gmis} GMIs in {ranks} processes.
# Submit it with: sbatch {script}
{directives}

set -uo pipefail
run={run}

# Watches the ranks, writes metrics and report into the run directory, and decides how the job ends.
{watch} &
watcher=$!

# One rank for each process of the plan, in order; a rank finds its cores, its GPU and its environments itself.
{srun} &
ranks=$!

wait "$watcher"
status=$?
wait "$ranks"
exit "$status"
"""


def job_script(
    plan: LaunchPlan,
    run_dir: Path,
    *,
    nodes: int = 1,
    options: Sequence[str] = (),
    resume: Path | None = None,
    policy: Path | None = None,
) -> str:
    """The text of the script.

    Args:
        plan: what to run.
        run_dir: of the run, under the same path on all nodes.
        nodes: how many machines; processes and GPUs are spread over them evenly.
        options: further words for `#SBATCH` lines, such as "--partition=gpu".
        resume: checkpoint or run directory to go on from.
        policy: checkpoint or run directory whose policy is served.

    Raises:
        GMIError: E0711 when processes or GPUs do not spread evenly, or a word has a line end.
    """
    run_dir = run_dir.resolve()
    processes = plan.processes()
    ranks = len(processes)
    if ranks % nodes:
        raise error(LAUNCH_FAILED, f"{ranks} processes do not spread evenly over {nodes} nodes")
    cores = max(sum(gmi.cores for gmi in gmis) for gmis in processes.values())
    directives = [
        f"--job-name=gmiflow-{plan.source.workflow}",
        f"--nodes={nodes}",
        f"--ntasks={ranks}",
        f"--ntasks-per-node={ranks // nodes}",
        f"--cpus-per-task={cores}",
        *_gpu_directive(plan, nodes),
        f"--output={run_dir}/logs/slurm-%j.log",
        *options,
    ]
    for word in (*directives, plan.source.file, str(run_dir)):
        if len(word.splitlines()) > 1 or word[-1:] in ("\n", "\r"):
            raise error(LAUNCH_FAILED, f"{word!r} has a line end, which a job script cannot hold in an #SBATCH line")
    python = shlex.quote(sys.executable)
    watch = f'{python} -m gmiflow.cli run "$run/plan.json" --run-dir "$run" --launcher attach'
    watch += f" --resume {shlex.quote(str(resume.resolve()))}" if resume is not None else ""
    watch += f" --from {shlex.quote(str(policy.resolve()))}" if policy is not None else ""
    mpi = " --mpi=pmix" if nodes > 1 else ""
    gpus = "" if plan.target.device == "cpu" else " --gpu-bind=none"
    return _TEMPLATE.format(
        version=__version__,
        workflow=plan.source.workflow,
        file=plan.source.file,
        gmis=len(plan.gmis),
        ranks=ranks,
        script=shlex.quote(str(run_dir / SCRIPT)),
        directives="\n".join(f"#SBATCH {directive}" for directive in directives),
        run=shlex.quote(str(run_dir)),
        watch=watch,
        srun=f'srun --ntasks={ranks} --distribution=block --cpu-bind=none{gpus}{mpi} {python} -m {AGENT} "$run"',
    )


def _gpu_directive(plan: LaunchPlan, nodes: int) -> list[str]:
    if plan.target.device == "cpu":
        return []
    gpus = len({gmi.device for gmi in plan.gmis})
    if gpus % nodes:
        raise error(LAUNCH_FAILED, f"{gpus} GPUs do not spread evenly over {nodes} nodes")
    return [f"--gpus-per-node={gpus // nodes}"]
