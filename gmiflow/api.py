"""Base classes of simulators, agents and trainers: what a `py "module:Class"` entry must be.

This module is a leaf: it imports nothing of gmiflow, so a user's simulator needs only this file
and torch. The docstrings are the contract between a stage and the runtime that drives it.

Order of calls in one iteration of a synchronous workflow::

    out = simulator.reset()                       # once, before the first iteration
    repeat horizon times:
        acted = agent.act({"obs": out["obs"]})
        out = simulator.step({"action": acted["action"]})
    last = agent.finish({"obs": out["obs"]})
    metrics = trainer.update(batch)               # step ports stacked to [time, env, ...]
    agent.load_weights(trainer.weights())         # only when agent and trainer do not share a policy

Every tensor lives on ``context.device``. Tensors that a stage returns are its own buffers: they
are valid until the next call of the same method, and the caller copies what it keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

__all__ = ["Agent", "Communicator", "Noise", "Ports", "SharedTrainer", "Simulator", "StageContext", "Trainer"]

Ports: TypeAlias = "Mapping[str, Tensor | Mapping[str, Tensor]]"
"""Tensors by port name; a port of a record type holds a mapping from field name to tensor."""

Integers: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float32]"


class Communicator(Protocol):
    """Collectives among the trainer replicas of one training. Injected; never imported by a stage.

    Every member calls the same methods in the same order with tensors of the same size. With
    ``size == 1`` every method returns at once and leaves its tensor as it is.
    """

    @property
    def rank(self) -> int:
        """Index of this member, 0 <= rank < size."""
        ...

    @property
    def size(self) -> int:
        """Number of members."""
        ...

    def all_reduce(self, flat: Tensor, op: str = "sum") -> None:
        """Reduce a contiguous 1-D tensor over all members, in place.

        Args:
            flat: f32, f64, i32 or i64 tensor of shape [n], the same n on every member.
            op: "sum", "max" or "min".

        The result has the same bits on every member.
        """
        ...

    def broadcast(self, flat: Tensor, root: int = 0) -> None:
        """Copy a contiguous 1-D tensor of member ``root`` to all members, in place."""
        ...

    def barrier(self) -> None:
        """Return when every member has called it."""
        ...


class Noise(Protocol):
    """Counter-based random numbers: a stateless hash of (seed, purpose, environment, step, index).

    The numbers of one environment depend on its *global* id, so they are the same however the
    environments are cut into GMIs, whichever execution lowering runs them, and after a resume.
    All operations can be captured in a CUDA graph; ``step`` is then a device tensor that the
    stage increments inside the graph.
    """

    def uniform(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Uniform numbers in [0, 1), f32 of shape [num_env, width] (or [len(env), width]).

        Args:
            purpose: names the stream, for example "reset" or "action".
            step: i64 tensor of shape [] or [num_env] (or [len(env)]) on the stage's device.
            width: numbers per environment.
            env: i64 *local* environment ids of shape [k]; None means all of this slice.
        """
        ...

    def uniform_array(self, purpose: str, step: Integers, width: int, env: Integers) -> Floats:
        """As :meth:`uniform` on the CPU, by NumPy; for a few environments the detour through tensors costs most."""
        ...

    def normal(self, purpose: str, step: Tensor, width: int, env: Tensor | None = None) -> Tensor:
        """Standard normal numbers; arguments and shape as for :meth:`uniform`."""
        ...


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """What the runtime tells a stage at setup. Stages read nothing else from their surroundings.

    Attributes:
        stage: name of the stage in the workflow.
        device: where all of the stage's tensors live.
        num_env: environments of this slice (local).
        env_offset: global id of the first local environment.
        num_env_total: environments of the whole training.
        horizon: steps per iteration.
        stratum: consecutive global environments that are permuted together into minibatches.
        seed: base seed of the training, the same on every GMI.
        params: the stage's parameters as written in the `.gmi` file, defaults filled in.
        shapes: sizes of the shape variables, for example ``{"O": 60, "A": 8}``.
        communicator: collectives among the replicas of this training's trainer.
        noise: counter-based random numbers for this slice.
        threads: CPU threads that this GMI may use.
        precision: "f32", "tf32" or "bf16"; what matrix products may use.
        policy: for agents and trainers, the module that `Agent.make_policy` returned, on ``device``.
        max_staleness: policy versions that experience may be behind the trainer's policy.
        deterministic: for agents, whether `Agent.act` takes the likeliest action instead of drawing one.
    """

    stage: str
    device: torch.device
    num_env: int
    env_offset: int
    num_env_total: int
    horizon: int
    stratum: int
    seed: int
    params: Mapping[str, Any]
    shapes: Mapping[str, int] = field(default_factory=dict[str, int])
    communicator: Communicator
    noise: Noise
    threads: int = 1
    precision: str = "f32"
    policy: nn.Module | None = None
    max_staleness: int = 0
    deterministic: bool = False


