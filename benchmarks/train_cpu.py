"""Training on the CPU, side by side in one run: gmiflow, rsl_rl's PPO and a single-file PPO on Gymnasium.

* ``gmiflow``: the stages of std.tasks.ant and std.algo.ppo in this process, eager.
* ``rsl_rl``: `OnPolicyRunner` of rsl-rl-lib on the *same* simulator adapter, network and update.
* ``gymnasium``: AsyncVectorEnv of Ant-v5 with as many physics steps per environment step, and a PPO
  as one writes it in one file. Another body and reward: its returns compare with nothing here.

The sides take turns of a few iterations, so that a disturbed machine disturbs all of them. Prints
JSON lines: "progress" (return against that side's own wall clock), "side" (medians) and "ratio".

    PYTHONPATH=. python benchmarks/train_cpu.py [--iterations 40] [--sides gmiflow rsl_rl gymnasium]

Needs rsl-rl-lib and tensordict for the second side, gymnasium for the third.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import statistics
import time
from collections import deque
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from gmiflow.api import StageContext
from gmiflow.rl.ppo import Actor, Learner
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.noise import CounterNoise
from gmiflow.tasks.ant import Ant
from gmiflow.tasks.catalog import ANT

HIDDEN = (256, 128, 64)
REWARD_SCALE = 0.01
RECENT_EPISODES = 200


class Record:
    """Times and returns of one side."""

    def __init__(self, num_env):
        self.collect_s, self.learn_s = [], []
        self.recent = deque(maxlen=RECENT_EPISODES)
        self._running = torch.zeros(num_env)

    def step(self, reward, done):
        """Count one step of all environments."""
        self._running += reward
        if done.any():
            self.recent.extend(self._running[done].tolist())
            self._running[done] = 0.0

    def iteration(self, collect_s, learn_s):
        """Count one iteration."""
        self.collect_s.append(collect_s)
        self.learn_s.append(learn_s)

    @property
    def mean_return(self):
        """Over the last episodes, None before the first has ended."""
        return round(statistics.mean(self.recent), 2) if self.recent else None


def make_context(options, **changes):
    context = StageContext(
        stage="ant",
        device=torch.device("cpu"),
        num_env=options.num_env,
        env_offset=0,
        num_env_total=options.num_env,
        horizon=options.horizon,
        stratum=math.gcd(16, options.num_env),
        seed=options.seed,
        params={},
        shapes={"O": ANT.observation_size, "A": ANT.action_size},
        communicator=LocalCollective.alone("benchmark", 0),
        noise=CounterNoise(seed=options.seed, num_env=options.num_env, env_offset=0),
        threads=options.threads,
    )
    return replace(context, **changes)


class GmiflowSide:
    """The stages as the runtime drives them."""

    def __init__(self, options):
        self.record = Record(options.num_env)
        context = make_context(options)
        self._actor, self._learner, self._simulator = Actor(), Learner(), Ant()
        policy = Actor.make_policy(replace(context, params={"hidden": list(HIDDEN)}))
        context = replace(context, policy=policy)
        self._actor.setup(context)
        self._learner.setup(replace(context, params={"reward_scale": REWARD_SCALE}))
        self._simulator.setup(context)
        self._obs = self._simulator.reset()["obs"]
        self._horizon = options.horizon
        self._batch = None

    def _store(self, step, ports):
        """Copy the ports of one step into the [horizon, ...] buffers, as the runtime does."""
        if self._batch is None:
            self._batch = {name: self._buffers(value) for name, value in ports.items()}
        for name, value in ports.items():
            target = self._batch[name]
            if isinstance(value, dict):
                for field, tensor in value.items():
                    target[field][step].copy_(tensor)
            else:
                target[step].copy_(value)

    def _buffers(self, value):
        if isinstance(value, dict):
            return {field: self._buffers(tensor) for field, tensor in value.items()}
        return value.new_zeros((self._horizon, *value.shape))

    def run(self, iterations):
        """Collect and learn ``iterations`` times."""
        for _ in range(iterations):
            start = time.perf_counter()
            for step in range(self._horizon):
                acted = self._actor.act({"obs": self._obs})
                out = self._simulator.step({"action": acted["action"]})
                ports = {name: out[name] for name in ("reward", "terminated", "truncated")}
                self._store(step, {"experience": acted["experience"], **ports})
                self._obs = out["obs"]
                self.record.step(out["reward"], out["terminated"] | out["truncated"])
            bootstrap = self._actor.finish({"obs": self._obs})["bootstrap"]
            middle = time.perf_counter()
            self._learner.update({**self._batch, "bootstrap": bootstrap})
            self.record.iteration(middle - start, time.perf_counter() - middle)


class RslRlSide:
    """rsl_rl's runner, with its own logging off and its own times read."""

    def __init__(self, options):
        from gmiflow.bench.rsl_rl import SimulatorEnv, make_runner

        self.record = Record(options.num_env)
        simulator = Ant()
        simulator.setup(make_context(options))
        env = SimulatorEnv(
            simulator,
            num_env=options.num_env,
            action_size=ANT.action_size,
            device="cpu",
            reward_scale=REWARD_SCALE,
            count=self.record.step,
        )
        self._runner = make_runner(
            env,
            horizon=options.horizon,
            epochs=4,
            minibatches=4,
            hidden=HIDDEN,
            lr=3e-4,
            kl_target=0.008,
            seed=options.seed,
        )
        self._runner.logger.log = lambda **row: self.record.iteration(row["collect_time"], row["learn_time"])

    def run(self, iterations):
        """Collect and learn ``iterations`` times."""
        from gmiflow.bench.rsl_rl import learn

        learn(self._runner, iterations)


