"""docs/cli.md has every command with every option: its second part is made from the commands themselves."""

import inspect
import re
from pathlib import Path

import click
import pytest

from gmiflow.cli import COMMANDS, main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
MARK = "<!-- From here on,"


def commands(group, words, context):
    """Every command that can be called, groups taken apart, with its words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, [*words, name], click.Context(command, info_name=name, parent=context))
        else:
            yield [*words, name], command


CONTEXT = click.Context(main, info_name="gmiflow")
ALL = list(commands(main, ["gmiflow"], CONTEXT))


def section(words, command):
    """Heading, usage, help and options of one command."""
    arguments = [p.make_metavar(CONTEXT) for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    usage = " ".join([*words, *(["[OPTIONS]"] if options else []), *arguments])
    lines = [f"## {' '.join(words)}", "", "```text", usage, "```", ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        literal = paragraph.startswith("\b")
        text = ["```sh", *paragraph.splitlines()[1:], "```"] if literal else [" ".join(paragraph.split())]
        lines += [*text, ""]
    if options:
        lines += ["| option | |", "|---|---|"]
        lines += [f"| {names_of(option)} | {help_of(option)} |" for option in options]
        lines.append("")
    return lines


def names_of(option):
    value = "" if option.is_flag else f" {option.metavar or metavar_of(option)}"
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))


def metavar_of(option):
    if isinstance(option.type, click.Choice):
        return "\\|".join(option.type.choices)
    return option.type.name.upper()


def help_of(option):
    text = " ".join((option.help or "").split()).replace("|", "\\|")
    shown = option.show_default and option.default is not None and not option.is_flag
    return f"{text} Default: `{option.default}`." if shown else text


def reference():
    return "\n".join(line for words, command in ALL for line in section(words, command))


def test_the_page_is_up_to_date(request):
    text = PAGE.read_text(encoding="utf-8")
    head = text[: text.index("\n", text.index(MARK)) + 1]
    made = f"{head}\n{reference()}"
    if request.config.getoption("--bless"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made, "run this test with --bless"


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_every_command_says_what_it_and_its_options_do(words, command):
    assert command.help
    for option in command.params:
        if isinstance(option, click.Option) and option.opts != ["--format"]:
            assert option.help, option.name
    assert f"## {' '.join(words)}\n" in PAGE.read_text(encoding="utf-8")


def test_the_page_speaks_of_no_other_command():
    called = set(re.findall(r"`?gmiflow ([a-z]+)", PAGE.read_text(encoding="utf-8")))
    assert called - {"completion"} <= set(COMMANDS)
