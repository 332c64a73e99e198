"""Every task class, and a way to set one up with the runtime's noise."""

import torch

from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim.standalone import standalone_context
from gmiflow.tasks.ant import Ant
from gmiflow.tasks.anymal import Anymal
from gmiflow.tasks.ball_balance import BallBalance
from gmiflow.tasks.base import Task
from gmiflow.tasks.cartpole import CartPole, CartPoleSwingUp
from gmiflow.tasks.franka_cabinet import FrankaCabinet
from gmiflow.tasks.humanoid import Humanoid
from gmiflow.tasks.shadow_hand import ShadowHand
from gmiflow.tasks.snapshot import Snapshot

TASK_CLASSES = (CartPole, CartPoleSwingUp, Ant, Humanoid, BallBalance, Anymal, FrankaCabinet, ShadowHand)


def make_task(cls: type[Task], num_env: int = 8, *, env_offset: int = 0, seed: int = 1, **options) -> Task:
    task = cls()
    noise = CounterNoise(seed=seed, num_env=num_env, env_offset=env_offset, device=options.get("device", "cpu"))
    task.setup(standalone_context(num_env, env_offset=env_offset, seed=seed, noise=noise, **options))
    return task


def actions(task: Task, steps: int, seed: int = 0) -> torch.Tensor:
    """Uniform actions, [steps, num_env, A]."""
    generator = torch.Generator().manual_seed(seed)
    num_env = task.observe()["obs"].shape[0]
    return torch.rand(steps, num_env, task.info.action_size, generator=generator) * 2.0 - 1.0


def snapshot(task: Task, qpos, qvel=None, action=None, memory=None, **derived) -> Snapshot:
    """One environment's state, written by hand; what is not given is zero."""
    model = task.engine.model

    def row(values, size):
        return torch.zeros(1, size) if values is None else torch.tensor([values], dtype=torch.float32)

    fields = {name: torch.zeros(1, field.shape[1]) for name, field in task.engine.derived.items()}
    fields |= {name: torch.tensor([values], dtype=torch.float32) for name, values in derived.items()}
    return Snapshot(
        qpos=row(qpos, model.nq),
        qvel=row(qvel, model.nv),
        action=row(action, task.info.action_size),
        derived=fields,
        memory={name: torch.tensor([values], dtype=torch.float32) for name, values in (memory or {}).items()},
    )


def observation(task: Task, state: Snapshot) -> torch.Tensor:
    out = torch.full((1, task.info.observation_size), torch.nan)
    task.observe_into(state, out)
    return out[0]


def verdict(task: Task, state: Snapshot) -> tuple[float, bool]:
    """Reward and termination of one environment in ``state``."""
    out = torch.empty(1, task.info.observation_size)
    task.observe_into(state, out)
    reward, terminated = torch.full((1,), torch.nan), torch.zeros(1, dtype=torch.bool)
    task.judge(state, out, reward, terminated)
    return float(reward), bool(terminated)


def measured(task: Task, state: Snapshot) -> dict[str, float]:
    """The measures of one environment in ``state``, by name."""
    verdict(task, state)
    obs = observation(task, state).unsqueeze(0)
    out = torch.full((len(task.info.goal.measures), 1), torch.nan)
    task.measure(state, obs, out)
    return {measure.name: float(value) for measure, value in zip(task.info.goal.measures, out, strict=True)}
