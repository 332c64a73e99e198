"""Layout of a run directory. No torch: launcher and GMIs share it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, error

META = "meta.json"
POLICY = "policy.safetensors"
TRAINER = "trainer.safetensors"
UNFINISHED = ".writing-"
"""How the names of checkpoints begin that are not whole yet."""
REPLACED = ".old-"
"""How the names of checkpoints begin whose successors of the same name take their place."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths below one run directory."""

    path: Path

    @property
    def logs(self) -> Path:
        """Directory of the logs, one file per GMI."""
        return self.path / "logs"

    def log(self, gmi: int) -> Path:
        """What GMI ``gmi`` writes to stdout and stderr."""
        return self.logs / f"gmi_{gmi:02d}.log"

    @property
    def metrics(self) -> Path:
        """One JSON object per line, training and iteration."""
        return self.path / "metrics.jsonl"

    @property
    def report(self) -> Path:
        """Summary of the run."""
        return self.path / "report.json"

    @property
    def tensorboard(self) -> Path:
        """Directory of the event files."""
        return self.path / "tensorboard"

    def checkpoints(self, training: str, *, only_training: bool) -> Path:
        """Checkpoints of a training; several trainings of one run have a directory each."""
        base = self.path / "checkpoints"
        return base if only_training else base / training

    def remove_unfinished(self) -> None:
        """Remove checkpoints that were not whole when their processes ended; none may be at work here.

        They are of no use to anybody, and where the disk is full, they are what fills it. What such a checkpoint was
        about to replace gets its name back.
        """
        for parent in ("checkpoints", "checkpoints/*"):
            for folder in tuple(self.path.glob(f"{parent}/{UNFINISHED}*")):
                shutil.rmtree(folder, ignore_errors=True)
            for replaced in tuple(self.path.glob(f"{parent}/{REPLACED}*")):
                final = replaced.with_name(replaced.name.removeprefix(REPLACED))
                if final.exists():
                    shutil.rmtree(replaced, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):  # it stays under the other name
                        replaced.rename(final)


def checkpoint_name(iteration: int) -> str:
    """Name of the checkpoint after ``iteration`` iterations."""
    return f"iter_{iteration:06d}"


def environments_file(env_offset: int) -> str:
    """File with the state of the slice that starts at global environment ``env_offset``."""
    return f"environments_{env_offset:08d}.safetensors"


def find_checkpoint(path: Path, training: str) -> Path:
    """The checkpoint that ``path`` means: itself, or `last` of the run directory ``path``.

    Raises:
        GMIError: E0707 when there is none.
    """
    candidates = (path, path / "checkpoints" / "last", path / "checkpoints" / training / "last", path / "last")
    for candidate in candidates:
        if os.path.isfile(candidate / META):
            return candidate.resolve()
    message = f"there is no checkpoint of the training {training} in {path}"
    raise error(CHECKPOINT_UNUSABLE, message, *_what_is_there(path))


_SERVED = "a workflow that serves keeps none: name the run whose policy it served"


def _serves(plan: Path) -> bool:
    """Whether a plan, if there is one, is of a workflow without a trainer."""
    try:
        data = json.loads(plan.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    trainings = data.get("trainings") if isinstance(data, dict) else None
    return isinstance(trainings, list) and any(isinstance(t, dict) and t.get("mode") == "serve" for t in trainings)


def _what_is_there(path: Path) -> list[str]:
    """Why no checkpoint was found, where that can be told."""
    if not os.path.lexists(path):
        return ["there is nothing of that name"]
    if not os.path.isdir(path):
        return ["it is a file: name a run directory, or the folder of a checkpoint in one"]
    others = sorted(link.parent.name for link in path.glob("checkpoints/*/last") if (link / META).is_file())
    if not others:
        return [_SERVED] if _serves(path / "plan.json") else []
    return [f"it has those of {', '.join(others)}: name one, for example {path / 'checkpoints' / others[0] / 'last'}"]
