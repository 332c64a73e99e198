"""Renders one Python program per GMI from a `LaunchPlan`.

The template holds layout only; every constant is formatted by `literals`. Equal plans give equal bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from pathlib import Path
from typing import Any

import jinja2

from gmiflow.codegen.literals import Item, Node, assign, call, each, literal
from gmiflow.plan import GMIPlan, LaunchPlan, TrainingPlan


def render(plan: LaunchPlan) -> dict[str, str]:
    """File name to source text of every generated program, in order of GMI id."""
    return {gmi.program: _program(plan, gmi) for gmi in plan.gmis}


def _program(plan: LaunchPlan, gmi: GMIPlan) -> str:
    training = plan.training(gmi.training)
    groups = [c for c in plan.collectives if gmi.id in c.members]
    channels = [c for c in plan.channels if c.training == gmi.training]
    names = {stage.name: _constant(stage.name) for stage in training.stages}
    classes = ["EdgePlan", "GMIPlan", "Program", "StagePlan", "TrainingPlan", "main"]
    return _template().render(
        title=_title(plan, gmi),
        summary=_summary(plan, gmi, training),
        gmi=gmi,
        gmis=len(plan.gmis),
        imports=sorted([*classes, *(["CollectivePlan"] if groups else []), *(["ChannelPlan"] if channels else [])]),
        stages=[assign(names[stage.name], _build(stage)) for stage in training.stages],
        edges=assign("EDGES", each(training.edges, _build)),
        training=assign("TRAINING", _training(training, list(names.values()))),
        this=assign("THIS", _build(gmi)),
        collectives=assign("COLLECTIVES", each(groups, _build)),
        channels=assign("CHANNELS", each(channels, _build)) if channels else "",
        members=_members(plan, training) if training.mode == "serve" else "",
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("gmi.py.j2")


def _title(plan: LaunchPlan, gmi: GMIPlan) -> str:
    return f"GMI {gmi.id} of {len(plan.gmis)}, workflow {plan.source.workflow} of {plan.source.file}."


def _summary(plan: LaunchPlan, gmi: GMIPlan, training: TrainingPlan) -> list[str]:
    """What this GMI does, in sentences, wrapped for a docstring."""
    roles = {stage.name: stage.role for stage in training.stages}
    runs = _join([f"{roles[name]} {name}" for name in gmi.stages])
    last = gmi.env_offset + gmi.num_env - 1
    device = "the CPU" if plan.target.device == "cpu" else f"GPU {gmi.device} ({gmi.backend}, share {gmi.share:g})"
    device += f", in the process of GMI {gmi.host}" if gmi.host is not None else ""
    device += f", with the simulator of GMI {gmi.joint}" if gmi.joint is not None else ""
    cores = f"{gmi.cores} CPU core{'s' if gmi.cores != 1 else ''}"
    sentences = [
        f"Runs {runs} of training {training.name} for environments {gmi.env_offset} to {last} of {training.num_env},"
        f" on {device} with {cores}."
    ]
    for group in plan.collectives:
        if gmi.id in group.members:
            peers = [str(member) for member in group.members if member != gmi.id]
            noun = "GMI" if len(peers) == 1 else "GMIs"
            sentences.append(f"Reduces gradients with {noun} {_join(peers)} ({group.kind}).")
    asking = [c.producers[0] for c in plan.channels if c.carries == "step" and c.consumer == gmi.id]
    if asking:
        sentences.append(f"Acts for GMI{'s' if len(asking) > 1 else ''} {_join([str(gmi) for gmi in asking])}.")
    rollouts = [c for c in plan.channels if c.training == training.name and c.carries == "rollout"]
    trainers = sorted({c.consumer for c in rollouts})
    if training.update == "apply" and gmi.id in trainers and len(trainers) > 1:
        peers = [str(member) for member in trainers if member != gmi.id]
        noun = "GMI" if len(peers) == 1 else "GMIs"
        sentences.append(f"Applies its gradients to parameters that it shares with {noun} {_join(peers)}.")
    asked = next((c.consumer for c in plan.channels if c.carries == "step" and gmi.id in c.producers), None)
    if asked is not None:
        does = f"Asks GMI {asked} for actions." if training.mode == "serve" else f"Makes the steps of GMI {asked}."
        sentences.append(does)
    for channel in rollouts:
        producers = _join([str(producer) for producer in channel.producers])
        if gmi.id == channel.consumer:
            sentences.append(f"Trains on the rollouts of GMI{'s' if len(channel.producers) > 1 else ''} {producers}.")
        elif gmi.id in channel.producers:
            sentences.append(f"Hands its rollouts to GMI {channel.consumer}.")
    return [
        *textwrap.wrap(" ".join(sentences), 110, break_long_words=False, break_on_hyphens=False),
        f"Written by {plan.generator}; change the .gmi file, not this one.",
    ]


def _members(plan: LaunchPlan, training: TrainingPlan) -> str:
    """Ids of the GMIs of a training as a literal; "" for one alone."""
    ids = tuple(gmi.id for gmi in plan.members(training.name))
    return repr(ids) if len(ids) > 1 else ""


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _constant(stage: str) -> str:
    """A module constant for a stage; the names that the template uses itself get a suffix."""
    name = stage.upper()
    return (
        f"{name}_STAGE"
        if name in {"EDGES", "TRAINING", "THIS", "COLLECTIVES", "CHANNELS"} or not name.isidentifier()
        else name
    )


def _build(value: Any) -> Node:  # noqa: ANN401 - any plan dataclass
    """A constructor call with every field that differs from its default."""
    return call(type(value).__name__, [(name, literal(item)) for name, item in _fields(value)])


def _training(training: TrainingPlan, stage_names: list[str]) -> Node:
    replaced: dict[str, Item] = {
        "stages": Node("(", ")", (("", name) for name in stage_names)),
        "edges": "EDGES",
    }
    fields = [(name, item) for name, item in _fields(training) if name != "prediction"]  # programs do not need it
    items = [(name, replaced.get(name) or literal(item)) for name, item in fields]
    return call("TrainingPlan", items)


def _fields(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any plan dataclass
    specs = dataclasses.fields(value)
    given = [(spec.name, getattr(value, spec.name), spec.default) for spec in specs]
    return [(name, item) for name, item, default in given if default is dataclasses.MISSING or item != default]
