"""`gmiflow run`: compile (or read a plan), show it, start it, watch it, sum it up."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gmiflow.commands import run_place, run_profile
from gmiflow.commands.compile import write
from gmiflow.commands.durations import Duration
from gmiflow.commands.failures import as_diagnostics
from gmiflow.commands.launchers import Chosen, chosen_launcher, launcher_options
from gmiflow.commands.options import SHORTCUTS, chosen_options, compile_options, profile_options
from gmiflow.commands.plan_view import headline, promise, table
from gmiflow.commands.report import finish, show, unless_unwritable
from gmiflow.commands.run_start import Start
from gmiflow.diagnostics import Diagnostic
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Compilation, Options, compile_file
from gmiflow.plan import LaunchPlan, PlanError
from gmiflow.plan_check import read_plan
from gmiflow.profiles import plans


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What is about to run.

    Attributes:
        params: parameters of the file as (name, value, origin).
        sources: `.gmi` files to keep in the run directory.
        workflow: that was compiled; None for a plan.json.
    """

    plan: LaunchPlan
    programs: dict[str, str]
    params: list[dict[str, Any]]
    sources: list[tuple[str, str]]
    workflow: Workflow | None = None


@click.command(name="run")
@click.argument("file", type=click.Path(), required=False)
@compile_options
@profile_options
@click.option("--resume", metavar="RUN", type=click.Path(), help="Go on from a run directory or a checkpoint.")
@click.option(
    "--from", "policy", metavar="RUN", type=click.Path(), help="Serve the policy of a run directory or a checkpoint."
)
@click.option("--deterministic", is_flag=True, help="Serve the likeliest actions: --set workflow.deterministic=true.")
@click.option("--run-dir", metavar="DIR", type=click.Path(), help="Default: runs/<workflow>-<date>-<time>.")
@click.option("--no-profile", is_flag=True, help="Do not measure first when num_env = auto and nothing is known.")
@click.option(
    "--profile-budget",
    type=Duration(),
    default="120s",
    show_default=True,
    metavar="TIME",
    help="How long that may take.",
)
@click.option("--dry-run", is_flag=True, help="Print everything that would be started, and start nothing.")
@launcher_options
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str | None,
    resume: str | None,
    policy: str | None,
    run_dir: str | None,
    no_profile: bool,
    profile_budget: float,
    dry_run: bool,
    output: str,
    **chosen: Any,  # noqa: ANN401 - click
) -> None:
    """Compile FILE and run it, or run a plan.json.

    With num_env = auto it measures first which size suits this machine, unless a profile is there (`gmiflow profile`).

    A workflow with `mode = serve` starts with a fresh policy, or with that of another run: --from RUN.

    A directory that holds a run is not written over: a new run gets another --run-dir, or goes on with --resume. One
    whose run ended before its first iteration was over is used again.
    With --resume and without FILE, the plan of that run goes on. Ctrl-C, SIGTERM and a terminal that is closed end
    at the next iteration with a checkpoint (the latter two within 20 s); a second signal ends at once.
    """
    launcher = chosen_launcher(chosen)
    if file is None and resume is None:
        raise click.UsageError("name a .gmi file, a plan.json, or a run with --resume")
    may_profile = not (no_profile or dry_run or resume is not None) and launcher.name == "local"
    job = _prepare(file, resume, output, chosen, budget_s=profile_budget if may_profile else 0.0)
    start = Start(resume=Path(resume) if resume else None, policy=Path(policy) if policy else None)
    start.check(job.plan, output)
    directory = Path(run_dir or Path("runs") / f"{job.plan.source.workflow}-{time.strftime('%Y%m%d-%H%M%S')}")
    run_place.require_writable(directory)
    if not run_dir:
        directory = run_place.unused(directory, make=not dry_run)
    with contextlib.nullcontext() if dry_run else run_place.claimed(directory):
        if resume is None:
            run_place.require_fresh(directory, file)
        if output == "text":
            _show_plan(job)
        if dry_run:
            _show_commands(job, directory, start, launcher)
        elif launcher.name == "slurm":
            _write_job(job, directory, start, launcher)
        else:
            _remember(job.plan, file)
            sys.exit(_run(job, directory, start, output, launcher))


