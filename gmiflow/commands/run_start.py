"""What a run starts from: nothing, its own checkpoints, or the policy of another run. Looked at before it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic
from gmiflow.plan import LaunchPlan, PlanError, StagePlan, TrainingPlan
from gmiflow.rl.layout import declared_policy
from gmiflow.runtime.checkpoint_header import another_policy, read_shapes, require_environments, require_whole
from gmiflow.runtime.checkpoint_meta import read_meta
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.run_directory import POLICY, find_checkpoint


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
        """Look at the checkpoints before anything starts; exits with E0707 when one cannot be used.

        Raises:
            click.UsageError: the workflow does not take them, or all its iterations are made already.
        """
        serves = [training.name for training in plan.trainings if training.mode == "serve"]
        if self.resume is not None and serves:
            message = f"{serves[0]} serves and keeps no checkpoint to go on from"
            raise click.UsageError(f"--resume: {message}; --from RUN takes the policy of a run")
        if self.policy is not None and not serves:
            message = f"{plan.trainings[0].name} trains: --resume RUN goes on with a run"
            raise click.UsageError(f"--from is for workflows with `mode = serve`, and {message}")
        try:
            if self.resume is not None:
                _require_checkpoints(self.resume, plan)
            if self.policy is not None:
                for training in plan.trainings:
                    checkpoint = find_checkpoint(self.policy, training.name)
                    read_meta(checkpoint)
                    _require_policy(checkpoint, training)
        except GMIError as problem:
            failure = problem.failure
            finish([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)], output)


def _require_checkpoints(resume: Path, plan: LaunchPlan) -> None:
    """Look at the checkpoint of every training.

    Raises:
        GMIError: E0707 when one is not there, damaged, or another training's.
        click.UsageError: all iterations are made already.
    """
    made: list[int] = []
    for training in plan.trainings:
        checkpoint = find_checkpoint(resume, training.name)
        meta = read_meta(checkpoint)
        require_environments(checkpoint, meta, training.name, training.num_env)
        _require_policy(checkpoint, training)
        require_whole(checkpoint, meta)
        made.append(meta.iteration)
        if meta.seed != training.seed:
            click.echo(
                f"warning: {training.name}: the checkpoint was made with seed {meta.seed}, and this run has seed "
                f"{training.seed}; it goes on with other random numbers",
                err=True,
            )
    if all(count >= training.iterations for count, training in zip(made, plan.trainings, strict=True)):
        most = max(made)
        raise click.UsageError(
            f"--resume {resume}: it has made all {most} iterations; --iterations M with M > {most} goes on"
        )


def _require_policy(checkpoint: Path, training: TrainingPlan) -> None:
    """Hold the policy of a checkpoint against the agent of a training.

    Which parameters of the agent changed is told in any case: what has no weights (an activation) nobody else notices.

    Raises:
        GMIError: E0707 when it is cut off, or when the agent's declaration alone tells that it is another policy.
    """
    saved, agent = read_shapes(checkpoint / POLICY), _agent_of(training)
    if agent is None:
        return
    changed = _changes(agent, _agent_then(checkpoint, training.name))
    here = declared_policy(agent.entry, agent.params, agent.shapes)
    if here is not None and (problem := another_policy(checkpoint, saved, here, *changed)) is not None:
        raise problem
    for text in changed:
        click.echo(f"note: {training.name}: {text}", err=True)


def _changes(now: StagePlan, then: StagePlan | None) -> list[str]:
    """What the agent that weights were trained with had otherwise; nothing where it is not known."""
    if then is None:
        return []
    trained = "the agent of the checkpoint was trained"
    if now.entry != then.entry:
        return [f"{trained} as `{then.entry}`, and is `{now.entry}` now"]
    return [
        f"{trained} with {name} = {json.dumps(old[name])}, and has {json.dumps(new[name])} now"
        for old, new in ((then.shapes, now.shapes), (then.params, now.params))
        for name in new
        if name in old and new[name] != old[name]
    ]


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
