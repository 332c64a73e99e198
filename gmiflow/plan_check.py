"""What a launch plan must say beyond the types of its fields; `gmiflow run` reads plans here.

The compiler verifies what it writes. A plan that was edited or made elsewhere is looked through before anything
is started, since the runtime could only hang, train something else, or write outside of the run directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gmiflow.plan import ChannelPlan, CollectivePlan, GMIPlan, LaunchPlan, PlanError, TrainingPlan
from gmiflow.plan_devices import require_devices

MOST = 2**53
"""Largest count: what every reader of JSON can hold exactly."""
LONGEST_NAME_BYTES = 200
"""Of a name that becomes a file: file systems take 255, and suffixes are added."""

_TRAINING_COUNTS = ("num_env", "horizon", "stratum", "iterations")
_GMI_COUNTS = ("cores", "threads", "num_env")


def read_plan(text: str) -> LaunchPlan:
    """Read what `LaunchPlan.to_json` wrote, and look it through.

    Raises:
        PlanError: with the JSON path of the first field that is wrong.
    """
    plan = LaunchPlan.from_json(text)
    validate(plan)
    try:
        plan.to_json().encode()  # a run writes it again
    except RecursionError as error:
        raise PlanError("not a plan: it is nested too deeply") from error
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.start + 1]
        raise PlanError(f"not a plan: {broken!r} is half of a character") from error
    return plan


def validate(plan: LaunchPlan) -> None:
    """Look through a plan whose fields have the right types.

    Raises:
        PlanError: with the JSON path of the first field that is wrong.
    """
    _require(len(plan.trainings) > 0, "plan.trainings", "there is none")
    _require(len(plan.gmis) > 0, "plan.gmis", "there is none")
    _plain(plan.source.workflow, "plan.source.workflow")
    for name, text in (("source.file", plan.source.file), ("generator", plan.generator)):
        # They stand in the first lines of every program and job script.
        _require(text.isprintable() and '"""' not in text, f"plan.{name}", f"{text!r} does not fit into one line")
    _counts(plan.target, ("devices", "gmi_per_gpu", "cores"), "plan.target")
    _not_negative(plan.target.memory_mib, "plan.target.memory_mib")
    _unique((training.name for training in plan.trainings), "plan.trainings", ".name")
    for index, training in enumerate(plan.trainings):
        _training(training, f"plan.trainings[{index}]")
    by_name = {training.name: training for training in plan.trainings}
    _unique((gmi.program for gmi in plan.gmis), "plan.gmis", ".program")
    for index, gmi in enumerate(plan.gmis):
        _gmi(plan, index, gmi, by_name)
    _unique((group.name for group in plan.collectives), "plan.collectives", ".name")
    for index, group in enumerate(plan.collectives):
        _collective(plan, group, by_name, f"plan.collectives[{index}]")
    _unique((channel.name for channel in plan.channels), "plan.channels", ".name")
    for index, channel in enumerate(plan.channels):
        _channel(plan, channel, by_name, f"plan.channels[{index}]")
    members: dict[str, list[GMIPlan]] = {name: [] for name in by_name}
    for gmi in plan.gmis:
        members[gmi.training].append(gmi)
    groups: dict[str, list[CollectivePlan]] = {name: [] for name in by_name}
    for group in plan.collectives:
        groups[group.training].append(group)
    require_devices(plan)
    for index, training in enumerate(plan.trainings):
        path = f"plan.trainings[{index}]"
        _environments(training, members[training.name], path)
        own = [channel for channel in plan.channels if channel.training == training.name]
        _reduced(training, members[training.name], groups[training.name], path)
        _fed(training, members[training.name], own, path)
        if training.update == "apply":
            _applied(training, members[training.name], own, path)


def _training(training: TrainingPlan, path: str) -> None:
    """One training without its GMIs."""
    _plain(training.name, f"{path}.name")
    _counts(training, _TRAINING_COUNTS, path)
    _not_negative(training.checkpoint_every, f"{path}.checkpoint_every")
    _not_negative(training.max_staleness, f"{path}.max_staleness")
    fresh = training.mode != "sync" or training.max_staleness == 0
    _require(fresh, f"{path}.max_staleness", f"{training.name} is sync, and experience may not be stale there")
    rest = training.num_env % training.stratum
    _require(rest == 0, f"{path}.num_env", f"{training.num_env} is not a multiple of the stratum {training.stratum}")
    _require(len(training.stages) > 0, f"{path}.stages", "there is none")
    names = {stage.name for stage in training.stages}
    for index, stage in enumerate(training.stages):
        _require(stage.name.isidentifier(), f"{path}.stages[{index}].name", f"{stage.name!r} is not a name")
    _unique((stage.name for stage in training.stages), f"{path}.stages", ".name")
    _unique((stage.role for stage in training.stages), f"{path}.stages", ".role")
    for index, edge in enumerate(training.edges):
        for end in ("source", "target"):
            stage, _, port = getattr(edge, end).partition(".")
            place = f"{path}.edges[{index}].{end}"
            _require(bool(port), place, f"{getattr(edge, end)!r} is not stage.port")
            _require(stage in names, place, f"training {training.name!r} has no stage {stage!r}")
        _counts(edge, ("depth",), f"{path}.edges[{index}]")


