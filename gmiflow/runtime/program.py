"""What a generated program says: the constants of one GMI."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.plan import Cargo, ChannelPlan, CollectivePlan, GMIPlan, TrainingPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One GMI's part of a launch plan; generated programs build it and pass it to `main`.

    Attributes:
        gmis: number of GMIs in the whole plan.
        gmi: this GMI.
        training: the training it works for, with its stages and edges.
        collectives: the groups that this GMI is a member of.
        channels: all channels of the training; empty unless the mapping splits roles.
        members: ids of all GMIs of a training that only serves; they start together.
    """

    gmis: int
    gmi: GMIPlan
    training: TrainingPlan
    collectives: tuple[CollectivePlan, ...]
    channels: tuple[ChannelPlan, ...] = ()
    members: tuple[int, ...] = ()

    def carrying(self, cargo: Cargo) -> tuple[ChannelPlan, ...]:
        """The channels of the training that carry rollouts, or steps."""
        return tuple(channel for channel in self.channels if channel.carries == cargo)

    @property
    def replaceable(self) -> bool:
        """Whether a GMI that collects is started again when it is lost.

        Not where its simulator is in another GMI: neither of the two can go on without the other.
        """
        return self.training.on_failure == "restart" and not self.carrying("step")
