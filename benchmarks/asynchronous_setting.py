"""What asynchronous.py measures: one training per task, with agents and trainers in one GMI or apart. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan

SOURCE = """edition 1

import std.tasks.{task}
import std.algo.ppo
import std.targets

simulator sim     = {task}.{simulator}()
agent     actor   = ppo.Actor({actor})
trainer   learner = ppo.Learner({learner})

workflow train {{
  mode       = {mode}
  num_env    = {num_env}
  horizon    = {horizon}
  seed       = {seed}
  precision  = {precision}
  execution  = {execution}
  iterations = 1000000

  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience{channel}
  actor.bootstrap                     -> learner.bootstrap
  sim.{{reward, terminated, truncated}} -> learner
  learner.weights                     -> actor.weights
}}

target box {{
  base    = targets.{base}
  backend = {backend}
  mapping = {mapping}
}}
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Sizes and hyper-parameters of a task, the same for every side."""

    name: str
    simulator: str
    num_env: int
    horizon: int
    actor: str
    learner: str


_ANT = {"actor": "hidden = [256, 128, 64]", "learner": "minibatches = 2, reward_scale = 0.01"}
_HUMANOID = "lr = 5e-4, epochs = 5, minibatches = 4, reward_scale = 0.01"

TASKS = {
    "cpu": {
        "cartpole": Task(
            name="cartpole",
            simulator="CartPole",
            num_env=256,
            horizon=32,
            actor="hidden = [64, 64], init_log_std = -0.5",
            learner="lr = 1e-3, gamma = 0.98, reward_scale = 0.1",
        ),
        "ant": Task(name="ant", simulator="Ant", num_env=256, horizon=16, **_ANT),
    },
    "cuda": {
        "ant": Task(name="ant", simulator="Ant", num_env=4096, horizon=16, **_ANT),
        "humanoid": Task(
            name="humanoid",
            simulator="Humanoid",
            num_env=4096,
            horizon=32,
            actor="hidden = [400, 200, 100]",
            learner=_HUMANOID,
        ),
    },
}
"""By device: the tasks with the settings of examples/, smaller on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way to run a training.

    Attributes:
        mapping: "dp_only" (all roles in each GMI) or "ea_t" (agents and trainers apart).
        max_staleness: 0 for sync.
        gmis: GMIs, of `ea_t` half of them agents.
        drops: agents never wait for the trainer (`on_full = drop_oldest`).
    """

    mapping: str
    max_staleness: int
    gmis: int
    drops: bool = False


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A task on a device, by one side."""

    task: Task
    device: str
    side: Side
    correction: str = "clip"
    seed: int = 0

    @property
    def samples(self) -> int:
        """Environment steps of an iteration."""
        return self.task.num_env * self.task.horizon

    def text(self) -> str:
        """The `.gmi` file."""
        task, side, cuda = self.task, self.side, self.device == "cuda"
        depth = f"depth = {max(1, side.max_staleness)}"
        channel = f" {{ {depth}, on_full = {'drop_oldest' if side.drops else 'block'} }}"
        learner = task.learner + (f", correction = {self.correction}" if side.max_staleness else "")
        text = SOURCE.format(
            task=task.name,
            simulator=task.simulator,
            actor=task.actor,
            learner=learner,
            mode=f"async {{ max_staleness = {side.max_staleness} }}" if side.max_staleness else "sync",
            num_env=task.num_env,
            horizon=task.horizon,
            seed=self.seed,
            precision="tf32" if cuda else "f32",
            execution="auto" if cuda else "eager",
            channel=channel if side.max_staleness and side.mapping == "ea_t" else "",
            base="h200" if cuda else "cpu",
            backend=("timeshare" if side.gmis == 1 else "mps") if cuda else "cpu",
            mapping=side.mapping,
        )
        counts = f"  agents = {side.gmis // 2}\n  trainers = {side.gmis - side.gmis // 2}\n"
        if side.mapping == "dp_only":
            counts = f"  gmi_per_gpu = {side.gmis}\n"
        return text.removesuffix("}\n") + counts + "}\n"

    def plan(self) -> LaunchPlan:
        """The launch plan.

        Raises:
            ValueError: when the file cannot be compiled, with what the compiler says.
        """
        made = compile_file("asynchronous.gmi", Options(use_profiles=False), text=self.text(), stop_after="plan")
        if made.plan is None:
            raise ValueError("; ".join(f"{d.code}: {d.message}" for d in made.diagnostics))
        return made.plan


def sides_of(device: str, staleness: list[int]) -> dict[str, Side]:
    """The sides of the curves by name: sync, agents and trainers apart; on a GPU overlap inside of a GMI, on the CPU
    sync with a core for each of two GMIs."""
    found = {"sync": Side(mapping="dp_only", max_staleness=0, gmis=1)}
    if device == "cuda":
        found["overlap_1"] = Side(mapping="dp_only", max_staleness=1, gmis=1)
    else:
        found["sync_2"] = Side(mapping="dp_only", max_staleness=0, gmis=2)
    found |= {f"async_{bound}": Side(mapping="ea_t", max_staleness=bound, gmis=2) for bound in staleness}
    return found