def _gmi(plan: LaunchPlan, index: int, gmi: GMIPlan, trainings: dict[str, TrainingPlan]) -> None:
    """One GMI: its number, its names, its counts and its process."""
    path = f"plan.gmis[{index}]"
    _require(gmi.id == index, f"{path}.id", f"expected {index}, got {gmi.id} (ids count from 0 in order)")
    _require(gmi.training in trainings, f"{path}.training", f"there is no training {gmi.training!r}")
    _plain(gmi.program, f"{path}.program")
    _require(gmi.program.endswith(".py"), f"{path}.program", f"{gmi.program!r} does not end in .py")
    _counts(gmi, _GMI_COUNTS, path)
    for name in ("device", "env_offset", "memory_mib"):
        _not_negative(getattr(gmi, name), f"{path}.{name}")
    _require(0.0 < gmi.share <= 1.0, f"{path}.share", f"expected more than 0 and at most 1, got {gmi.share:g}")
    training = trainings[gmi.training]
    names = {stage.name for stage in training.stages}
    _require(len(gmi.stages) > 0, f"{path}.stages", "there is none")
    _unique(gmi.stages, f"{path}.stages", "")
    for number, name in enumerate(gmi.stages):
        _require(name in names, f"{path}.stages[{number}]", f"training {gmi.training!r} has no stage {name!r}")
    for name in ("num_env", "env_offset"):
        value = getattr(gmi, name)
        broken = f"{value} is not a multiple of the stratum {training.stratum}"
        _require(value % training.stratum == 0, f"{path}.{name}", broken)
    if gmi.host is not None:
        _host(plan, gmi, gmi.host, f"{path}.host")
    if gmi.joint is not None:
        _joint(plan, gmi, gmi.joint, f"{path}.joint")


def _host(plan: LaunchPlan, gmi: GMIPlan, number: int, path: str) -> None:
    """The first GMI of a shared process: it names itself, and all of the process are on one device."""
    _require(0 <= number < len(plan.gmis), path, f"there is no GMI {number}")
    host = plan.gmis[number]
    first = number <= gmi.id and host.host == number
    _require(first, path, f"GMI {number} is not the first of a shared process, which names itself as its host")
    same = (host.device, host.backend) == (gmi.device, gmi.backend)
    _require(same, path, f"GMI {number} has another device or backend than GMI {gmi.id}")


def _joint(plan: LaunchPlan, gmi: GMIPlan, number: int, path: str) -> None:
    """The first GMI of those that share a simulator: of one process, each with a whole training, alike in all it has.

    Seeds, agents and trainers may differ.
    """
    _require(0 <= number <= gmi.id and plan.gmis[number].joint == number, path, f"GMI {number} is not the first of it")
    first = plan.gmis[number]
    _require(gmi.host is not None and gmi.host == first.host, path, f"GMI {number} is of another process")
    own, other = plan.training(gmi.training), plan.training(first.training)
    _require(gmi.num_env == own.num_env, path, f"GMI {gmi.id} has a part of its training only")
    _require(gmi is first or own.name != other.name, path, f"GMI {number} is of the same training")
    _require(own.mode != "serve", path, f"{own.name} serves, with a simulator of its own")
    for name in ("num_env", "horizon", "execution", "max_staleness"):
        same = getattr(own, name) == getattr(other, name)
        _require(same, path, f"{name} of {own.name} is not that of {other.name}")
    mine, its = ([stage for stage in each.stages if stage.role == "simulator"] for each in (own, other))
    same = [(stage.entry, stage.params) for stage in mine] == [(stage.entry, stage.params) for stage in its]
    _require(same, path, f"{own.name} and {other.name} have different simulators")
    hosted = any(stage.python for stage in mine)
    _require(not hosted, path, f"the simulator of {own.name} runs in another interpreter, for this training alone")


def _collective(plan: LaunchPlan, group: CollectivePlan, trainings: dict[str, TrainingPlan], path: str) -> None:
    """One collective: its members are GMIs of its training, each once."""
    _require(group.training in trainings, f"{path}.training", f"there is no training {group.training!r}")
    _require(len(group.members) > 1, f"{path}.members", f"expected two or more, got {len(group.members)}")
    _unique(group.members, f"{path}.members", "")
    for index, member in enumerate(group.members):
        place = f"{path}.members[{index}]"
        _require(0 <= member < len(plan.gmis), place, f"there is no GMI {member}")
        own = plan.gmis[member].training
        _require(own == group.training, place, f"GMI {member} is of training {own!r}, not {group.training!r}")


