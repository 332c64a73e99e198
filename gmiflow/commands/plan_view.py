"""A launch plan as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmiflow.plan import GMIPlan, LaunchPlan, TrainingPlan

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_ROWS = 24
"""GMIs shown at most; a larger plan is cut in the middle."""


def headline(plan: LaunchPlan) -> list[str]:
    """The plan in a few lines of plain text."""
    target = plan.target
    device = "the CPU" if target.device == "cpu" else f"{target.devices} GPU{'s' if target.devices > 1 else ''}"
    lines = [f"workflow {plan.source.workflow} of {plan.source.file} on target {target.name} ({device})"]
    shown = plan.trainings if len(plan.trainings) <= 4 else plan.trainings[:3]
    lines += [_training(plan, training) for training in shown]
    if len(shown) < len(plan.trainings):
        lines.append(f"... and {len(plan.trainings) - len(shown)} more trainings")
    return lines


def promise(plan: LaunchPlan) -> list[str]:
    """What is expected of the plan, one line per kind of training; nothing where nothing was predicted."""
    found: dict[str, list[str]] = {}
    for training in plan.trainings:
        prediction = training.prediction
        if prediction is not None:
            between = f"{prediction.steps_per_s_low:,.0f} to {prediction.steps_per_s_high:,.0f}"
            words = f"{prediction.steps_per_s:,.0f} environment steps/s ({between}), {prediction.origin}"
            found.setdefault(words, []).append(training.name)
    return [f"predicted for {names[0] if len(names) == 1 else 'each training'}: {w}" for w, names in found.items()]


def _training(plan: LaunchPlan, training: TrainingPlan) -> str:
    """One training: its size and how it is cut, its length, and what crosses between its GMIs."""
    gmis = plan.members(training.name)
    count = f"{training.iterations} iteration{'s' if training.iterations != 1 else ''}"
    drawn = ", actions without exploration" if training.deterministic else ""
    return (
        f"{training.name}: num_env {training.num_env}{_cut(training, gmis)}, horizon {training.horizon}, "
        f"{count}, seed {training.seed}{drawn}; mapping {training.mapping}, "
        f"execution {training.execution}, {_crossing(plan, training)}" + _sharing(plan, gmis)
    )


def _cut(training: TrainingPlan, gmis: tuple[GMIPlan, ...]) -> str:
    """Over how many GMIs the environments are spread; roles that are apart each take all of them."""
    roles = {stage.name: stage.role for stage in training.stages}
    groups: dict[tuple[str, ...], list[GMIPlan]] = {}
    for gmi in gmis:
        groups.setdefault(tuple(roles[name] for name in gmi.stages), []).append(gmi)
    (held, simulate), *others = groups.items()
    if not others:
        return _over(simulate)
    first = f"{_over(simulate)} that {_does(held, len(simulate))}"
    if training.mode == "serve":
        return f"{first}, {len(gmis) - len(simulate)} for the actions"
    return ", ".join([first, *(f"{len(some)} that {_does(roles, len(some))}" for roles, some in others)])


def _does(roles: tuple[str, ...], count: int) -> str:
    """What GMIs with some of the roles do."""
    if roles == ("simulator", "agent"):
        return "collects" if count == 1 else "collect"
    verbs = {"simulator": "simulate", "agent": "act", "trainer": "train"}
    return " and ".join(verbs[role] + ("s" if count == 1 else "") for role in roles)


def _over(gmis: list[GMIPlan]) -> str:
    """Number of GMIs, with the environments of each where there are several."""
    if len(gmis) == 1:
        return " on 1 GMI"
    per_gmi = " or ".join(map(str, sorted({gmi.num_env for gmi in gmis}, reverse=True)))
    return f" = {per_gmi} on each of {len(gmis)} GMIs"


def _crossing(plan: LaunchPlan, training: TrainingPlan) -> str:
    """What goes from one GMI to another, and how."""
    reduced = sorted({group.kind for group in plan.collectives if group.training == training.name})
    carried: dict[str, set[str]] = {}
    for channel in plan.channels:
        if channel.training == training.name:
            carried.setdefault(channel.carries, set()).add(channel.kind)
    parts = [f"{cargo}s cross by {', '.join(sorted(kinds))}" for cargo, kinds in carried.items()]
    parts += [f"gradients reduced by {', '.join(reduced)}"] if reduced else []
    parts += ["gradients applied one by one"] if training.update == "apply" else []
    return ", ".join(parts) or "no collective"


def _sharing(plan: LaunchPlan, gmis: tuple[GMIPlan, ...]) -> str:
    """With how many others a training shares its simulator."""
    joint = gmis[0].joint
    others = sum(gmi.joint == joint for gmi in plan.gmis) - 1 if joint is not None else 0
    return f", one simulator with {others} other training{'s' if others > 1 else ''}" if others else ""


def table(plan: LaunchPlan) -> RenderableType:
    """One row per GMI: stages, environments, device, cores, collective."""
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in (
        ("GMI", "right"), ("training", "left"), ("stages", "left"), ("environments", "right"),
        ("device", "left"), ("cores", "right"), ("collective", "left"), ("program", "left"),
    ):  # fmt: skip
        view.add_column(title, justify=justify)  # type: ignore[arg-type]
    rows = list(plan.gmis)
    cut = len(rows) > MOST_ROWS
    for gmi in rows[: MOST_ROWS // 2] if cut else rows:
        view.add_row(*_row(plan, gmi))
    if cut:
        view.add_row("...", f"{len(rows) - MOST_ROWS} more", "", "", "", "", "", "")
        for gmi in rows[-(MOST_ROWS // 2) :]:
            view.add_row(*_row(plan, gmi))
    return view


def _row(plan: LaunchPlan, gmi: GMIPlan) -> tuple[str, ...]:
    groups = [group for group in plan.collectives if gmi.id in group.members]
    streams = gmi.host is not None and gmi.backend == "timeshare"
    share = "streams" if streams else f"{gmi.backend}, {gmi.share:.0%}"
    share += ", joint" if gmi.joint is not None else ""
    joint = " (joint)" if gmi.joint is not None else ""
    device = f"cpu{joint}" if plan.target.device == "cpu" else f"gpu {gmi.device} ({share})"
    return (
        str(gmi.id),
        gmi.training,
        ", ".join(gmi.stages),
        f"{gmi.num_env} ({gmi.env_offset}..{gmi.env_offset + gmi.num_env - 1})",
        device,
        str(gmi.cores),
        ", ".join(f"{group.kind} of {len(group.members)}" for group in groups) or "-",
        gmi.program,
    )
