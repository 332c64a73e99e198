"""One rank of split trainings on two pretended machines: ``mpirun -n 4 python mpi_split.py DIRECTORY``.

GMIs 0 and 1 share memory, so do 2 and 3; between them goes MPI. One training after the other, each joined as in a run;
what every GMI said and its last weights go to files, which `test_mpi_split` reads.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import torch
from plans import apart_plan, program_of, serve_plan, split_plan, training_plan
from point_mass import Learner, PointMass
from waiting import PATIENCE_S

from gmiflow.api import Ports, StageContext
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.mpi_world import MPIWorld
from gmiflow.runtime.connect import Switchboard
from gmiflow.runtime.messages import Message
from gmiflow.runtime.process import Options, _Worker
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.slices import Slices

RANKS = 4
ITERATIONS = 10


class Counted(PointMass):
    """Writes down how many steps its slice has made, after every rollout."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        self._steps = 0
        self._file = Path(os.environ["MPI_SPLIT_COUNTS"]) / f"{context.env_offset}"

    def step(self, inputs: Ports) -> Ports:
        self._steps += 1
        if self._steps % self.context.horizon == 0:
            self._file.with_suffix(".new").write_text(str(self._steps // self.context.horizon))
            self._file.with_suffix(".new").rename(self._file)
        return super().step(inputs)


class Patient(Learner):
    """Is slower than both agents: update k ends when each has made k + 1 + max_staleness rollouts, or all."""

    def update(self, batch: Ports) -> dict[str, torch.Tensor]:
        counts, ahead = Path(os.environ["MPI_SPLIT_COUNTS"]), int(os.environ["MPI_SPLIT_AHEAD"])
        wanted = min(int(self.updates) + ahead, ITERATIONS)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            made = [int(file.read_text()) for file in counts.iterdir() if not file.suffix]
            if len(made) == 2 and min(made) >= wanted:
                break
            time.sleep(0.001)
        return dict(super().update(batch))


def slow(max_staleness: int, *, depth: int = 4, drop: bool = False) -> LaunchPlan:
    """Two agents and a trainer that waits for them to be as far ahead as they may."""
    training = training_plan("mpi_split:Counted", "mpi_split:Patient", mode="async", iterations=ITERATIONS)
    training = dataclasses.replace(training, max_staleness=max_staleness)
    return split_plan(training, agents=2, depth=depth, drop=drop)


def cases() -> dict[str, tuple[LaunchPlan, int]]:
    """Plans by name, and how many rollouts a `Patient` trainer of theirs wants beyond its own number."""
    resumable = {"mode": "async", "checkpoint_every": 3}
    apart = {"trainer": "point_mass_shared:Sharing", "mode": "async", "update": "apply", "max_staleness": 3}
    raising = {"simulator": "Raising", "mode": "async", "max_staleness": 1, "iterations": 1000}
    return {
        "two_agents_and_a_trainer": (split_plan(training_plan(), agents=2), 0),
        "agents_on_both": (split_plan(training_plan(num_env=96, mode="async"), agents=3), 0),
        "two_trainers": (split_plan(training_plan(), agents=2, trainers=2), 0),
        "trainers_on_both": (split_plan(training_plan(num_env=96, checkpoint_every=6), agents=1, trainers=3), 0),
        "staleness_1": (slow(1), 2),
        "staleness_2": (slow(2), 3),
        "depth_1": (slow(2, depth=1), 2),
        "drops": (slow(2, depth=2, drop=True), 4),
        "saves": (split_plan(training_plan(**resumable, iterations=3), agents=2), 0),
        "resumes": (split_plan(training_plan(**resumable), agents=2), 0),
        "resumes_at_its_end": (split_plan(training_plan(**resumable, iterations=3), agents=2), 0),
        "applies": (split_plan(training_plan(**apart), agents=2, trainers=2), 0),
        "simulator_apart": (apart_plan(training_plan(mode="async"), "dp_mp"), 0),
        "steps_across": (apart_plan(training_plan(), "e_at", pairs=2), 0),
        "serves": (serve_plan("dp_mp", simulators=2, agents=1), 0),
        "raises": (split_plan(training_plan(**raising), agents=2), 0),
    }


class Notes:
    """Keeps what a GMI says, in place of the launcher."""

    stop_requested = False

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        """Keep it."""
        self.messages.append(message)

    def close(self) -> None:
        """Nothing is open."""


def work(name: str, plan: LaunchPlan, ahead: int, rank: int, world: MPIWorld, place: Path) -> None:
    """Be GMI number ``rank`` of a training, in this process."""
    own = place / name
    os.environ["MPI_SPLIT_COUNTS"], os.environ["MPI_SPLIT_AHEAD"] = str(own / "counts"), str(ahead)
    resume = place / "saves" / "run" if name.startswith("resumes") else None
    program = program_of(plan, rank)
    rendezvous = Rendezvous.join(own / world.node(rank))
    run_dir = own / "run" if program.training.checkpoint_every else None
    options = Options(rendezvous=rendezvous.path, run_dir=run_dir, resume=resume, timeout_s=PATIENCE_S)
    worker = _Worker(program, options, rendezvous)
    worker.reporter = notes = Notes()
    slices = Slices([program])
    status = worker.run(slices, Switchboard([program], rendezvous, slices.device, PATIENCE_S, world))
    said = [{"kind": type(message).__name__, **dataclasses.asdict(message)} for message in notes.messages]
    (own / f"{rank}.json").write_text(json.dumps({"status": status, "said": said}))


def main() -> None:
    """Be a rank."""
    torch.set_num_threads(1)
    rank, place = int(os.environ["OMPI_COMM_WORLD_RANK"]), Path(sys.argv[1])
    world = MPIWorld([rank], f"node{rank // 2}", None)
    for name, (plan, ahead) in cases().items():
        if rank == 0:
            (place / name / "counts").mkdir(parents=True)
        world.group(name, range(RANKS)).Barrier()
        if rank < len(plan.gmis):
            work(name, plan, ahead, rank, world, place)
    world.close()
    print(f"rank {rank} is done")


if __name__ == "__main__":
    main()
