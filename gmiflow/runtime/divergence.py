"""Numbers that are not finite: which stage gave them first. Looked for only when a report or a checkpoint has some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.stages import Stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """Where a number that is not finite was found first.

    Attributes:
        stage: name of the stage.
        what: the port or the weights, for a message.
    """

    stage: str
    what: str


def find_culprit(stages: Stages, rollout: Rollout, names: Mapping[str, str]) -> Culprit | None:
    """The first stage in the order of the data whose numbers are not finite; None when all are.

    Args:
        stages: of the GMI.
        rollout: the latest.
        names: of the stages, by role.
    """
    simulator = names["simulator"]
    for port, value in _tensors(stages.simulator.observe()):
        if _broken(value):
            return Culprit(stage=simulator, what=f"{simulator}.{port}")
    for wanted in dict.fromkeys(names.values()):
        for stage, label, value in rollout.recorded():
            if stage == wanted and _broken(value):
                return Culprit(stage=stage, what=label)
    last = names.get("trainer", names["agent"])
    if any(_broken(value) for value in stages.policy.state_dict().values()):
        return Culprit(stage=last, what="the policy")
    return None


def _broken(value: Tensor) -> bool:
    return value.is_floating_point() and not bool(torch.isfinite(value).all())


def _tensors(ports: Mapping[str, Any]) -> Iterable[tuple[str, Tensor]]:
    for name, value in ports.items():
        if isinstance(value, Tensor):
            yield name, value
