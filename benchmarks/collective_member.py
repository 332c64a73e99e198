"""One member process of a configuration of ``collectives.py``: checks and times, and writes rows of JSON.

Started by ``collectives.py`` with the path of a JSON file that says what to do; not meant to be started by hand.
Times are microseconds per call, the median of the batches and then the slowest member. Sums of sums grow and end
as infinity in the timed loops; the correctness checks are separate.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import statistics
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gmiflow.runtime.comm import faults
from gmiflow.runtime.comm.collectives import ipc_layout
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.comm.collectives.hybrid import (
    HybridCollective,
    Levels,
    connect_two_level,
    paper_layout,
    two_level_layout,
)
from gmiflow.runtime.comm.collectives.ip import IPCollective
from gmiflow.runtime.comm.collectives.ipc import SlabCollective
from gmiflow.runtime.comm.collectives.rp import RingCollective, gpu_uuid
from gmiflow.runtime.failure import GMIError

CPU = torch.device("cpu")
BATCHES = 7
GRAPH_CALLS = 20


class Member:
    """This process's place in the configuration, and its means to talk to the others and to the driver."""

    def __init__(self, spec: dict) -> None:
        self.spec = spec
        self.rank, self.size = spec["rank"], spec["size"]
        self.members = tuple(range(self.size))
        self.folder = Path(spec["folder"])
        self.device = torch.device(spec["device"])
        self._rows = (self.folder / f"rows.{self.rank}.jsonl").open("a", buffering=1)
        self._groups = collections.Counter()
        self.host = self.host_group(self.members)

    def host_group(self, ranks: tuple[int, ...]) -> RingCollective:
        """A gloo group of some ranks; each call of the same ranks makes a new one."""
        self._groups[ranks] += 1
        label = f"host{self._groups[ranks]}." + "-".join(map(str, ranks))
        return RingCollective(label, ranks, ranks.index(self.rank), CPU, self.folder / label, timeout_s=90)

    def row(self, everybody: bool = False, **values: object) -> None:
        """Write a row; unless ``everybody``, only rank 0 does."""
        if everybody or self.rank == 0:
            self._rows.write(json.dumps({**values, "rank": self.rank} if everybody else values) + "\n")

    def log(self, text: str) -> None:
        """Write to this member's log."""
        print(f"[{time.strftime('%H:%M:%S')}] rank {self.rank}: {text}", file=sys.stderr, flush=True)

    def slowest(self, value: float) -> float:
        """The largest of the members' values."""
        token = torch.tensor([value], dtype=torch.float64)
        self.host.all_reduce(token, "max")
        return float(token)

    def agree(self, text_crc: int) -> bool:
        """Whether all members pass the same number."""
        low, high = torch.tensor([text_crc]), torch.tensor([text_crc])
        self.host.all_reduce(low, "min")
        self.host.all_reduce(high, "max")
        return bool(low == high)

    def slab(self, label: str, host: Collective | None = None, **options: object) -> SlabCollective:
        """Attach an `ipc` collective of all members, that meet through ``host``."""
        self.log(f"attach {label} {options}")
        started = time.perf_counter()
        options.setdefault("timeout_s", 20.0)
        slab = SlabCollective(label, self.members, HostExchange(host or self.host), self.device, **options)
        self.row(
            kind="attach", collective=label, members=self.size, handshake=slab.handshake, ctas=slab.ctas,
            seconds=round(time.perf_counter() - started, 3),
        )  # fmt: skip
        return slab


# ---- correctness ------------------------------------------------------------------------------------------------


def inputs(seed: int, rank: int, count: int, dtype: torch.dtype) -> np.ndarray:
    values = np.random.default_rng((seed, rank)).standard_normal(count) * 100
    return values.astype(str(dtype).removeprefix("torch."))


