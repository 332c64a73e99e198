"""How a run ended, from what its supervisors saw: the result, and the facts of report.json. No torch."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.events import Failure, GMIServing, ReplicaSummary, RunResult, ServingSummary
from gmiflow.runtime.failure import RuntimeFailure
from gmiflow.runtime.merge import TrainingMerger
from gmiflow.runtime.predicted import Memory, against
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.supervisor import Supervisor

_STUDENT_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantile of Student's t distribution for 1, 2, ... degrees of freedom."""

_NORMAL = 1.960
"""The same of the normal distribution; the t distribution with 16 degrees of freedom is at 2.120."""


def result_of(plan: LaunchPlan, supervisors: Sequence[Supervisor], directory: RunDirectory, wall_s: float) -> RunResult:
    """The result of a run whose attempts were watched by ``supervisors``; the last one decides."""
    supervisor = supervisors[-1]
    interrupted = 128 + (supervisor.stopped_by or 0)
    mergers = supervisor.mergers
    checksums = {
        training.name: supervisor.done[first].checksum
        for training in plan.trainings
        if (first := _with_policy(plan, training.name)) in supervisor.done
    }
    mean_return = {name: m.latest.mean_return if m.latest is not None else None for name, m in mergers.items()}
    return RunResult(
        status=supervisor.status,
        exit_code={"finished": 0, "failed": 1, "interrupted": interrupted}[supervisor.status],
        failures=tuple(failure for attempt in supervisors for failure in attempt.failures),
        wall_s=wall_s,
        training_s={name: sum(attempt.mergers[name].seconds for attempt in supervisors) for name in mergers},
        iterations={name: m.latest.iteration if m.latest is not None else 0 for name, m in mergers.items()},
        env_steps={name: sum(attempt.mergers[name].env_steps for attempt in supervisors) for name in mergers},
        mean_return=mean_return,
        checksums=checksums,
        report=directory.report,
        restarts=len(supervisors) - 1,
        replicas=summaries(plan, mean_return),
        serving={
            name: summary
            for name, merger in mergers.items()
            if merger.serving is not None and (summary := merger.serving.summary()) is not None
        },
        lags={name: {int(lag): n for lag, n in m.lags.items()} for name, m in mergers.items() if m.lags},
    )


def _with_policy(plan: LaunchPlan, training: str) -> int:
    """Id of the first GMI of a training that has its policy: in a split serve workflow simulators have none."""
    roles = {stage.name: stage.role for stage in plan.training(training).stages}
    members = plan.members(training)
    able = (gmi.id for gmi in members if any(roles[stage] != "simulator" for stage in gmi.stages))
    return next(able, members[0].id)


def not_started(failure: RuntimeFailure, directory: RunDirectory, wall_s: float) -> RunResult:
    """The result of a run that failed before its first process."""
    event = Failure(gmi=None, training=None, failure=failure, reason="not started")
    return RunResult(
        status="failed",
        exit_code=1,
        failures=(event,),
        wall_s=wall_s,
        iterations={},
        env_steps={},
        mean_return={},
        checksums={},
        report=directory.report,
    )


