"""Checkpoints of a GMI's training: written together with its peers, taken back, and the weights compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn

from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.checkpoint import (
    CheckpointMeta,
    CheckpointReader,
    CheckpointWriter,
    checksum_text,
    require_equal_weights,
    weights_checksum,
)
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.messages import Saved
from gmiflow.runtime.reporter import Reporter
from gmiflow.runtime.restoring import restore
from gmiflow.runtime.run_directory import POLICY, TRAINER, RunDirectory
from gmiflow.runtime.stages import Stages


class SavingRuntime(ABC):
    """The part of a GMI's runtime that saves.

    Attributes:
        context: who this GMI is.
        stages: once they are set up.
        iteration: iterations made, those before a resume included.
    """

    stages: Stages
    _episodes: EpisodeStatistics

    def __init__(self, context: GMIContext, reporter: Reporter) -> None:
        self.context = context
        self.iteration = 0
        self._reporter = reporter
        self._reported = 0
        self._since_checkpoint: Tensor = torch.zeros(2, dtype=torch.float64)
        self._saved_iteration = -1

    @property
    @abstractmethod
    def _policy(self) -> nn.Module:
        """The module that is trained."""

    @abstractmethod
    def _settle(self) -> None:
        """Make the GMI's own stream wait for everything enqueued."""

    @abstractmethod
    def _require_finite(self, iteration: int) -> None:
        """E0716 when a stage has given NaN or infinity."""

    @at_work
    def _checkpoint(self) -> None:
        """Write a checkpoint together with the peers, unless this iteration's is there."""
        context = self.context
        if context.run_dir is None or self._saved_iteration == self.iteration:
            return
        control, iteration = context.control, self.iteration
        checksum = self._agreed_checksum()
        if not all(bool(torch.isfinite(value).all()) for value in self._policy.state_dict().values()):
            self._require_finite(iteration)
        control.all_reduce(self._since_checkpoint, "sum")
        episodes, return_sum = self._since_checkpoint.tolist()
        self._since_checkpoint.zero_()
        slices = self._all_slices()
        writer = self._writer(context.run_dir, only_training=context.whole_plan)
        if control.rank == 0:
            writer.begin(iteration)
        control.barrier()
        stages = self.stages
        self._write_slice(writer, iteration)
        if control.rank == 0:
            trainer = stages.trainer.state_dict() if stages.trainer is not None else {}
            writer.write_shared(iteration, {POLICY: stages.policy.state_dict(), TRAINER: trainer})
        control.barrier()
        self._saved_iteration = iteration
        if control.rank == 0:
            meta = CheckpointMeta(
                training=context.training.name,
                iteration=iteration,
                num_env=context.training.num_env,
                seed=context.training.seed,
                slices=slices,
                checksum=checksum,
                episodes=round(episodes),
                mean_return=return_sum / episodes if episodes else None,
            )
            path = writer.commit(meta)
            self._reporter.send(Saved(gmi=context.id, iteration=iteration, path=str(path), checksum=checksum))

    def _writer(self, run_dir: Path, *, only_training: bool) -> CheckpointWriter:
        return CheckpointWriter(
            RunDirectory(run_dir).checkpoints(self.context.training.name, only_training=only_training)
        )

    def _write_slice(self, writer: CheckpointWriter, iteration: int) -> None:
        """Write this GMI's environments into a checkpoint."""
        stages = self.stages
        writer.write_slice(
            iteration,
            self.context.gmi.env_offset,
            {
                "simulator": stages.simulator.state_dict(),
                "agent": stages.agent.state_dict(),
                "episodes": self._episodes.state_dict(),
            },
        )

    def _load(self) -> bool:
        """Take back a checkpoint; whether the environments go on where they were."""
        context, stages = self.context, self.stages
        assert context.resume is not None
        reader = CheckpointReader(context.resume)
        reader.require(context.training.name, context.training.num_env)
        reader.restore_policy(stages.policy)
        names = {plan.role: plan.name for plan in context.training.stages}
        origin = str(reader.path)
        if stages.trainer is not None:
            restore(stages.trainer, reader.shared(TRAINER), names["trainer"], origin)
        parts = reader.environments(context.gmi.env_offset, context.gmi.num_env)
        restore(stages.agent, parts.get("agent", {}), names["agent"], origin)
        self.iteration = self._saved_iteration = self._reported = reader.meta.iteration
        simulator = parts.get("simulator")
        if not simulator:
            return False
        restore(stages.simulator, simulator, names["simulator"], origin)
        self._episodes.load_state_dict(parts["episodes"])
        return True

    @at_work
    def _agreed_checksum(self) -> str:
        """Checksum of the weights, compared over the GMIs of the training; E0706 when they differ."""
        self._settle()
        own = weights_checksum(self._policy.state_dict())
        bounds = torch.tensor([own, -own])
        self.context.control.all_reduce(bounds, "max")
        largest, negated = bounds.tolist()
        return require_equal_weights(-negated, largest, self.context.training.name)

    @at_work
    def _own_checksum(self) -> str:
        """Checksum of this GMI's weights, which is compared with nobody's."""
        self._settle()
        return checksum_text(weights_checksum(self._policy.state_dict()))

    def _all_slices(self) -> tuple[tuple[int, int], ...]:
        """(env_offset, num_env) of all GMIs of the training, in rank order."""
        control, gmi = self.context.control, self.context.gmi
        table = torch.zeros(control.size, 2, dtype=torch.int64)
        table[control.rank] = torch.tensor([gmi.env_offset, gmi.num_env])
        control.all_reduce(table.view(-1), "sum")
        return tuple((int(offset), int(count)) for offset, count in table.tolist())