def check_values(member: Member, collective: Collective, label: str) -> None:
    """Random sizes with tails, all types and operations, against float64; and the same bits on every member."""
    random = np.random.default_rng(7)
    sizes = [1, 2, 3, 4, 5, 31, 1023, 4097, 5_000_003, *random.integers(1, 300_000, 11).tolist()]
    if limit := member.spec.get("largest"):
        sizes = [min(size, limit) for size in sizes]
    worst, cases, failed = 0.0, 0, []
    for index, count in enumerate(sizes):
        for dtype in ipc_layout.KERNELS:
            op = ("sum", "max", "min")[(index + cases) % 3] if count < 1_000_000 else "sum"
            parts = np.stack([inputs(cases, rank, count, dtype).astype(np.float64) for rank in member.members])
            expected = {"sum": np.sum, "max": np.max, "min": np.min}[op](parts, 0)
            offset = cases % 2  # every second tensor is not aligned to 16 bytes
            storage = torch.zeros(count + offset, dtype=dtype, device=member.device)
            flat = storage[offset:]
            flat.copy_(torch.from_numpy(inputs(cases, member.rank, count, dtype)))
            collective.all_reduce(flat, op)
            got = flat.cpu().numpy()
            error = float(np.max(np.abs(got.astype(np.float64) - expected)) / (np.max(np.abs(expected)) + 1e-30))
            tolerance = 1e-6 if dtype == torch.float32 else 1e-14
            same = member.agree(zlib.crc32(got.tobytes()))
            worst, cases = max(worst, error), cases + 1
            if error > tolerance or not same:
                failed.append({"count": count, "dtype": str(dtype), "op": op, "error": error, "same_bits": same})
    for root in range(member.size):
        flat = torch.full((1001,), float(member.rank), device=member.device)[1:]
        collective.broadcast(flat, root)
        if not bool((flat == root).all()):
            failed.append({"broadcast": root})
    collective.barrier()
    member.row(
        kind="correct", collective=label, members=member.size, cases=cases, worst=worst, ok=not failed,
        failed=failed[:5],
    )  # fmt: skip


def check_repeats(member: Member, collective: Collective, label: str, repeats: int = 1000) -> None:
    """Many calls in a row with members delayed at random on the host and on the GPU; exact integers."""
    random = np.random.default_rng(member.rank)
    sizes = [1, 777, 16_384, 262_147]
    if limit := member.spec.get("largest"):
        sizes = [min(size, limit) for size in sizes]
    tensors = [torch.zeros(size, device=member.device) for size in sizes]
    good = torch.ones((), dtype=torch.bool, device=member.device)
    total = member.size * (member.size + 1) // 2
    for call in range(repeats):
        flat = tensors[call % len(tensors)]
        flat.fill_(float((member.rank + 1) * (call % 100)))
        if random.random() < 0.1:
            time.sleep(float(random.random()) * 2e-3)
        if random.random() < 0.1 and member.device.type == "cuda":
            torch.cuda._sleep(int(random.integers(1, 2_000_000)))
        collective.all_reduce(flat)
        good &= (flat == total * (call % 100)).all()
    member.row(
        kind="repeats",
        collective=label,
        members=member.size,
        repeats=repeats,
        ok=bool(member.slowest(-float(good)) == -1.0),
    )


def check_graph(member: Member, collective: Collective, label: str, replays: int = 300) -> None:
    """A captured iteration with three collectives and arithmetic between them, replayed."""
    short = torch.zeros(1_025, device=member.device)
    long = torch.zeros(400_003, dtype=torch.float64, device=member.device)
    count = torch.zeros(1, dtype=torch.int64, device=member.device)

    def iteration() -> None:
        short.fill_(float(member.rank + 1))
        collective.all_reduce(short)
        long.copy_(count.expand_as(long))
        long.add_(short[0])
        collective.all_reduce(long, "max")
        collective.all_reduce(count)
        count.div_(member.size, rounding_mode="floor").add_(1)

    graph = capture(iteration, warmups=2)
    count.zero_()
    good = torch.ones((), dtype=torch.bool, device=member.device)
    total = member.size * (member.size + 1) // 2
    for replay in range(replays):
        graph.replay()
        good &= (short == total).all() & (long == total + replay).all() & (count == replay + 1).all()
    ok = bool(member.slowest(-float(good)) == -1.0)
    member.row(kind="graph", collective=label, members=member.size, replays=replays, ok=ok)


# ---- timing -----------------------------------------------------------------------------------------------------


def capture(work: Callable[[], None], warmups: int = 3) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warmups):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


def measure(member: Member, run: Callable[[], None], calls: int) -> float:
    """Microseconds per call; ``run`` makes ``calls`` of them."""
    run()
    torch.cuda.synchronize()
    samples = []
    for _ in range(BATCHES):
        member.host.barrier()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / calls)
    return member.slowest(statistics.median(samples))


