"""`GMIContext`: who am I, my share, my peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gmiflow.plan import GMIPlan, TrainingPlan
from gmiflow.runtime.program import Program
from gmiflow.runtime.turn import Turn

if TYPE_CHECKING:
    import torch

    from gmiflow.runtime.comm.channel.migrator import Link
    from gmiflow.runtime.comm.collectives.base import Collective
    from gmiflow.runtime.joint import JointSeat


@dataclass(frozen=True, kw_only=True)
class GMIContext:
    """Everything that a GMI knows about itself; it looks nowhere else.

    Attributes:
        program: the constants of the generated program.
        device: where its tensors live.
        collectives: the groups of the plan that this GMI is a member of, by name.
        control: a group of all GMIs of the training for small tensors in host memory: agreement to
            stop, checksums. It is separate from the gradient's group, which may live on the device.
        run_dir: where checkpoints go, or None to write none.
        resume: checkpoint to start from, or None.
        policy: checkpoint whose policy a training that only serves takes, or None for a fresh one.
        turn: shared with the other GMIs of the process; held while stages run.
        stream: the GMI's own CUDA stream, on its share of the GPU; None on the CPU.
        links: the GMI's ends of its training's channels.
        weights_path: name of the shared memory by which weights come back from the trainers.
        timeout_s: how long to wait for a peer.
        make_stream: makes further streams on that share, by priority (smaller runs first); None on the CPU.
        joint: the GMI's seat among those that share one simulator; None when it has one of its own.
    """

    program: Program
    device: torch.device
    collectives: Mapping[str, Collective]
    control: Collective
    run_dir: Path | None = None
    resume: Path | None = None
    policy: Path | None = None
    turn: Turn = field(default_factory=Turn)
    links: tuple[Link, ...] = ()
    weights_path: str = ""
    timeout_s: float = 300.0
    stream: torch.cuda.Stream | None = None
    make_stream: Callable[[int], torch.cuda.Stream] | None = None
    joint: JointSeat | None = None

    @property
    def id(self) -> int:
        """Index of this GMI over the whole plan."""
        return self.program.gmi.id

    @property
    def gmi(self) -> GMIPlan:
        """This GMI's slice: its device share, cores, threads, stages and environments."""
        return self.program.gmi

    @property
    def training(self) -> TrainingPlan:
        """The training that this GMI works for."""
        return self.program.training

    @property
    def members(self) -> tuple[int, ...]:
        """Ids of all GMIs of the training, in rank order."""
        return self.control.members

    @property
    def peers(self) -> tuple[int, ...]:
        """Ids of the other GMIs of the training."""
        return tuple(gmi for gmi in self.members if gmi != self.id)

    @property
    def producers(self) -> tuple[int, ...]:
        """Ids of the GMIs that hand over rollouts; empty unless the mapping splits agent and trainer."""
        return tuple(sorted({gmi for channel in self.program.carrying("rollout") for gmi in channel.producers}))

    @property
    def consumers(self) -> tuple[int, ...]:
        """Ids of the GMIs of the training that only train; empty unless the mapping splits agent and trainer."""
        return tuple(sorted({channel.consumer for channel in self.program.carrying("rollout")}))

    @property
    def rollout_links(self) -> tuple[Link, ...]:
        """The GMI's ends of the channels that carry rollouts."""
        return tuple(link for link in self.links if link.plan.carries == "rollout")

    @property
    def asking_links(self) -> tuple[Link, ...]:
        """Of a GMI that simulates alone: its end of the channel to the GMI with its agent."""
        return tuple(link for link in self.links if link.plan.carries == "step" and self.id in link.plan.producers)

    @property
    def acting_links(self) -> tuple[Link, ...]:
        """Of a GMI whose agent acts for simulators in other GMIs: its ends of the channels to them."""
        return tuple(link for link in self.links if link.plan.carries == "step" and self.id == link.plan.consumer)

    @property
    def whole_plan(self) -> bool:
        """Whether this training's GMIs, which share trainers or channels, are all that the plan has."""
        joined = {gmi for channel in self.program.channels for gmi in (*channel.producers, channel.consumer)}
        return len(joined.union(self.members)) == self.program.gmis

    def collective(self, name: str | None = None) -> Collective:
        """The group called ``name``, or the only group; a GMI without groups gets one of size 1.

        Raises:
            KeyError: when there is no group of that name, or several and no name is given.
        """
        if name is not None:
            return self.collectives[name]
        if not self.collectives:
            from gmiflow.runtime.comm.collectives.local import LocalCollective

            return LocalCollective.alone(f"{self.training.name}.alone", self.id)
        if len(self.collectives) > 1:
            raise KeyError(f"GMI {self.id} is in several groups: {', '.join(self.collectives)}")
        return next(iter(self.collectives.values()))
