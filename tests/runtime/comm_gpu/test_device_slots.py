"""The order in which slots on a GPU are let go; the driver is emulated, since this needs no kernel."""

import contextlib
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from emulated_driver import EmulatedDriver

from gmiflow.runtime.comm.channel import device as slots
from gmiflow.runtime.comm.channel.packer import SlotLayout
from gmiflow.runtime.comm.channel.ring import Ring, RingShape
from gmiflow.runtime.failure import NOT_SUPPORTED, GMIError, error
from gmiflow.runtime.rendezvous import Rendezvous

SIZE = 4096


@pytest.fixture
def driver(monkeypatch):
    driver = EmulatedDriver(library=None)
    driver.make_current = lambda device: None
    monkeypatch.setattr(slots, "load_driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    return driver


@pytest.fixture
def ends(driver):
    """Slots of a consumer and of a producer, and their rings."""
    shape = RingShape(name="train.experience.1", producers=(0,), consumer=1, slots=2, where="device")
    layout = SlotLayout([], [], horizon=1, num_env=16)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        segment = Rendezvous.join(Path(folder)).segment("ring")
        rings = [Ring(shape, member, segment, layout, timeout_s=60.0) for member in (0, 1)]
        for ring in rings:
            stack.callback(ring.close)
        consumer = slots.DeviceSlots(rings[1], SIZE, torch.device("cuda"), consumer=True)
        producer = slots.DeviceSlots(rings[0], SIZE, torch.device("cuda"), consumer=False)
        yield producer, consumer, rings


def test_slots_are_freed_when_the_producers_have_unmapped_them(driver, ends):
    producer, consumer, (ring, _) = ends
    closing = threading.Thread(target=consumer.close)
    closing.start()
    with pytest.raises(GMIError) as raised:  # who waits for the consumer is told meanwhile, and goes
        while True:
            ring.watch.look(0.0)
    assert raised.value.failure.code == "E0704"
    assert driver.log == []
    producer.close()
    ring.producers[0].leave()
    closing.join(60.0)
    assert driver.log == ["unmap", "free"]


def test_slots_that_somebody_still_uses_are_not_freed(driver, ends, monkeypatch, caplog):
    _, consumer, _ = ends
    monkeypatch.setattr(slots, "LEAVE_S", 0.0)
    consumer.close()
    assert driver.log == []
    assert "train.experience.1" in caplog.text


@pytest.mark.parametrize("where", ["runtime", "driver"])
def test_a_fault_of_the_gpu_is_not_hidden_behind_what_cannot_be_released(driver, ends, monkeypatch, caplog, where):
    producer, _, _ = ends

    def refuse(*_):
        if where == "runtime":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        raise error(NOT_SUPPORTED, "the CUDA driver refused: an illegal memory access was encountered")

    if where == "runtime":
        monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    else:
        monkeypatch.setattr(driver.ImportedSlab, "close", refuse)
    producer.close()
    assert "an illegal memory access" in caplog.text
