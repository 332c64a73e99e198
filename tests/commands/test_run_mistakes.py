"""What `gmiflow run` and `compile` refuse before anything is started, and streams that cannot be written."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from gmiflow.cli import main
from gmiflow.commands.run_place import unused
from gmiflow.commands.run_view import JsonView
from gmiflow.rl.layout import declared_policy
from gmiflow.runtime.checkpoint_meta import CheckpointMeta
from gmiflow.runtime.events import Iteration

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "examples" / "quickstart.gmi")
SMALL = ("--target", "cpu", "--num-env", "32", "--horizon", "16", "--gmi-per-gpu", "1")
COMMAND = [sys.executable, "-m", "gmiflow.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gmiflow(*arguments):
    return CliRunner().invoke(main, list(arguments))


def run(*arguments):
    return gmiflow("run", QUICKSTART, *SMALL, *arguments)


def flat(text):
    """Without click's line breaks."""
    return " ".join(text.split())


@pytest.fixture
def plan(here):
    done = gmiflow("compile", QUICKSTART, *SMALL, "-o", "plan")
    assert done.exit_code == 0, done.output
    return here / "plan" / "plan.json"


def checkpoint(directory, *, iteration, seed=1):
    """A run directory as far as resuming looks at it before the processes start."""
    done = gmiflow("compile", QUICKSTART, *SMALL, "--iterations", "6", "--seed", "1", "-o", str(directory))
    assert done.exit_code == 0, done.output
    last = directory / "checkpoints" / "last"
    last.mkdir(parents=True)
    plan = json.loads((directory / "plan.json").read_text())
    (agent,) = (stage for stage in plan["trainings"][0]["stages"] if stage["role"] == "agent")
    policy = declared_policy(agent["entry"], agent["params"], agent["shapes"])
    meta = CheckpointMeta(
        training="train",
        iteration=iteration,
        num_env=32,
        seed=seed,
        slices=((0, 32),),
        checksum="0" * 16,
        episodes=0,
        mean_return=None,
    )
    (last / "meta.json").write_text(json.dumps(asdict(meta)))
    save_file({name: np.zeros(shape) for name, shape in policy.items()}, last / "policy.safetensors")
    for name in ("trainer", "environments_00000000"):
        save_file({}, last / f"{name}.safetensors")
    return last


# ---- run directories


@pytest.mark.parametrize("dry", [[], ["--dry-run"], ["--launcher", "slurm"]], ids=["run", "dry", "slurm"])
@pytest.mark.parametrize(
    ("in_the_way", "directory", "place"),
    [
        ("out", "out", "not a directory"),
        ("file", "file/out", "file: not a directory"),
        ("out/logs", "out", "out/logs: not a directory"),
        ("out/programs", "out", "out/programs: not a directory"),
        (None, "/proc/nowhere/out", "/proc: "),
    ],
)
def test_a_run_directory_that_cannot_be_written_is_refused(here, dry, in_the_way, directory, place):
    if in_the_way:
        (here / in_the_way).parent.mkdir(exist_ok=True)
        (here / in_the_way).write_text("")
    done = run("--run-dir", directory, *dry)
    assert done.exit_code == 2, done.output
    assert f"cannot write the run directory {directory}" in flat(done.stderr) and place in flat(done.stderr)
    assert "GMI" not in done.output


def test_runs_is_a_file(here):
    (here / "runs").write_text("")
    done = run()
    assert done.exit_code == 2 and "runs: not a directory" in flat(done.stderr)


def test_a_folder_where_a_file_belongs(here):
    (here / "out" / "metrics.jsonl").mkdir(parents=True)
    done = run("--run-dir", "out")
    assert done.exit_code == 2 and "out/metrics.jsonl: is a directory" in flat(done.stderr)


def test_a_dry_run_makes_nothing(here):
    done = run("--run-dir", "deep/out", "--dry-run")
    assert done.exit_code == 0, done.output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("directory", ["file", "file/out", "/proc/nowhere"])
def test_compile_cannot_write(here, directory):
    (here / "file").write_text("")
    done = gmiflow("compile", QUICKSTART, *SMALL, "-o", directory)
    assert done.exit_code == 2 and f"cannot write {directory}" in flat(done.stderr)


@pytest.mark.parametrize("trace", ["plan.json", "metrics.jsonl", "checkpoints/last/meta.json"])
def test_a_new_run_does_not_write_over_another(here, trace):
    (here / "out" / trace).parent.mkdir(parents=True)
    (here / "out" / trace).write_text("{}")
    for extra in ([], ["--dry-run"], ["--launcher", "slurm"]):
        done = run("--run-dir", "out", *extra)
        assert done.exit_code == 2
        said = "out holds a run already"
        if trace.startswith("checkpoints"):
            said += ": choose another --run-dir, or go on with it: --resume out"
        else:
            said += ", without a checkpoint: choose another --run-dir"
        assert said in flat(done.stderr)
    assert (here / "out" / trace).read_text() == "{}"


