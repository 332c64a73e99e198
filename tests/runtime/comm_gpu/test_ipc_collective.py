"""`ipc` as a collective: attaching, calls, failures, closing; kernels and memory are emulated, members are threads."""

import threading

import pytest
import torch
from emulated_driver import EmulatedDriver

from gmiflow.runtime.comm.collectives import ipc
from gmiflow.runtime.comm.collectives import ipc_layout as layout
from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.comm.collectives.hosted import HostedCollective
from gmiflow.runtime.comm.collectives.ipc import SlabCollective
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.failure import GMIError

MEMBERS = (3, 4, 5)
CPU = torch.device("cpu")


@pytest.fixture
def machine(kernels, monkeypatch):
    """Installs an emulated machine: `machine(mps=..., uuids=...)`."""
    monkeypatch.setattr(layout, "THREADS", 16)  # a CPU thread stands for each; the tail of a broadcast needs 15

    def install(**options):
        driver = EmulatedDriver(kernels(len(MEMBERS)), **options)
        monkeypatch.setattr(ipc, "load_driver", lambda: driver)
        return driver

    return install


def together(work, host_timeout_s=120.0):
    """Run ``work(exchange)`` on a thread per member; the results or exceptions, in rank order."""
    group = LocalGroup("host", MEMBERS, host_timeout_s)
    results = [None] * len(MEMBERS)

    def run(rank):
        try:
            results[rank] = work(HostExchange(group.member(rank)))
        except Exception as failure:
            results[rank] = failure

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(MEMBERS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def attach(exchange, **options):
    options = {"capacity_bytes": 4096, "one_shot_bytes": 512, "timeout_s": 120.0, **options}
    return SlabCollective("train.gradient", MEMBERS, exchange, CPU, **options)


@pytest.mark.parametrize(("mps", "handshake"), [(True, "device"), (False, "host")])
def test_calls_give_the_same_with_either_handshake(machine, mps, handshake):
    driver = machine(mps=mps)

    def work(exchange):
        group = attach(exchange)
        seen = [group.handshake, group.capturable]
        rank = exchange.rank
        for count in (1, 5, 130, 2500):  # the last takes three launches
            numbers = torch.arange(count, dtype=torch.float32)
            flat = numbers + rank
            group.all_reduce(flat)
            seen.append(torch.equal(flat, 3 * numbers + 3))
            unaligned = torch.full((count + 1,), rank, dtype=torch.int64)[1:]
            group.all_reduce(unaligned, "max")
            seen.append(bool((unaligned == 2).all()))
            group.broadcast(flat.fill_(rank), root=1)
            seen.append(bool((flat == 1).all()))
            total = torch.full((count,), rank + 1.0, dtype=torch.float64)
            group.reduce(total, root=2)
            seen.append(rank != 2 or bool((total == 6).all()))
        group.barrier()
        group.close()
        return seen

    for seen in together(work):
        assert seen == [handshake, mps] + [True] * 16
    closed = driver.log
    assert closed.count("unmap") == 6 and closed.count("free") == 3
    assert closed.index("free") > max(index for index, event in enumerate(closed) if event == "unmap")


def test_a_late_member_is_named_and_learns_that_it_was_given_up(machine):
    machine(mps=True)

    def work(exchange):
        group = attach(exchange, timeout_s=2.0)
        flat = torch.ones(300)
        exchange.barrier()  # the two that come meet within the limit
        if exchange.rank != 1:
            group.all_reduce(flat)
        exchange.barrier()
        if exchange.rank == 1:
            group.all_reduce(flat)
        try:
            group.check()
        finally:
            group.close()

    failures = together(work)
    assert all(isinstance(failure, GMIError) and failure.failure.code == "E0705" for failure in failures)
    assert "GMI 4 did not come to the collective train.gradient" in str(failures[0])
    assert "GMI 4 did not come to the collective train.gradient" in str(failures[2])
    assert "gave up waiting for this GMI" in str(failures[1])


def test_abort_ends_a_waiting_kernel(machine):
    machine(mps=True)

    def work(exchange):
        group = attach(exchange, timeout_s=600.0)
        if exchange.rank == 1:
            exchange.barrier()
            return None
        threading.Timer(0.2, group.abort, args=(1,)).start()
        group.all_reduce(torch.ones(300))  # ends long before the limit
        exchange.barrier()
        group.check()
        return None

    failures = together(work)
    assert "GMI 4 did not come" in str(failures[0]) and "GMI 4 did not come" in str(failures[2])


def test_members_on_different_gpus_are_refused(machine):
    machine(uuids=["aa", "aa", "bb"])
    failures = together(attach)
    assert all(failure.failure.code == "E0710" for failure in failures)
    assert "are not on one GPU" in str(failures[0])


def test_a_device_handshake_without_mps_is_refused(machine):
    machine(mps=False)
    failures = together(lambda exchange: attach(exchange, handshake="device"))
    assert all("not all under MPS" in str(failure) for failure in failures)


def test_a_wrong_slab_is_found_when_attaching(machine):
    driver = machine(mps=True)
    opened = driver.ImportedSlab

    class Wrong(opened):
        def __init__(self, handle):
            super().__init__(handle)
            if threading.current_thread() is not threading.main_thread():
                self.address += layout.PAGE_BYTES

    driver.ImportedSlab = Wrong
    failures = together(attach)
    assert all(failure.failure.code == "E0711" and "wrong checksum" in str(failure) for failure in failures)


def test_without_cuda_bindings_the_message_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gmiflow.runtime.comm.collectives.cuda_driver", None)
    with pytest.raises(GMIError, match=r"gmiflow\[gpu\]"):
        ipc.load_driver()


def test_members_of_one_process_need_neither_mps_nor_mapping(machine):
    driver = machine(mps=False, one_process=True)

    def work(exchange):
        group = attach(exchange)
        flat = torch.full((2500,), exchange.rank + 1.0)
        group.all_reduce(flat)
        group.close()
        return group.handshake, group.capturable, bool((flat == 6).all())

    assert together(work) == [("device", True, True)] * 3
    assert "unmap" not in driver.log and driver.log.count("free") == 3


def test_threads_of_one_gpu_reduce_alike_inside_and_outside_of_a_graph(machine):
    driver = machine(mps=False, one_process=True)
    group = LocalGroup("train.gradient", MEMBERS, 120.0)
    launches = []

    def work(exchange):
        member = HostedCollective(group, exchange.rank, CPU, timeout_s=120.0)
        results = []
        for recording in (False, True):
            driver.recording.now = recording
            numbers = torch.arange(700, dtype=torch.float32) * (exchange.rank + 1)
            member.all_reduce(numbers)
            sent = torch.full((5,), exchange.rank)
            member.broadcast(sent, root=2)
            results.append((torch.equal(numbers, 6 * torch.arange(700.0)), sent.tolist()))
            launches.append((member.waits, member.capturable))
        driver.recording.now = False
        member.settle()
        member.check()
        member.close()
        return results

    assert together(work) == [[(True, [2] * 5)] * 2] * 3
    assert sorted(launches) == [(False, True)] * 3 + [(True, True)] * 3


def test_a_thread_that_leaves_ends_the_settling_of_the_others(machine):
    machine(mps=False, one_process=True)
    group = LocalGroup("train.gradient", MEMBERS, 120.0)

    def work(exchange):
        member = HostedCollective(group, exchange.rank, CPU, timeout_s=120.0)
        if exchange.rank == 0:
            group.leave(0)
            return None
        member.settle()
        return None

    _, *others = together(work)
    assert all(failure.failure.code == "E0704" and "GMI 3 left" in str(failure) for failure in others)
