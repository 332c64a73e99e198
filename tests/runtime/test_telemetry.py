"""Telemetry: files, averages and the machine without a GPU; NVML itself on a GPU."""

import json
import os

import pytest
from waiting import until

from gmiflow.runtime.telemetry import FILE, GPUSample, Telemetry


class Script:
    """A GPU whose readings are written down beforehand; the last one repeats."""

    def __init__(self, gpus, processes):
        self._gpus, self._processes, self.closed = list(gpus), processes, False

    def gpus(self):
        return (self._gpus.pop(0) if len(self._gpus) > 1 else self._gpus[0],)

    def processes(self):
        return self._processes

    def close(self):
        self.closed = True


def lines(run_dir):
    whole = (run_dir / FILE).read_text().rpartition("\n")[0]  # the last line may be half written
    return [json.loads(line) for line in whole.splitlines()]


def wait_for(run_dir, count):
    until(lambda: (run_dir / FILE).exists() and len(lines(run_dir)) >= count, f"{count} samples")


def test_without_a_gpu_the_processes_are_sampled_and_a_note_says_so(tmp_path):
    with Telemetry(tmp_path, (), lambda: {os.getpid(): 3}, period_s=0.05) as telemetry:
        wait_for(tmp_path, 4)
        sum(range(200_000))
    note, *samples = lines(tmp_path)
    assert "the job uses no GPU" in note["note"]
    assert samples[0]["gpus"] == []
    assert samples[-1]["gmis"]["3"]["memory_mib"] > 1
    assert samples[-1]["gmis"]["3"]["gpu_memory_mib"] is None
    assert 0 <= telemetry.summary()["gmi_3/cpu_percent"]["mean"] < 10_000
    assert telemetry.summary()["gmi_3/memory_mib"]["max"] > 1


def test_a_gpu_that_nvml_does_not_know_is_noted_and_nothing_else_happens(tmp_path):
    with Telemetry(tmp_path, ("GPU-none",), dict, period_s=0.05):
        wait_for(tmp_path, 2)
    assert "NVML does not answer" in lines(tmp_path)[0]["note"]


def test_averages_start_anew_with_each_call_and_the_summary_keeps_all(tmp_path):
    reader = Script(
        [GPUSample(gpu_percent=10.0, power_w=300.0), GPUSample(gpu_percent=30.0, power_w=500.0)],
        {os.getpid(): (2048.0, 25.0)},
    )
    telemetry = Telemetry(tmp_path, ("GPU-0",), lambda: {os.getpid(): 0}, period_s=0.05, reader=reader).start()
    wait_for(tmp_path, 2)
    telemetry.stop()
    taken = [sample["gpus"][0]["gpu_percent"] for sample in lines(tmp_path)]
    assert taken[:2] == [10.0, 30.0]
    scalars = telemetry.scalars()
    assert scalars["gpu_0/gpu_percent"] == pytest.approx(sum(taken) / len(taken))
    assert scalars["gmi_0/gpu_memory_mib"] == 2048.0
    assert scalars["gmi_0/sm_percent"] == 25.0
    assert "gpu_0/memory_used_mib" not in scalars  # never reported
    assert telemetry.scalars() == {}
    assert telemetry.summary()["gpu_0/power_w"]["max"] == 500.0
    assert reader.closed


def test_a_process_that_ended_does_not_end_the_telemetry(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with Telemetry(tmp_path, (), lambda: {child: 0}, period_s=0.05):
        wait_for(tmp_path, 3)
    assert lines(tmp_path)[-1]["gmis"]["0"]["memory_mib"] is None


def test_stop_is_quick_takes_a_last_sample_and_may_be_repeated(tmp_path):
    telemetry = Telemetry(tmp_path, (), dict, period_s=3600).start()
    telemetry.stop()
    telemetry.stop()
    assert len(lines(tmp_path)) == 2


@pytest.mark.gpu
def test_nvml_gives_samples(tmp_path):
    from gmiflow.hardware import detect

    uuid = detect().gpus[0].uuid
    with Telemetry(tmp_path, (uuid,), lambda: {os.getpid(): 0}, period_s=0.2) as telemetry:
        wait_for(tmp_path, 3)
    assert lines(tmp_path)[-1]["gpus"][0]["memory_used_mib"] > 0
    assert telemetry.summary()["gpu_0/power_w"]["mean"] > 0
