"""The runtimes of the two halves of `ea_t`: GMIs that collect (`agents`), and GMIs that train (`trainers`).

With `dp_mp` the GMIs that collect have their simulators in other GMIs (`simulators`). So have with `e_at` those that
collect and train in turn, whose runtime is that of `dp_only`.

Both run the loop of `GMI.run`. The agent's half waits, before each rollout, until its policy is new enough and there
is room; then it hands the rollout over. The trainer's half takes a batch, updates, and shows the new weights. What
concerns the training as a whole (its end, checkpoints) is decided by the trainers and read by the agents. Trainers
reduce their gradients, or apply them one by one (`applying`).
"""

from __future__ import annotations

from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.reporter import Reporter
from gmiflow.runtime.split.agents import AgentRuntime
from gmiflow.runtime.split.applying import ApplyingTrainerRuntime
from gmiflow.runtime.split.simulators import SteppedRuntime
from gmiflow.runtime.split.trainers import TrainerRuntime

__all__ = ["AgentRuntime", "ApplyingTrainerRuntime", "SteppedRuntime", "TrainerRuntime", "make_runtime"]


def make_runtime(context: GMIContext, reporter: Reporter, clock: StageClock | None = None) -> GMIRuntime:
    """The runtime for what the GMI holds: all roles, or one part of a split."""
    if context.training.mode == "serve":
        from gmiflow.runtime.serve import make_serving_runtime  # few trainings only serve

        return make_serving_runtime(context, reporter, clock)
    if context.asking_links:
        return SteppedRuntime(context, reporter, clock)
    if context.id in context.consumers:
        trainer = ApplyingTrainerRuntime if context.training.update == "apply" else TrainerRuntime
        return trainer(context, reporter, clock)
    kind = AgentRuntime if context.id in context.producers else GMIRuntime
    return kind(context, reporter, clock)
