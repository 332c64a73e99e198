"""Small real stages for the runtime's tests: a point mass, a linear policy, a policy gradient.

Deterministic torch only. `Faulty` variants fail on purpose in one slice.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from waiting import PATIENCE_S

from gmiflow.api import Agent, Ports, Simulator, StageContext, Trainer
from gmiflow.runtime import GMI

EPISODE_STEPS = 20
DT = 0.1


class PointMass(Simulator):
    """A mass in the plane that shall go to the origin: obs = position, velocity; action = force."""

    capturable = True

    def setup(self, context: StageContext) -> None:
        self.context = context
        self.obs = torch.zeros(context.num_env, 4)
        self.age = torch.zeros(context.num_env, dtype=torch.int64)
        self.tick = torch.zeros((), dtype=torch.int64)

    def reset(self) -> Ports:
        self.obs.copy_(self._fresh())
        self.age.zero_()
        return {"obs": self.obs}

    def observe(self) -> Ports:
        return {"obs": self.obs}

    def step(self, inputs: Ports) -> Ports:
        force = inputs["action"].clamp(-1, 1)
        self.tick += 1
        self.age += 1
        self.obs[:, 2:] += DT * force
        self.obs[:, :2] += DT * self.obs[:, 2:]
        distance = self.obs[:, :2].square().sum(1)
        terminated = distance > 9
        truncated = (self.age >= EPISODE_STEPS) & ~terminated
        done = terminated | truncated
        self.obs.copy_(torch.where(done.unsqueeze(1), self._fresh(), self.obs))
        self.age.mul_(~done)
        return {"obs": self.obs, "reward": -distance, "terminated": terminated, "truncated": truncated}

    def _fresh(self) -> Tensor:
        return 2 * self.context.noise.uniform("reset", self.tick, 4) - 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"obs": self.obs, "age": self.age, "tick": self.tick}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.obs.copy_(state["obs"])
        self.age.copy_(state["age"])
        self.tick.copy_(state["tick"])

    def diagnostics(self) -> dict[str, int]:
        return {"overflows": 0}


class RenamedMass(PointMass):
    """Keeps the same under other names."""

    def state_dict(self) -> dict[str, Tensor]:
        return {f"own_{name}": value for name, value in super().state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict({name: state[f"own_{name}"] for name in super().state_dict()})


class JoinableMass(PointMass):
    """May be shared by several trainings: its clock is one per environment, as is the rest of its state."""

    joinable = True

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        self.tick = torch.zeros(context.num_env, dtype=torch.int64)


class Detaching(PointMass):
    """Starts two processes that leave its group: a child, and one whose parent ends at once."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        subprocess.run(["sh", "-c", "setsid sleep 601 &"], check=True)


class LinearPolicy(nn.Module):
    """Mean force and value, both linear in the observation."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        spread = torch.arange(actions * observations, dtype=torch.float32).view(actions, observations)
        self.weight = nn.Parameter(0.01 * spread.sin())
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        self.value_weight = nn.Parameter(torch.zeros(observations))

    def mean(self, obs: Tensor) -> Tensor:
        return obs @ self.weight.T

    def value(self, obs: Tensor) -> Tensor:
        return obs.square() @ self.value_weight

    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        scaled = (action - self.mean(obs)) / self.log_std.exp()
        return -0.5 * scaled.square().sum(-1) - self.log_std.sum()


class Actor(Agent):
    """Samples actions; all tensors are its own buffers."""

    @staticmethod
    def make_policy(context: StageContext) -> nn.Module:
        return LinearPolicy(context.shapes["O"], context.shapes["A"]).to(context.device)

    def setup(self, context: StageContext) -> None:
        self.context = context
        self.policy: LinearPolicy = context.policy
        self.tick = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def act(self, inputs: Ports) -> Ports:
        obs = inputs["obs"]
        noise = self.context.noise.normal("action", self.tick, self.context.shapes["A"])
        self.tick += 1
        action = self.policy.mean(obs) + self.policy.log_std.exp() * noise
        return {"action": action, "experience": {"obs": obs, "action": action}}

    @torch.no_grad()
    def finish(self, inputs: Ports) -> Ports:
        return {"bootstrap": self.policy.value(inputs["obs"])}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in self.policy.state_dict().items():
            value.copy_(weights[name])

    def state_dict(self) -> dict[str, Tensor]:
        return {"tick": self.tick}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.tick.copy_(state["tick"])


class Learner(Trainer):
    """Policy gradient with a value baseline and momentum; one flat buffer is reduced per update."""

    def setup(self, context: StageContext) -> None:
        self.context = context
        self.policy: LinearPolicy = context.policy
        self.parameters = list(self.policy.parameters())
        self.momentum = torch.zeros(sum(p.numel() for p in self.parameters))
        self.updates = torch.zeros((), dtype=torch.int64)

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        experience = batch["experience"]
        returns = self._returns(batch)
        samples = returns.shape[0] * self.context.num_env_total
        value = self.policy.value(experience["obs"])
        log_prob = self.policy.log_prob(experience["obs"], experience["action"])
        loss = ((value - returns).square() - log_prob * (returns - value.detach())).sum() / samples
        gradients = torch.autograd.grad(loss, self.parameters)
        flat = torch.cat([g.reshape(-1) for g in gradients] + [loss.detach().view(1)])
        self.context.communicator.all_reduce(flat)
        self.momentum.mul_(0.9).add_(flat[:-1])
        self.updates += 1
        with torch.no_grad():
            pieces = self.momentum.split([p.numel() for p in self.parameters])
            for parameter, piece in zip(self.parameters, pieces, strict=True):
                parameter.sub_(self.context.params["lr"] * piece.view_as(parameter))
        return {"loss": flat[-1].clone(), "updates": self.updates.clone()}

    def _returns(self, batch: Ports) -> Tensor:
        running = batch["bootstrap"].clone()
        returns = torch.empty_like(batch["reward"])
        for t in reversed(range(returns.shape[0])):
            ended = batch["terminated"][t] | batch["truncated"][t]
            running = batch["reward"][t] + 0.95 * torch.where(ended, 0.0, running)
            returns[t] = running
        return returns

    def weights(self) -> Mapping[str, Tensor]:
        return self.policy.state_dict()

    def state_dict(self) -> dict[str, Tensor]:
        return {"momentum": self.momentum, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.momentum.copy_(state["momentum"])
        self.updates.copy_(state["updates"])


class WiderLearner(Learner):
    """Keeps one number more in its momentum."""

    def state_dict(self) -> dict[str, Tensor]:
        return {**super().state_dict(), "momentum": torch.cat([self.momentum, torch.zeros(1)])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict({**state, "momentum": state["momentum"][:-1]})


class Slow(PointMass):
    """Takes its time, so that a test can disturb the run."""

    def step(self, inputs: Ports) -> Ports:
        time.sleep(0.02)
        return super().step(inputs)


class Raising(PointMass):
    """The slice that does not start at environment 0 raises in its fifth step."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            raise ValueError("the mass left the table")
        return super().step(inputs)


