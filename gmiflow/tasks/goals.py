"""When a task counts as solved, and what its episodes are measured by.

A return alone says little to somebody who has not written the reward. So every task also has numbers in units of
the world, metres per second or metres, which `gmiflow eval` takes from a trained policy; a goal bounds them. No
torch here: the compiler side prints them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Goal", "Measure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A number about an episode.

    Attributes:
        name: short, for tables and JSON.
        unit: "m/s" for example; "" for counts and shares.
        over: what is made of its values at the steps of an episode.
        meaning: the number at one step, in a few words.
        at_least, at_most: what the mean over episodes must reach for the task to be solved; None: nothing.
    """

    name: str
    unit: str
    over: Literal["mean", "sum", "max", "last"]
    meaning: str
    at_least: float | None = None
    at_most: float | None = None

    def reached(self, value: float) -> bool:
        """Whether ``value``, a mean over episodes, is good enough; NaN is not."""
        low = -float("inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return low <= value <= high

    @property
    def bound(self) -> str:
        """What is asked for, for example ">= 3 m/s"; "" for nothing."""
        pairs = ((">=", self.at_least), ("<=", self.at_most))
        return ", ".join(f"{sign} {value:g} {self.unit}".rstrip() for sign, value in pairs if value is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What a policy must reach, without exploration and on average over episodes, for a task to be solved.

    Attributes:
        mean_return: least return of the unscaled reward.
        survival: least share of episodes that are not terminated before their time.
        measures: what the behaviour is measured by.
    """

    mean_return: float
    survival: float = 0.0
    measures: tuple[Measure, ...] = ()

    def reached(self, mean_return: float, survival: float, values: Mapping[str, float]) -> bool:
        """Whether return, survival and every measure (by name) are good enough."""
        return (
            mean_return >= self.mean_return
            and survival >= self.survival
            and all(measure.reached(values[measure.name]) for measure in self.measures)
        )


UPRIGHT = Measure(name="pole_angle", unit="rad", over="mean", meaning="angle between the pole and the vertical")

RUNNING = Measure(
    name="forward_speed", unit="m/s", over="mean", meaning="torso's velocity towards the target, +x", at_least=3.0
)

RUNNING_ON_TWO_FEET = Measure(
    name="forward_speed", unit="m/s", over="mean", meaning="torso's velocity towards the target, +x", at_least=2.0
)

HELD_M, HELD_OVER_S = 0.05, 0.5
"""A ball is held that is so near to where it has been on average over so long: one that drifts at 0.1 m/s is not, one
that trembles with the tray is."""

HELD_BALL = (
    Measure(
        name="held",
        unit="",
        over="last",
        meaning=f"share of episodes with the ball within {HELD_M:g} m of its place over the last {HELD_OVER_S:g} s",
        at_least=0.9,
    ),
    Measure(
        name="ball_distance", unit="m", over="last", meaning="ball's distance from the goal, (0, 0, 0.7)", at_most=0.1
    ),
)
"""A dropped ball is falling when its episode ends."""

TRACKING = (
    Measure(
        name="velocity_error",
        unit="m/s",
        over="mean",
        meaning="length of commanded less actual horizontal velocity",
        at_most=0.3,
    ),
    Measure(name="turning_error", unit="rad/s", over="mean", meaning="commanded less actual turning rate", at_most=0.3),
)

OPENED_M = 0.3
"""Opening from which a drawer counts as open: three quarters of its travel."""

OPENING = (
    Measure(name="drawer_opening", unit="m", over="max", meaning="how far the drawer is open", at_least=OPENED_M),
    Measure(
        name="opened",
        unit="",
        over="max",
        meaning=f"share of episodes with the drawer open by {OPENED_M:g} m",
        at_least=0.9,
    ),
)

TURNED_CUBE = Measure(name="successes", unit="", over="sum", meaning="goals reached, one after the other", at_least=5.0)
