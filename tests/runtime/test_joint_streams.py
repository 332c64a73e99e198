"""The order of a joint rollout's work on a GPU, without one: streams that know what they have waited for.

Every piece of work says what it reads and writes. Two pieces that touch the same thing, one of them writing, must be
ordered: by their stream, or by a stream that waited for the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, defaultdict

import pytest
import torch

from gmiflow.runtime.execution.joint import JointCollect, Share
from gmiflow.runtime.joint import JointGroup, JointSeat
from gmiflow.runtime.turn import Turn

GMIS, HORIZON, ROUNDS = (0, 1, 2), 3, 3


class Stream:
    """Counts its work; `seen` is how much of each stream's work comes before what it gets next."""

    def __init__(self, name):
        self.name, self.seen = name, Counter()

    def wait_stream(self, other):
        self.seen |= other.seen


class Device:
    """Where work goes: the current stream of each thread, and who touched what."""

    def __init__(self):
        self.local = threading.local()
        self.touched = defaultdict(list)
        self.races = []

    @contextlib.contextmanager
    def stream(self, stream):
        before = getattr(self.local, "current", None)
        self.local.current = stream if stream is not None else before
        yield
        self.local.current = before

    def work(self, *, reads=(), writes=()):
        stream = self.local.current
        stream.seen[stream.name] += 1
        for thing in (*reads, *writes):
            for name, count, wrote in self.touched[thing]:
                if (wrote or thing in writes) and stream.seen[name] < count:
                    self.races.append((thing, name, stream.name))
            self.touched[thing].append((stream.name, stream.seen[stream.name], thing in writes))


class Event:
    def __init__(self, **options):
        pass

    def record(self, stream):
        pass


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(torch.cuda, "stream", device.stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    return device


class Simulator:
    """Reads the actions of all and writes their observations."""

    def __init__(self, device):
        self.device = device

    def step(self, inputs):
        assert inputs["action"].tolist() == [float(gmi) for gmi in GMIS for _ in range(2)]
        self.device.work(reads=[("row", gmi) for gmi in GMIS], writes=[("obs", gmi) for gmi in GMIS])
        return {"obs": torch.arange(2.0 * len(GMIS))}


class Action(torch.Tensor):
    """A member's action; the buffer for those of all is zeroed and written on the current stream."""

    @classmethod
    def of(cls, device, gmi):
        action = torch.full((2,), float(gmi)).as_subclass(cls)
        action.__dict__["where"] = device
        return action

    def new_zeros(self, shape):
        self.where.work(writes=[("row", gmi) for gmi in GMIS])
        return Rows(torch.zeros(shape), self.where)


class Rows:
    """The actions of all; a copy into those of a member is work on the current stream."""

    def __init__(self, values, device, gmi=None):
        self.values, self.device, self.gmi = values, device, gmi

    def chunk(self, count):
        return [Rows(values, self.device, gmi) for gmi, values in enumerate(self.values.chunk(count))]

    def copy_(self, value):
        self.device.work(writes=[("row", self.gmi)])
        self.values.copy_(value)

    def tolist(self):
        return self.values.tolist()


class Collector:
    """Acts, stores and finishes on the current stream; `horizon` as of the real one."""

    horizon = HORIZON

    def __init__(self, gmi, device):
        self.gmi, self.device, self.stored = gmi, device, []

    def act(self, rollout, step):
        gmi = self.gmi
        action = Action.of(self.device, gmi)
        self.device.work(reads=[("obs", gmi), ("policy", gmi)], writes=[("rollout", gmi)])
        return {"action": action}

    def enter_simulator(self):
        pass

    def store(self, rollout, step, outputs):
        self.stored.append((step, outputs["obs"].tolist()))
        self.device.work(reads=[("obs", self.gmi)], writes=[("rollout", self.gmi)])

    def finish(self, rollout):
        self.device.work(reads=[("obs", self.gmi), ("policy", self.gmi)], writes=[("rollout", self.gmi)])


def train(device, *, collect_apart):
    """Some iterations of every member in a thread; with ``collect_apart`` it learns on a stream of its own."""
    group = JointGroup(GMIS, Turn(), Stream("group"))
    group.members, group.simulator = GMIS, Simulator(device)
    collectors = [Collector(gmi, device) for gmi in GMIS]

    def member(gmi):
        acting, learning = Stream(f"act {gmi}"), Stream(f"learn {gmi}")
        share = Share(gmi=gmi, collector=collectors[gmi], rollout=None, stream=acting, reason="", planned=False)
        part = JointCollect("collect", JointSeat(group=group, gmi=gmi), share)
        for _ in range(ROUNDS):
            part()
            if collect_apart:
                learning.wait_stream(acting)
            with device.stream(learning if collect_apart else acting):
                device.work(reads=[("rollout", gmi)], writes=[("policy", gmi)])
                device.work(reads=[("obs", gmi)])  # a checkpoint
            if collect_apart:
                acting.wait_stream(learning)

    threads = [threading.Thread(target=member, args=(gmi,)) for gmi in GMIS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return collectors


@pytest.mark.parametrize("collect_apart", [False, True])
def test_work_that_depends_on_other_work_waits_for_it(device, collect_apart):
    collectors = train(device, collect_apart=collect_apart)
    assert device.races == []
    assert {name for touches in device.touched.values() for name, _, _ in touches} >= {"group", "act 0", "act 2"}
    for gmi, collector in enumerate(collectors):
        assert collector.stored == [(step, [2.0 * gmi, 2.0 * gmi + 1]) for step in range(HORIZON)] * ROUNDS


def test_members_act_side_by_side(device):
    """No member's work waits for that of another within a step."""
    train(device, collect_apart=False)
    first = {gmi: device.touched["policy", gmi][0] for gmi in GMIS}
    assert first == {gmi: (f"act {gmi}", 1, False) for gmi in GMIS}


@pytest.mark.parametrize("missing", ["fork", "join"])
def test_a_wait_that_is_missing_is_noticed(device, missing, monkeypatch):
    """The judge itself: without the waits of the group's stream, or for it, there are races."""
    wait = Stream.wait_stream

    def partly(self, other):
        if (missing == "fork" and other.name == "group") or (missing == "join" and self.name == "group"):
            return
        wait(self, other)

    monkeypatch.setattr(Stream, "wait_stream", partly)
    train(device, collect_apart=False)
    assert device.races