def _channel(plan: LaunchPlan, channel: ChannelPlan, trainings: dict[str, TrainingPlan], path: str) -> None:
    """One channel: of rollouts from GMIs with the agent to one with the trainer, of steps from simulator to agent."""
    _require(channel.training in trainings, f"{path}.training", f"there is no training {channel.training!r}")
    _counts(channel, ("depth", "num_env"), path)
    _not_negative(channel.env_offset, f"{path}.env_offset")
    _require(len(channel.producers) > 0, f"{path}.producers", "there is none")
    _unique(channel.producers, f"{path}.producers", "")
    training = trainings[channel.training]
    roles = {stage.name: stage.role for stage in training.stages}
    steps = channel.carries == "step"
    _require(steps or training.mode != "serve", f"{path}.carries", f"{channel.training} serves, and makes no rollouts")
    source, sink = ("simulator", "agent") if steps else ("agent", "trainer")
    ends = [(f"{path}.producers[{i}]", gmi, source) for i, gmi in enumerate(channel.producers)]
    for place, number, role in (*ends, (f"{path}.consumer", channel.consumer, sink)):
        _require(0 <= number < len(plan.gmis), place, f"there is no GMI {number}")
        gmi = plan.gmis[number]
        _require(gmi.training == channel.training, place, f"GMI {number} is of training {gmi.training!r}")
        held = {roles.get(name) for name in gmi.stages}
        _require(role in held and held != set(roles.values()), place, f"GMI {number} does not run the {role} alone")
    dropping = channel.on_full == "drop_oldest"
    _require(not dropping or len(channel.producers) == 1, f"{path}.producers", "a channel that drops has one producer")


def _fed(training: TrainingPlan, gmis: list[GMIPlan], channels: list[ChannelPlan], path: str) -> None:
    """Where agent and trainer are in different GMIs, channels bring each trainer all of its environments, each once."""
    roles = {stage.role: stage.name for stage in training.stages}
    agent, trainer = roles.get("agent"), roles.get("trainer")
    _answered(training, gmis, [channel for channel in channels if channel.carries == "step"], path)
    channels = [channel for channel in channels if channel.carries == "rollout"]
    if trainer is None or all(agent in gmi.stages for gmi in gmis if trainer in gmi.stages):
        _require(not channels, path, f"training {training.name!r} has channels, and its trainers have the agent too")
        return
    by_id = {gmi.id: gmi for gmi in gmis}
    for gmi in (gmi for gmi in gmis if trainer in gmi.stages):
        ranges: list[tuple[int, int]] = []
        for channel in (channel for channel in channels if channel.consumer == gmi.id):
            first, last = channel.env_offset, channel.env_offset + channel.num_env
            for producer in (by_id[number] for number in channel.producers):
                end = producer.env_offset + producer.num_env
                ranges.append((max(first, producer.env_offset), min(last, end)))
        reached = gmi.env_offset
        for first, last in sorted(ranges):
            what = f"the channels of GMI {gmi.id} go on at environment {first}, not {reached}"
            _require(first == reached < last, f"plan.gmis[{gmi.id}]", what)
            reached = last
        end = gmi.env_offset + gmi.num_env
        short = f"the channels of GMI {gmi.id} end at environment {reached}, not {end}"
        _require(reached == end, f"plan.gmis[{gmi.id}]", short)


def _answered(training: TrainingPlan, gmis: list[GMIPlan], channels: list[ChannelPlan], path: str) -> None:
    """Every GMI that simulates alone has one channel, to a GMI that acts for all of its environments.

    In training that one acts for no others.
    """
    roles = {stage.name: stage.role for stage in training.stages}
    held = {gmi.id: {roles[name] for name in gmi.stages} for gmi in gmis}
    alone = {gmi.id: gmi for gmi in gmis if "simulator" in held[gmi.id] and "agent" not in held[gmi.id]}
    asking = sorted(gmi for channel in channels for gmi in channel.producers)
    listed = f"GMIs {', '.join(map(str, sorted(alone))) or 'none'} simulate alone, and channels come from "
    _require(asking == sorted(alone), path, listed + (", ".join(map(str, asking)) or "none"))
    by_id = {gmi.id: gmi for gmi in gmis}
    for channel in channels:
        first, last = channel.env_offset, channel.env_offset + channel.num_env
        _require(len(channel.producers) == 1, path, f"channel {channel.name!r} has not one producer")
        _require(len(channel.groups) == 2, path, f"channel {channel.name!r} has not one group there and one back")
        asks, acts = by_id[channel.producers[0]], by_id[channel.consumer]
        own = f"channel {channel.name!r} is not for the environments of GMI {asks.id}"
        _require((asks.env_offset, asks.env_offset + asks.num_env) == (first, last), path, own)
        covered = f"GMI {acts.id} does not act for all environments of channel {channel.name!r}"
        _require(acts.env_offset <= first and last <= acts.env_offset + acts.num_env, path, covered)
        others = f"GMI {acts.id} acts for others than GMI {asks.id} too"
        _require(training.mode == "serve" or acts.num_env == asks.num_env, path, others)


