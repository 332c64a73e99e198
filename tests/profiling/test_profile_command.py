"""`gmiflow profile` and `gmiflow run` with `num_env = auto`, as a user meets them."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small import MACHINE, make_project, point, workflow_of
from waiting import PATIENCE_S, until

from gmiflow.commands.profile_view import line, result
from gmiflow.commands.profiling_session import stale_texts
from gmiflow.profiles import store
from gmiflow.profiles.workload import Measurement, WorkloadProfile
from gmiflow.profiles.workload_key import key_of
from gmiflow.profiling.recalibrate import RecalibrationError, recalibrate

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("project")
    make_project(place)
    return place


def environment(folder):
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", store.FOLDER_VARIABLE: str(folder / "cache")}


def start(folder, *arguments):
    command = [sys.executable, "-m", "gmiflow.cli", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment(folder))


def gmiflow(folder, *arguments):
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def profile_in(folder):
    (path,) = (folder / "cache").glob("workload-*.json")
    return path, WorkloadProfile.from_json(path.read_text())


@pytest.fixture(scope="module")
def interrupted(folder):
    """A profile that Ctrl-C ended after its first point, and what the command said."""
    process = start(folder, "profile", "small.gmi")
    said = [process.stderr.readline()]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process, out, said[0] + err


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(folder, interrupted):
    process, out, err = interrupted
    assert process.returncode == 130, err
    path, profile = profile_in(folder)
    assert out == f"{path}\n"
    made = len(profile.measurements)  # one, or more where the signal was slow to come
    assert made >= 1
    assert err.splitlines()[0] == line(1, profile.measurements[0])
    assert f"interrupted after {made} points; what was measured is kept, and the same command goes on from there" in err
    assert "Traceback" not in err
    until(
        lambda: not [name for name in os.listdir("/proc") if name.isdigit() and mentions(name, str(folder))], "its end"
    )


def mentions(pid, text):
    try:
        return text in Path(f"/proc/{pid}/cmdline").read_text() or text in os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False


@pytest.fixture(scope="module")
def ran(folder, interrupted):
    """A run with `num_env = auto` that goes on with the profile, in little time, and then trains."""
    return gmiflow(folder, "run", "small.gmi", "--profile-budget", "3s", "--run-dir", "run")


def test_a_run_of_open_size_profiles_plans_runs_and_reports(folder, interrupted, ran):
    assert ran.returncode == 0, ran.stderr
    assert "num_env = auto and no profile: measuring for up to 3 s" in ran.stderr
    assert "finished after 12 iterations" in ran.stdout
    _, profile = profile_in(folder)
    before = json.loads((folder / "run" / "report.json").read_text())["trainings"]["train"]
    assert before["measured"]["iterations"] in (10, 11)  # two are the warm-up, or one that was slow
    assert before["measured"]["steps_per_s"] > 0
    assert before["measured"]["stage_s"]["simulate"] > 0
    assert before["predicted"]["steps_per_s"] > 0  # the profile decided, so the plan says what to expect
    assert {"steps_per_s", "iteration_s", "stage_s.simulate"} <= before["error"].keys()
    ratio = before["measured"]["steps_per_s"] / before["predicted"]["steps_per_s"]
    assert before["error"]["steps_per_s"] == pytest.approx(ratio - 1, abs=1e-3)
    assert profile.measurements  # those of the interrupted session are still there
    assert (folder / "run" / "profile_key.json").is_file()


def test_a_profile_learns_from_a_run(folder, interrupted, ran):
    done = gmiflow(folder, "profile", "--recalibrate", "run", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    path, profile = profile_in(folder)
    assert told["path"] == str(path) and told["profile"] == json.loads(path.read_text())
    plan = json.loads((folder / "run" / "plan.json").read_text())
    report = json.loads((folder / "run" / "report.json").read_text())["trainings"]["train"]
    found = profile.at(point(plan["trainings"][0]["num_env"], gmis=plan["target"]["gmi_per_gpu"]))
    assert found.steps_per_s == report["measured"]["steps_per_s"]
    assert found.iterations == report["measured"]["iterations"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda report: report.update(status="failed"), "the run failed: its speed means nothing"),
        (lambda report: report.update(trainings=[]), "there are no trainings"),
        (lambda report: report["trainings"].update(train=3), "trainings.train is no object"),
        (lambda report: report["trainings"]["train"].update(measured=None), "ended in its warm-up"),
        (
            lambda report: report["trainings"]["train"]["measured"].update(steps_per_s=float("nan")),
            "trainings.train.measured.steps_per_s cannot be nan",
        ),
        (lambda report: report["trainings"]["train"]["measured"].pop("stage_s"), "measured lacks stage_s"),
        (lambda report: report["trainings"]["train"]["measured"].update(iteration_s=0), "it took no time"),
    ],
)
def test_nothing_is_learned_from_nonsense(folder, ran, tmp_path, monkeypatch, change, words):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    run = shutil.copytree(folder / "run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    report = json.loads((run / "report.json").read_text())
    change(report)
    (run / "report.json").write_text(json.dumps(report))
    with pytest.raises(RecalibrationError) as refused:
        recalibrate(run)
    assert words in str(refused.value) and not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["profile"], "name a .gmi file"),
        (["profile", "plan.json"], "name a .gmi file"),
        (["profile", "small.gmi", "--budget", "soon"], "give seconds, like 120s, or 2min"),
        (["profile", "small.gmi", "--target", "h200(gpus = 9)"], "a profile is measured where it is used"),
        (["profile", "small.gmi", "--recalibrate", "run"], "leave out FILE"),
        (["profile", "--recalibrate", "cache"], "profile_key.json is not there: a run of a .gmi file leaves one"),
    ],
)
def test_mistakes_are_answered(folder, arguments, words):
    done = gmiflow(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_stale_profile_says_which_fields_changed(folder, tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path))
    workflow, _ = workflow_of(folder / "small.gmi")
    key = key_of(workflow, MACHINE)
    old = dataclasses.replace(key, torch="2.12.0", cores=64)
    path = store.save_workload(
        WorkloadProfile(key=old, source=store.source_of(workflow), date="2026-01-01", measurements=())
    )
    assert stale_texts(store.look_up(workflow, MACHINE)) == [
        f"profile {path} is stale: made with CPU cores 64, this is 1; made with torch 2.12.0, this is {key.torch}"
    ]


def test_points_are_shown_in_words():
    good = Measurement(
        point=point(256, gmis=2), status="ok", steps_per_s=12345.6, steps_per_s_low=12000, steps_per_s_high=13000,
        host_memory_bytes=200 << 20,
    )  # fmt: skip
    assert line(3, good) == (
        "  3  256 environments, 2 GMIs, dp_only, eager, cpu: 12,346 env steps/s (12,000 to 13,000), 200 MiB"
    )
    on_gpu = dataclasses.replace(good, device_memory_bytes=50 << 30)
    assert result(on_gpu).endswith("50.0 GiB")
    assert result(Measurement(point=point(1), status="out_of_memory", message="no more")) == "out of memory (no more)"
    assert result(Measurement(point=point(1), status="failed", message="E0701")) == "failed: E0701"
    assert result(Measurement(point=point(1), status="timed_out", message="late")) == "timed out: late"
