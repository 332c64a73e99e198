"""`gmiflow run` as a user meets it: real processes, real physics, on two CPU GMIs."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from leftovers import files, gmi_process
from waiting import PATIENCE_S, until

from gmiflow.commands.run_start import Start
from gmiflow.plan import LaunchPlan

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "examples" / "quickstart.gmi")
SMALL = ["--num-env", "64", "--horizon", "16"]


def gmiflow(*arguments, cwd, timeout=240):
    command = [sys.executable, "-m", "gmiflow.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=environment)


def processes_of(directory):
    """Processes whose command line or working files mention ``directory``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                logs = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if str(directory) in line or any(str(directory) in log for log in logs):
                found.append((int(entry.name), line))
    return [item for item in found if item[0] != os.getpid()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One finished run of six iterations, with a checkpoint after three."""
    folder = tmp_path_factory.mktemp("finished")
    done = gmiflow(
        "run", QUICKSTART, *SMALL, "--iterations", "6", "--set", "train.checkpoint_every=3", "--run-dir", "run",
        "--seed", "5", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_run_says_what_it_does_and_sums_up(finished):
    folder, done = finished
    assert "num_env 64 = 32 on each of 2 GMIs" in done.stderr
    assert re.search(r"iteration 6/6 +[\d,]+ env steps/s \(collect \d+% learn \d+% communicate \d+%\)", done.stderr)
    speeds = r"6,144 env steps in .* with start-up \(([\d,]+) per second\); training alone .* \(([\d,]+) per second\)"
    found = re.search(rf"train: finished after 6 iterations, .*{speeds}", done.stdout)
    assert found is not None
    with_start, alone = (int(number.replace(",", "")) for number in found.groups())
    assert with_start > 0 and alone > 0
    assert "go on with" not in done.stdout
    wait_until_gone(folder)


def test_a_run_directory_holds_everything(finished):
    folder, _ = finished
    run = folder / "run"
    assert (run / "quickstart.gmi").read_text() == Path(QUICKSTART).read_text()
    plan = json.loads((run / "plan.json").read_text())
    assert plan["trainings"][0]["seed"] == 5 and plan["trainings"][0]["iterations"] == 6
    params = json.loads((run / "params.json").read_text())
    assert {"name": "num_env", "value": 256, "origin": "default"} in params
    assert {"name": "train.checkpoint_every", "value": "3", "origin": "--set"} in params
    assert {"name": "workflow.num_env", "value": "64", "origin": "--num-env"} in params
    assert sorted(p.name for p in (run / "programs").glob("*.py")) == ["gmi_00.py", "gmi_01.py"]
    assert (run / "logs" / "gmi_01.log").exists()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 6
    assert list((run / "tensorboard").glob("events*"))
    report = json.loads((run / "report.json").read_text())
    assert report["status"] == "finished"
    assert report["trainings"]["train"]["weights"]["equal_on_all_gmis"] is True
    checkpoints = {p.name for p in (run / "checkpoints").iterdir()}
    assert {"iter_000003", "iter_000006", "last"} <= checkpoints


def test_resuming_goes_on_exactly(finished):
    """Three iterations and three resumed ones give the weights of six, with another number of GMIs."""
    folder, _ = finished
    half = gmiflow(
        "run", QUICKSTART, *SMALL, "--iterations", "6", "--gmi-per-gpu", "1", "--seed", "5", "--run-dir", "resumed",
        "--resume", "run/checkpoints/iter_000003", cwd=folder,
    )  # fmt: skip
    assert half.returncode == 0, half.stderr
    assert "going on after iteration 3" in half.stderr
    script = (
        "import sys, torch\nfrom safetensors.torch import load_file\n"
        "a, b = (load_file(f'{d}/checkpoints/iter_000006/policy.safetensors') for d in ('run', 'resumed'))\n"
        "assert a.keys() == b.keys()\n"
        "for k in a: torch.testing.assert_close(a[k], b[k], rtol=1e-3, atol=1e-4)\n"
    )
    compared = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stderr


def test_other_parameters_of_the_agent_are_pointed_out(finished, capsys):
    run = finished[0] / "run"
    plan = LaunchPlan.from_json((run / "plan.json").read_text())
    (training,) = plan.trainings
    stages = tuple(
        replace(stage, params={**stage.params, "activation": "relu"}) if stage.role == "agent" else stage
        for stage in training.stages
    )
    more = replace(training, iterations=training.iterations + 1, stages=stages)
    Start(resume=run).check(replace(plan, trainings=(more,)), "text")
    told = 'note: train: the agent of the checkpoint was trained with activation = "elu", and has "relu" now\n'
    assert capsys.readouterr().err == told
    Start(resume=run).check(replace(plan, trainings=(replace(more, stages=training.stages),)), "text")
    assert capsys.readouterr().err == ""


def test_what_cannot_be_gone_on_from_is_refused_before_anything_starts(finished, tmp_path, capsys):
    plan = LaunchPlan.from_json((finished[0] / "run" / "plan.json").read_text())
    (training,) = plan.trainings
    copy = tmp_path / "copy"  # without the plan: nothing but the checkpoint tells what the agent was
    shutil.copytree(finished[0] / "run" / "checkpoints" / "last", copy)

    def refused(training=training, **start):
        start = start or {"resume": copy}
        with pytest.raises(SystemExit) as exited:
            Start(**start).check(replace(plan, trainings=(replace(training, iterations=99),)), "text")
        assert exited.value.code == 1
        return capsys.readouterr().err

    def with_agent(**changes):
        stages = (replace(s, **changes) if s.role == "agent" else s for s in training.stages)
        return replace(training, stages=tuple(stages))

    assert "has 64 environments, but train has 128" in refused(replace(training, num_env=128))
    told = refused(with_agent(shapes={"O": 60, "A": 1}))
    assert "`observation_normalizer.mean` is [4] in the checkpoint and [60] here" in told
    serving = replace(with_agent(params={"hidden": [8]}), mode="serve")
    assert "`flat` is [" in refused(serving, policy=copy)
    for name in ("policy.safetensors", "trainer.safetensors", "environments_00000032.safetensors"):
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[:-1])
        assert f"{copy / name} is damaged or cut off" in refused()
        (copy / name).unlink()
        assert f"{copy / name} cannot be read: there is no such file" in refused()
        os.mkfifo(copy / name)
        assert f"{copy / name} cannot be read: it is not a file" in refused()
        (copy / name).unlink()
        (copy / name).write_bytes(whole)
    assert "it is a file: name a run directory" in refused(resume=copy / "policy.safetensors")
    several = tmp_path / "checkpoints" / "train.1" / "last"
    several.parent.mkdir(parents=True)
    several.symlink_to(copy)
    assert f"it has those of train.1: name one, for example {several}" in refused(resume=tmp_path)
    Start(resume=copy).check(
        replace(plan, trainings=(replace(with_agent(entry="own:Actor", shapes={"O": 9}), iterations=99),)), "text"
    )
    assert capsys.readouterr().err == ""  # only its class knows what it makes of 9 numbers


def test_resume_alone_takes_the_plan_of_the_run(finished):
    folder, _ = finished
    more = gmiflow("run", "--resume", "run", "--iterations", "8", "--run-dir", "more", cwd=folder)
    assert more.returncode == 0, more.stderr
    assert "going on after iteration 6" in more.stderr
    assert "finished after 8 iterations" in more.stdout


def test_events_as_json(tmp_path):
    done = gmiflow("run", QUICKSTART, *SMALL, "--iterations", "2", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events if e["event"] != "Checkpoint"] == [
        "Started", "Iteration", "Iteration", "Finished",
    ]  # fmt: skip
    assert [e["iteration"] for e in events if e["event"] == "Iteration"] == [1, 2]


def test_a_plan_runs_without_its_source(tmp_path):
    compiled = gmiflow("compile", QUICKSTART, *SMALL, "--iterations", "2", "-o", "plan", cwd=tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    done = gmiflow("run", "plan/plan.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "finished after 2 iterations" in done.stdout


def test_a_dry_run_starts_and_writes_nothing(tmp_path):
    done = gmiflow("run", QUICKSTART, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "nothing was started" in done.stdout
    assert "gmi_01.py --rendezvous" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run"], 2, "name a .gmi file"),
        (["run", "missing.gmi"], 1, "E0105"),
        (["run", "missing.json"], 2, "cannot read missing.json"),
        (["run", "--resume", "nowhere"], 2, "neither a run directory nor a checkpoint"),
        (["run", QUICKSTART, "--set", "num_env"], 2, "expected PATH=VALUE"),
        (["run", QUICKSTART, "--set", "num_envs=3"], 1, "num_env"),
        (["run", QUICKSTART, "--num-env", "0"], 1, "E0"),
        (["run", QUICKSTART, "--target", "h2000"], 1, "h200"),
        (["rum", QUICKSTART], 2, "Did you mean 'run'"),
    ],
)
def test_mistakes_are_answered_without_a_traceback(arguments, code, words, tmp_path):
    done = gmiflow(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def start_long_run(folder):
    command = [sys.executable, "-m", "gmiflow.cli", "run", QUICKSTART, *SMALL, "--iterations", "100000"]
    run = subprocess.Popen(
        [*command, "--run-dir", "run"],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    metrics = folder / "run" / "metrics.jsonl"

    def two():
        assert run.poll() is None, run.communicate()[1]
        return metrics.exists() and metrics.read_text().count("\n") >= 2

    until(two, "two iterations")
    return run


def wait_until_gone(folder):
    until(lambda: not processes_of(folder), "the end of all processes")


def test_a_killed_gmi_stops_the_run_and_is_named(tmp_path):
    run = start_long_run(tmp_path)
    os.kill(gmi_process(tmp_path / "run", 1), signal.SIGKILL)
    _, messages = run.communicate(timeout=PATIENCE_S)  # less than a GMI waits for a lost peer
    assert run.returncode == 1
    assert "error[E0702]" in messages and "GMI 1" in messages and "SIGKILL" in messages
    # A GMI that waited for its peers, as for half of the time here, had no stage at work to point at.
    assert ("quickstart.gmi:" in messages) == (" was at work" in messages)
    assert "Traceback" not in messages
    wait_until_gone(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_nothing_behind(number, code, tmp_path):
    run = start_long_run(tmp_path)
    run.send_signal(number)
    output, messages = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == code, messages
    wait_until_gone(tmp_path)
    assert files(run.pid) == []
    assert "interrupted" in output
    assert (tmp_path / "run" / "checkpoints" / "last").exists()
    if number == signal.SIGINT:
        (command,) = re.findall("^go on with: gmiflow (.*)$", output, re.MULTILINE)
        made = int(re.findall(r"after (\d+) iterations", output)[0])
        resumed = gmiflow(*shlex.split(command), "--iterations", str(made + 1), cwd=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
        assert f"going on after iteration {made}" in resumed.stderr
        assert "no state of the simulator" not in resumed.stderr


def test_resuming_a_simulator_without_a_state_says_so(tmp_path):
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    text = Path(QUICKSTART).read_text()
    stage = re.search(r"^simulator +sim += .*$", text, re.MULTILINE)
    assert stage is not None
    own = text.replace(stage[0], f"{stage[0].partition('=')[0]}= Forgetful()")
    declared = (ROOT / "stdlib" / "tasks" / "cartpole.gmi").read_text()
    ports = declared[declared.index("  in ") : declared.index("}", declared.index("  in "))]
    head, _, rest = own.partition("edition 1\n")
    entry = 'entry = py "forgetful:Forgetful"'
    (tmp_path / "own.gmi").write_text(f"{head}edition 1\n{rest}\nsimulator Forgetful {{\n  {entry}\n{ports}}}\n")
    first = gmiflow("run", "own.gmi", *SMALL, "--iterations", "1", "--run-dir", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "no state of the simulator" not in first.stderr
    more = gmiflow("run", "--resume", "run", "--iterations", "2", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert "  train: the checkpoint holds no state of the simulator" in more.stderr


FORGETFUL = """import torch

from gmiflow.api import Simulator


class Forgetful(Simulator):
    def setup(self, context):
        self.num_env = context.num_env

    def reset(self):
        return {"obs": torch.zeros(self.num_env, 4)}

    def step(self, inputs):
        ended = torch.zeros(self.num_env, dtype=torch.bool)
        return {"obs": torch.zeros(self.num_env, 4), "reward": torch.ones(self.num_env), "terminated": ended,
                "truncated": ended}
"""
