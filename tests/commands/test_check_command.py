"""`gmiflow check` on files with several workflows."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(*arguments, cwd):
    command = [sys.executable, "-m", "gmiflow.cli", "check", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def two_workflows(tmp_path, changed=""):
    text = (ROOT / "examples" / "quickstart.gmi").read_text()
    start, end = text.index("/// Collect"), text.index("/// Two GMIs")
    second = text[start:end].replace("workflow train", "workflow other").replace("= sync\n", f"= sync\n{changed}")
    (tmp_path / "two.gmi").write_text(text[:end] + second + text[end:])


def test_every_workflow_is_checked_and_named(tmp_path):
    two_workflows(tmp_path)
    done = check("two.gmi", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "two.gmi: workflow train is well formed (3 stages)",
        "two.gmi: workflow other is well formed (3 stages)",
    ]


def test_a_mistake_that_only_the_second_workflow_has_is_found(tmp_path):
    two_workflows(tmp_path, "  execution  = graph\n")
    done = check("two.gmi", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error[E0503]") == 1
    text = (tmp_path / "two.gmi").read_text().splitlines()
    line = text.index("  execution  = graph") + 1
    assert line > text.index("workflow other {")
    assert f"--> two.gmi:{line}:16" in done.stderr
    assert check("two.gmi", "-w", "train", cwd=tmp_path).returncode == 0


def test_what_both_workflows_share_is_said_once(tmp_path):
    two_workflows(tmp_path)
    file = tmp_path / "two.gmi"
    file.write_text(file.read_text().replace("hidden = [64, 64]", "hidden = [64, 64], hiden = 1"))
    done = check("two.gmi", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error[") == 1


def test_every_target_is_checked_and_named(tmp_path):
    text = (ROOT / "examples" / "quickstart.gmi").read_text()
    (tmp_path / "two.gmi").write_text(text + "\ntarget small {\n  device = cpu\n}\n")
    done = check("two.gmi", cwd=tmp_path)
    assert done.stderr.splitlines() == [
        "two.gmi: workflow train on target laptop is well formed (3 stages)",
        "two.gmi: workflow train on target small is well formed (3 stages)",
    ]
    (tmp_path / "two.gmi").write_text(
        text + "\ntarget small {\n  device = cpu\n  memory = 1 GiB\n  reserve = 1 GiB\n}\n"
    )
    done = check("two.gmi", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("error[E0505]")) == (1, 1)
    assert "two.gmi:" in done.stderr
    assert check("two.gmi", "--target", "laptop", cwd=tmp_path).returncode == 0