class Dying(PointMass):
    """The slice that does not start at environment 0 kills its process in its fifth step."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            print("a last word", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(inputs)


class DyingOnce(PointMass):
    """The slice that does not start at environment 0 kills its process in step 30, unless one did before."""

    def step(self, inputs: Ports) -> Ports:
        died = Path(os.environ["POINT_MASS_DIED"])
        if self.context.env_offset > 0 and self.tick >= 29 and not died.exists():
            died.touch()
            self.die()
        return super().step(inputs)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class HangingOnce(DyingOnce):
    """As `DyingOnce`, but it does not come back."""

    def die(self) -> None:
        time.sleep(3600)


class StoppedOnce(DyingOnce):
    """As `DyingOnce`, but its process is stopped."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class DyingAgain(DyingOnce):
    """As `DyingOnce`, and once more in the set-up of its successor."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        died = Path(os.environ["POINT_MASS_DIED"])
        again = died.with_name("died_again")
        if context.env_offset > 0 and died.exists() and not again.exists():
            again.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Filling(PointMass):
    """From step 20 on its process can write no file of more than 256 bytes, as where the disk is full."""

    def step(self, inputs: Ports) -> Ports:
        if self.tick == 19:
            resource.setrlimit(resource.RLIMIT_FSIZE, (256, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return super().step(inputs)


class Recorded(PointMass):
    """Keeps what it was asked to do and where that led, step by step."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        self.actions: list[Tensor] = []
        self.states: list[Tensor] = []

    def step(self, inputs: Ports) -> Ports:
        self.actions.append(inputs["action"].clone())
        outputs = super().step(inputs)
        self.states.append(self.obs.clone())
        return outputs


class FallingActor(Actor):
    """Kills its process in its thirtieth step."""

    def act(self, inputs: Ports) -> Ports:
        if self.tick >= 29:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(inputs)


class ShapelessActor(Actor):
    """Returns one action number too many."""

    def act(self, inputs: Ports) -> Ports:
        return {"action": torch.zeros(inputs["obs"].shape[0], 3)}


class Late(PointMass):
    """The slice that does not start at environment 0 kills its process in its tenth step."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        self.steps = 0

    def step(self, inputs: Ports) -> Ports:
        self.steps += 1
        if self.context.env_offset > 0 and self.steps >= 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(inputs)


class Freezing(PointMass):
    """The slice that does not start at environment 0 is stopped by a signal in its fifth step."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().step(inputs)


class Waiting(PointMass):
    """The slice that does not start at environment 0 never comes back from its fifth step."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            time.sleep(3600)
        return super().step(inputs)


class Exiting(PointMass):
    """The slice that does not start at environment 0 leaves the process without a word."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            os._exit(7)
        return super().step(inputs)


class WrongShape(PointMass):
    """Returns rewards with an axis too many."""

    def step(self, inputs: Ports) -> Ports:
        outputs = dict(super().step(inputs))
        outputs["reward"] = outputs["reward"].unsqueeze(1)
        return outputs