def _prepare(
    file: str | None, resume: str | None, output: str, chosen: dict[str, Any], *, budget_s: float = 0.0
) -> Job:
    """The plan from a `.gmi` file, a plan.json or an earlier run; exits with diagnostics."""
    if file is not None and not file.endswith(".json"):
        options = chosen_options(chosen)
        compilation = _compile(file, options, output)
        if run_profile.measured(compilation, options, budget_s):
            compilation = _compile(file, options, output, known=compilation.diagnostics)
        assert compilation.plan and compilation.programs and compilation.workflow
        params = [{"name": n, "value": v, "origin": o} for n, v, o in compilation.workflow.params]
        flags = {**SHORTCUTS, "deterministic": "workflow.deterministic"}
        shortcuts = {path: name for name, path in flags.items() if chosen.get(name)}
        params += _settings_given(options.overrides, {item["name"] for item in params}, shortcuts)
        sources = [(Path(s.name).name, s.text) for s in compilation.checked.sources if not s.name.startswith("std")]
        return Job(
            plan=compilation.plan,
            programs=compilation.programs,
            params=params,
            sources=sources,
            workflow=compilation.workflow,
        )
    path = Path(file) if file is not None else _run_directory(Path(str(resume))) / "plan.json"
    return _from_plan(path, chosen)


def _compile(file: str, options: Options, output: str, known: Sequence[Diagnostic] = ()) -> Compilation:
    """Compile a `.gmi` file; shows the diagnostics that are not ``known``, and exits if one is an error."""
    compilation = compile_file(file, options, require_workflow=True)
    new = [problem for problem in compilation.diagnostics if problem not in known]
    finish(new, output if compilation.failed else "text")  # stdout of a run is its events
    return compilation


def _from_plan(path: Path, chosen: dict[str, Any]) -> Job:
    """Read a plan; of the compiler's options only --iterations applies to it."""
    from gmiflow.codegen.render import render

    given = [name for name, value in chosen.items() if value and name != "iterations"]
    if given:
        flag = {"settings": "--set"}.get(given[0], f"--{given[0].replace('_', '-')}")
        raise click.UsageError(f"{path} is compiled already: {flag} needs the .gmi file")
    try:
        plan = read_plan(path.read_text(encoding="utf-8"))
        if chosen.get("iterations") is not None:
            plan = _with_iterations(plan, str(chosen["iterations"]))
        programs = render(plan)
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except (PlanError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
    except RecursionError as error:
        raise click.UsageError(f"{path}: it is nested too deeply") from error
    return Job(
        plan=plan,
        programs=programs,
        params=run_place.params_beside(path),
        sources=run_place.sources_beside(path),
    )


def _with_iterations(plan: LaunchPlan, given: str) -> LaunchPlan:
    """The plan with `--iterations` in all trainings."""
    if not (given.isascii() and given.isdigit() and len(given) < 16 and int(given) > 0):
        raise click.UsageError(f"--iterations {given:.40}: expected a whole number, 1 or more")
    trainings = tuple(dataclasses.replace(training, iterations=int(given)) for training in plan.trainings)
    return dataclasses.replace(plan, trainings=trainings)


def _run_directory(resume: Path) -> Path:
    """The run directory that ``resume`` is, or that the checkpoint ``resume`` lies in."""
    for folder in (resume, *resume.parents):
        if (folder / "plan.json").exists():
            return folder
    raise click.UsageError(f"--resume {resume}: neither a run directory nor a checkpoint in one")


def _show_plan(job: Job) -> None:
    from rich.console import Console

    with unless_unwritable():
        for line in (*headline(job.plan), *promise(job.plan)):
            click.echo(line, err=True)
        console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)
        with console.capture() as drawn:
            console.print(table(job.plan))
        for line in drawn.get().splitlines():
            click.echo(line.rstrip(), err=True)
        if job.workflow is not None and (hint := run_profile.hint(job.workflow, job.plan)):
            click.echo(hint, err=True)


def _remember(plan: LaunchPlan, file: str | None) -> None:
    """Keep what a `.gmi` file became as its last plan, to which `gmiflow plan` compares."""
    if file is not None and not file.endswith(".json"):
        with contextlib.suppress(OSError):
            plans.save_plan(plan)


def _show_commands(job: Job, directory: Path, start: Start, launcher: Chosen) -> None:
    """What `run` would write and start."""
    if launcher.name == "slurm":
        click.echo(_job_script(job.plan, directory, start, launcher), nl=False)
        return
    from gmiflow.runtime.launchers.rank import rank_order
    from gmiflow.runtime.processes import assign_cpus
    from gmiflow.runtime.processes import command as command_of

    plan = job.plan
    programs = f"{len(job.programs)} program{'s' if len(job.programs) != 1 else ''}"
    click.echo(f"would write {directory}/: plan.json, params.json, {programs}, logs, checkpoints")
    for parameter in job.params:
        click.echo(f"param {parameter['name']} = {parameter['value']} ({parameter['origin']})")
    for group in plan.collectives:
        click.echo(f"collective {group.name}: {group.kind} among GMIs {', '.join(map(str, group.members))}")
    cpus = assign_cpus(plan.gmis)
    again = f" --resume {start.resume}" if start.resume else ""
    again += f" --policy {start.policy}" if start.policy else ""
    for gmis in plan.processes().values():
        pinned = ",".join(map(str, sorted({cpu for gmi in gmis for cpu in cpus[gmi.id]})))
        started = " ".join(command_of(gmis, directory / "programs"))
        ids, first = [str(gmi.id) for gmi in gmis], gmis[0]
        click.echo(
            f"{'GMIs' if len(ids) > 1 else 'GMI'} {', '.join(ids)}: backend {first.backend}, CPUs {pinned}, "
            f"{first.threads} thread{'s' if first.threads != 1 else ''}: "
            f"python {started} --rendezvous DIR --run-dir {directory}{again}"
        )
    if launcher.name != "local":
        click.echo(f"started by: {_starter(job.plan, directory, launcher)}")
        click.echo(f"ranks in order: GMI {', '.join(map(str, rank_order(plan)))}")
    click.echo("nothing was started")


