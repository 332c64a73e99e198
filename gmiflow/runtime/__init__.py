"""The runtime: what generated programs import, and what starts and watches them.

Importing this package loads no torch, so that the launcher's process stays light; the names below
are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gmiflow.plan import ChannelPlan, CollectivePlan, EdgePlan, GMIPlan, StagePlan, TrainingPlan
from gmiflow.runtime.program import Program

if TYPE_CHECKING:
    from gmiflow.runtime.context import GMIContext
    from gmiflow.runtime.core import GMI, GMIRuntime
    from gmiflow.runtime.policy import load_policy
    from gmiflow.runtime.process import main

__all__ = [
    "GMI",
    "ChannelPlan",
    "CollectivePlan",
    "EdgePlan",
    "GMIContext",
    "GMIPlan",
    "GMIRuntime",
    "Program",
    "StagePlan",
    "TrainingPlan",
    "load_policy",
    "main",
]

_LAZY = {
    "GMI": "gmiflow.runtime.core",
    "GMIContext": "gmiflow.runtime.context",
    "GMIRuntime": "gmiflow.runtime.core",
    "load_policy": "gmiflow.runtime.policy",
    "main": "gmiflow.runtime.process",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