class GymnasiumSide:
    """A PPO in one file: nn.Sequential, autograd, torch.optim.Adam, one process per environment."""

    def __init__(self, options):
        import gymnasium

        self.record = Record(options.num_env)
        self._horizon, self._num_env = options.horizon, options.num_env
        makers = [lambda: gymnasium.make("Ant-v5", frame_skip=ANT.substeps)] * options.num_env
        self._env = gymnasium.vector.AsyncVectorEnv(makers)
        self._observation = self._env.single_observation_space.shape[0]
        torch.manual_seed(options.seed)
        self._actor, self._critic = self._network(ANT.action_size), self._network(1)
        self._log_std = nn.Parameter(torch.zeros(ANT.action_size))
        self._parameters = [*self._actor.parameters(), *self._critic.parameters(), self._log_std]
        self._adam = torch.optim.Adam(self._parameters, lr=3e-4)
        self._obs = torch.from_numpy(self._env.reset(seed=options.seed)[0]).float()

    def _network(self, outputs):
        layers = []
        for inputs, width in pairwise((self._observation, *HIDDEN)):
            layers += [nn.Linear(inputs, width), nn.ELU()]
        return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], outputs))

    def close(self):
        """End the worker processes."""
        self._env.close()

    def run(self, iterations):
        """Collect and learn ``iterations`` times."""
        for _ in range(iterations):
            start = time.perf_counter()
            with torch.no_grad():
                rollout = self._collect()
            middle = time.perf_counter()
            self._learn(rollout)
            self.record.iteration(middle - start, time.perf_counter() - middle)

    def _collect(self):
        rows = []
        for _ in range(self._horizon):
            policy = torch.distributions.Normal(self._actor(self._obs), self._log_std.exp())
            action = policy.sample()
            row = {"obs": self._obs, "action": action, "log_prob": policy.log_prob(action).sum(1)}
            row["value"] = self._critic(self._obs).squeeze(1)
            obs, reward, terminated, truncated, _ = self._env.step(action.clamp(-1.0, 1.0).numpy())
            row["reward"] = torch.from_numpy(reward).float()
            row["done"] = torch.from_numpy(terminated | truncated)
            self._obs = torch.from_numpy(obs).float()
            self.record.step(row["reward"], row["done"])
            rows.append(row)
        rollout = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        following, running = self._critic(self._obs).squeeze(1), torch.zeros(self._num_env)
        advantage = torch.zeros_like(rollout["reward"])
        for step in reversed(range(self._horizon)):
            going = 1.0 - rollout["done"][step].float()
            delta = REWARD_SCALE * rollout["reward"][step] + 0.99 * following * going - rollout["value"][step]
            advantage[step] = running = delta + 0.99 * 0.95 * going * running
            following = rollout["value"][step]
        rollout["returns"] = advantage + rollout["value"]
        rollout["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return {name: value.flatten(0, 1) for name, value in rollout.items()}

    def _learn(self, rollout):
        for _ in range(4):
            for index in torch.randperm(self._horizon * self._num_env).chunk(4):
                rows = {name: value[index] for name, value in rollout.items()}
                policy = torch.distributions.Normal(self._actor(rows["obs"]), self._log_std.exp())
                ratio = (policy.log_prob(rows["action"]).sum(1) - rows["log_prob"]).exp()
                surrogate = torch.min(ratio * rows["advantage"], ratio.clamp(0.8, 1.2) * rows["advantage"])
                error = (self._critic(rows["obs"]).squeeze(1) - rows["returns"]).square()
                self._adam.zero_grad()
                (error - surrogate).mean().backward()
                nn.utils.clip_grad_norm_(self._parameters, 1.0)
                self._adam.step()


SIDES = {"gmiflow": GmiflowSide, "rsl_rl": RslRlSide, "gymnasium": GymnasiumSide}


def emit(row, **fields):
    print(json.dumps({"row": row, **fields}), flush=True)


def summary(name, side, steps):
    """Medians of a side, the first iterations left out."""
    record = side.record
    skip = min(3, len(record.collect_s) - 1)
    collect, learn = (statistics.median(times[skip:]) for times in (record.collect_s, record.learn_s))
    return {
        "side": name,
        "steps_per_s": round(steps / (collect + learn)),
        "collect_steps_per_s": round(steps / collect),
        "collect_ms": round(1e3 * collect, 1),
        "learn_ms": round(1e3 * learn, 1),
        "iterations": len(record.collect_s),
        "train_s": round(sum(record.collect_s) + sum(record.learn_s), 1),
        "mean_return": record.mean_return,
    }


def take_turns(sides, options):
    done = 0
    while done < options.iterations:
        turn = min(options.turn, options.iterations - done)
        done += turn
        for name, side in sides.items():
            side.run(turn)
            record = side.record
            train_s = round(sum(record.collect_s) + sum(record.learn_s), 2)
            emit("progress", side=name, iteration=done, train_s=train_s, mean_return=record.mean_return)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-env", type=int, default=256)
    parser.add_argument("--horizon", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--turn", type=int, default=5, help="iterations a side makes before the next one's turn")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "mujoco", "rsl-rl-lib", "gymnasium")}
    emit("setting", threads=options.threads, num_env=options.num_env, horizon=options.horizon, **versions)
    # Gymnasium first: it forks its workers, which should not copy the other sides' memory.
    sides = {name: SIDES[name](options) for name in sorted(options.sides)[::-1] if name == "gymnasium"}
    sides |= {name: SIDES[name](options) for name in options.sides if name != "gymnasium"}
    try:
        take_turns(sides, options)
    finally:
        if "gymnasium" in sides:
            sides["gymnasium"].close()
    steps = options.num_env * options.horizon
    results = {name: summary(name, side, steps) for name, side in sides.items()}
    for result in results.values():
        emit("side", **result)
    for name in results.keys() - {"gmiflow"}:
        if "gmiflow" in results:
            ours, theirs = results["gmiflow"], results[name]
            names = ("steps_per_s", "collect_steps_per_s")
            ratios = {f"{key}_ratio": round(ours[key] / theirs[key], 2) for key in names}
            emit("ratio", against=name, **ratios, learn_ratio=round(theirs["learn_ms"] / ours["learn_ms"], 2))


if __name__ == "__main__":
    main()
