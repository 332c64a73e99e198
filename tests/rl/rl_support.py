"""What the tests of gmiflow.rl share: contexts, a deterministic simulator, several replicas in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gmiflow.api import Ports, Simulator, StageContext
from gmiflow.rl.models import ActorCritic
from gmiflow.rl.ppo import Actor, Learner
from gmiflow.runtime.comm.collectives.local import LocalCollective, LocalGroup
from gmiflow.runtime.noise import CounterNoise


def make_context(
    *,
    num_env: int = 32,
    env_offset: int = 0,
    num_env_total: int | None = None,
    horizon: int = 8,
    stratum: int = 16,
    seed: int = 1,
    observation: int = 5,
    action: int = 3,
    communicator: Any = None,
    device: str = "cpu",
    params: Mapping[str, Any] | None = None,
) -> StageContext:
    return StageContext(
        stage="stage",
        device=torch.device(device),
        num_env=num_env,
        env_offset=env_offset,
        num_env_total=num_env if num_env_total is None else num_env_total,
        horizon=horizon,
        stratum=stratum,
        seed=seed,
        params=params or {},
        shapes={"O": observation, "A": action},
        communicator=communicator or LocalCollective.alone("test", 0),
        noise=CounterNoise(seed=seed, num_env=num_env, env_offset=env_offset, device=device),
    )


class Points(Simulator):
    """Point masses on a line that are paid for standing at the origin; exact, no chaos.

    Observation: position, velocity, their product, time left, global id; action 0 pushes. An
    episode is cut after ``limit`` steps and fails when the point leaves [-3, 3]. Starting places
    depend on the global id and the step alone.
    """

    limit = 20

    def setup(self, context: StageContext) -> None:
        self.first = context.env_offset
        self.ids = torch.arange(context.env_offset, context.env_offset + context.num_env, device=context.device)
        self.width = context.shapes["O"]
        self.clock = torch.zeros_like(self.ids)

    def _start(self, number: int) -> Tensor:
        return 2.0 * torch.sin(1.3 * self.ids + 0.7 * number)

    def _obs(self) -> dict[str, Tensor]:
        left = (self.limit - self.clock) / self.limit
        columns = [self.position, self.velocity, self.position * self.velocity, left, 0.1 * (self.ids % 7)]
        return {"obs": torch.stack(columns[: self.width], dim=1).float()}

    def reset(self) -> Ports:
        self.number = 0
        self.clock = (3 * self.ids) % self.limit
        self.position = self._start(0)
        self.velocity = torch.zeros_like(self.position)
        return self._obs()

    def step(self, inputs: Ports) -> Ports:
        action = inputs["action"]
        assert isinstance(action, Tensor)
        self.number += 1
        self.velocity = 0.9 * self.velocity + 0.3 * action[:, 0].clamp(-1.0, 1.0)
        self.position = self.position + 0.3 * self.velocity
        reward = 1.0 - self.position.square() - 0.1 * action.square().sum(1)
        self.clock = self.clock + 1
        terminated = self.position.abs() > 3.0
        truncated = (self.clock >= self.limit) & ~terminated
        done = terminated | truncated
        self.position = torch.where(done, self._start(self.number), self.position)
        self.velocity = torch.where(done, 0.0, self.velocity)
        self.clock = torch.where(done, 0, self.clock)
        return {**self._obs(), "reward": reward, "terminated": terminated, "truncated": truncated}


@dataclass
class Replica:
    """One member of a training and what its update returned last."""

    context: StageContext
    policy: ActorCritic
    actor: Actor
    learner: Learner
    simulator: Points
    obs: Tensor
    metrics: Mapping[str, Tensor]

    def collect(self) -> dict[str, Any]:
        """One rollout as the learner's batch."""
        steps: list[dict[str, Any]] = []
        for _ in range(self.context.horizon):
            acted = self.actor.act({"obs": self.obs})
            record = {name: value.clone() for name, value in acted["experience"].items()}
            out = self.simulator.step({"action": acted["action"]})
            self.obs = out["obs"]
            steps.append({"experience": record, **{k: out[k] for k in ("reward", "terminated", "truncated")}})
        batch: dict[str, Any] = {k: torch.stack([s[k] for s in steps]) for k in ("reward", "terminated", "truncated")}
        names = steps[0]["experience"]
        batch["experience"] = {k: torch.stack([s["experience"][k] for s in steps]) for k in names}
        batch["bootstrap"] = self.actor.finish({"obs": self.obs})["bootstrap"]
        return batch

    def iterate(self, count: int) -> None:
        for _ in range(count):
            self.metrics = self.learner.update(self.collect())


def make_replica(
    actor_params: Mapping[str, Any] | None = None, learner_params: Mapping[str, Any] | None = None, **context: Any
) -> Replica:
    base = make_context(params={"hidden": [16, 8], **(actor_params or {})}, **context)
    policy = Actor.make_policy(base)
    assert isinstance(policy, ActorCritic)
    base = replace(base, policy=policy)
    actor, learner, simulator = Actor(), Learner(), Points()
    actor.setup(base)
    learner.setup(replace(base, params=learner_params or {}))
    simulator.setup(base)
    obs = simulator.reset()["obs"]
    assert isinstance(obs, Tensor)
    return Replica(base, policy, actor, learner, simulator, obs, {})


def run_members(
    sizes: list[int], make: Callable[[int, int, LocalCollective], Replica], iterations: int
) -> list[Replica]:
    """Run one replica per slice, each in a thread of its own; ``make`` gets offset, size and communicator."""
    group = LocalGroup("test", tuple(range(len(sizes))), timeout_s=60.0)
    replicas: list[Replica | None] = [None] * len(sizes)
    failures: list[BaseException] = []

    def work(rank: int) -> None:
        member = group.member(rank)
        try:
            replica = make(sum(sizes[:rank]), sizes[rank], member)
            replicas[rank] = replica
            replica.iterate(iterations)
        except BaseException as failure:
            failures.append(failure)
            member.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [replica for replica in replicas if replica is not None]