def time_eager(member: Member, call: Callable[[], None], calls: int) -> float:
    def run() -> None:
        for _ in range(calls):
            call()

    return measure(member, run, calls)


def time_graph(member: Member, call: Callable[[], None]) -> float:
    def work() -> None:
        for _ in range(GRAPH_CALLS):
            call()

    graph = capture(work)
    return measure(member, graph.replay, GRAPH_CALLS)


def time_collective(member: Member, collective: Collective, label: str, size: int, eager: bool = True) -> None:
    flat = torch.randn(size // 4, device=member.device)
    row: dict[str, object] = {"kind": "latency", "collective": label, "members": member.size, "bytes": size}
    if collective.capturable:
        row["graph_us"] = round(time_graph(member, lambda: collective.all_reduce(flat)), 2)
    if eager:
        calls = max(2, min(50, (64 << 20) // size if collective.capturable else (8 << 20) // size))
        row["eager_us"] = round(time_eager(member, lambda: collective.all_reduce(flat), calls), 2)
    member.row(**row)


def time_gloo(member: Member, size: int) -> None:
    """The usual way for processes of one GPU: pinned host memory and gloo."""
    flat = torch.randn(size // 4, device=member.device)
    staged = torch.empty(size // 4, pin_memory=member.device.type == "cuda")

    def call() -> None:
        staged.copy_(flat)
        member.host.all_reduce(staged)
        flat.copy_(staged)

    calls = max(2, min(20, (4 << 20) // size))
    microseconds = round(time_eager(member, call, calls), 2)
    member.row(kind="latency", collective="gloo", members=member.size, bytes=size, eager_us=microseconds)


def guarded(member: Member, label: str, action: Callable[[], None]) -> None:
    """Run one part; a failure becomes a row, and the configuration goes on if its collectives still can."""
    try:
        member.log(f"begin {label}")
        action()
        member.log(f"end {label}")
    except Exception as failure:
        member.row(everybody=True, kind="failed", part=label, error=f"{type(failure).__name__}: {failure}"[:600])
        member.log(traceback.format_exc())
        raise


# ---- configurations ---------------------------------------------------------------------------------------------


def one_gpu(member: Member) -> None:
    """`ipc` under MPS against `ip` and gloo."""
    slab = member.slab("ipc")
    guarded(member, "values", lambda: check_values(member, slab, "ipc"))
    guarded(member, "repeats", lambda: check_repeats(member, slab, "ipc"))
    guarded(member, "graph", lambda: check_graph(member, slab, "ipc"))
    sizes = member.spec["sizes"]
    for size in sizes:
        guarded(member, f"ipc {size}", lambda size=size: time_collective(member, slab, "ipc", size))
    for size in sizes:
        guarded(member, f"gloo {size}", lambda size=size: time_gloo(member, size))
    ip = IPCollective("bench.ip", member.members, member.rank, member.spec["segment"], timeout_s=60)
    ip.connect()
    for size in sizes:
        guarded(member, f"ip {size}", lambda size=size: time_collective(member, ip, "ip", size))
    ip.close()
    variants = {
        "one_shot": {"one_shot_bytes": 1 << 30},
        "two_shot": {"one_shot_bytes": 0},
        "slab_4MiB": {"one_shot_bytes": 0, "capacity_bytes": 4 << 20},
        "slab_64MiB": {"one_shot_bytes": 0, "capacity_bytes": 64 << 20},
        "ctas_8": {"one_shot_bytes": 0, "max_ctas": 8},
        "ctas_16": {"one_shot_bytes": 0, "max_ctas": 16},
        "ctas_64": {"one_shot_bytes": 0, "max_ctas": 64},
    }
    for label in member.spec["variants"]:
        variant = member.slab(f"ipc.{label}", **variants[label])
        for size in sizes:
            name = f"ipc.{label}"
            guarded(member, f"{name} {size}", lambda v=variant, n=name, s=size: time_collective(member, v, n, s, False))
        variant.close()
    slab.close()


def without_mps(member: Member) -> None:
    """The host handshake, which must be the choice without MPS."""
    slab = member.slab("ipc.host")
    guarded(member, "values", lambda: check_values(member, slab, "ipc.host"))
    guarded(member, "repeats", lambda: check_repeats(member, slab, "ipc.host", 100))
    for size in member.spec["sizes"]:
        guarded(member, f"ipc.host {size}", lambda size=size: time_collective(member, slab, "ipc.host", size))
    slab.close()


def lost_member(member: Member) -> None:
    """Rank 2 first stalls, then is killed; the others must say so within the time-out and end."""
    timeout_s = 3.0
    victim = 2 % member.size
    # Shared memory, as in a run: it knows the members' processes.
    host = IPCollective("lost.host", member.members, member.rank, member.spec["segment"], timeout_s=60)
    host.connect()
    stalled = member.slab("stalled", host, timeout_s=timeout_s)
    doomed = member.slab("doomed", host, timeout_s=timeout_s)
    flat = torch.ones(100_000, device=member.device)
    for collective in (stalled, doomed):
        for _ in range(50):
            collective.all_reduce(flat, "max")
    torch.cuda.synchronize()
    member.host.barrier()
    if member.rank == victim:
        time.sleep(timeout_s + 2)
    expect_failure(member, stalled, "stall", flat, victim)
    member.host.barrier()
    if member.rank == victim:
        if member.spec["in_flight"]:
            doomed.all_reduce(flat)  # the kernel waits for the others while the process is killed
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(2.0 if member.spec["in_flight"] else 0.0)
    expect_failure(member, doomed, "killed", flat, victim)
    doomed.close()
    stalled.close()


def expect_failure(member: Member, collective: SlabCollective, event: str, flat: torch.Tensor, victim: int) -> None:
    started = time.perf_counter()
    message = ""
    try:
        for _ in range(3):  # the driver may let a kernel in flight finish, and with it the first call
            collective.all_reduce(flat)
            torch.cuda.synchronize()
            collective.check()
    except (GMIError, RuntimeError) as problem:  # memory of a process that has ended is a fault for its peers
        failure = faults.behind(problem, [collective])
        notes = failure.failure.notes if isinstance(failure, GMIError) else ()
        message = f"{failure} ({'; '.join(notes)})"
    named = (f"GMI {victim} did not come", f"GMI {victim} died")
    expected = ("gave up waiting for this GMI",) if member.rank == victim else named
    seconds = round(time.perf_counter() - started, 3)
    member.row(
        everybody=True,
        kind="lost",
        event=event,
        ok=any(words in message for words in expected),
        seconds=seconds,
        message=message,
    )


def symmetric(member: Member) -> None:
    """Symmetric memory of torch, told to admit several ranks on one device."""
    import torch.distributed as distributed
    import torch.distributed._symmetric_memory as symmetric_memory

    store = distributed.FileStore(str(member.folder / "symmetric"), member.size)
    distributed.init_process_group("gloo", store=store, rank=member.rank, world_size=member.size)
    group = distributed.group.WORLD.group_name
    for size in member.spec["sizes"]:
        flat = symmetric_memory.empty(size // 4, dtype=torch.float32, device=member.device)
        symmetric_memory.rendezvous(flat, group)
        flat.fill_(member.rank + 1.0)
        torch.ops.symm_mem.two_shot_all_reduce_(flat, "sum", group)
        ok = bool((flat == member.size * (member.size + 1) / 2).all())
        row: dict[str, object] = {"kind": "latency", "collective": "symmetric", "members": member.size, "bytes": size}
        row["ok"] = ok
        row["two_shot_us"] = round(
            time_graph(member, lambda flat=flat: torch.ops.symm_mem.two_shot_all_reduce_(flat, "sum", group)), 2
        )
        if size <= 4 << 20:
            row["one_shot_us"] = round(
                time_graph(member, lambda flat=flat: torch.ops.symm_mem.one_shot_all_reduce(flat, "sum", group)), 2
            )
        member.row(**row)
    torch.cuda.synchronize()
    member.host.barrier()


def ring(member: Member) -> None:
    """`rp` with one GMI per GPU."""
    nccl = RingCollective("bench.rp", member.members, member.rank, member.device, member.folder / "rp", timeout_s=60)
    run_across(member, nccl, "rp")
    for size in member.spec["sizes"]:
        guarded(member, f"gloo {size}", lambda size=size: time_gloo(member, size))
    nccl.close()


def two_level(member: Member) -> None:
    """`ipc` inside each GPU and NCCL between leaders; then the host and the paper's compositions."""
    host = connect_two_level(
        "bench.hybrid", member.members, member.rank, member.device, member.host_group, member.folder / "ring",
        timeout_s=20.0,
    )  # fmt: skip
    uuids = [m["uuid"] for m in HostExchange(member.host).gather({"uuid": gpu_uuid(member.device)})]
    member.row(kind="layout", devices=uuids, two_level=str(two_level_layout(uuids)))
    run_across(member, host, "hybrid")
    host.check()
    for size in member.spec["sizes"]:
        guarded(member, f"gloo {size}", lambda size=size: time_gloo(member, size))
    ip = IPCollective("bench.ip", member.members, member.rank, member.spec["segment"], timeout_s=60)
    ip.connect()
    for size in member.spec["sizes"]:
        guarded(member, f"ip {size}", lambda size=size: time_collective(member, ip, "ip", size))
    for k in range(1, member.size // len(set(uuids)) + 1):
        composed = paper_composition(member, paper_layout(uuids, k), k, len(set(uuids)))
        guarded(member, f"paper k={k}", lambda k=k, c=composed: check_values(member, c, f"paper.k{k}"))
        for size in member.spec["sizes"]:
            guarded(
                member, f"paper k={k}", lambda k=k, c=composed, s=size: time_collective(member, c, f"paper.k{k}", s)
            )
        composed.close()
    host.close()
    ip.close()


def paper_composition(member: Member, levels: Levels, k: int, gpus: int) -> HybridCollective:
    """Rings of one GMI per GPU below; above them a ring when every leader has a GPU of its own, else `ip`."""
    name, group = f"bench.paper{k}", levels.inner_of(member.rank)
    inner = upper = None
    all_rings = k * gpus == member.size and k <= gpus
    if group:
        place = member.folder / f"{name}.{group[0]}"
        inner = RingCollective(name, group, group.index(member.rank), member.device, place, timeout_s=60)
    if member.rank in levels.upper and len(levels.upper) > 1:
        position = levels.upper.index(member.rank)
        if all_rings:
            upper = RingCollective(
                f"{name}.upper", levels.upper, position, member.device, member.folder / f"{name}.upper", timeout_s=60
            )
        else:
            segment = f"{member.spec['segment']}-{k}"
            upper = IPCollective(f"{name}.upper", levels.upper, position, segment, timeout_s=60)
            upper.connect()
    capturable = all_rings and member.device.type == "cuda"
    return HybridCollective(name, member.members, member.rank, levels, inner, upper, capturable=capturable)


def run_across(member: Member, collective: Collective, label: str) -> None:
    guarded(member, "values", lambda: check_values(member, collective, label))
    guarded(member, "repeats", lambda: check_repeats(member, collective, label, 300))
    if collective.capturable:
        guarded(member, "graph", lambda: check_graph(member, collective, label))
    for size in member.spec["sizes"]:
        guarded(member, f"{label} {size}", lambda size=size: time_collective(member, collective, label, size))


def probe(member: Member) -> None:
    """What this process sees, and that the GPU computes."""
    product = torch.ones(256, 256, device=member.device) @ torch.ones(256, 256, device=member.device)
    facts: dict[str, object] = {"torch": torch.__version__, "works": bool((product == 256).all())}
    if member.device.type == "cuda":
        from gmiflow.runtime.comm.collectives import cuda_driver

        about = cuda_driver.describe(member.device)
        facts |= {"uuid": about.uuid, "sm_count": about.sm_count, "mps": about.mps}
        facts |= {"name": torch.cuda.get_device_name(member.device), "nccl": str(torch.cuda.nccl.version())}
    member.row(everybody=True, kind="probe", **facts)


CONFIGURATIONS = {
    "probe": probe,
    "one_gpu": one_gpu,
    "without_mps": without_mps,
    "lost_member": lost_member,
    "symmetric": symmetric,
    "ring": ring,
    "two_level": two_level,
}


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.sched_setaffinity(0, spec["cpus"])
    torch.set_num_threads(1)
    if spec["device"] != "cpu":
        torch.cuda.set_device(torch.device(spec["device"]))
        torch.zeros(1, device="cuda")
    try:
        member = Member(spec)
        CONFIGURATIONS[spec["configuration"]](member)
        if member.device.type == "cuda" and spec["configuration"] != "lost_member":  # that one ends with a fault
            torch.cuda.synchronize()
        member.log("done")
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a broken group must not hang in destructors
    sys.stderr.flush()
    os._exit(0)  # skips torch's teardown, which can wait for groups of peers that have gone


if __name__ == "__main__":
    sys.exit(main())
