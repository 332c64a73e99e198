"""One side of asynchronous.py by the real command: `gmiflow run` for so many seconds of training, then Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOK_S = 0.2
STOP_S = 60.0
"""How long a run may take to end after Ctrl-C."""


class RunError(Exception):
    """A run failed or did not come as far in time; the message has its last words."""


def run_for(setting, folder, seconds, limit_s, warm_up=0):
    """Train for ``seconds`` of iterations and stop; the rows of metrics.jsonl.

    Args:
        setting: an `asynchronous_setting.Setting`.
        folder: new; gets the file, the run and what the command prints.
        seconds: of training, start-up and warm-up not counted.
        limit_s: for everything.
        warm_up: iterations before these seconds; their rows come too.

    Raises:
        RunError: when it ended by itself or was too slow.
    """
    folder.mkdir(parents=True)
    file, metrics = folder / "train.gmi", folder / "run" / "metrics.jsonl"
    file.write_text(setting.text())
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(file), "--run-dir", str(folder / "run")]
    known = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(ROOT), *([known] if known else [])])
    deadline = time.monotonic() + limit_s
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths},
            cwd=folder,
            start_new_session=True,
        )
        try:
            while trained(metrics, warm_up) < seconds:
                if process.poll() is not None:
                    raise RunError(f"the run ended with status {process.returncode}: {last_words(folder)}")
                if time.monotonic() > deadline:
                    raise RunError(f"no {seconds:.0f} s of training within {limit_s:.0f} s: {last_words(folder)}")
                time.sleep(LOOK_S)
        finally:
            end(process)
    return rows_of(metrics)


def end(process):
    """Stop what was started here: as Ctrl-C does, then harder."""
    for number, patience_s in ((signal.SIGINT, STOP_S), (signal.SIGTERM, 10.0)):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # its own session
        process.wait()


def rows_of(metrics):
    """The whole lines of a metrics file."""
    try:
        text = metrics.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def trained(metrics, warm_up):
    """Seconds of training so far, those of the first iterations left out."""
    return sum(row["seconds"] for row in rows_of(metrics)[warm_up:])


def last_words(folder):
    """The end of what the command printed."""
    return (folder / "output.txt").read_text(errors="replace")[-600:].strip()


def summary(rows, warm_up):
    """Throughput after the warm-up and over the last two thirds of the rest, and what the channels did."""
    kept = rows[warm_up + (len(rows) - warm_up) // 3 :]
    seconds = sum(row["seconds"] for row in kept)
    channels = [row.get("channels") or {} for row in kept]
    lags = [int(lag) for row in rows for lag in row.get("lags") or {}]
    return {
        "predictions_per_s": round(sum(row["env_steps"] for row in kept) / seconds),
        "training_samples_per_s": round(sum(row["samples"] for row in kept) / seconds),
        "collect_ms": round(1e3 * sum(row["collect_s"] for row in kept) / len(kept), 2),
        "learn_ms": round(1e3 * sum(row["learn_s"] for row in kept) / len(kept), 2),
        "iteration_ms": round(1e3 * seconds / len(kept), 2),
        "agent_wait_ms": round(1e3 * sum(row.get("agent_wait_s", 0.0) for row in channels) / len(kept), 2),
        "trainer_wait_ms": round(1e3 * sum(row.get("trainer_wait_s", 0.0) for row in channels) / len(kept), 2),
        "iterations": len(kept),
        "max_lag": max(lags, default=0),
    }
