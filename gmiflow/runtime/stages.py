"""From the entries of the plan to stages that are set up."""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from gmiflow.api import Agent, Communicator, SharedTrainer, Simulator, StageContext, Trainer
from gmiflow.plan import Role, StagePlan
from gmiflow.runtime.charging import at_stage, charged
from gmiflow.runtime.comm.channel.simulators import RemoteSimulator
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.replay import stream_of
from gmiflow.runtime.execution.single_steps import StepAgent
from gmiflow.runtime.failure import ENTRY_UNUSABLE, NOT_SUPPORTED, PORT_MISMATCH, error
from gmiflow.runtime.foreign.simulator import ForeignSimulator
from gmiflow.runtime.joint import JointSlice
from gmiflow.runtime.noise import CounterNoise

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of one GMI.

    Attributes:
        policy: the module that is trained; the agent's own too, unless the execution overlaps.
        trainer: None in serving.
        clock: what names the stage at work.
        simulator_plan: name and place of the simulator.
    """

    simulator: Simulator
    agent: Agent
    trainer: Trainer | None
    policy: nn.Module
    clock: StageClock
    simulator_plan: StagePlan

    def close(self) -> None:
        """Release what the simulator holds; when that raises, the log says so, and the work that is done stays done."""
        close_simulator(self.simulator, self.simulator_plan, self.clock)


def close_simulator(simulator: Simulator, plan: StagePlan, clock: StageClock) -> None:
    """See `Stages.close`."""
    with at_stage(clock, plan):
        try:
            simulator.close()
        except Exception as problem:  # user's code; a failure that is on its way must not be covered by this one
            message = "%s:%d: `close` of the stage %s raised %s: %s"
            logger.warning(message, plan.file, plan.line, plan.name, type(problem).__name__, problem, exc_info=True)


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


def _construct(plan: StagePlan, base: type[T], clock: StageClock) -> T:
    """A stage, before its setup, in this interpreter."""
    return charged(_instance(plan, base), plan, clock)


def _agent(context: GMIContext, plan: StagePlan, clock: StageClock) -> Agent:
    """An agent, before its setup; E0710 when it cannot act as the workflow wants."""
    agent = _construct(plan, Agent, clock)
    if context.training.deterministic and not agent.acts_deterministically:
        raise error(
            NOT_SUPPORTED,
            f"`deterministic` is for agents that say `acts_deterministically = True`, and {plan.entry} does not",
            "its `act` then takes the likeliest action where `context.deterministic` is true",
        )
    return agent


def _instance(plan: StagePlan, base: type[T]) -> T:
    """What the entry of a stage makes."""
    return load_entry(plan.entry, base)()


def _policy_of(agent: Agent | type[Agent], context: StageContext) -> nn.Module:
    """The policy that an agent makes; E0708 when it is no module."""
    policy: object = agent.make_policy(context)
    if not isinstance(policy, nn.Module):
        made = f"`make_policy` of {context.stage} returned {type(policy).__name__}"
        raise error(PORT_MISMATCH, f"{made}, not a torch.nn.Module")
    return policy


def build_stages(context: GMIContext, clock: StageClock) -> Stages:
    """Construct and set up every stage; the clock names the stage at work when one fails.

    Raises:
        GMIError: E0709 for a bad entry, E0710 for roles split over GMIs.
    """
    plans = {role: stage_of(context, role) for role in ("simulator", "agent", "trainer")}
    simulator_plan, agent_plan, trainer_plan = plans["simulator"], plans["agent"], plans["trainer"]
    wanted = {stage.role for stage in context.training.stages}
    elsewhere = trainer_plan is None and "trainer" in wanted
    if apart := simulator_plan is None and bool(context.acting_links):
        simulator_plan = next(stage for stage in context.training.stages if stage.role == "simulator")
    if simulator_plan is None or agent_plan is None or (elsewhere and not context.consumers):
        raise error(NOT_SUPPORTED, f"the mapping {context.training.mapping} splits roles over GMIs")
    noise = _noise(context)
    communicator = context.collective()

    clock.enter(clock.index(agent_plan.name))
    agent = _agent(context, agent_plan, clock)
    policy = _policy_of(agent, _stage_context(context, agent_plan, communicator, noise, None))
    acting = policy
    if context.training.execution == "overlap":  # the agent acts with older weights while the trainer writes new ones
        acting = _policy_of(agent, _stage_context(context, agent_plan, communicator, noise, None))
    agent.setup(_stage_context(context, agent_plan, communicator, noise, acting))

    simulator = _simulator(context, simulator_plan, communicator, noise, clock)
    if apart:
        agent = StepAgent(agent, stream_of(context.device), planned=context.training.execution == "graph")

    trainer = None
    if trainer_plan is not None:
        clock.enter(clock.index(trainer_plan.name))
        trainer = _construct(trainer_plan, Trainer, clock)
        trainer.setup(_stage_context(context, trainer_plan, communicator, noise, policy))
    clock.enter(RUNTIME)
    return Stages(
        simulator=simulator, agent=agent, trainer=trainer, policy=policy, clock=clock, simulator_plan=simulator_plan
    )


def _simulator(
    context: GMIContext, plan: StagePlan, communicator: Communicator, noise: CounterNoise, clock: StageClock
) -> Simulator:
    """A simulator that is set up: in this interpreter or its own, in another GMI, or a part of one that is shared."""
    clock.enter(clock.index(plan.name))
    if plan.name not in context.gmi.stages:
        link = context.acting_links[0]
        simulator = charged(RemoteSimulator(link, context.training, context.device, context.turn), plan, clock)
    elif plan.python is not None:
        simulator = charged(ForeignSimulator(plan, context.training), plan, clock)
    elif context.joint is not None and load_entry(plan.entry, Simulator).joinable:
        simulator = charged(JointSlice(context.joint, lambda: _instance(plan, Simulator)), plan, clock)
    else:
        simulator = _construct(plan, Simulator, clock)
    simulator.setup(_stage_context(context, plan, communicator, noise, None))
    return simulator


def build_simulator(context: GMIContext, clock: StageClock) -> tuple[Simulator, StagePlan]:
    """The simulator of a GMI that has no agent, set up.

    Raises:
        GMIError: E0709 for a bad entry, E0710 for a GMI without the simulator.
    """
    plan = stage_of(context, "simulator")
    if plan is None:
        raise error(NOT_SUPPORTED, f"the mapping {context.training.mapping} splits roles over GMIs")
    simulator = _simulator(context, plan, context.collective(), _noise(context), clock)
    clock.enter(RUNTIME)
    return simulator, plan


def build_agents(
    context: GMIContext, clock: StageClock, ranges: Sequence[tuple[int, int]]
) -> tuple[list[Agent], nn.Module]:
    """The agents of a GMI that has no simulator, one for each (offset, number) of environments, and their one policy.

    Raises:
        GMIError: E0709 for a bad entry, E0710 for a GMI without the agent.
    """
    plan = stage_of(context, "agent")
    if plan is None:
        raise error(NOT_SUPPORTED, f"the mapping {context.training.mapping} splits roles over GMIs")
    clock.enter(clock.index(plan.name))
    whole = _stage_context(context, plan, context.collective(), _noise(context), None)
    policy = _policy_of(load_entry(plan.entry, Agent), whole)
    agents: list[Agent] = []
    for env_offset, num_env in ranges:
        noise = CounterNoise(seed=context.training.seed, num_env=num_env, env_offset=env_offset, device=context.device)
        agent = _agent(context, plan, clock)
        agent.setup(dataclasses.replace(whole, num_env=num_env, env_offset=env_offset, noise=noise, policy=policy))
        agents.append(agent)
    clock.enter(RUNTIME)
    return agents, policy


def _noise(context: GMIContext) -> CounterNoise:
    """Random numbers for all environments of the GMI."""
    gmi = context.gmi
    return CounterNoise(
        seed=context.training.seed, num_env=gmi.num_env, env_offset=gmi.env_offset, device=context.device
    )


def build_trainer(context: GMIContext, clock: StageClock) -> tuple[Trainer, nn.Module]:
    """The trainer of a GMI that has no agent, set up, and the policy that it trains.

    Raises:
        GMIError: E0709 for a bad entry, E0710 for a GMI without the trainer.
    """
    training = context.training
    plan = stage_of(context, "trainer")
    agent_plan = next((stage for stage in training.stages if stage.role == "agent"), None)
    if plan is None or agent_plan is None:
        raise error(NOT_SUPPORTED, f"the mapping {training.mapping} splits roles over GMIs")
    noise = _noise(context)
    communicator = context.collective()
    clock.enter(clock.index(agent_plan.name))
    policy = _policy_of(
        load_entry(agent_plan.entry, Agent), _stage_context(context, agent_plan, communicator, noise, None)
    )
    clock.enter(clock.index(plan.name))
    trainer = _construct(plan, SharedTrainer if training.update == "apply" else Trainer, clock)
    trainer.setup(_stage_context(context, plan, communicator, noise, policy))
    clock.enter(RUNTIME)
    return trainer, policy


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
        max_staleness=training.max_staleness if training.execution == "overlap" or context.program.channels else 0,
        deterministic=training.deterministic,
    )
