"""What GPUs and GMI processes do while a job runs: sampled by a thread of the launcher, from NVML and /proc.

One JSON object per line goes to `telemetry.jsonl` in the run directory; averages go to TensorBoard and to the report.
Where there is no GPU the processes are sampled all the same, and one line says so. Telemetry never stops a job.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from gmiflow.runtime.memory import host_bytes

logger = logging.getLogger(__name__)

FILE = "telemetry.jsonl"
PERIOD_S = 1.0
HOST_MEMORY = "host/memory_mib"
"""In the summary: resident memory of all GMI processes together, shared pages counted once."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class GPUSample:
    """One GPU at one moment; None where the driver does not say.

    Attributes:
        gpu_percent: share of the last period in which a kernel ran; it does not say how many SMs were busy.
        memory_percent: share of the last period in which memory was read or written.
        memory_used_mib: allocated by all processes.
        power_w: drawn.
    """

    gpu_percent: float | None = None
    memory_percent: float | None = None
    memory_used_mib: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSample:
    """One GMI process at one moment; None where nothing says.

    Attributes:
        cpu_percent: CPU time since the last sample, 100 for one core.
        memory_mib: resident in host memory.
        gpu_memory_mib: allocated on its GPU.
        sm_percent: of the GPU's SM time in the last period.
    """

    cpu_percent: float | None = None
    memory_mib: float | None = None
    gpu_memory_mib: float | None = None
    sm_percent: float | None = None


class GPUReader(Protocol):
    """Where GPU samples come from."""

    def gpus(self) -> tuple[GPUSample, ...]:
        """One sample per GPU of the job."""
        ...

    def processes(self) -> Mapping[int, tuple[float | None, float | None]]:
        """Process id to (memory in MiB, percent of SM time), of all processes on the job's GPUs."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class Telemetry(AbstractContextManager["Telemetry"]):
    """Samples from `start` to `stop`."""

    def __init__(
        self,
        run_dir: Path,
        gpu_uuids: Iterable[str],
        processes: Callable[[], Mapping[int, int]],
        *,
        period_s: float = PERIOD_S,
        reader: GPUReader | None = None,
    ) -> None:
        """Prepare; nothing is sampled yet.

        Args:
            run_dir: existing directory that gets `telemetry.jsonl`.
            gpu_uuids: GPUs of the job, in the order of their device indices.
            processes: gives the processes to watch, GMI id by process id; called from the thread.
            period_s: seconds between samples.
            reader: source of GPU samples; default: NVML where there is a driver.
        """
        self._path = run_dir / FILE
        self._uuids = tuple(gpu_uuids)
        self._processes = processes
        self._period_s = period_s
        self._reader = reader
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._recent: dict[str, _Mean] = {}
        self._whole: dict[str, _Mean] = {}
        self._cpu_time: dict[int, tuple[float, float]] = {}
        self._samples = 0
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take a last sample, end the thread and close the file. May be called again."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def scalars(self) -> dict[str, float]:
        """Averages since the last call, for TensorBoard: "gpu_0/power_w", "gmi_3/sm_percent", ..."""
        with self._lock:
            recent, self._recent = self._recent, {}
        return {name: mean.mean for name, mean in sorted(recent.items())}

    def summary(self) -> dict[str, dict[str, float]]:
        """Average and largest value over the whole job, for the report."""
        with self._lock:
            return {name: {"mean": mean.mean, "max": mean.largest} for name, mean in sorted(self._whole.items())}

    def _run(self) -> None:
        try:
            with self._path.open("a", buffering=1) as output:
                self._open_reader(output.write)
                while True:
                    last = self._ended.wait(self._period_s)
                    output.write(json.dumps(self._sample()) + "\n")
                    if last:
                        return
        except OSError as reason:  # a full disk stops the telemetry, not the job
            logger.warning("telemetry ends: %s", reason)
        finally:
            if self._reader is not None:
                self._reader.close()

    def _open_reader(self, write: Callable[[str], object]) -> None:
        if self._reader is None and self._uuids:
            from gmiflow.runtime.nvml_reader import open_nvml

            self._reader = open_nvml(self._uuids)
        if self._reader is None:
            note = "NVML does not answer" if self._uuids else "the job uses no GPU"
            write(json.dumps({"time_s": round(time.time(), 3), "note": f"{note}: only processes are sampled"}) + "\n")

    def _sample(self) -> dict[str, Any]:
        """Take a sample, add it to the averages, and return it for the file."""
        gpus = self._reader.gpus() if self._reader else ()
        on_gpu = self._reader.processes() if self._reader else {}
        running = self._processes()
        gmis = {gmi: self._process(pid, on_gpu.get(pid, (None, None))) for pid, gmi in running.items()}
        self._samples += 1
        # Counting shared pages takes the kernel a while and memory rarely changes: samples 1, 2, 4, 8 and so on.
        host = host_bytes(running) if self._samples & (self._samples - 1) == 0 else 0
        with self._lock:
            if host:
                self._whole.setdefault(HOST_MEMORY, _Mean()).add(round(host / 2**20, 1))
            for index, gpu in enumerate(gpus):
                self._add(f"gpu_{index}", gpu)
            for gmi, process in gmis.items():
                self._add(f"gmi_{gmi}", process)
        return {
            "time_s": round(time.time(), 3),
            "gpus": [asdict(gpu) for gpu in gpus],
            "gmis": {str(gmi): asdict(process) for gmi, process in sorted(gmis.items())},
        }

    def _add(self, prefix: str, sample: GPUSample | ProcessSample) -> None:
        for each in fields(sample):
            value = getattr(sample, each.name)
            if value is not None:
                for table in (self._recent, self._whole):
                    table.setdefault(f"{prefix}/{each.name}", _Mean()).add(value)

    def _process(self, pid: int, on_gpu: tuple[float | None, float | None]) -> ProcessSample:
        """A process's host side from /proc, joined with its GPU side."""
        now, used = time.monotonic(), _process_usage(pid)
        if used is None:
            return ProcessSample(gpu_memory_mib=on_gpu[0], sm_percent=on_gpu[1])
        cpu_s, memory_mib = used
        before = self._cpu_time.get(pid)
        self._cpu_time[pid] = (now, cpu_s)
        percent = round(100 * (cpu_s - before[1]) / max(now - before[0], 1e-6), 1) if before else None
        return ProcessSample(
            cpu_percent=percent, memory_mib=round(memory_mib, 1), gpu_memory_mib=on_gpu[0], sm_percent=on_gpu[1]
        )


@dataclass
class _Mean:
    """A running mean and maximum."""

    total: float = 0.0
    count: int = 0
    largest: float = float("-inf")

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        self.largest = max(self.largest, value)

    @property
    def mean(self) -> float:
        return self.total / self.count


def _process_usage(pid: int) -> tuple[float, float] | None:
    """CPU seconds and resident MiB of a process, or None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    values = stat[stat.rfind(")") + 2 :].split()
    return (int(values[11]) + int(values[12])) / _CLOCK_TICKS, resident * _PAGE_MIB