def test_a_directory_whose_run_came_to_nothing_is_used_again(here):
    """A run that could not be started, or whose stages raised in their setup: mended, the same command works."""
    out = here / "out"
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "gmi_07.log").write_text("a GPU was missing")
    for name, text in (("plan.json", "{}"), ("report.json", "{}"), ("metrics.jsonl", "")):
        (out / name).write_text(text)
    assert run("--run-dir", "out", "--dry-run").exit_code == 0
    assert (out / "logs" / "gmi_07.log").exists()  # a dry run removes nothing
    assert run("--run-dir", "out", "--launcher", "slurm").exit_code == 0
    assert list((out / "logs").iterdir()) == [] and not (out / "report.json").exists()
    (out / "report.json").write_text("{}")
    (out / "metrics.jsonl").write_text("{}")
    assert run("--run-dir", "out").exit_code == 2


def test_the_plan_in_the_directory_itself_may_start_there(plan):
    """A job script of Slurm does so."""
    assert gmiflow("run", str(plan), "--run-dir", str(plan.parent), "--dry-run").exit_code == 0
    (plan.parent / "metrics.jsonl").write_text("")
    assert gmiflow("run", str(plan), "--run-dir", str(plan.parent), "--dry-run").exit_code == 2


def test_a_second_run_in_the_same_directory_is_told(here):
    (here / "out").mkdir()
    with (here / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        done = run("--run-dir", "out")
    assert done.exit_code == 2
    assert "another run (process 4711) is at work in out" in flat(done.stderr)
    assert [path.name for path in (here / "out").iterdir()] == [".lock"]


@pytest.mark.parametrize("make", [False, True])
def test_runs_of_one_second_get_directories_of_their_own(here, make):
    for name in ("out", "out-2"):
        (here / "runs" / name).mkdir(parents=True)
    assert unused(Path("runs/out"), make=make) == Path("runs/out-3")
    assert (here / "runs" / "out-3").is_dir() == make


# ---- plans and what lies beside them


def test_a_wrong_plan_is_one_message(plan):
    plan.write_text(plan.read_text().replace('"horizon": 16', '"horizon": 0'))
    done = gmiflow("run", str(plan), "--dry-run")
    assert done.exit_code == 2
    assert "plan.trainings[0].horizon: expected 1 or more, got 0" in flat(done.stderr)


@pytest.mark.parametrize("content", [b"{", b"{}", b"[1]", b'[{"name": 1}]', b"\xff", b"[" * 100_000])
def test_damaged_parameters_are_left_out(plan, content):
    (plan.parent / "params.json").write_bytes(content)
    done = gmiflow("run", str(plan), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "params.json is damaged; it is left out" in flat(done.stderr)


def test_sources_that_are_not_text_are_left_out(plan):
    (plan.parent / "latin.gmi").write_bytes(b"\xe9")
    (plan.parent / "folder.gmi").mkdir()
    os.mkfifo(plan.parent / "pipe.gmi")
    done = gmiflow("run", str(plan), "--dry-run")
    assert done.exit_code == 0, done.output
    assert flat(done.stderr).count("cannot be read as text; it is left out") == 3


@pytest.mark.parametrize("count", ["²", "0", "-1", "1.5", "", "9" * 6000])
def test_iterations_of_a_plan_are_a_whole_number(plan, count):
    done = gmiflow("run", str(plan), "--iterations", count, "--dry-run")
    assert done.exit_code == 2 and "expected a whole number, 1 or more" in flat(done.stderr)


@pytest.mark.parametrize(
    ("option", "flag"), [(["--set", "num_env=8"], "--set"), (["-w", "x"], "--workflow"), (["--seed", "1"], "--seed")]
)
def test_options_of_the_compiler_are_called_by_their_names(plan, option, flag):
    done = gmiflow("run", str(plan), *option)
    assert done.exit_code == 2 and f"{flag} needs the .gmi file" in flat(done.stderr)


# ---- going on


@pytest.mark.parametrize("extra", [[], ["--dry-run"], ["--launcher", "slurm"]], ids=["run", "dry", "slurm"])
@pytest.mark.parametrize(
    "what", ["nosuch", "old/checkpoints/last/policy.safetensors", "old/checkpoints/last/meta.json"]
)
def test_what_is_not_a_checkpoint_is_refused_first(here, extra, what):
    checkpoint(here / "old", iteration=3)
    done = run("--resume", what, "--run-dir", "out", *extra)
    assert done.exit_code == 1
    assert f"error[E0707]: there is no checkpoint of the training train in {what}" in done.stderr
    assert not (here / "out").exists()


def test_a_run_that_is_complete_does_not_go_on(here):
    checkpoint(here / "old", iteration=6)
    done = gmiflow("run", "--resume", "old", "--dry-run")
    assert done.exit_code == 2
    assert "it has made all 6 iterations; --iterations M with M > 6 goes on" in flat(done.stderr)
    more = gmiflow("run", "--resume", "old", "--iterations", "7", "--run-dir", "old", "--dry-run")
    assert more.exit_code == 0, more.output


@pytest.mark.parametrize("seed", [1, 2])
def test_another_seed_is_said(here, seed):
    checkpoint(here / "old", iteration=3, seed=1)
    done = run("--resume", "old", "--seed", str(seed), "--run-dir", "out", "--dry-run")
    assert done.exit_code == 0, done.output
    said = f"warning: train: the checkpoint was made with seed 1, and this run has seed {seed}"
    assert (said in flat(done.stderr)) == (seed == 2)


# ---- words and formats


def test_a_launcher_option_is_one_line():
    done = run("--launcher", "slurm", "--launcher-option", "--comment=a\nrm -rf /", "--dry-run")
    assert done.exit_code == 2 and "has a line end" in flat(done.stderr)


def test_errors_of_a_run_are_json_too(here):
    (here / "wrong.gmi").write_text("workflow {")
    checked = gmiflow("check", "wrong.gmi", "--format", "json")
    done = gmiflow("run", "wrong.gmi", "--format", "json")
    assert done.exit_code == 1
    of_check, of_run = json.loads(checked.stdout), json.loads(done.stdout)
    assert of_check and all(problem in of_run for problem in of_check)  # and that there is no workflow
    assert done.stderr == ""


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf")])
def test_events_are_json_that_every_reader_takes(capsys, value, text):
    event = Iteration(
        training="train",
        iteration=1,
        env_steps=16,
        total_env_steps=16,
        collect_s=1.0,
        learn_s=1.0,
        communicate_s=0.0,
        seconds=2.0,
        episodes=1,
        mean_return=value,
        episode_length=3.0,
        metrics={"loss": value},
    )
    JsonView().show(event)
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (data["mean_return"], data["metrics"]["loss"], data["episode_length"]) == (text, text, 3.0)


# ---- streams


def shell(line, cwd, timeout=120):
    environment = {**ENVIRONMENT, "G": " ".join(COMMAND), "F": QUICKSTART, "S": " ".join(SMALL)}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=timeout,
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("$G check $F --format json > /dev/full", "error: no space left on device\n"),
        ("$G fmt - <&-", "error: stdin is closed\n"),
        ("mkdir gone; cd gone; rmdir ../gone; $G run $F --dry-run", "error: "),
        ("$G compile $F 2> /dev/full > /dev/full -o /proc/x", ""),
    ],
)
def test_streams_and_folders_that_are_gone_give_one_line(here, line, said):
    done = shell(line, here)
    assert done.returncode in (1, 2), done
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.stderr.startswith(said) or said in done.stderr


