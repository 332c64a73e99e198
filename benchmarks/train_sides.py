"""The sides of the training benchmarks: one object per side, driven iteration by iteration.

Every side offers `run(iterations)`, which enqueues them, `totals()` and `split(iterations)`.
"""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor, wait

import torch

from gmiflow.api import StageContext
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.joint import COLLECT_PRIORITY, JointGroup, JointSeat
from gmiflow.runtime.messages import Progress
from gmiflow.runtime.noise import CounterNoise
from gmiflow.runtime.program import Program
from gmiflow.runtime.slices import Slices
from gmiflow.runtime.stages import load_entry
from gmiflow.runtime.turn import Turn

# Both sides may use TF32, as a gmiflow process does for precision = tf32.
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


def synchronize(device):
    """Wait until the device has nothing left to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


class GmiflowSide:
    """A training as the runtime drives it in one GMI process, on a stream of its own."""

    def __init__(self, setting, execution, max_staleness=0, seat=None):
        """Set up; with the ``seat`` of a `JointSides` together with the others, each in a thread of its own."""
        self.setting = setting
        plan = setting.plan(execution, max_staleness)
        number = seat.gmi if seat is not None else 0
        mine = dataclasses.replace(plan.gmis[0], id=number)
        program = Program(gmis=1, gmi=mine, training=plan.trainings[0], collectives=())
        control = LocalGroup("control", (number,)).member(0)
        gmi, self._slices = program.gmi, Slices([program])
        self._stream = self._slices.make_stream(gmi, 0)
        context = GMIContext(
            program=program,
            device=self._slices.device,
            collectives={},
            control=control,
            stream=self._stream,
            make_stream=lambda priority: self._slices.require_stream(gmi, priority),
            turn=seat.turn if seat is not None else Turn(),
            joint=JointSeat(group=seat.group, gmi=number, stream=self._stream) if seat is not None else None,
        )
        self.stop_requested = False
        self.iterations = 0
        self.metrics, self.diagnostics = {}, {}
        self._sums = [0.0, 0.0, 0.0]
        self._parts = []
        with torch.cuda.stream(self._stream):
            self.runtime = GMIRuntime(context, self)
            self.runtime.setup()
        self._loop = self.runtime.iterations()

    def send(self, message):
        """As the runtime's reporter: keep what the benchmark reports."""
        if isinstance(message, Progress):
            for index, value in enumerate((message.episodes, message.return_sum, message.length_sum)):
                self._sums[index] += value
            self._parts.append((message.collect_s, message.learn_s))
            self.metrics = message.metrics
            self.diagnostics = message.diagnostics or self.diagnostics

    def run(self, iterations):
        """Collect and learn ``iterations`` times."""
        with torch.cuda.stream(self._stream):
            for _ in range(iterations):
                next(self._loop)
                self.runtime.collect()
                self.runtime.learn()
        self.iterations += iterations

    def totals(self):
        """Episodes, sum of returns, sum of lengths so far; the last iteration may be missing."""
        return tuple(self._sums)

    def split(self, iterations):
        """Median milliseconds of rollout and update on the device; when they overlap, each takes longer."""
        self.run(iterations)
        synchronize(self.setting.device)
        recent = torch.tensor(self._parts[-iterations:], dtype=torch.float64)
        return [round(1e3 * value, 3) for value in recent.median(0).values.tolist()]

    def weights(self):
        """All parameters and normalisers as one f64 vector in host memory."""
        synchronize(self.setting.device)
        state = self.runtime.stages.policy.state_dict()
        return torch.cat([value.detach().double().cpu().flatten() for value in state.values()])

    def finite(self):
        """Whether every weight is."""
        return bool(self.weights().isfinite().all())

    def describe(self):
        """What a row says besides times."""
        execution = self.runtime._execution  # the runtime's report says it too, but only of a whole run
        return {
            "lowering": dict(execution.lowering),
            "diagnostics": self.diagnostics,
            "kl": self.metrics.get("kl"),
            "learning_rate": self.metrics.get("learning_rate"),
        }

    def close(self):
        """Release the simulator and the slices."""
        self.runtime.stop()
        self.runtime = self._loop = None  # graphs on parts of the GPU go before the parts
        self._slices.close()


@dataclasses.dataclass(frozen=True)
class Seat:
    """What a side needs to be one of `JointSides`."""

    gmi: int
    group: JointGroup
    turn: Turn


