"""`--what-if`: the same workflow on other hardware, or with another size, without having it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import click

from gmiflow.diagnostics import closest
from gmiflow.ir.workflow import Target
from gmiflow.pipeline import Options

NAMES = {
    "gpus": "number of GPUs",
    "target": "a target of the file or of std.targets",
    "cores": "number of CPU cores",
    "num_env": "environments of one training",
}
"""What can be asked, and what its value is."""

_PATHS = {"gpus": "target.devices", "cores": "target.cores", "num_env": "workflow.num_env"}


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """The questions of one call, in the order in which they were asked: name and value as written."""

    questions: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.questions)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.questions)

    def value(self, name: str) -> str | None:
        """What was asked about ``name``, None when it was not."""
        return dict(self.questions).get(name)


def parse(texts: Sequence[str]) -> WhatIf:
    """Read `--what-if NAME=VALUE`, as often as it was given.

    Raises:
        click.UsageError: for a name that is not known, one that was asked twice, or a value that cannot be.
    """
    questions: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in NAMES:
            close = closest(name, NAMES)
            hint = f"did you mean {close}?" if close else f"known are {', '.join(NAMES)}"
            raise click.UsageError(f"--what-if {text}: there is no `{name}`; {hint}")
        if not equals or not value:
            raise click.UsageError(f"--what-if {text}: expected {name}=VALUE: {NAMES[name]}")
        if name in questions:
            raise click.UsageError(f"--what-if {name} is given twice")
        if name != "target" and not (value.isascii() and value.isdigit() and len(value) < 12 and int(value) > 0):
            raise click.UsageError(f"--what-if {text}: expected a whole number, 1 or more")
        questions[name] = value
    return WhatIf(questions=tuple(questions.items()))


def asked(options: Options, what_if: WhatIf, base: Target, other: Target | None = None) -> Options:
    """The compiler's options for the answer.

    Another target keeps the number of GPUs if it has any, unless `gpus` or the target's own arguments say otherwise.

    Args:
        options: of the plan that the question is about.
        what_if: the questions.
        base: target of that plan.
        other: the target that is asked about, as it is declared, where that is known.

    Raises:
        click.UsageError: for `gpus` without GPUs.
    """
    target = what_if.value("target")
    overrides = list(options.overrides)
    if target is None:
        if base.device == "cpu" and what_if.value("gpus") is not None:
            raise click.UsageError(
                f"--what-if gpus={what_if.value('gpus')}: target `{base.name}` is the CPU; "
                "ask for --what-if target=NAME, too"
            )
    elif other is not None and other.device == "cpu":
        if what_if.value("gpus") is not None:
            raise click.UsageError(f"--what-if gpus={what_if.value('gpus')}: target `{other.name}` is the CPU")
    elif base.device == "cuda" and "(" not in target and what_if.value("gpus") is None:
        overrides.append(("target.devices", str(base.devices)))
    overrides += [(_PATHS[name], value) for name, value in what_if.questions if name in _PATHS]
    return dataclasses.replace(options, target=target or options.target, overrides=tuple(overrides))
