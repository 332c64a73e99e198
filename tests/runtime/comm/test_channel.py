"""Rings and the board of weights, both ends in one process."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
import torch

from gmiflow.runtime.comm.channel.presence import _START_TICKS, Watch, wait_for
from gmiflow.runtime.comm.channel.ring import Ring, RingShape
from gmiflow.runtime.comm.channel.weights import Collected, WeightsReader, WeightsWriter
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.rendezvous import Rendezvous


class Layout:
    """Slots of sixteen numbers."""

    slot_bytes = 4096


@pytest.fixture
def rendezvous():
    with tempfile.TemporaryDirectory() as folder:
        meeting = Rendezvous.join(Path(folder))
        yield meeting
        meeting.remove()


def ring_of(shape: RingShape, gmi: int, rendezvous: Rendezvous) -> Ring:
    return Ring(shape, gmi, rendezvous.segment("c"), Layout(), timeout_s=120.0)  # type: ignore[arg-type]


def both_ends(rendezvous: Rendezvous, stack: contextlib.ExitStack, **changes) -> tuple[Ring, Ring]:
    shape = RingShape(**{"name": "c", "producers": (0,), "consumer": 1, "slots": 3, **changes})
    ends = [ring_of(shape, gmi, rendezvous) for gmi in (0, 1)]
    for end in ends:
        stack.callback(end.close)
    return ends[0], ends[1]


def test_slots_come_in_turn_and_are_given_back(rendezvous) -> None:
    with contextlib.ExitStack() as stack:
        producer, consumer = both_ends(rendezvous, stack)
        for number in range(7):
            assert producer.slot_to_fill() == number % 3
            producer.tensor(producer.slot_to_fill() * 4096, torch.float32, (16,)).fill_(number)
            assert not consumer.ready()
            producer.publish(version=10 + number)
            with consumer.reading() as slot:
                assert slot == number % 3
                assert consumer.versions() == [10 + number]
                assert consumer.tensor(slot * 4096, torch.float32, (16,)).tolist() == [number] * 16
            assert producer.pending == 1 and not producer.make_room(0, 0)
            consumer.release()
            assert producer.pending == 0 and producer.next_update == number + 1


def test_the_oldest_is_dropped_and_the_rest_kept_in_order(rendezvous) -> None:
    with contextlib.ExitStack() as stack:
        producer, consumer = both_ends(rendezvous, stack, drop=True)
        for version in range(2):
            producer.publish(version)
        assert producer.make_room(limit=1, newest=5)
        assert (producer.pending, producer.dropped, producer.next_update) == (1, 1, 1)
        with consumer.reading() as slot:
            assert (slot, consumer.versions()) == (1, [1])
        assert (producer.pending, producer.next_update) == (0, 1)
        producer.publish(2)
        assert producer.make_room(limit=2, newest=1)  # one is pending and would make the next one too late
        assert (producer.pending, producer.dropped) == (0, 2)
        with consumer.reading() as slot:
            assert slot is None


def test_a_member_can_be_there_once(rendezvous) -> None:
    with contextlib.ExitStack() as stack:
        producer, _ = both_ends(rendezvous, stack)
        with pytest.raises(GMIError, match="GMI 0 is in the channel c already"):
            ring_of(producer.shape, 0, rendezvous)


@pytest.mark.parametrize(("member", "replaceable"), [(0, False), (1, True), (0, True)])
def test_what_a_killed_run_left_is_not_gone_on_with(rendezvous, member, replaceable) -> None:
    """Except by a producer that takes the place of a lost one: the launcher starts none otherwise."""
    with contextlib.ExitStack() as stack:
        ends = both_ends(rendezvous, stack, replaceable=replaceable)
        ends[0].publish(version=4)
        ends[member]._own.words[_START_TICKS] = 1  # of a process that is no more
        joining = contextlib.nullcontext() if member == 0 and replaceable else pytest.raises(GMIError, match="was in")
        with joining:
            again = ring_of(ends[0].shape, member, rendezvous)
            assert again.published == 1
            stack.callback(again.close)


def test_who_is_waited_for_is_named(rendezvous) -> None:
    with contextlib.ExitStack() as stack:
        producer, consumer = both_ends(rendezvous, stack)
        late = Watch("the channel c", timeout_s=0.0)
        late.add(0, consumer.producers[0])
        with pytest.raises(GMIError, match="GMI 0 did not come to the channel c within 0 s") as raised:
            wait_for(consumer.ready, late.look)
        assert raised.value.failure.code == "E0705"
        assert not consumer.wait_left(0.0)
        producer._own.leave()
        assert consumer.wait_left(0.0)
        with pytest.raises(GMIError, match="GMI 0 left while the channel c waited for it") as raised:
            wait_for(consumer.ready, consumer.look)
        assert raised.value.failure.code == "E0704"
        producer.publish(0)  # what it left behind can be read
        assert wait_for(consumer.ready, consumer.look) == 0.0


def test_a_ring_on_a_device_shows_where_its_slots_are_and_holds_no_data(rendezvous) -> None:
    handle = bytes(range(176, 256))  # as opaque as those of CUDA with a UUID behind, with the highest bits set
    with contextlib.ExitStack() as stack:
        producer, consumer = both_ends(rendezvous, stack, where="device")
        consumer.show_handle(handle)
        assert producer.shown_handle() == handle
        assert producer._segment.path.stat().st_size == 4096  # counters alone
        producer.publish(version=4)
        assert consumer.ready() and consumer.versions() == [4]


def open_board(rendezvous: Rendezvous, stack: contextlib.ExitStack, weights, device="cpu", **options):
    """A trainer's and an agent's end of the weights."""
    path = rendezvous.segment("weights")
    writer = WeightsWriter("train", path, (0,), weights, timeout_s=120.0, **options)
    stack.callback(writer.close)
    reader = WeightsReader("train", path, (0,), 0, 1, device=torch.device(device), timeout_s=120.0)
    stack.callback(reader.close)
    return writer, reader


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_weights_of_every_type_cross_with_their_version(rendezvous, device) -> None:
    weights = {
        "matrix": torch.arange(6.0).view(2, 3),
        "transposed": torch.arange(6.0).view(3, 2).T,
        "count": torch.tensor(3, dtype=torch.int64),
        "mean": torch.tensor([0.1], dtype=torch.float64),
        "flags": torch.tensor([True, False, True]),
        "none": torch.empty(0, 4),
    }
    weights = {name: value.to(device) for name, value in weights.items()}
    stream = torch.cuda.Stream() if device == "cuda" else None
    with contextlib.ExitStack() as stack, torch.cuda.stream(stream):
        writer, reader = open_board(rendezvous, stack, weights, device)
        for version in range(5):
            number, seen = reader.read()
            assert number == version == reader.version
            assert list(seen) == list(weights)
            for name, value in weights.items():
                assert (seen[name].device, seen[name].dtype) == (value.device, value.dtype)
                assert torch.equal(seen[name], value)
            weights["matrix"].add_(1.0)
            weights["count"].add_(1)
            assert writer.publish(weights) == version + 1


def test_weights_that_are_overwritten_while_they_are_read_are_read_again(rendezvous, monkeypatch) -> None:
    weights = {"a": torch.zeros(3), "b": torch.zeros((), dtype=torch.int64)}
    with contextlib.ExitStack() as stack:
        writer, reader = open_board(rendezvous, stack, weights)
        late = iter([1, 2])  # versions that come before and after the reader's copy

        def fence() -> None:
            if number := next(late, None):
                writer.publish({"a": torch.full((3,), float(number)), "b": torch.tensor(number)})

        monkeypatch.setattr(reader, "_fence", fence)
        version, seen = reader.read()
        assert version == 2
        assert seen["a"].tolist() == [2.0, 2.0, 2.0] and seen["b"].item() == 2


def test_checkpoints_are_asked_for_and_served_on_the_board_of_weights(rendezvous) -> None:
    with contextlib.ExitStack() as stack:
        writer, reader = open_board(rendezvous, stack, {"a": torch.zeros(1)}, start=40)
        assert (reader.start, reader.ended, reader.wanted_checkpoint) == (40, "no", None)
        writer.request_checkpoint(41)
        assert (reader.wanted_checkpoint, writer.served()) == (41, False)
        reader.serve_checkpoint(41, Collected(16, 32, 5, -2.5))
        assert writer.served() and reader.wanted_checkpoint is None
        assert writer.collected() == (Collected(16, 32, 5, -2.5),)
        writer.end("stopped")
        assert reader.ended == "stopped"
