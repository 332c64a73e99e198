"""The paper's model of mapping templates: which roles should share a GMI (section 4.2, Eq. 1 to 3).

R_s, R_a, R_t are the parts of a device that simulator, agent and trainer fill, each of its dominant resource (Eq. 1);
T_s, T_a, T_t their seconds in one iteration of m steps; S, A, W the bytes of all states, actions and rewards of a step;
M_p those of the weights; BW the bandwidth between GMIs; n the trainers that reduce gradients; alpha and beta how much
of an agent and of a trainer one simulator needs. In this notation the throughput of R_all devices is

    TOP = (R_all / R) / (T + COM / BW)        (Eq. 2 for serving, T = T_s + T_a; Eq. 3 for training, + T_t)

with R = max over the roles for `dp_only`, for the others the mean over time (T_s R_s + T_a alpha R_a + T_t beta R_t)/T.
What crosses between GMIs in an iteration, with all-reduce = 2 (n - 1) M_p / n:

    serve  dp_only  0                                     train  dp_only  all-reduce
           mp_dp    m (2S + A + W)                               ea_t     m (S + A + W) + M_p + all-reduce
           dp_mp    m (2S + A + W)           *                   e_at     m (S + A + W) + all-reduce            *
                                                                 dp_mp    m (2S + 2A + W) + M_p + all-reduce    *

Those with a star are not in the paper, and derived in the same way:

- serving with `dp_mp`: every component is a GMI, in many copies, so agents are not shared: alpha = 1. States,
  actions and results take the way that they take with `mp_dp`. (Our runtime keeps results where they are and hands
  a state over once, so m (S + A) cross there; what is measured is less than COM.) With `mp_dp` alpha is the number of
  `agents` over that of `simulators`, where the target says them.
- `e_at`: S and W go to the agent and trainer in every step, A comes back; the experience and the weights stay there,
  so M_p does not move. Both live in one GMI, so they are shared alike: beta = alpha.
- training with `dp_mp`: S goes to the agent and A comes back in every step, as in serving without results; and the
  trainer gets the experience, S + A + W, and returns M_p, as with `ea_t`. (Our runtime brings W to the agent's GMI
  first, which counts episodes and hands it on: m W more.)

Asynchronous training decouples as `ea_t`. Rollouts and updates run side by side, each group with a share of the device
in proportion to its R x T (`group_shares`), which is when neither waits: then R_all / (sum of R x T) iterations are
made per second, which is Eq. 3 without COM. Channels move experience meanwhile, so there the slower of T and COM / BW
counts and not their sum. That is ours; the paper has no formula.

The model knows no latency; ours adds ``latency_s`` for every crossing, and 0 gives the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gmiflow.ir.search import Origin
from gmiflow.plan import ModeKind, Role, Template
from gmiflow.profiles.volumes import Volumes

if TYPE_CHECKING:
    from gmiflow.profiles.workload import Measurement

SERVING: tuple[Template, ...] = ("dp_only", "dp_mp", "mp_dp")
TRAINING: tuple[Template, ...] = ("dp_only", "dp_mp", "e_at", "ea_t")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCost:
    """What one role takes when it runs alone.

    Attributes:
        resource: R, part of a device of its dominant resource, above 0.
        seconds: T, in one iteration.
    """

    resource: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """The costs of all roles of a training.

    Attributes:
        trainer: None when serving.
        origin_of_seconds, origin_of_resources: whether they were measured.
    """

    simulator: RoleCost
    agent: RoleCost
    trainer: RoleCost | None
    origin_of_seconds: Origin = "modelled"
    origin_of_resources: Origin = "modelled"

    def present(self) -> tuple[tuple[Role, RoleCost], ...]:
        """Role and cost of those that there are."""
        trainer: tuple[tuple[Role, RoleCost], ...] = (("trainer", self.trainer),) if self.trainer is not None else ()
        return ("simulator", self.simulator), ("agent", self.agent), *trainer

    def seconds(self) -> float:
        """T, the sum over the roles."""
        return sum(cost.seconds for _, cost in self.present())


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """How much of an agent (alpha) and of a trainer (beta) one simulator needs; 1 when it has its own."""

    alpha: float = 1.0
    beta: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What joins the GMIs of a device: BW in bytes per second, and seconds of every crossing."""

    bytes_per_s: float
    latency_s: float = 0.0


LINKS = {"cpu": Link(bytes_per_s=5e9, latency_s=20e-6), "cuda": Link(bytes_per_s=1e12, latency_s=10e-6)}
"""Shared memory of a host, and CUDA IPC inside a GPU (4.2 TB/s copied on an H200, read and written once more)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is trained, beside its roles.

    Attributes:
        mode: of the workflow.
        volumes: bytes of one environment and step, and of the weights.
        steps: m, of one iteration.
        num_env: environments; S, A and W are those of all of them.
        trainers: n.
    """

    mode: ModeKind
    volumes: Volumes
    steps: int
    num_env: int = 1
    trainers: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Projected:
    """One template by the model.

    Attributes:
        resource: R.
        com_bytes, com_s: what crosses between GMIs in an iteration, and its time.
        seconds: of one iteration with it.
        rate: TOP, iterations per second of one whole device (R_all = 1).
    """

    template: Template
    resource: float
    com_bytes: float
    com_s: float
    seconds: float
    rate: float


def dominant(sm_share: float, memory_share: float) -> Literal["sm", "memory"]:
    """Eq. 1: SMs where a role fills a larger part of them than of the memory, or as large a part.

    Args:
        sm_share: R_SM / SMs of the GPU.
        memory_share: R_mem / memory of the GPU.
    """
    return "sm" if sm_share >= memory_share else "memory"