def replica_groups(plan: LaunchPlan) -> list[tuple[str, ...]]:
    """Names of the trainings that are replicas of each other: equal in all but name and seed."""
    groups: dict[str, list[str]] = {}
    for training in plan.trainings:
        groups.setdefault(repr(dataclasses.replace(training, name="", seed=0)), []).append(training.name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def summaries(plan: LaunchPlan, mean_return: dict[str, float | None]) -> tuple[ReplicaSummary, ...]:
    """What the replicas of each training reached together."""
    found: list[ReplicaSummary] = []
    for names in replica_groups(plan):
        values = [value for name in names if (value := mean_return.get(name)) is not None]
        name = names[0].rpartition(".")[0] or names[0]
        center = statistics.fmean(values) if values else None
        found.append(
            ReplicaSummary(name=name, trainings=names, mean_return=center, half_width=confidence_half_width(values))
        )
    return tuple(found)


def confidence_half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the mean; None for fewer than two values.

    Student's interval: t times the sample's standard deviation divided by the root of the number of values.
    """
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    t = _STUDENT_T[freedom - 1] if freedom <= len(_STUDENT_T) else _NORMAL + 2.4 / freedom
    return t * statistics.stdev(values) / len(values) ** 0.5


def details(plan: LaunchPlan, supervisor: Supervisor, memory: Memory) -> dict[str, Any]:
    """Per training and per GMI: where the time went, what was reached and what was predicted; replicas together."""
    mean_return = {
        name: m.latest.mean_return if m.latest is not None else None for name, m in supervisor.mergers.items()
    }
    return {
        "trainings": {training.name: _training(plan, supervisor, training.name, memory) for training in plan.trainings},
        "replicas": {
            summary.name: {
                "trainings": list(summary.trainings),
                "mean_return": summary.mean_return,
                "confidence_95": None
                if summary.mean_return is None or summary.half_width is None
                else [summary.mean_return - summary.half_width, summary.mean_return + summary.half_width],
            }
            for summary in summaries(plan, mean_return)
        },
    }


def _training(plan: LaunchPlan, supervisor: Supervisor, name: str, memory: Memory) -> dict[str, Any]:
    training = next(training for training in plan.trainings if training.name == name)
    merger = supervisor.mergers[name]
    members = plan.members(name)
    latest = merger.latest
    checksums = sorted({supervisor.done[g.id].checksum for g in members if g.id in supervisor.done} - {""})
    serving = merger.serving.summary() if merger.serving is not None else None
    split = any(channel.training == name for channel in plan.channels)
    return {
        "seed": training.seed,
        "iterations": latest.iteration if latest is not None else 0,
        "execution": {"planned": training.execution, **supervisor.lowering.get(name, {})},
        "env_steps": merger.env_steps,
        "training_s": round(merger.seconds, 3),
        "env_steps_per_s": round(merger.env_steps / merger.seconds, 1) if merger.seconds else None,
        **against(training.prediction, merger.speed.rates(), memory),
        **(_channels(merger) if split and merger.serving is None else {}),
        **(_serving(serving, merger) if serving is not None else {}),
        "mean_return": latest.mean_return if latest is not None else None,
        "episode_length": latest.episode_length if latest is not None else None,
        "metrics": latest.metrics if latest is not None else {},
        "weights": {"checksums": checksums, "equal_on_all_gmis": len(checksums) == 1},
        "gmis": [
            {
                "id": gmi.id,
                "env_offset": gmi.env_offset,
                "num_env": gmi.num_env,
                "host": gmi.host,
                "slice": supervisor.slices[gmi.id],
                "setup_s": round(supervisor.setup_s.get(gmi.id, 0.0), 4),
                "seconds": {stage: round(s, 4) for stage, s in merger.times[gmi.id].items()},
                **(_gmi_serving(serving.gmis[gmi.id]) if serving is not None and gmi.id in serving.gmis else {}),
            }
            for gmi in members
        ],
    }


def _serving(summary: ServingSummary, merger: TrainingMerger) -> dict[str, Any]:
    """Throughput, latency and fairness of a training that only serves; its speed is that of GMIs at their own pace."""
    return {
        "env_steps_per_s": round(summary.steps_per_s, 1),
        "predictions_per_s": round(summary.steps_per_s, 1),
        "latency_ms": _rounded(summary.latency_ms),
        "fairness": {
            "jain": round(summary.fairness, 4),
            "slowest_env_steps_per_s": round(summary.slowest_steps_per_s, 1),
            "fastest_env_steps_per_s": round(summary.fastest_steps_per_s, 1),
        },
        **({"channels": _rounded(merger.channels)} if merger.channels else {}),
    }


def _gmi_serving(gmi: GMIServing) -> dict[str, Any]:
    return {
        "env_steps_per_s": round(gmi.steps_per_s, 1),
        "latency_ms": _rounded(gmi.latency_ms),
        "timed_steps": gmi.timed_steps,
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _channels(merger: TrainingMerger) -> dict[str, Any]:
    """The paper's rates (section 6): predictions per second, and training samples per second; and what channels did."""
    rates = (merger.env_steps, merger.samples)
    pps, ttop = (round(count / merger.seconds, 1) if merger.seconds else None for count in rates)
    lags = dict(sorted(merger.lags.items(), key=lambda item: int(item[0])))
    return {
        "predictions_per_s": pps,
        "training_samples_per_s": ttop,
        "lags": lags,
        "channels": _rounded(merger.channels),
    }