def _starter(plan: LaunchPlan, directory: Path, launcher: Chosen) -> str:
    """The command that starts the ranks."""
    from gmiflow.runtime.launchers.mpi import AGENT, MPILauncher, find_mpirun

    starter = launcher.launcher()
    if isinstance(starter, MPILauncher):
        return shlex.join(starter.command(find_mpirun() or "mpirun", len(plan.processes()), directory.resolve()))
    return f"whatever starts {len(plan.processes())} ranks of: {sys.executable} -m {AGENT} {directory.resolve()}"


def _write_job(job: Job, directory: Path, start: Start, launcher: Chosen) -> None:
    """Write the run directory with a job script in it, and say how to submit it."""
    from gmiflow.runtime.launchers.slurm import SCRIPT

    text = _job_script(job.plan, directory, start, launcher)
    _write_run_directory(job, directory)
    script = directory / SCRIPT
    script.write_text(text, encoding="utf-8")
    click.echo(f"submit it with: sbatch {script}", err=True)
    click.echo(script)


def _job_script(plan: LaunchPlan, directory: Path, start: Start, launcher: Chosen) -> str:
    from gmiflow.runtime.failure import GMIError
    from gmiflow.runtime.launchers.slurm import job_script

    nodes = launcher.nodes or 1
    try:
        return job_script(
            plan, directory, nodes=nodes, options=launcher.options, resume=start.resume, policy=start.policy
        )
    except GMIError as problem:
        raise click.UsageError(str(problem)) from problem


def _run(job: Job, directory: Path, start: Start, output: str, launcher: Chosen) -> int:
    """Write the run directory, run, and return the exit code."""
    from gmiflow.commands.run_summary import summarise
    from gmiflow.commands.run_view import choose_view
    from gmiflow.runtime.events import Event, Failure
    from gmiflow.runtime.launch import run_plan

    _write_run_directory(job, directory)
    view = choose_view(job.plan, output, terminal=sys.stderr.isatty())
    failures: list[Failure] = []
    with view as on_event:

        def receive(event: Event) -> None:
            if isinstance(event, Failure):
                failures.append(event)
            with unless_unwritable():  # a full disk behind stdout does not end a training
                on_event(event)

        result = run_plan(
            job.plan,
            directory / "programs",
            directory,
            resume=start.resume,
            policy=start.policy,
            on_event=receive,
            limits=launcher.limits(),
            launcher=launcher.launcher(),
        )
    survived = result.exit_code == 0  # a run that was restarted
    found = as_diagnostics(failures)
    with unless_unwritable():
        told = [dataclasses.replace(problem, severity="warning") if survived else problem for problem in found]
        show(told, by_place=False)
        if output == "text":
            summarise(job.plan, result, directory, launcher)
    return result.exit_code


def _settings_given(
    overrides: Sequence[tuple[str, str]], params: Set[str], shortcuts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What `--set` and its shortcuts (`--num-env`, ...) replaced that is no parameter of the file.

    Settings of the workflow, the target and stages, as text; the last of each path counts, which is a shortcut's.
    """
    return [
        {"name": path, "value": text, "origin": f"--{shortcuts.get(path, 'set').replace('_', '-')}"}
        for path, text in dict(overrides).items()
        if path not in params
    ]


def _write_run_directory(job: Job, directory: Path) -> None:
    try:
        run_place.clear(directory)
        write(directory / "programs", job.plan, job.programs)
        shutil.move(directory / "programs" / "plan.json", directory / "plan.json")
        (directory / "params.json").write_text(json.dumps(job.params, indent=2) + "\n", encoding="utf-8")
        for name, text in job.sources:
            (directory / name).write_text(text, encoding="utf-8")
        (directory / "logs").mkdir(exist_ok=True)
        if job.workflow is not None:
            run_profile.write_key(job.workflow, directory)
    except OSError as error:
        raise run_place.unwritable("the run directory", directory, error) from error