def project(template: Template, roles: Roles, load: Load, link: Link, sharing: Sharing = Sharing()) -> Projected:
    """Eq. 2 and 3 for any template.

    Raises:
        ValueError: for a template that is none of the mode.
    """
    if template not in templates_of(load.mode):
        raise ValueError(f"{template} is no template of {load.mode} workflows")
    resource = _resource(template, roles, load.mode, sharing)
    com_bytes = _com_bytes(template, load)
    com_s = com_bytes / link.bytes_per_s + _crossings(template, load) * link.latency_s
    hidden = load.mode == "async" and template != "dp_only"
    seconds = max(roles.seconds(), com_s) if hidden else roles.seconds() + com_s
    return Projected(
        template=template,
        resource=resource,
        com_bytes=com_bytes,
        com_s=com_s,
        seconds=seconds,
        rate=1.0 / (resource * seconds),
    )


def rank(roles: Roles, load: Load, link: Link, sharing: Sharing = Sharing()) -> tuple[Projected, ...]:
    """All templates of the mode, the fastest first; `dp_only` first among equals."""
    found = [project(template, roles, load, link, sharing) for template in templates_of(load.mode)]
    return tuple(sorted(found, key=lambda item: -item.rate))


def templates_of(mode: ModeKind) -> tuple[Template, ...]:
    """Those that make sense in a mode."""
    return SERVING if mode == "serve" else TRAINING


def group_shares(groups: Sequence[Sequence[Role]], roles: Roles, sharing: Sharing = Sharing()) -> tuple[float, ...]:
    """Parts of a device for the groups of a split mapping, in proportion to R x T, so that none waits; their sum is 1.

    Roles that share a GMI follow one another, so a group needs the sum of its roles' R x T.
    """
    factor: dict[Role, float] = {"simulator": 1.0, "agent": sharing.alpha, "trainer": sharing.beta}
    work = {role: cost.resource * cost.seconds * factor[role] for role, cost in roles.present()}
    sums = [sum(work.get(role, 0.0) for role in group) for group in groups]
    total = sum(sums)
    return tuple(part / total for part in sums) if total > 0 else tuple(1 / len(groups) for _ in groups)


def roles_from(measurement: Measurement, *, trainer: bool, memory_bytes: int) -> Roles | None:
    """R and T from the measurement of an unsliced point; None when it does not tell the roles apart.

    T is the time of each part of the iteration. R is measured of all roles together: the SMs that were busy or the
    part of the memory, whichever is larger (Eq. 1); on the CPU, and without a counter, a whole device. So the roles
    get the same R, and ``origin_of_resources`` says "modelled".

    Args:
        measurement: with the time of every stage.
        trainer: whether the workflow has one.
        memory_bytes: of the device, 0 when unknown.
    """
    needed = ("simulate", "infer", "update") if trainer else ("simulate", "infer")
    seconds = [measurement.stage_s.get(part, 0.0) for part in needed]
    if measurement.status != "ok" or min(seconds) <= 0.0:
        return None
    memory = measurement.device_memory_bytes / memory_bytes if memory_bytes else 0.0
    resource = 1.0 if measurement.sm_occupancy is None else min(1.0, max(measurement.sm_occupancy, memory, 1e-3))
    costs = [RoleCost(resource=resource, seconds=s) for s in seconds]
    return Roles(
        simulator=costs[0],
        agent=costs[1],
        trainer=costs[2] if trainer else None,
        origin_of_seconds="measured",
    )


def default_roles(seconds: float, *, trainer: bool) -> Roles:
    """Without a measurement: the paper's example, T_s = 6 T_a = 3 T_t, and a whole device for each role.

    Args:
        seconds: of one iteration.
        trainer: whether the workflow has one.
    """
    unit = seconds / (9 if trainer else 7)
    return Roles(
        simulator=RoleCost(resource=1.0, seconds=6 * unit),
        agent=RoleCost(resource=1.0, seconds=unit),
        trainer=RoleCost(resource=1.0, seconds=2 * unit) if trainer else None,
    )


def _resource(template: Template, roles: Roles, mode: ModeKind, sharing: Sharing) -> float:
    if template == "dp_only":
        return max(cost.resource for _, cost in roles.present())
    alpha = 1.0 if mode == "serve" and template == "dp_mp" else sharing.alpha
    beta = alpha if template == "e_at" else sharing.beta
    factor: dict[Role, float] = {"simulator": 1.0, "agent": alpha, "trainer": beta}
    return sum(cost.seconds * factor[role] * cost.resource for role, cost in roles.present()) / roles.seconds()


def _com_bytes(template: Template, load: Load) -> float:
    state, action, reward = (
        load.num_env * size for size in (load.volumes.state, load.volumes.action, load.volumes.reward)
    )
    if load.mode == "serve":
        return 0.0 if template == "dp_only" else float(load.steps * (2 * state + action + reward))
    weights = load.volumes.policy
    reduced = 2 * (load.trainers - 1) * weights / load.trainers
    each_step = {
        "dp_only": 0,
        "ea_t": state + action + reward,
        "e_at": state + action + reward,
        "dp_mp": 2 * state + 2 * action + reward,
    }
    moved = weights if template in ("ea_t", "dp_mp") else 0
    return load.steps * each_step[template] + moved + reduced


def _crossings(template: Template, load: Load) -> int:
    """Times that something waits for another GMI: twice in a step, or with the rollout and the weights."""
    per_iteration = 2 if template in ("ea_t", "dp_mp") and load.mode != "serve" else 0
    per_step = 0 if template in ("dp_only", "ea_t") else 2
    return per_iteration + per_step * load.steps
