"""The last plan of a workflow: what was saved or run before, to say what changed since.

One file per `.gmi` file, workflow and target, in the folder `plans` beside the profiles. It is a plan.json, so a
reader can look into it, and it is no part of a compilation: plans never depend on it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from gmiflow.plan import LaunchPlan, PlanError
from gmiflow.profiles.store import folder, write_whole


def path_of(plan: LaunchPlan) -> Path:
    """The file of a plan's workflow on its target, whether it is there or not."""
    source = Path(plan.source.file).absolute()
    name = "\0".join((str(source), plan.source.workflow, plan.target.name))
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]
    readable = re.sub(r"[^\w-]", "_", f"{source.stem}-{plan.source.workflow}-{plan.target.name}")[:80]
    return folder() / "plans" / f"{readable}-{digest}.json"


def load_plan(plan: LaunchPlan) -> LaunchPlan | None:
    """What was last saved for the workflow and target of ``plan``; None without any, or with one of another version."""
    try:
        return LaunchPlan.from_json(path_of(plan).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PlanError):
        return None


def save_plan(plan: LaunchPlan) -> Path:
    """Keep a plan as the last one; its file. Raises OSError when it cannot be written."""
    path = path_of(plan)
    write_whole(path, plan.to_json())
    return path
