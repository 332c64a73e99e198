"""Asynchronous training without GMIs: a serving process, a training process, and one message for each tensor.

Stages, sizes and staleness are those of the side of gmiflow that it stands beside. What differs is the structure:
nothing is pinned, sliced or packed, both processes use the whole CPU or GPU, a rollout crosses as ten messages of
torch.multiprocessing (a tensor in fresh shared memory, on a GPU a CUDA IPC handle), and the weights go back the same
way, tensor by tensor. On a GPU the processes call the stages as they are written (`eager`), or replay the CUDA graphs
that gmiflow makes of them (`graph`).
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import time

import torch
import torch.multiprocessing  # teaches connections to carry tensors
from children import Child

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.graph import GraphExecution
from gmiflow.runtime.execution.replay import Part
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.program import Program
from gmiflow.runtime.stages import build_stages, build_trainer

WARM_UP = 4
"""Iterations before a process says that it is ready: graphs have been captured."""
POLL_S = 0.02


class Stopped(Exception):
    """The benchmark wants no more."""


class Half:
    """What the two processes have in common: the context, and the answers to the benchmark."""

    def __init__(self, connection, plan_text, role, threads, graphs):
        self.graphs = graphs
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = True
        plan = LaunchPlan.from_json(plan_text)
        gmi = next(gmi for gmi in plan.gmis if (role in gmi.stages))
        self.training = plan.trainings[0]
        self.device = torch.device("cpu") if plan.target.device == "cpu" else torch.device("cuda", 0)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.context = GMIContext(
            program=Program(
                gmis=len(plan.gmis),
                gmi=dataclasses.replace(gmi, threads=threads),
                training=self.training,
                collectives=(),
                channels=plan.channels,
            ),
            device=self.device,
            collectives={},
            control=LocalGroup("baseline", (gmi.id,)).member(0),
            stream=self.stream,
        )
        self.clock = StageClock([stage.name for stage in self.training.stages])
        dispenser = Dispenser(self.training)
        shape = {"horizon": self.training.horizon, "num_env": self.training.num_env}
        self.tensors = {
            kind.name: torch.zeros(kind.shape(**shape), dtype=kind.dtype, device=self.device)
            for kind in dispenser.kinds
        }
        self.batch = dispenser.ports(self.tensors)
        self.made = 0
        self._connection = connection
        self._last = (time.perf_counter(), 0)

    def finish_iteration(self):
        """Count one, and answer the benchmark if it asks."""
        self.made += 1
        self._last = (time.perf_counter(), self.made)
        if self.made == WARM_UP:
            self._connection.send("ready")
        self.answer()

    def answer(self):
        """Tell when the last iteration ended and how many there were; raise `Stopped` when told to stop."""
        while self._connection.poll():
            if self._connection.recv() == ("stop",):
                raise Stopped
            self._connection.send(self._last)

    def receive(self, pipe):
        """The next message; answers the benchmark meanwhile."""
        while not pipe.poll(POLL_S):
            self.answer()
        return pipe.recv()


class Serving(Half):
    """Simulates and acts."""

    def __init__(self, connection, plan_text, threads, graphs, experience, weights, free):
        super().__init__(connection, plan_text, "sim", threads, graphs)
        self._experience, self._weights, self._free = experience, weights, free
        self._version = self._sent = 0
        self._parts = []

    def run(self):
        """Until told to stop."""
        training, num_env = self.training, self.training.num_env
        self._stages = build_stages(self.context, self.clock)
        episodes = EpisodeStatistics(num_env, self.device)
        rollout = Rollout(
            Routes(training), horizon=training.horizon, num_env=num_env, device=self.device, storage=self.tensors
        )
        arguments = (training, self._stages, episodes, rollout, self.clock)
        if self.stream is None or not self.graphs:
            execution = EagerExecution(*arguments)
        else:
            execution = GraphExecution(*arguments, self.context.collective())
        execution.start(resumed=False)
        self._names = list(self._stages.agent._policy.export_state())
        while True:
            self._take_weights()
            execution.collect()
            if not self._free or self._sent - self._version <= training.max_staleness:
                for tensor in self.tensors.values():
                    self._experience.send(tensor.clone())
                self._sent += 1
            self.finish_iteration()

    def _take_weights(self):
        """The newest whole version; where nothing is dropped, wait for one that is new enough."""
        while True:
            while self._weights.poll():
                self._parts.append(self._weights.recv())
                if len(self._parts) == len(self._names):
                    self._stages.agent.load_weights(dict(zip(self._names, self._parts, strict=True)))
                    self._parts = []
                    self._version += 1
            if self._free or self._version >= self.made - self.training.max_staleness:
                return
            self._weights.poll(POLL_S)
            self.answer()


class Training(Half):
    """Trains on what comes."""

    def __init__(self, connection, plan_text, threads, graphs, experience, weights):
        super().__init__(connection, plan_text, "learner", threads, graphs)
        self._experience, self._weights = experience, weights

    def run(self):
        """Until told to stop."""
        trainer, _ = build_trainer(self.context, self.clock)
        learn = Part("learn", functools.partial(trainer.update, self.batch), stream=self.stream, planned=self.graphs)
        while True:
            for tensor in self.tensors.values():
                tensor.copy_(self.receive(self._experience))
            learn()
            for value in trainer.weights().values():
                self._weights.send(value.detach().clone())
            self.finish_iteration()


def serve(connection, *arguments):
    """Job of the serving process."""
    _work(Serving, connection, arguments)


def train(connection, *arguments):
    """Job of the training process."""
    _work(Training, connection, arguments)


def _work(kind, connection, arguments):
    half = kind(connection, *arguments)
    try:
        with torch.cuda.stream(half.stream):
            half.run()
    except (Stopped, EOFError, BrokenPipeError, ConnectionError):
        return


def measure(setting, folder, *, threads, graphs, seconds, setup_s):
    """Predictions and training samples per second of the baseline over ``seconds``, after its warm-up.

    Args:
        setting: `asynchronous_setting.Setting` of the side of gmiflow beside it (`ea_t`).
        folder: for the logs.
        threads: of each process, on the CPU.
        graphs: whether a GPU's work is replayed as CUDA graphs.
        seconds: of the window.
        setup_s: how long the processes may take until they are ready.

    Raises:
        ChildError: when a process fails or is late.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan = setting.plan().to_json()
    spawn = multiprocessing.get_context("spawn")
    there, from_serving = spawn.Pipe(duplex=False)
    back, from_training = spawn.Pipe(duplex=False)
    trainer = Child(
        "training", folder / "training.log", "asynchronous_baseline:train", plan, threads, graphs, there, from_training
    )
    server = Child(
        "serving",
        folder / "serving.log",
        "asynchronous_baseline:serve",
        plan,
        threads,
        graphs,
        from_serving,
        back,
        setting.side.drops,
    )
    try:
        for child in (server, trainer):
            child.receive(setup_s)
        rates = _rates((server, trainer), setting.samples, seconds)
        for child in (trainer, server):  # the one that receives first
            child.send("stop")
    finally:
        trainer.close()
        server.close()
    return {"predictions_per_s": rates[0], "training_samples_per_s": rates[1]}


def _rates(children, samples, seconds):
    """Samples per second of each child, from its first to its last iteration in the window."""
    before = [child.ask(60, "mark") for child in children]
    time.sleep(seconds)
    after = [child.ask(60, "mark") for child in children]
    return [
        round(samples * (done - done_before) / (at - at_before))
        for (at_before, done_before), (at, done) in zip(before, after, strict=True)
    ]
