"""What the sections of train_gpu.py share: options, deadline, rows, and processes that take turns."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from pathlib import Path

from children import Child, ChildError
from train_setting import SETTINGS

SETUP_S = 150.0
"""How long a child may take to set up; MuJoCo Warp may have kernels to compile."""


class Bench:
    """Options, deadline, rows and directory of one run."""

    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.budget
        self.directory = Path(tempfile.mkdtemp(prefix="train_gpu_"))
        options.output.mkdir(parents=True, exist_ok=True)
        self._rows = (options.output / "train_gpu.jsonl").open("a", buffering=1)
        self._children = 0

    def left(self):
        """Seconds until the budget is spent."""
        return self.end - time.monotonic()

    def emit(self, row, **fields):
        """Print and store one row."""
        line = json.dumps({"row": row, **fields})
        print(line, flush=True)
        self._rows.write(line + "\n")

    def child(self, name, job, *arguments):
        """Start a child that runs a function of train_jobs.py."""
        self._children += 1
        log = self.directory / f"{self._children:02d}_{name}.log"
        return Child(name, log, f"train_jobs:{job}", *arguments)

    def relay(self, needs_s, limit_s, name, job, *arguments):
        """Emit the rows of one child; its failure is a row too."""
        if self.left() < needs_s:
            self.emit("skipped", name=name, reason="no time left for it")
            return
        begun = time.monotonic()
        child = self.child(name, job, *arguments)
        try:
            for row in child.rows(min(limit_s, self.left())):
                fields = dict(row)
                self.emit(fields.pop("row", job), **fields)
        except ChildError as problem:
            self.emit("error", name=name, error=str(problem)[-900:], wall_s=round(time.monotonic() - begun, 1))
        finally:
            child.close()

    def setting(self, task, **changes):
        """The sizes of ``task`` under the options."""
        options = self.options
        changes = {"device": options.device, "seed": options.seed, **changes}
        for name in ("horizon", "epochs", "minibatches", "hidden", "precision"):
            value = getattr(options, name)
            if value is not None:
                changes.setdefault(name, tuple(value) if isinstance(value, list) else value)
        return dataclasses.replace(SETTINGS[options.settings][task], **changes)

    def close(self):
        """Close the file of rows and remove the logs."""
        self._rows.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Sides:
    """The sides of one comparison, each in a process; those that fail drop out with a row."""

    def __init__(self, bench, setting, names):
        self._bench, self._where = bench, {"task": setting.task, "num_env": setting.num_env}
        self.alive = {}
        for name in names:
            self.alive[name] = bench.child(f"{setting.task}_{setting.num_env}_{name}", "serve", name, setting)
        for name, answer in self.each(lambda _, child: child.receive(min(SETUP_S, bench.left()))).items():
            bench.emit("setup", **self._where, side=name, **answer)

    def each(self, action):
        """``action(name, child)`` for every side in turn; answers of those that live."""
        answers = {}
        for name, child in list(self.alive.items()):
            try:
                answers[name] = action(name, child)
            except ChildError as problem:
                self._bench.emit("error", **self._where, side=name, error=str(problem)[-900:])
                child.close()
                del self.alive[name]
        return answers

    def ask(self, limit_s, *request):
        """The same request to every side, one after the other."""
        return self.each(lambda _, child: child.ask(min(limit_s, self._bench.left()), *request))

    def close(self):
        """End all processes."""
        for child in self.alive.values():
            child.close()