def test_a_file_name_that_is_not_text(here):
    """In a strict locale the name cannot even be printed."""
    strict = "export PYTHONIOENCODING=utf-8:strict; "
    done = shell(strict + "$G run $'\\xff.gmi' --dry-run; $G check $'\\xff.gmi' --format json", here)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error" in done.stderr


@pytest.mark.parametrize("streams", ["> /dev/full 2> /dev/full", "--format json > /dev/full", ">&- 2>&- <&-"])
def test_a_training_ends_well_without_anyone_to_tell(here, streams):
    done = shell(f"$G run $F $S --iterations 2 --run-dir out {streams}", here, timeout=240)
    assert done.returncode == 0, done
    assert json.loads((here / "out" / "report.json").read_text())["status"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_compiling_ends_in_order(here, number):
    script = (
        "import os, gmiflow.pipeline as p\n"
        "def compile_file(*a, **k):\n"
        "    try:\n"
        f"        [os.kill(os.getpid(), {int(number)}) for _ in range(2)]  # as `timeout` does\n"
        "    finally:\n"
        "        print('taken down')\n"
        "p.compile_file = compile_file\n"
        "from gmiflow.cli import main\n"
        f"main(['run', {QUICKSTART!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 128 + number
    assert (done.stdout, done.stderr) == ("taken down\n", "interrupted\n")
