"""`gmiflow bench collective`, and what the compiler makes of its result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.commands.bench import command, layouts, profile_of
from gmiflow.hardware import GPU, Hardware
from gmiflow.runtime.comm.measure import without_frames

ROOT = Path(__file__).parents[2]
ANT = str(ROOT / "examples" / "ant.gmi")
GPUS = tuple(
    GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
    for i in range(2)
)


def gmiflow(*arguments, profiles, **more):
    words = [sys.executable, "-m", "gmiflow.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "GMIFLOW_PROFILES": str(profiles), **more}
    return subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One small measurement on the CPU, kept and drawn."""
    folder = tmp_path_factory.mktemp("bench")
    done = gmiflow(
        "bench", "collective", "--device", "cpu", "--gmis", "2,3", "--sizes", "1MiB,4KiB", "--batches", "3",
        "--format", "json", "--calibrate", "--plot", str(folder / "plot.png"), profiles=folder / "profiles",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


def test_every_size_layout_and_collective_has_a_row(measured):
    folder, rows = measured
    expected = [(c, g, b) for g in (2, 3) for c in ("ip", "gloo") for b in (4096, 1 << 20)]
    assert [(row["collective"], row["gmis_per_gpu"], row["bytes"]) for row in rows] == expected
    for row in rows:
        assert 0 < row["low_s"] <= row["seconds"] <= row["high_s"]
        assert row["bytes_per_s"] == pytest.approx(row["bytes"] / row["seconds"])
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_compiler_goes_by_the_measurement_and_says_so(measured):
    folder, rows = measured
    options = [ANT, "-w", "train", "--target", "targets.cpu", "--num-env", "64", "--gmi-per-gpu", "2"]
    shown = gmiflow("explain", "comm", *options, profiles=folder / "profiles").stdout
    assert "times measured on 20" in shown
    line = next(line for line in shown.splitlines() if line.strip().startswith("ip "))
    assert line.endswith("measured  chosen")
    low, high = (row["seconds"] * 1e6 for row in rows[:2])  # 456,580 bytes are between 4 KiB and 1 MiB
    assert min(low, high) <= float(line.split()[2]) <= max(low, high)
    without = gmiflow("explain", "comm", *options, profiles=folder / "none")
    assert "times modelled: two shared CPU cores" in without.stdout and "damaged" not in without.stderr
    (kept,) = (folder / "profiles").iterdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / kept.name).write_text(kept.read_text()[:-3])
    damaged = gmiflow("explain", "comm", *options, profiles=folder / "damaged")
    assert damaged.stdout == without.stdout
    assert f"note: {folder / 'damaged' / kept.name} is damaged, and built-in times are taken" in damaged.stderr


def test_a_calibration_that_cannot_be_kept_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GMIFLOW_PROFILES", str(tmp_path / "file"))
    done = CliRunner().invoke(command, ["collective", "--device", "cpu", "--calibrate"])
    assert done.exit_code == 2 and done.stdout == "" and "measuring" not in done.stderr
    said = " ".join(done.stderr.split())
    assert f"cannot write the calibration {tmp_path / 'file'}" in said and "not a directory" in said


def test_equal_calibrations_give_equal_plans(measured, tmp_path):
    folder, _ = measured
    for name in ("first", "second"):
        options = [ANT, "-w", "train", "--target", "targets.cpu", "--num-env", "64", "-o", str(tmp_path / name)]
        assert gmiflow("compile", *options, profiles=folder / "profiles").returncode == 0
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("first", "second"))
    assert first == second


def test_of_eager_and_graph_the_faster_counts():
    from gmiflow.runtime.comm.measure import Latency

    def row(collective, how, size, seconds):
        return Latency(
            collective=collective, backend="mps", gpus=1, gmis_per_gpu=4, how=how, bytes=size,
            seconds=seconds, low_s=seconds, high_s=seconds,
        )  # fmt: skip

    rows = [row("ipc", "eager", 4096, 3e-5), row("ipc", "graph", 4096, 1e-5), row("gloo", "eager", 4096, 1.0)]
    (curve,) = profile_of(rows, "a test", "2026-11-29").curves
    assert (curve.collective, curve.points) == ("ipc", ((4096, 1e-5),))
    (rings,) = profile_of([row("hybrid:3", "eager", 4096, 2e-5)], "a test", "2026-11-30").curves
    assert (rings.collective, rings.k, rings.points) == ("rings", 3, ((4096, 2e-5),))


def kinds_of(gpus, gmis):
    """What is measured on two GPUs with so many GMIs on each of so many of them."""
    found = layouts(Hardware(cores=8, gpus=GPUS), (gmis,), cuda=True)
    return [kinds for layout, kinds in found if (layout.gpus, layout.gmis_per_gpu) == (gpus, gmis)]


def test_layouts_of_a_machine(monkeypatch):
    monkeypatch.setattr("gmiflow.commands.bench.shutil.which", lambda name: f"/usr/bin/{name}")
    found = [
        (layout.backend, layout.gpus, layout.gmis_per_gpu, kinds[0])
        for layout, kinds in layouts(Hardware(cores=8, gpus=GPUS), (1, 2, 4), cuda=True)
    ]
    assert found == [
        ("mps", 1, 2, "ipc"),
        ("mps", 1, 4, "ipc"),
        ("timeshare", 2, 1, "rp"),
        ("mps", 2, 2, "hybrid"),
        ("mps", 2, 4, "hybrid"),
    ]
    assert kinds_of(2, 2) == [["hybrid", "hybrid:1", "hybrid:2", "ip", "gloo"]]
    assert kinds_of(2, 4)[0][:4] == ["hybrid", "hybrid:1", "hybrid:2", "hybrid:3"]  # four leaders need four GPUs
    monkeypatch.setattr("gmiflow.commands.bench.nccl_version", lambda: (2, 30, 7))
    assert kinds_of(2, 2)[1] == ["nccl_multirank"]
    monkeypatch.setattr("gmiflow.commands.bench.shutil.which", lambda name: None)
    without = layouts(Hardware(cores=8, gpus=GPUS[:1]), (2,), cuda=True)
    assert [(layout.backend, kinds) for layout, kinds in without] == [("timeshare", ["ip", "gloo"])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "3"], "'3' is not a size: give multiples of 4 bytes"),
        (["--sizes", "1MB"], "'1MB' is not a size"),
        (["--gmis", "none"], "give numbers of GMIs from 1 to 48"),
        (["--device", "cpu", "--gmis", "1"], "one GMI has nobody to reduce with"),
        (["--plot", "x.foo"], "name a file that ends in .png or .svg"),
        (["--plot", "nowhere/x.png"], "there is no folder nowhere"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    done = gmiflow("bench", "collective", *options, profiles=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_without_matplotlib_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = CliRunner().invoke(command, ["collective", "--plot", "x.png"])
    assert done.exit_code == 2
    assert "--plot needs matplotlib: pip install matplotlib" in done.stderr


def test_what_a_member_ended_with_is_told_without_the_frames():
    log = [
        "a warning",
        "Traceback (most recent call last):",
        '  File "measure.py", line 1, in main',
        "    x",
        "E: no memory",
    ]
    assert without_frames(log) == ["a warning", "E: no memory"]
    assert without_frames(["", "killed"]) == ["killed"]
