"""What a run measures of itself: speed after the warm-up, where the time went, memory; numbers worked out by hand."""

import dataclasses
import os
import subprocess
import sys

import pytest
from plans import EDGES, serve_plan, training_plan
from waiting import PATIENCE_S

from gmiflow.plan import PredictionPlan
from gmiflow.runtime.events import Iteration
from gmiflow.runtime.execution.replay import WARM_UP
from gmiflow.runtime.memory import device_bytes, host_bytes
from gmiflow.runtime.merge import terms_of
from gmiflow.runtime.messages import Progress
from gmiflow.runtime.predicted import BEFORE, Memory, against, memory_of
from gmiflow.runtime.speed import Speed, warm_up_of

DEEP = tuple(dataclasses.replace(edge, depth=2) for edge in EDGES)


def iteration(number, seconds, **stage_s):
    return Iteration(
        training="train",
        iteration=number,
        env_steps=1000,
        total_env_steps=number * 1000,
        collect_s=0.0,
        learn_s=0.0,
        communicate_s=0.0,
        seconds=seconds,
        episodes=0,
        mean_return=None,
        episode_length=None,
        stage_s=stage_s,
    )


@pytest.mark.parametrize(
    ("training", "sets"),
    [
        (training_plan(), 1),
        (training_plan(execution="overlap", mode="async", max_staleness=1), 2),
        (serve_plan("dp_only").trainings[0], 2),
        (training_plan(mapping="ea_t", mode="async", max_staleness=0), 1),
        (training_plan(mapping="ea_t", mode="async", max_staleness=4, edges=DEEP), 3),
    ],
)
def test_nothing_counts_before_every_set_of_buffers_has_its_graphs(training, sets):
    """Sets take turns; each runs plainly, is captured in the next call, and is replayed from then on."""
    assert warm_up_of(training, on_gpu=True) >= sets * (WARM_UP + 1)
    assert warm_up_of(training, on_gpu=False) == 2


def filled(*seconds, warm_up=2, **options):
    speed = Speed(warm_up=warm_up, **options)
    for number, length in enumerate(seconds, 1):
        speed.add(iteration(number, length, simulate=length / 2))
    return speed


def test_the_warm_up_does_not_count_and_the_windows_give_median_and_spread():
    # Ten iterations of 1000 steps in windows of two: 1, 2, 4, 5 and 10 s, so 2000, 1000, 500, 400 and 200 steps/s.
    rates = filled(9, 9, 0.5, 0.5, 1, 1, 2, 2, 2, 3, 5, 5).rates()
    assert rates.iterations == 10
    assert (rates.steps_per_s_low, rates.steps_per_s, rates.steps_per_s_high) == (200, 500, 2000)
    assert rates.iteration_s == 2.0
    assert rates.stage_s == {"simulate": 1.0}


def test_fewer_iterations_than_windows_are_a_window_each():
    rates = filled(9, 9, 1, 4).rates()
    assert (rates.steps_per_s_low, rates.steps_per_s, rates.steps_per_s_high) == (250, 625, 1000)
    assert filled(9, 9).rates() is None


def test_a_slow_warm_up_is_over_early():
    assert filled(3, 4, warm_up=5, patience_s=2.0).iterations == 1
    assert filled(1, 0.5, 4, warm_up=5, patience_s=2.0).iterations == 0
    assert filled(1, 0.5, 4, 4, warm_up=5, patience_s=2.0).iterations == 1


def progress(collect_s, learn_s, communicate_s, **stage_s):
    return Progress(
        gmi=0, iteration=1, env_steps=1, iteration_s=1.0, collect_s=collect_s, learn_s=learn_s,
        communicate_s=communicate_s, episodes=0, return_sum=0.0, length_sum=0.0, stage_s=stage_s, metrics={},
        diagnostics={},
    )  # fmt: skip


def test_where_the_time_goes_on_the_host_and_on_a_gpu():
    training = training_plan()
    names = {stage.role: stage.name for stage in training.stages}
    host = {names["simulator"]: 0.3, names["agent"]: 0.1}
    report = progress(0.8, 0.2, 0.05, **host)
    rest = {"update": 0.2, "communicate": 0.05}
    assert terms_of(training, report, on_gpu=False) == {"simulate": 0.3, "infer": 0.1, **rest}
    # The host enqueued for 0.3 s and 0.1 s what the device worked 0.8 s on.
    assert terms_of(training, report, on_gpu=True) == pytest.approx({"simulate": 0.6, "infer": 0.2, **rest})
    replayed = progress(0.8, 0.2, 0.05, **{names["simulator"]: 0.001})
    assert terms_of(training, replayed, on_gpu=True) == {"collect": 0.8, **rest}


def test_the_report_holds_what_was_predicted_against_what_was_measured():
    rates = filled(9, 9, 2, 2).rates()
    prediction = PredictionPlan(
        steps_per_s=400.0, steps_per_s_low=390.0, steps_per_s_high=410.0, iteration_s=2.5,
        stage_s={"simulate": 0.8, "infer": 0.1}, device_memory_bytes=0, host_memory_bytes=1000, origin="measured",
    )  # fmt: skip
    entries = against(prediction, rates, Memory(device_bytes=0, host_bytes=1100))
    assert entries["measured"]["steps_per_s"] == 500
    assert entries["measured"]["host_memory_bytes"] == 1100
    assert entries["predicted"]["steps_per_s"] == 400
    # No error where a side is missing: device memory on the CPU, a term that was not seen.
    assert entries["error"] == {
        "steps_per_s": 0.25, "iteration_s": -0.2, "host_memory_bytes": 0.1, "stage_s.simulate": 0.25,
    }  # fmt: skip
    assert against(None, rates, Memory())["error"] is None
    assert against(prediction, None, Memory()) == {
        "measured": None, "predicted": entries["predicted"], "error": None,
    }  # fmt: skip


def test_device_memory_is_what_the_run_added_on_the_fullest_gpu():
    telemetry = {
        "gpu_0/memory_used_mib": {"mean": 1.0, "max": 900.0},
        "gpu_1/memory_used_mib": {"mean": 1.0, "max": 700.0},
        "host/memory_mib": {"mean": 1.0, "max": 3.0},
        BEFORE: {"gpu_0": 800.0, "gpu_1": 100.0},
    }
    assert memory_of(telemetry) == Memory(device_bytes=600 << 20, host_bytes=3 << 20)
    assert memory_of({}) == Memory()


def test_host_memory_counts_children_and_peaks_and_shared_pages_once():
    script = (
        "import os, sys\n"
        "block = b'x' * (64 << 20)\n"
        "more = b'y' * (32 << 20)\n"
        "del more\n"
        "child = os.fork()\n"  # shares the block
        "if child: print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "if child: os.waitpid(child, 0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        used = host_bytes([process.pid]) / 2**20
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)
        process.stdout.close()
    shared_once = os.path.exists("/proc/self/smaps_rollup")
    assert 96 <= used < (150 if shared_once else 280)
    assert host_bytes([process.pid]) == 0
    assert device_bytes(()) == ()