class WrongType(PointMass):
    """Returns float64 rewards."""

    def step(self, inputs: Ports) -> Ports:
        outputs = dict(super().step(inputs))
        outputs["reward"] = outputs["reward"].double()
        return outputs


class Forgetful(PointMass):
    """Does not return `truncated`."""

    def step(self, inputs: Ports) -> Ports:
        outputs = dict(super().step(inputs))
        del outputs["truncated"]
        return outputs


class Diverging(Learner):
    """Forgets to reduce its gradients."""

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        metrics = super().update(batch)
        with torch.no_grad():
            self.policy.weight.add_(1e-3 * self.context.communicator.rank)
        return metrics


class Counted(PointMass):
    """Tells how many steps each slice of this process has made."""

    steps: ClassVar[dict[int, int]] = {}

    def reset(self) -> Ports:
        Counted.steps[self.context.env_offset] = 0
        return super().reset()

    def step(self, inputs: Ports) -> Ports:
        outputs = super().step(inputs)
        Counted.steps[self.context.env_offset] += 1
        return outputs


class Patient(Learner):
    """Is slower than the simulators of this process: update k ends when each has made ``rollouts(k)`` rollouts."""

    rollouts: ClassVar[Callable[[int], int]] = staticmethod(lambda update: 0)

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        wanted = Patient.rollouts(int(self.updates)) * self.context.horizon
        deadline = time.monotonic() + PATIENCE_S
        while min(Counted.steps.values()) < wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        return super().update(batch)


class FallingOnce(Learner):
    """Kills its process in the fifth update, unless one did before."""

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        died = Path(os.environ["POINT_MASS_DIED"])
        if self.updates >= 4 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(batch)


class Exploding(Learner):
    """Its third update leaves infinite weights."""

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        metrics = super().update(batch)
        if metrics["updates"] >= 3:
            for value in self.weights().values():
                value.mul_(float("inf"))
            return {**metrics, "loss": metrics["loss"] * float("nan")}
        return metrics


class ExplodingAlone(Exploding):
    """As `Exploding`, in the training with seed 8 only; it does not tell."""

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        if self.context.seed != 8:
            return Learner.update(self, batch)
        return {**super().update(batch), "loss": torch.zeros(())}


class RaisingActor(Actor):
    """Raises in its tenth step, in the training with seed 8 only."""

    def act(self, inputs: Ports) -> Ports:
        if self.context.seed == 8 and self.tick >= 9:
            raise ValueError("no way to act")
        return super().act(inputs)


class UnreadyActor(Actor):
    """Cannot be set up in the training with seed 8."""

    def setup(self, context: StageContext) -> None:
        super().setup(context)
        if context.seed == 8:
            raise ValueError("not ready")


class JoinableRaising(JoinableMass):
    """Raises in its fifth step."""

    def step(self, inputs: Ports) -> Ports:
        if self.tick[0] >= 4:
            raise ValueError("the mass left the table")
        return super().step(inputs)


class JoinableOneClock(PointMass):
    """Says that it can be shared, and has a clock for all environments together."""

    joinable = True


class NotAStage:
    """Something that is not a stage."""


class Alternating(GMI):
    """Learns from every second rollout only."""

    def run(self) -> None:
        for iteration in self.runtime.iterations():
            self.runtime.collect()
            if iteration % 2 == 1:
                self.runtime.learn()


class Impatient(GMI):
    """Once all have met, it waits for a peer the 600th part of the time that it was given."""

    def run(self) -> None:
        for collective in (*self.context.collectives.values(), self.context.control):
            collective._flags._timeout_s /= 600  # type: ignore[attr-defined]
        super().run()


class SlowSetup(PointMass):
    """Takes longer to set up than any test waits."""

    def setup(self, context: StageContext) -> None:
        time.sleep(3600)
        super().setup(context)


class Tardy(PointMass):
    """Is set up after a trainer with nothing to do has ended, if that does not wait."""

    def setup(self, context: StageContext) -> None:
        time.sleep(0.3)
        super().setup(context)


class RealTime(PointMass):
    """The slice that does not start at environment 0 ends by a signal without a name."""

    def step(self, inputs: Ports) -> Ports:
        if self.context.env_offset > 0 and self.tick >= 4:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [37])
            os.kill(os.getpid(), 37)
        return super().step(inputs)


class NotANumber(PointMass):
    """Its reward is NaN from the second iteration on."""

    def step(self, inputs: Ports) -> Ports:
        outputs = dict(super().step(inputs))
        if self.tick > 8:
            outputs["reward"] = outputs["reward"] * float("nan")  # type: ignore[operator]
        return outputs


class LostPlace(PointMass):
    """Its observation is infinite from the second iteration on."""

    def step(self, inputs: Ports) -> Ports:
        outputs = super().step(inputs)
        if self.tick > 8:
            self.obs[3] = float("inf")
        return outputs
