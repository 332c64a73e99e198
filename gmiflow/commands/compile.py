"""`gmiflow compile`: a `.gmi` file to a launch plan and one Python program per GMI."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from gmiflow.commands.options import chosen_options, compile_options, format_option, profile_options
from gmiflow.commands.report import finish
from gmiflow.ir import text as ir_text
from gmiflow.pipeline import STAGES, Compilation, compile_file
from gmiflow.plan import LaunchPlan


@click.command(name="compile")
@click.argument("file", type=click.Path())
@compile_options
@profile_options
@click.option(
    "--emit",
    type=click.Choice(["tokens", *STAGES]),
    metavar="STAGE",
    help=f"Print one stage as text instead of writing files: tokens, {', '.join(STAGES)}.",
)
@click.option("-o", "--output-dir", "directory", type=click.Path(), help="Where to write. Default: build/<workflow>.")
@format_option
def command(file: str, emit: str | None, directory: str | None, output: str, **chosen: Any) -> None:  # noqa: ANN401
    """Compile FILE to plan.json and one readable program per GMI.

    Equal inputs give equal bytes. Files of an earlier compilation in the same folder are replaced.
    """
    if emit == "tokens":
        _emit_tokens(file)
        return
    compilation = compile_file(
        file, chosen_options(chosen), stop_after=emit or "python", require_workflow=emit not in ("ast",)
    )
    finish(compilation.diagnostics, output)
    if emit:
        click.echo(emitted(compilation, emit), nl=False)
        return
    assert compilation.plan is not None and compilation.programs is not None
    target = Path(directory or Path("build") / compilation.plan.source.workflow)
    try:
        write(target, compilation.plan, compilation.programs)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.UsageError(f"cannot write {target}: {error.filename or target}: {reason}") from error
    count = len(compilation.programs)
    click.echo(f"wrote {target}/plan.json and {count} program{'s' if count != 1 else ''}", err=True)


def _emit_tokens(file: str) -> None:
    from gmiflow.diagnostics import Diagnostic
    from gmiflow.syntax import parser, text

    source = parser.read(Path(file), file)
    if isinstance(source, Diagnostic):
        finish([source])
    else:
        click.echo(text.tokens_text(source), nl=False)


def emitted(compilation: Compilation, stage: str) -> str:
    """One stage of a compilation that succeeded, as deterministic text."""
    if stage == "ast":
        from gmiflow.syntax.text import module_text

        return module_text(compilation.checked.module) if compilation.checked.module else ""
    if stage == "ir" and compilation.workflow is not None:
        return ir_text.workflow_text(compilation.workflow)
    if stage == "mapping" and compilation.mapped is not None:
        return ir_text.mapping_text(compilation.mapped)
    if stage == "sizing" and compilation.sized is not None:
        return ir_text.sizing_text(compilation.sized)
    if stage == "comm" and compilation.comm is not None:
        return ir_text.comm_text(compilation.comm)
    if stage == "plan" and compilation.plan is not None:
        return compilation.plan.to_json()
    assert compilation.programs is not None
    return "\n".join(f"# ==== {name}\n{text}" for name, text in compilation.programs.items())


def write(target: Path, plan: LaunchPlan, programs: dict[str, str]) -> None:
    """Write plan.json and the programs; remove programs that an earlier, larger plan left behind."""
    target.mkdir(parents=True, exist_ok=True)
    for stale in target.glob("gmi_*.py"):
        if stale.name not in programs:
            stale.unlink()
    shutil.rmtree(target / "__pycache__", ignore_errors=True)
    (target / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    for name, text in programs.items():
        (target / name).write_text(text, encoding="utf-8")
