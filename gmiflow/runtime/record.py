"""What a run leaves in its directory: metrics.jsonl, TensorBoard events, report.json. No torch."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmiflow.runtime.events import Iteration, RunResult
from gmiflow.runtime.run_directory import RunDirectory

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

logger = logging.getLogger(__name__)


def scalars(event: Iteration) -> dict[str, float]:
    """The numbers of an iteration under their TensorBoard tags."""
    values: dict[str, float | None] = {
        "episode/mean_return": event.mean_return,
        "episode/length": event.episode_length,
        "episode/ended": event.episodes,
        "throughput/env_steps_per_s": event.env_steps / event.seconds if event.seconds > 0 else None,
        "time/collect_s": event.collect_s,
        "time/learn_s": event.learn_s,
        "time/communicate_s": event.communicate_s,
        "progress/env_steps": event.total_env_steps,
        **{f"train/{name}": value for name, value in event.metrics.items()},
        **{f"simulator/{name}": value for name, value in event.diagnostics.items()},
        **_channel_scalars(event),
        **{f"serving/{name}": value for name, value in event.serving.items()},
    }
    return {tag: float(value) for tag, value in values.items() if value is not None}


def _channel_scalars(event: Iteration) -> dict[str, float | None]:
    """Of a training whose roles are in different GMIs: what crossed, who waited, how old it was."""
    channels: dict[str, float | None] = {f"channel/{name}": value for name, value in event.channels.items()}
    parts = sum(event.lags.values())
    if not parts:
        return channels
    moved_mib = event.channels.get("received_bytes", 0.0) / 2**20
    return {
        "throughput/training_samples_per_s": event.samples / event.seconds if event.seconds > 0 else None,
        "channel/mib_per_s": moved_mib / event.seconds if event.seconds > 0 else None,
        **channels,
        "staleness/mean": sum(int(lag) * count for lag, count in event.lags.items()) / parts,
        "staleness/max": max(map(int, event.lags)),
    }


class Recorder:
    """Writes every iteration once, whatever the number of GMIs; the step of a curve is the iteration."""

    def __init__(self, run_dir: RunDirectory, trainings: Iterable[str], *, again: bool = False) -> None:
        """Open the files, which are appended to when they exist.

        Several trainings have a TensorBoard run each, below one directory.

        Args:
            run_dir: of the run.
            trainings: their names.
            again: whether the run was restarted from checkpoints, so that iterations may come a second time;
                the first numbers of those are dropped.
        """
        names = list(trainings)
        self._path = run_dir.metrics
        self._again = set(names) if again else set[str]()
        self._broken = False
        self._metrics = run_dir.metrics.open("a", encoding="utf-8")
        only = len(names) == 1
        self._writers = {
            name: _open_writer(run_dir.tensorboard if only else run_dir.tensorboard / name) for name in names
        }

    def iteration(self, event: Iteration, machine: Mapping[str, float] | None = None) -> None:
        """Write one iteration; ``machine`` are further numbers for TensorBoard.

        What cannot be written (a full disk, a directory that is gone) is said once: a curve is not worth the training.
        """
        if self._broken:
            return
        try:
            self._write(event, machine)
        except OSError as problem:
            self._broken = True
            logger.warning("curves are not written any more: %s", problem)

    def _write(self, event: Iteration, machine: Mapping[str, float] | None) -> None:
        if event.training in self._again:
            self._again.remove(event.training)
            self._drop_from(event.training, event.iteration)
        # JSON has no NaN: a diverged run must still leave a file that tools can read.
        line = json.dumps(finite(dataclasses.asdict(event)), allow_nan=False)
        self._metrics.write(line + "\n")
        self._metrics.flush()
        writer = self._writers[event.training]
        extra = {f"machine/{name}": value for name, value in (machine or {}).items()}
        writer.add_event(_summary_event(event.iteration, {**scalars(event), **extra}, event.lags))

    def _drop_from(self, training: str, iteration: int) -> None:
        """Forget a training's iterations from ``iteration`` on, which were made before a restart."""
        from tensorboard.compat.proto import event_pb2

        protocol: Any = event_pb2  # generated; its classes have no types
        self._metrics.close()
        kept: list[str] = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["training"] != training or event["iteration"] < iteration:
                kept.append(line + "\n")
        temporary = self._path.with_suffix(".jsonl.tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        temporary.replace(self._path)
        self._metrics = self._path.open("a", encoding="utf-8")
        start = protocol.SessionLog(
            status=protocol.SessionLog.START
        )  # TensorBoard drops later steps that it read before
        self._writers[training].add_event(protocol.Event(wall_time=time.time(), step=iteration, session_log=start))

    def close(self) -> None:
        """Write what is buffered."""
        for file in (self._metrics, *self._writers.values()):
            try:
                file.close()
            except OSError as problem:
                logger.warning("curves are not complete: %s", problem)


def write_report(path: Path, result: RunResult, details: Mapping[str, Any]) -> None:
    """Write report.json: the result, and ``details`` that only the supervisor knows."""
    failures = [
        {
            "gmi": failure.gmi,
            "training": failure.training,
            "reason": failure.reason,
            **dataclasses.asdict(failure.failure),
        }
        for failure in result.failures
    ]
    report = {
        "status": result.status,
        "exit_code": result.exit_code,
        "wall_s": round(result.wall_s, 3),
        "failures": failures,
        **details,
    }
    text = json.dumps(finite(report), indent=2, allow_nan=False) + "\n"
    temporary = path.with_suffix(".json.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        logger.warning("the report cannot be written: %s", problem)


def finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The value with NaN and infinity as text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}  # type: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]  # type: ignore[reportUnknownVariableType]
    return value


def _open_writer(directory: Path) -> EventFileWriter:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(directory), flush_secs=5)


def _summary_event(step: int, values: Mapping[str, float], lags: Mapping[str, int]) -> Any:  # noqa: ANN401 - a generated class
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary  # type: ignore[reportAttributeAccessIssue]

    entries = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    if lags:
        counts = {int(lag): count for lag, count in lags.items()}
        histogram = HistogramProto(
            min=min(counts),
            max=max(counts),
            num=sum(counts.values()),
            sum=sum(lag * count for lag, count in counts.items()),
            sum_squares=sum(lag * lag * count for lag, count in counts.items()),
            bucket_limit=[lag + 0.5 for lag in range(max(counts) + 1)],
            bucket=[counts.get(lag, 0) for lag in range(max(counts) + 1)],
        )
        entries.append(Summary.Value(tag="staleness/lag", histo=histogram))
    return Event(wall_time=time.time(), step=step, summary=Summary(value=entries))
