"""What a run starts from: nothing, its own checkpoints, or the policy of another run. Looked at before it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic
from gmiflow.plan import LaunchPlan, PlanError, StagePlan, TrainingPlan
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.run_directory import META, find_checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Where weights come from.

    Attributes:
        resume: run directory or checkpoint to go on from, for workflows that train.
        policy: run directory or checkpoint whose policy is taken, for workflows that serve.
    """

    resume: Path | None = None
    policy: Path | None = None

    def check(self, plan: LaunchPlan, output: str) -> None:
        """Find the checkpoints; exits with E0707 when one is not there.

        Raises:
            click.UsageError: the workflow does not take them, or all its iterations are made already.
        """
        serves = [training.name for training in plan.trainings if training.mode == "serve"]
        if self.resume is not None:
            if serves:
                message = f"{serves[0]} serves and keeps no checkpoint to go on from"
                raise click.UsageError(f"--resume: {message}; --from RUN takes the policy of a run")
            _require_checkpoints(self.resume, plan, output)
        if self.policy is not None:
            if not serves:
                message = f"{plan.trainings[0].name} trains: --resume RUN goes on with a run"
                raise click.UsageError(f"--from is for workflows with `mode = serve`, and {message}")
            for training in plan.trainings:
                _warn_of_another_agent(_found(self.policy, training.name, output), training)


def _require_checkpoints(resume: Path, plan: LaunchPlan, output: str) -> None:
    """Find the checkpoint of every training before anything starts; exits with E0707 when one is not there.

    Raises:
        click.UsageError: all iterations are made already.
    """
    made: list[int] = []
    for training in plan.trainings:
        checkpoint = _found(resume, training.name, output)
        _warn_of_another_agent(checkpoint, training)
        meta = _meta(checkpoint)
        iteration, seed = meta.get("iteration"), meta.get("seed")
        made.append(iteration if isinstance(iteration, int) else 0)
        if isinstance(seed, int) and seed != training.seed:
            click.echo(
                f"warning: {training.name}: the checkpoint was made with seed {seed}, and this run has seed "
                f"{training.seed}; it goes on with other random numbers",
                err=True,
            )
    if all(count >= training.iterations for count, training in zip(made, plan.trainings, strict=True)):
        most = max(made)
        raise click.UsageError(
            f"--resume {resume}: it has made all {most} iterations; --iterations M with M > {most} goes on"
        )


def _warn_of_another_agent(checkpoint: Path, training: TrainingPlan) -> None:
    """Say which parameters of the agent are not those that the weights were trained with.

    Weights of another size are refused when they are loaded; what has no weights (an activation) nobody else notices.
    """
    now, then = _agent_of(training), _agent_then(checkpoint, training.name)
    if now is None or then is None:
        return
    if now.entry != then.entry:
        changed = [f"as `{then.entry}`, and is `{now.entry}` now"]
    else:
        names = [name for name in now.params if name in then.params and now.params[name] != then.params[name]]
        changed = [
            f"with {name} = {json.dumps(then.params[name])}, and has {json.dumps(now.params[name])} now"
            for name in names
        ]
    for text in changed:
        click.echo(f"note: {training.name}: the agent of the checkpoint was trained {text}", err=True)


def _agent_of(training: TrainingPlan) -> StagePlan | None:
    return next((stage for stage in training.stages if stage.role == "agent"), None)


def _agent_then(checkpoint: Path, training: str) -> StagePlan | None:
    """The agent of the run that wrote a checkpoint; None where its plan is not at hand."""
    file = next((folder / "plan.json" for folder in checkpoint.parents if (folder / "plan.json").is_file()), None)
    if file is None:
        return None
    try:
        trainings = LaunchPlan.from_json(file.read_text(encoding="utf-8")).trainings
    except (OSError, UnicodeDecodeError, PlanError):
        return None
    named = [item for item in trainings if item.name == training]
    chosen = named or (trainings if len(trainings) == 1 else ())
    return _agent_of(chosen[0]) if chosen else None


def _found(path: Path, training: str, output: str) -> Path:
    """The checkpoint of a training; exits with E0707 when there is none."""
    try:
        return find_checkpoint(path, training)
    except GMIError as problem:
        failure = problem.failure
        finish([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)], output)
        raise  # `finish` has ended the process


def _meta(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says about itself; nothing when it is damaged, which loading it reports."""
    try:
        data = json.loads((checkpoint / META).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
