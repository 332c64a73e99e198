"""Slots in the memory of another GPU; the driver is emulated: "GPUs" are names, and their memory is this process's."""

import contextlib
import ctypes
import dataclasses
import tempfile
from pathlib import Path

import pytest
import torch
from emulated_driver import EmulatedDriver
from plans import apart_plan, program_of, split_plan, training_plan

from gmiflow.runtime.comm.channel import device as slots
from gmiflow.runtime.comm.channel.batcher import Batcher
from gmiflow.runtime.comm.channel.connect import open_link
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.migrator import Migrator
from gmiflow.runtime.comm.channel.steps import Slot
from gmiflow.runtime.rendezvous import Rendezvous

CPU = torch.device("cpu")


class TwoGPUs(EmulatedDriver):
    """Who looks is on the GPU ``home``; rows and widths of what is copied between GPUs are in ``copies``."""

    def __init__(self):
        super().__init__(library=None)
        self.home = ""
        self.copies = []

    def make_current(self, device):
        pass

    def describe(self, device):
        described = super().describe(device)
        described.uuid = 16 * self.home
        return described

    def copy_rows(self, target, source, pitches, width, rows, stream):
        self.copies.append((rows, width))
        for row in range(rows):
            ctypes.memmove(target + row * pitches[0], source + row * pitches[1], width)


def view(address, code, shape, device):
    dtype = next(dtype for dtype, name in slots._CODES.items() if name == code)
    count = torch.Size(shape).numel()
    raw = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=dtype, count=count).view(shape)


@pytest.fixture
def driver(monkeypatch):
    driver = TwoGPUs()
    monkeypatch.setattr(slots, "load_driver", lambda: driver)
    monkeypatch.setattr(slots, "_view", view)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    return driver


@pytest.fixture
def join(driver):
    """Opens the channels of a plan as `p2p`, with the GPU of each GMI given; the links of each."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        rendezvous = Rendezvous.join(Path(folder))

        def open_all(plan, homes):
            links = {gmi.id: [] for gmi in plan.gmis}
            for channel in plan.channels:
                for gmi in (channel.consumer, *channel.producers):  # in this order nobody waits
                    driver.home = homes[gmi]
                    across, segment = dataclasses.replace(channel, kind="p2p"), rendezvous.segment(channel.name)
                    links[gmi].append(open_link(across, program_of(plan, gmi), gmi, segment, CPU, 60.0, stack))
            return {gmi: tuple(found) for gmi, found in links.items()}

        yield open_all  # the last are closed first: producers leave before their consumer waits for that


def filled(storage, kinds, first):
    """Write what tells the time and the environment of each element; environments are counted from ``first``."""
    for number, kind in enumerate(kinds):
        value = storage[kind.name]
        numbers = torch.arange(value.numel()).view(value.shape) * 7 + 1000 * first + number
        value.copy_((numbers % 251).to(value.dtype))
    return {name: value.clone() for name, value in storage.items()}


@pytest.mark.parametrize(
    ("agents", "trainers", "homes"),
    [(1, 1, "a1 b2"), (2, 1, "a1 a1 b2"), (2, 1, "a1 b2 b2"), (1, 2, "a1 b2 c3"), (3, 2, "a1 b2 b2 b2 a1")],
)
def test_rollouts_reach_the_memory_of_another_gpu(driver, join, agents, trainers, homes):
    plan = split_plan(training_plan(num_env=96), agents=agents, trainers=trainers)
    homes = dict(enumerate(homes.split()))
    links, training = join(plan, homes), plan.trainings[0]
    kinds = Dispenser(training).kinds
    made = []
    for gmi in plan.gmis[:agents]:
        where = {"env_offset": gmi.env_offset, "num_env": gmi.num_env}
        migrator = Migrator(links[gmi.id], **where, max_staleness=0, device=CPU)
        near = all(homes[gmi.id] == homes[link.plan.consumer] for link in links[gmi.id])
        assert migrator.direct is (near and len(links[gmi.id]) == 1)
        made.append(filled(migrator.storages[migrator.storage], kinds, gmi.env_offset))
        migrator.deliver(0)
    for gmi in plan.gmis[agents:]:
        where = {"env_offset": gmi.env_offset, "num_env": gmi.num_env}
        batcher = Batcher(Dispenser(training), links[gmi.id], **where, device=CPU)
        assert batcher.direct and batcher.ready()
        batch = batcher.tensors(batcher.take())
        for kind in kinds:
            whole = torch.cat([part[kind.name] for part in made], kind.env_axis)
            assert torch.equal(batch[kind.name], whole.narrow(kind.env_axis, gmi.env_offset, gmi.num_env)), kind.name
    crossing = [(p, c.consumer) for c in plan.channels for p in c.producers if homes[p] != homes[c.consumer]]
    assert bool(driver.copies) is bool(crossing)


def test_a_whole_slot_crosses_group_by_group(driver, join):
    plan = split_plan(training_plan(), agents=1, trainers=1)
    links = join(plan, {0: "a1", 1: "b2"})
    migrator = Migrator(links[0], env_offset=0, num_env=64, max_staleness=0, device=CPU)
    migrator.deliver(0)
    assert driver.copies == [(1, group.end - group.start) for group in links[0][0].layout.groups]


def test_steps_cross_both_ways(driver, join):
    plan = apart_plan(training_plan(), "e_at", pairs=1)
    links = join(plan, {0: "a1", 1: "b2"})
    there, here = Slot(links[0][0], CPU), Slot(links[1][0], CPU)
    assert (there.direct, here.direct) == (False, True)
    for number, value in enumerate((*there.there.values(), *here.back.values())):
        value.fill_(number % 2)
    there.put_there()
    there.fetch_back()
    for name, value in there.there.items():
        assert torch.equal(here.there[name], value), name
    for name, value in here.back.items():
        assert torch.equal(there.back[name], value), name


@pytest.mark.gpu
def test_the_driver_copies_rows_of_any_distance():
    from gmiflow.runtime.comm.collectives import cuda_driver

    gpu = torch.device("cuda:0")
    cuda_driver.make_current(gpu)
    source = torch.arange(6 * 40, dtype=torch.float32, device=gpu).view(6, 40)
    target = torch.zeros(6, 24, device=gpu)
    part, place = source[:, 8:24], target[:, 4:20]
    rows, width, pitches = slots._rows(part, place)
    assert (rows, width, pitches) == (6, 64, (160, 96))
    stream = cuda_driver.current_stream(gpu)
    cuda_driver.copy_rows(place.data_ptr(), part.data_ptr(), pitches[::-1], width, rows, stream)
    torch.cuda.synchronize(gpu)
    assert torch.equal(place, part)
    assert not target[:, :4].any() and not target[:, 20:].any()
