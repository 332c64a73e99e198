"""`gmiflow doc`: everything declared is on the page, with its documentation."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow import resources
from gmiflow.commands.doc import command
from gmiflow.reference import reference
from gmiflow.source import Source
from gmiflow.syntax.parser import parse

ROOT = Path(__file__).parents[2]

TEXT = """\
edition 1

/// Size of it.
param size : auto int = 4 where size > 0 || size == 0

/// A thing.
/// Second line.
record R {
  /// What was seen.
  obs : f32[env, O]
}

simulator S(kind : enum(a, b) = a, must : int) {
  entry = py "m:S"
  in  action : f32[env, 2] range -1 .. 1
  out extra  : f32[env] optional
}

target t { memory = 4 GiB }
"""

PAGE = """\
# test

## Parameters

| Parameter | Type | Default | Where |  |
| --- | --- | --- | --- | --- |
| `size` | `auto int` | `4` | `size > 0 \\|\\| size == 0` | Size of it. |

## Simulators

### S

| Parameter | Type | Default |
| --- | --- | --- |
| `kind` | `enum(a, b)` | `a` |
| `must` | `int` | required |

|  | Port | Type |
| --- | --- | --- |
| in | `action` | `f32[env, 2] range -1 .. 1` |
| out | `extra` | `f32[env] optional` |

Python class `m:S`.

## Records

### R

A thing.
Second line.

| Field | Type |  |
| --- | --- | --- |
| `obs` | `f32[env, O]` | What was seen. |

## Targets

### t

| Setting | Value |
| --- | --- |
| `memory` | `4 GiB` |
"""


def call(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_page():
    assert reference(parse(Source("test.gmi", TEXT)).module, "test") == PAGE


@pytest.mark.parametrize("path", sorted(resources.stdlib_path().rglob("*.gmi")), ids=lambda p: p.stem)
def test_every_standard_module_is_documented_whole(path):
    module = ".".join(("std", *path.relative_to(resources.stdlib_path()).with_suffix("").parts))
    done = call(module)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"# {module}\n")
    for line in path.read_text().splitlines():
        if line.startswith(("simulator ", "agent ", "trainer ", "record ", "target ")):
            name = line.split()[1].partition("(")[0]
            assert f"### {name}\n" in done.stdout
        if line.lstrip().startswith("/// "):
            assert line.lstrip()[4:].replace("|", "\\|") in done.stdout.replace("\\|", "|")


def test_a_file_and_its_workflows(tmp_path):
    output = tmp_path / "ant.md"
    assert call(ROOT / "examples" / "ant.gmi", "-o", output).exit_code == 0
    page = output.read_text()
    assert "| `actor.experience` | `learner.experience` | `depth = 2`, `on_full = block` |" in page
    assert "| `mode` | `async` `max_staleness = 2` |" in page


def test_mistakes(tmp_path):
    done = call("std.algo.pppo")
    assert done.exit_code == 2
    assert "did you mean std.algo.ppo" in done.stderr
    broken = tmp_path / "broken.gmi"
    broken.write_text("param in : int\n")
    assert call(broken).exit_code == 1
    assert call(tmp_path / "none.gmi").exit_code == 1
