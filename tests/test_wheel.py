"""The built wheel, installed without dependencies beside the compiler's own: grammar, stdlib and pages are in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPILER_NEEDS = ("lark", "jinja2", "markupsafe", "click")


def execute(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The commands of an environment with the wheel and nothing else but what the compiler needs."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    kept = shutil.ignore_patterns(".*", "node_modules", "runs", "build", "dist", "__pycache__")
    shutil.copytree(ROOT, source, ignore=kept)
    for name in (".gitignore",):
        shutil.copy(ROOT / name, source / name)
    execute(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", base, source, cwd=base)
    (wheel,) = base.glob("gmiflow-*.whl")
    venv.create(base / "env", with_pip=False)
    python = base / "env" / "bin" / "python"
    execute(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=base)
    site = Path(execute(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=base).strip())
    for name in COMPILER_NEEDS:
        for file in distribution(name).files or ():
            found = Path(str(file.locate()))
            if found.is_relative_to(sysconfig.get_path("purelib")) and found.is_file():
                target = site / found.relative_to(sysconfig.get_path("purelib"))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)
    return base / "env" / "bin"


def test_the_wheel_checks_compiles_and_explains(installed, tmp_path):
    example = tmp_path / "ant.gmi"
    shutil.copy(ROOT / "examples" / "ant.gmi", example)
    where = execute(installed / "python", "-c", "import gmiflow; print(gmiflow.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)
    execute(installed / "gmiflow", "check", example, cwd=tmp_path)
    execute(installed / "gmiflow", "compile", example, "--target", "cpu", "-o", tmp_path / "out", cwd=tmp_path)
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["source"]["workflow"] == "train"
    assert "E0302" in execute(installed / "gmiflow", "explain", "E0302", cwd=tmp_path)
    assert "ppo" in execute(installed / "gmiflow", "doc", "std.algo.ppo", cwd=tmp_path)
    script = "from gmiflow import resources; print(resources.examples_path() / 'ant.gmi')"
    carried = Path(execute(installed / "python", "-c", script, cwd=tmp_path).strip())
    assert carried.is_relative_to(installed.parent)
    assert carried.read_bytes() == (ROOT / "examples" / "ant.gmi").read_bytes()


def test_the_wheel_and_the_checkout_compile_the_same(installed, tmp_path):
    shutil.copy(ROOT / "examples" / "ant.gmi", tmp_path / "ant.gmi")
    command = ["compile", "ant.gmi", "--target", "cpu", "--gmi-per-gpu", "2", "-o"]
    execute(installed / "gmiflow", *command, "wheel", cwd=tmp_path)
    execute(Path(sys.executable).with_name("gmiflow"), *command, "checkout", cwd=tmp_path)
    for file in (tmp_path / "checkout").iterdir():
        assert (tmp_path / "wheel" / file.name).read_bytes() == file.read_bytes()