class JointSides:
    """Trainings that share simulators, at most ``size`` of them one, driven by a thread each as in a run."""

    def __init__(self, settings, execution, max_staleness, size):
        turn, device = Turn(), torch.device(settings[0].device)
        priority = COLLECT_PRIORITY if execution == "overlap" else 0
        seats = []
        for first in range(0, len(settings), size):
            gmis = list(range(first, min(first + size, len(settings))))
            stream = torch.cuda.Stream(torch.device("cuda", 0), priority) if device.type == "cuda" else None
            group = JointGroup(gmis, turn, stream)
            seats += [Seat(gmi, group, turn) for gmi in gmis]
        self.setting = settings[0]
        self._threads = ThreadPoolExecutor(len(settings))
        self.sides = self._all(
            lambda pair: GmiflowSide(pair[0], execution, max_staleness, pair[1]), zip(settings, seats, strict=True)
        )

    def _all(self, work, items):
        """``work`` of every item at a time; the first exception is raised when all have ended."""
        futures = [self._threads.submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]

    def run(self, iterations):
        """``iterations`` of every training, enqueued."""
        self._all(lambda side: side.run(iterations), self.sides)

    def totals(self):
        """Episodes, sum of returns, sum of lengths so far, of all trainings."""
        return tuple(map(sum, zip(*(side.totals() for side in self.sides), strict=True)))

    def close(self):
        """Release the simulators."""
        self._all(lambda side: side.close(), self.sides)
        self._threads.shutdown()


def make_simulator(setting):
    """The simulator stage of ``setting``, set up, and its stage of the plan's agent for sizes."""
    plan = setting.plan()
    stages = {stage.role: stage for stage in plan.trainings[0].stages}
    stage, device = stages["simulator"], torch.device(setting.device)
    simulator = load_entry(stage.entry, object)()
    simulator.setup(
        StageContext(
            stage=stage.name,
            device=device,
            num_env=setting.num_env,
            env_offset=0,
            num_env_total=setting.num_env,
            horizon=setting.horizon,
            stratum=16,
            seed=setting.seed,
            params=stage.params,
            communicator=LocalGroup("simulator", (0,)).member(0),
            noise=CounterNoise(seed=setting.seed, num_env=setting.num_env, env_offset=0, device=device),
            threads=plan.gmis[0].threads,
        )
    )
    return simulator, stages["agent"].shapes["A"]


class RslRlSide:
    """rsl_rl's PPO as it ships on the same simulator."""

    def __init__(self, setting, *, graphed=False, compile_mode=None):
        from gmiflow.bench.rsl_rl import EpisodeSums, SimulatorEnv, make_runner

        self.setting = setting
        self._simulator, actions = make_simulator(setting)
        self._sums = EpisodeSums(setting.num_env, setting.device)
        self._graphed = graphed and setting.device == "cuda"
        env = SimulatorEnv(
            self._simulator,
            num_env=setting.num_env,
            action_size=actions,
            device=setting.device,
            reward_scale=setting.reward_scale,
            count=self._sums.add,
            graphed=self._graphed,
        )
        names = ("horizon", "epochs", "minibatches", "hidden", "lr", "kl_target", "seed")
        values = {name: getattr(setting, name) for name in names}
        self._runner = make_runner(env, **values, compile_mode=compile_mode)
        self.iterations = 0

    def run(self, iterations):
        """Collect and learn ``iterations`` times."""
        from gmiflow.bench.rsl_rl import learn

        learn(self._runner, iterations)
        self.iterations += iterations

    def totals(self):
        """Episodes, sum of returns, sum of lengths so far."""
        return tuple(self._sums.totals.tolist())

    def split(self, iterations):
        """Median milliseconds of rollout and update, the device's queue emptied in between."""
        update, learn_s, total_s = self._runner.alg.update, [], []

        def timed():
            synchronize(self.setting.device)
            start = time.perf_counter()
            losses = update()
            synchronize(self.setting.device)
            learn_s.append(time.perf_counter() - start)
            return losses

        self._runner.alg.update = timed
        for _ in range(iterations):
            start = time.perf_counter()
            self.run(1)
            total_s.append(time.perf_counter() - start)
        self._runner.alg.update = update
        learn = torch.tensor(learn_s, dtype=torch.float64)
        collect = torch.tensor(total_s, dtype=torch.float64) - learn
        return [round(1e3 * float(part.median()), 3) for part in (collect, learn)]

    def finite(self):
        """Whether every weight of the actor is."""
        return all(bool(value.isfinite().all()) for value in self._runner.alg.get_policy().parameters())

    def describe(self):
        """What a row says besides times."""
        return {
            "graphed": self._graphed,
            "diagnostics": self._simulator.diagnostics(),
            "learning_rate": self._runner.alg.learning_rate,
        }

    def close(self):
        """Release the simulator."""
        self._simulator.close()


def make_side(name, setting):
    """The side called ``name``; see `SIDES`."""
    return SIDES[name](setting)


SIDES = {
    "eager": lambda setting: GmiflowSide(setting, "eager"),
    "graph": lambda setting: GmiflowSide(setting, "graph"),
    "overlap": lambda setting: GmiflowSide(setting, "overlap", 1),
    "rsl_rl": lambda setting: RslRlSide(setting),
    "rsl_rl_graphed": lambda setting: RslRlSide(setting, graphed=True),
    "rsl_rl_compiled": lambda setting: RslRlSide(setting, graphed=True, compile_mode="default"),
}
