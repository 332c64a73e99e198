"""What is said of an evaluation, the same in every place. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gmiflow.evaluation.episodes import Outcome

SEED = 12345
"""Of the starts, unless asked otherwise: not one that trainings commonly have."""

MAX_STEPS = 10_000
"""Control steps after which an episode is given up, for simulators that do not say how long theirs are."""


def as_row(outcome: Outcome) -> dict[str, Any]:
    """The numbers of some episodes, for JSON."""
    return {
        "episodes": outcome.episodes,
        "unfinished": outcome.unfinished,
        "mean_return": outcome.mean_return,
        "return_deviation": outcome.return_deviation,
        "episode_length": outcome.mean_length,
        "survival": outcome.survival,
        "measures": dict(outcome.measures),
        "solved": outcome.solved,
    }