def _environments(training: TrainingPlan, gmis: list[GMIPlan], path: str) -> None:
    """The GMIs that run a stage have all environments of the training, each once."""
    for index, stage in enumerate(training.stages):
        parts = [gmi for gmi in gmis if stage.name in gmi.stages]
        _require(len(parts) > 0, f"{path}.stages[{index}]", f"no GMI runs stage {stage.name!r}")
        expected = 0
        for gmi in sorted(parts, key=lambda part: (part.env_offset, part.id)):
            gap = f"the ranges of stage {stage.name!r} go on at environment {expected}, not {gmi.env_offset}"
            _require(gmi.env_offset == expected, f"plan.gmis[{gmi.id}].env_offset", gap)
            expected += gmi.num_env
        short = f"the GMIs of stage {stage.name!r} have {expected} environments, not {training.num_env}"
        _require(expected == training.num_env, f"{path}.num_env", short)


def _reduced(training: TrainingPlan, gmis: list[GMIPlan], groups: list[CollectivePlan], path: str) -> None:
    """Several trainers of one training reduce their gradients all together; else each would train alone."""
    trainers = {stage.name for stage in training.stages if stage.role == "trainer"}
    several = {gmi.id for gmi in gmis if trainers.intersection(gmi.stages)}
    if training.update == "apply":
        _require(not groups, path, f"training {training.name!r} applies its gradients, and has a collective")
        return
    _require(len(groups) < 2, path, f"training {training.name!r} has {len(groups)} collectives, and one is used")
    joined = set(groups[0].members) if groups else set[int]()
    if len(several) > 1 or joined:
        what = f"GMIs {', '.join(map(str, sorted(several)))} run its trainer, and a collective joins "
        what += ", ".join(map(str, sorted(joined))) or "none"
        _require(several == joined, path, what)


def _applied(training: TrainingPlan, gmis: list[GMIPlan], channels: list[ChannelPlan], path: str) -> None:
    """Trainers that apply their gradients by themselves: each has agents of its own, and takes all that they make."""
    trainers = {stage.name for stage in training.stages if stage.role == "trainer"}
    several = [gmi.id for gmi in gmis if trainers.intersection(gmi.stages)]
    alone = f"GMIs {', '.join(map(str, several))} run its trainer, and without channels of rollouts one can"
    feeding = [gmi for channel in channels if channel.carries == "rollout" for gmi in channel.producers]
    _require(len(several) == 1 or bool(feeding), f"{path}.update", alone)
    _unique(feeding, f"{path}.update", ": a GMI that feeds trainers")
    _require(all(c.on_full == "block" for c in channels), f"{path}.update", "every rollout that is begun is trained on")


def _plain(name: str, path: str) -> None:
    """A name that becomes one of a file or folder inside the run directory."""
    plain = name not in ("", ".", "..") and not any(mark in name for mark in "/\\") and name.isprintable()
    _require(plain, path, f"{name!r} is not a plain file name")
    size = len(name.encode())
    _require(size <= LONGEST_NAME_BYTES, path, f"{size} bytes are too long for a file name")


def _counts(owner: object, names: Iterable[str], path: str) -> None:
    for name in names:
        value: int = getattr(owner, name)
        _require(value >= 1, f"{path}.{name}", f"expected 1 or more, got {value}")
        _require(value <= MOST, f"{path}.{name}", "the number is too large")


def _not_negative(value: int, path: str) -> None:
    _require(value >= 0, path, f"expected 0 or more, got {value}")
    _require(value <= MOST, path, "the number is too large")


def _unique(values: Iterable[object], path: str, field: str) -> None:
    """Refuse the first value that stands twice; ``field`` is the part of its path after the index."""
    seen: Counter[object] = Counter()
    for index, value in enumerate(values):
        seen[value] += 1
        _require(seen[value] == 1, f"{path}[{index}]{field}", f"{value!r} stands twice")


def _require(condition: bool, path: str, message: str) -> None:
    if not condition:
        raise PlanError(f"{path}: {message}")
