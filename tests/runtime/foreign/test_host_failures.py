"""Hosts that die, hang, raise or return something wrong: who is named, how soon, and that nothing is left."""

import dataclasses
import gc
import multiprocessing
import signal
import time
from pathlib import Path

import pytest
import torch
from foreign_support import IMPATIENT, NUM_ENV, set_up
from waiting import PATIENCE_S

from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.foreign.family import descendants
from gmiflow.runtime.gmi.process import ProcessIdentity, wait_until

ACTION = {"action": torch.zeros(NUM_ENV, 2)}


def identity_of(simulator):
    found = ProcessIdentity.of(simulator._host._process.pid)
    assert found is not None
    return found


def failure_of_step(simulator):
    with pytest.raises(GMIError) as caught:
        simulator.step(ACTION)
    return caught.value.failure


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("shape", "sim.obs is declared float32[32, 4], but the class returned float32[3, 4]"),
        ("dtype", "sim.terminated is declared bool[32], but the class returned float64[32]"),
        ("missing", "sim.reward is declared, but the class did not return it"),
        ("tuple", "sim.obs is declared, but the class did not return it: it returned tuple, not a dict"),
    ],
)
def test_wrong_ports(hosted, odd, message):
    failure = failure_of_step(hosted("Odd", odd=odd))
    assert (failure.code, failure.message) == ("E0708", message)


def test_an_exception_shows_the_user_s_own_frames(hosted):
    simulator = hosted("Odd", odd="raises")
    failure = failure_of_step(simulator)
    assert (failure.code, failure.message) == ("E0701", "sim raised ValueError: the pole broke")
    place, *frames = failure.notes
    assert place.startswith("in ") and "(Python 3." in place
    assert frames[-2:] == ['    raise ValueError("the pole broke")', "ValueError: the pole broke"]
    assert "hosted_mass.py" in frames[0] and not any("shim.py" in line for line in frames)
    simulator.reset()  # the host lives on
    assert failure_of_step(simulator).code == "E0701"


def test_a_class_that_exits(hosted):
    assert failure_of_step(hosted("Odd", odd="exits")).message == "sim raised SystemExit: 3"


def test_a_host_that_dies_is_named_with_its_last_words(hosted, python):
    simulator = hosted("Odd", odd="dies")
    failure = failure_of_step(simulator)
    assert failure.code == "E0718"
    assert failure.message == "the interpreter of sim was killed by SIGABRT during a step"
    assert failure.notes[0].startswith(f"the interpreter is {python} (Python 3.")
    assert failure.notes[1:] == ("its last output was:", "  the physics", "  ran out of contacts")


def test_a_host_that_was_killed_before_is_named(hosted):
    simulator = hosted()
    host = identity_of(simulator)
    host.signal(signal.SIGKILL)
    assert wait_until(lambda: not host.alive, PATIENCE_S)
    message = "the interpreter of sim was killed by SIGKILL during"
    assert failure_of_step(simulator).message == f"{message} a step"
    with pytest.raises(GMIError, match=f"{message} `state_dict`"):
        simulator.state_dict()


def test_a_host_that_hangs_is_named_and_ended(hosted):
    simulator = hosted("Odd", odd="sleeps", patience=IMPATIENT)
    host = identity_of(simulator)
    failure = failure_of_step(simulator)
    assert failure.code == "E0718"
    silent = "the interpreter of sim neither answered nor used any processor time for"
    assert failure.message.startswith(silent) and failure.message.endswith("during a step")
    simulator.close()  # does not wait for the step
    assert not host.alive


def test_a_host_that_is_stopped_is_named(hosted):
    simulator = hosted(patience=IMPATIENT)
    host = identity_of(simulator)
    host.signal(signal.SIGSTOP)
    assert failure_of_step(simulator).message.startswith("the interpreter of sim is stopped for")
    simulator.close()
    assert not host.alive


def test_a_host_that_computes_for_long_is_not_silent(hosted):
    simulator = hosted("Odd", odd="computes", patience=dataclasses.replace(IMPATIENT, step_s=0.3, look_s=0.03))
    assert simulator.step(ACTION)["reward"].shape == (NUM_ENV,)


