"""Imports point one way (CONTRIBUTING, "Where a line belongs"), and the compiler stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gmiflow"

LEAVES = {"api", "cache", "plan", "source", "codes", "hashing", "hardware", "resources"}
ALLOWED = {
    "diagnostics": {"source", "codes"},
    "diagnostic_formats": {"source", "codes", "diagnostics"},
    "compatibility": {"plan"},
    "plan_check": {"plan", "plan_devices"},
    "plan_devices": {"plan", "compatibility"},
    "syntax": {"cache", "source", "diagnostics", "codes", "resources", "plan"},
    "ir": {"source", "plan"},
    "passes": {
        "source",
        "diagnostics",
        "codes",
        "resources",
        "syntax",
        "ir",
        "plan",
        "hardware",
        "compatibility",
        "profiles",
    },
    "profiles": {"cache", "plan", "hardware", "ir"},
    "codegen": {"plan"},
    "graphs": {"ir", "plan"},
    "reference": {"syntax"},
    "pygments_lexer": {"syntax"},
    "pipeline": {"source", "diagnostics", "codes", "hardware", "plan", "syntax", "ir", "passes", "codegen", "profiles"},
    "profiling": {"plan", "plan_check", "hardware", "ir", "profiles", "pipeline", "runtime"},
    "runtime": {"api", "cache", "plan", "hardware", "hashing"},
    "serving": {"runtime"},
    "bench": {"api", "plan", "hardware", "resources", "pipeline", "runtime", "evaluation", "tasks"},
    "evaluation": {"api", "plan", "runtime", "sim", "tasks"},
    "sim": {"api", "hashing"},
    "tasks": {"api", "hashing", "sim"},
    "rl": {"api", "hashing"},
}
"""Room to the other rooms that it may import. `cli`, `commands` and `lsp` may import everything."""


def imports_of(path: Path) -> set[str]:
    """Rooms of gmiflow that a file imports, at any depth of nesting."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gmiflow"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("gmiflow.")}
    return found - {"__version__"}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room = room_of(path)
    if room in {"cli", "commands", "lsp"}:
        return
    allowed = ALLOWED.get(room, set()) | {room}
    assert imports_of(path) <= allowed, f"{room} may not import {sorted(imports_of(path) - allowed)}"


def test_contributors_are_told_of_every_room():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    table = (PACKAGE.parent / "CONTRIBUTING.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    assert {room for room in rooms if f"gmiflow/{room}`" not in table and f"`{room}`" not in table} == set()


def test_leaves_import_nothing_of_gmiflow():
    for leaf in LEAVES - {"resources"}:
        path = PACKAGE / f"{leaf}.py"
        if path.exists():
            assert not imports_of(path), leaf


def test_check_and_compile_load_neither_torch_nor_a_simulator(tmp_path):
    script = (
        "import sys\n"
        "from gmiflow.cli import main\n"
        f"arguments = ['compile', 'examples/ant.gmi', '--target', 'cpu', '-o', {str(tmp_path / 'out')!r}]\n"
        "main(arguments, standalone_mode=False)\n"
        "heavy = {'torch', 'mujoco', 'numpy', 'warp', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "plan.json").exists()
