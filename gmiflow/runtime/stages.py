"""From the entries of the plan to stages that are set up."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from gmiflow.api import Agent, Communicator, Simulator, StageContext, Trainer
from gmiflow.plan import Role, StagePlan
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.failure import ENTRY_UNUSABLE, NOT_SUPPORTED, error
from gmiflow.runtime.noise import CounterNoise

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of one GMI.

    Attributes:
        policy: the module that is trained; the agent's own too, unless the execution overlaps.
        trainer: None in serving.
    """

    simulator: Simulator
    agent: Agent
    trainer: Trainer | None
    policy: nn.Module

    def close(self) -> None:
        """Release what the simulator holds."""
        self.simulator.close()


def load_entry(entry: str, base: type[T]) -> type[T]:
    """The class that "module:Class" names.

    Raises:
        GMIError: E0709 when the module or class is missing, or the class is not a subclass of ``base``.
    """
    module_name, _, class_name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        raise error(
            ENTRY_UNUSABLE,
            f"there is no Python module {missing.name}",
            "modules are looked up beside the `.gmi` file, in the working directory and among the installed ones",
        ) from missing
    found = getattr(module, class_name, None)
    if found is None:
        raise error(ENTRY_UNUSABLE, f"the module {module_name} has no class {class_name}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise error(ENTRY_UNUSABLE, f"{entry} is not a subclass of {base.__module__}.{base.__name__}")
    return found


def stage_of(context: GMIContext, role: Role) -> StagePlan | None:
    """The stage with that role that this GMI holds, or None."""
    held = (stage for stage in context.training.stages if stage.name in context.gmi.stages)
    return next((stage for stage in held if stage.role == role), None)


def _construct(entry: str, base: type[T]) -> T:
    """A stage, before its setup."""
    return load_entry(entry, base)()


def build_stages(context: GMIContext, clock: StageClock) -> Stages:
    """Construct and set up every stage; the clock names the stage at work when one fails.

    Raises:
        GMIError: E0709 for a bad entry, E0710 for roles split over GMIs.
    """
    plans = {role: stage_of(context, role) for role in ("simulator", "agent", "trainer")}
    simulator_plan, agent_plan, trainer_plan = plans["simulator"], plans["agent"], plans["trainer"]
    wanted = {stage.role for stage in context.training.stages}
    if simulator_plan is None or agent_plan is None or (trainer_plan is None and "trainer" in wanted):
        raise error(NOT_SUPPORTED, f"the mapping {context.training.mapping} splits roles over GMIs")
    noise = CounterNoise(
        seed=context.training.seed,
        num_env=context.gmi.num_env,
        env_offset=context.gmi.env_offset,
        device=context.device,
    )
    communicator = context.collective()

    clock.enter(clock.index(agent_plan.name))
    agent = _construct(agent_plan.entry, Agent)
    policy = agent.make_policy(_stage_context(context, agent_plan, communicator, noise, None))
    acting = policy
    if context.training.execution == "overlap":  # the agent acts with older weights while the trainer writes new ones
        acting = agent.make_policy(_stage_context(context, agent_plan, communicator, noise, None))
    agent.setup(_stage_context(context, agent_plan, communicator, noise, acting))

    clock.enter(clock.index(simulator_plan.name))
    if simulator_plan.python is not None:
        raise error(NOT_SUPPORTED, f"the simulator asks for another interpreter, {simulator_plan.python}")
    simulator = _construct(simulator_plan.entry, Simulator)
    simulator.setup(_stage_context(context, simulator_plan, communicator, noise, None))

    trainer = None
    if trainer_plan is not None:
        clock.enter(clock.index(trainer_plan.name))
        trainer = _construct(trainer_plan.entry, Trainer)
        trainer.setup(_stage_context(context, trainer_plan, communicator, noise, policy))
    clock.enter(RUNTIME)
    return Stages(simulator=simulator, agent=agent, trainer=trainer, policy=policy)


def _stage_context(
    context: GMIContext,
    stage: StagePlan,
    communicator: Communicator,
    noise: CounterNoise,
    policy: nn.Module | None,
) -> StageContext:
    training, gmi = context.training, context.gmi
    return StageContext(
        stage=stage.name,
        device=context.device,
        num_env=gmi.num_env,
        env_offset=gmi.env_offset,
        num_env_total=training.num_env,
        horizon=training.horizon,
        stratum=training.stratum,
        seed=training.seed,
        params=stage.params,
        shapes=stage.shapes,
        communicator=communicator,
        noise=noise,
        threads=gmi.threads,
        precision=training.precision,
        policy=policy,
        max_staleness=training.max_staleness if training.execution == "overlap" else 0,
    )