def test_a_host_that_gets_no_processor_is_not_silent(hosted, monkeypatch):
    """It could run and does not: so the machine is too busy. Once it sleeps, patience counts from there."""
    looks = [("R", 5)] * 30

    def looked(pid):
        return looks.pop() if looks else ("S", 5)

    monkeypatch.setattr("gmiflow.runtime.foreign.process.processor_ticks", looked)
    patience = dataclasses.replace(IMPATIENT, step_s=0.1, look_s=0.01)
    assert "neither answered" in failure_of_step(hosted("Odd", odd="sleeps", patience=patience)).message
    assert looks == []


class Interrupted:
    """A poller whose second look takes far longer than it should, as when the process is stopped meanwhile."""

    def __init__(self, poller, seconds):
        self.unregister, self._poll, self._looks = poller.unregister, poller.poll, iter((0.0, seconds))

    def poll(self, milliseconds):
        for seconds in self._looks:
            time.sleep(seconds)
            return []
        return self._poll(milliseconds)


def test_time_in_which_the_gmi_does_not_run_does_not_count(hosted, monkeypatch):
    """Ctrl-Z in the terminal of a run stops both; a machine may be suspended."""
    simulator = hosted(patience=dataclasses.replace(IMPATIENT, step_s=0.2, look_s=0.05))
    monkeypatch.setattr(simulator._host, "_poller", Interrupted(simulator._host._poller, 0.4))
    assert simulator.step(ACTION)["reward"].shape == (NUM_ENV,)


def test_what_it_prints_goes_to_the_log_of_the_gmi(hosted, capfd):
    simulator = hosted("Odd", odd="talks")
    simulator.step(ACTION)
    simulator.close()  # has passed everything on; reading while it writes would lose what comes between the two
    assert "a word\nanother\n" in capfd.readouterr().err


def test_the_class_is_closed_and_the_process_ends(hosted, tmp_path):
    simulator = hosted("Odd", odd="nothing", closed=str(tmp_path / "closed"))
    host = identity_of(simulator)
    simulator.close()
    simulator.close()
    assert (tmp_path / "closed").read_text() == "closed"
    assert not host.alive


def test_a_close_that_fails_ends_the_process_all_the_same(python):
    simulator = set_up(python, "Odd", odd="close")
    host = identity_of(simulator)
    with pytest.raises(GMIError, match="sim raised OSError: cannot close"):
        simulator.close()
    assert not host.alive


def test_a_close_that_never_comes_back_is_ended(python):
    simulator = set_up(python, "Odd", odd="lingers", patience=dataclasses.replace(IMPATIENT, close_s=0.3))
    host = identity_of(simulator)
    with pytest.raises(GMIError, match=r"the interpreter of sim did not answer for .* during `close`"):
        simulator.close()
    assert not host.alive


def test_what_the_class_started_ends_with_it(hosted):
    simulator = hosted("Odd", odd="child")
    (child,) = descendants(identity_of(simulator).pid)
    started = ProcessIdentity.of(child)
    simulator.close()
    assert started is not None and wait_until(lambda: not started.alive, PATIENCE_S)


def test_a_simulator_that_nobody_closes_leaves_no_process(python):
    simulator = set_up(python)
    host = identity_of(simulator)
    del simulator
    gc.collect()
    assert not host.alive


def set_up_and_wait(python, connection):
    simulator = set_up(python)
    connection.send(identity_of(simulator).pid)
    time.sleep(600)


def test_the_host_dies_with_the_process_that_started_it(python):
    context = multiprocessing.get_context("fork")  # as the fork server does it
    ours, theirs = context.Pipe()
    parent = context.Process(target=set_up_and_wait, args=(python, theirs))
    parent.start()
    host = ProcessIdentity.of(ours.recv())
    parent.kill()
    parent.join()
    assert host is not None and wait_until(lambda: not host.alive, PATIENCE_S)


def test_no_memory_and_no_descriptor_is_left(python):
    def look():
        links = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        return {str(link) for link in links}

    before = look()
    simulator = set_up(python)
    memory = [link for link in look() if "gmiflow-sim" in link]
    assert memory and all(link.startswith("/memfd:") for link in memory)  # it has no name that could be left
    simulator.close()
    del simulator  # its tensors keep the memory
    gc.collect()
    assert not look() - before
