"""One end of a measured channel: ``python measure_member.py TASK.json``; see `gmiflow.runtime.comm.channel.measure`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.ways import SLOTS, Crossing, open_way
from gmiflow.runtime.rendezvous import Rendezvous


def produce(crossing: Crossing, rollouts: int) -> dict[str, Any]:
    """Send all rollouts, first one at a time, then with several under way; the times."""
    times: list[float] = []
    warm_up = max(1, rollouts // 10)
    for index in range(warm_up + rollouts):
        start = time.perf_counter()
        crossing.send(1)
        crossing.drain()
        if index >= warm_up:
            times.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(rollouts):
        crossing.send(SLOTS)
    crossing.drain()
    pipelined_s = (time.perf_counter() - start) / rollouts
    times.sort()
    return {
        "lockstep_s": statistics.median(times),
        "low_s": times[len(times) // 10],
        "high_s": times[-1 - len(times) // 10],
        "pipelined_s": pipelined_s,
    }


def main() -> None:
    """Measure, and write the rows from the producer."""
    file = Path(sys.argv[1])
    work: dict[str, Any] = json.loads(file.read_text())
    plan = LaunchPlan.from_json((file.parent / "plan.json").read_text())
    member, rollouts = int(work["gmi"]), int(work["rollouts"])
    training, channel = plan.trainings[0], plan.channels[0]
    size = sum(kind.size_bytes(training.horizon, channel.num_env) for kind in Dispenser(training).kinds)
    rendezvous = Rendezvous.join(Path(work["rendezvous"]))
    torch.set_num_threads(1)
    device = torch.device("cpu") if plan.target.device == "cpu" else torch.device("cuda", 0)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    rows: list[dict[str, Any]] = []
    for way in work["ways"]:
        crossing = open_way(way, plan, rendezvous, member, device)
        if member == 0:
            messages = 1 if way == "direct" else crossing.messages
            rows.append({"way": way, "bytes": size, "messages": messages, **produce(crossing, rollouts)})
        else:
            for _ in range(max(1, rollouts // 10) + 2 * rollouts):
                crossing.receive()
        crossing.close()
    if member == 0:
        (file.parent / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