class Simulator(ABC):
    """A batch of environments. Constructed without arguments by the runtime, then `setup`."""

    capturable: bool = False
    """True when `step` only enqueues work on the current CUDA stream, so it may be captured. Final after `setup`.

    A captured step is repeated without its Python code, on the same tensors: its state must be changed in place.
    """

    joinable: bool = False
    """True when one instance may hold the environments of several trainings side by side (`joint` in a workflow).

    Said by the class. The randomness then comes from ``context.noise`` alone, never from ``seed`` or ``env_offset``;
    what happens in one environment does not depend on how many there are; every tensor of `state_dict` has a row per
    environment; and `observe` is overridden and changes nothing.
    """

    @abstractmethod
    def setup(self, context: StageContext) -> None:
        """Allocate everything here; later calls allocate nothing that grows."""

    @abstractmethod
    def reset(self) -> Ports:
        """Start all environments; return the out ports that exist before the first step ("obs")."""

    @abstractmethod
    def step(self, inputs: Ports) -> Ports:
        """Advance every environment by one control step.

        Args:
            inputs: "action", f32 [num_env, A]; the simulator clamps it to the declared range.

        Returns:
            All out ports. ``reward`` f32 [num_env], ``terminated`` and ``truncated`` bool
            [num_env] describe the step just made; environments that ended are already reset in
            ``obs``. A time-out is truncated, not terminated.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors with a leading environment axis (or of shape []) that resume the environments."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, for this slice's environments; `reset` is then not called."""

    def observe(self) -> Ports:
        """The current out ports that `reset` returns, without resetting; used after a resume."""
        return self.reset()

    def diagnostics(self) -> dict[str, Any]:
        """Counters worth reporting, for example contact-buffer overflows. Called between iterations."""
        return {}

    def close(self) -> None:
        """Release threads, processes and files."""


class Agent(ABC):
    """Turns observations into actions with a policy module."""

    capturable: bool = False
    """True when `act` and `finish` only enqueue work on the current CUDA stream."""

    acts_deterministically: bool = False
    """True when `act` keeps to ``context.deterministic``; a workflow that asks for it refuses other agents."""

    @staticmethod
    @abstractmethod
    def make_policy(context: StageContext) -> nn.Module:
        """Build the policy on ``context.device`` from ``params``, ``shapes`` and ``seed`` alone.

        Called by the runtime in every GMI that holds the agent or the trainer, with the agent's
        own parameters; equal arguments give equal weights. Must not touch the global generator.
        """

    @abstractmethod
    def setup(self, context: StageContext) -> None:
        """Allocate buffers; ``context.policy`` is the module to act with."""

    @abstractmethod
    def act(self, inputs: Ports) -> Ports:
        """One control step: "obs" f32 [num_env, O] in; "action" f32 [num_env, A] and "experience" out."""

    @abstractmethod
    def finish(self, inputs: Ports) -> Ports:
        """After the last step of a rollout: "obs" in; "bootstrap" f32 [num_env] out."""

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights of `Trainer.weights` into the policy, in place (graphs keep pointers).

        Only called when agent and trainer hold a policy each: execution `overlap` and the split mappings.
        """
        raise NotImplementedError(f"{type(self).__name__}.load_weights is needed when agent and trainer do not share")

    def state_dict(self) -> dict[str, Tensor]:
        """Agent state besides the policy, for example its step counter."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""


class Trainer(ABC):
    """Improves the policy from rollouts."""

    capturable: bool = False
    """True when `update` is a fixed sequence of work on the current CUDA stream and the communicator."""

    @abstractmethod
    def setup(self, context: StageContext) -> None:
        """Allocate everything; ``context.policy`` is the module to train."""

    @abstractmethod
    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        """One update from one rollout.

        Args:
            batch: the in ports. Ports typed with `time` hold [horizon, num_env, ...] tensors; the
                tensors belong to the caller and may be read but not written.

        Returns:
            Metrics as 0-d tensors on the device, already reduced over the replicas.
        """

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """The policy's parameters and buffers by name: views, not copies."""

    def state_dict(self) -> dict[str, Tensor]:
        """Optimizer, learning rate and counters (the policy is saved by the runtime)."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""


class SharedTrainer(Trainer):
    """A trainer whose replicas improve one shared policy without waiting for each other, as in A3C.

    Its type says `update = apply` in the `.gmi` file. Each replica has a policy of its own, ``context.policy``, and all
    of them share what `share` names. The runtime calls, in place of `update`::

        trainer.attach(shared)                  # once, after `setup`; `shared` starts as `share()` of one replica
        repeat:
            with lock: trainer.pull()           # the own policy becomes the shared one
            metrics = trainer.gradient(batch)   # reads the own policy; others change the shared one meanwhile
            with lock: trainer.apply()          # the own gradient changes what is shared

    ``lock`` is held by one replica at a time, so that every `pull` sees whole updates. Where one GMI has all roles
    nothing is attached, and `update` does the three with the own policy.
    """

    @abstractmethod
    def share(self) -> Mapping[str, Tensor]:
        """What all replicas share by name: parameters, normalisers, statistics of the optimizer, counters.

        Names, shapes and element types must be equal on all replicas.
        """

    @abstractmethod
    def attach(self, shared: Mapping[str, Tensor]) -> None:
        """From now on share ``shared``: tensors like those of `share`, in memory of the host that others write too.

        `pull` and `apply` are called with the lock, `weights` and `state_dict` too; nothing else may look at them.
        """

    @abstractmethod
    def pull(self) -> None:
        """Copy the shared policy into the own one, in place (graphs keep pointers)."""

    @abstractmethod
    def gradient(self, batch: Ports) -> Mapping[str, Tensor]:
        """Compute the gradient of one rollout with respect to the own policy, and keep it for `apply`.

        What is kept lies in the same buffers after every call: a captured call is repeated without its Python code.

        Args:
            batch: as for `update`.

        Returns:
            Metrics of this replica as 0-d tensors on the device. `capturable` says whether this can be captured.
        """

    @abstractmethod
    def apply(self) -> None:
        """Change what is shared by one step with the gradient that `gradient` left; waits for the device."""

    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        """One update where nothing is shared; see `Trainer.update`."""
        self.pull()
        metrics = self.gradient(batch)
        self.apply()
        return metrics
