"""The process that hosts a simulator, seen from its GMI: start, signals, messages, its end however it comes.

The host stays in the process group of the GMI, so whoever ends a GMI's group ends it and what it started. It dies
with the GMI that started it (`shim.die_with_parent`), and a GMI that goes on without it ends what it started too.
All shared memory is anonymous: the kernel frees it with its last user.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from gmiflow.runtime.failure import (
    ENTRY_UNUSABLE,
    INTERPRETER_LOST,
    INTERPRETER_UNUSABLE,
    PORT_MISMATCH,
    STAGE_RAISED,
    GMIError,
    error,
)
from gmiflow.runtime.foreign import shim
from gmiflow.runtime.foreign.family import MARK, descendants, marked
from gmiflow.runtime.linux import RUNNABLE, processor_ticks
from gmiflow.runtime.members import ending, was

Arrays = dict[str, np.ndarray[Any, Any]]

_KEPT_LINES = 20
_LAST_WORDS_S = 5.0  # for what an ended host wrote to get through; over at once unless something holds its output open
_SHIM = str(Path(shim.__file__))


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a host may do nothing: neither answer nor use processor time, its descendants included.

    Attributes:
        start_s: while it starts, imports the class and sets it up: files and licences may be fetched.
        step_s: afterwards.
        look_s: how often it is looked at.
        close_s: how long it may take to close the simulator, computing or not, and to end then.
    """

    start_s: float = 120.0
    step_s: float = 10.0
    look_s: float = 1.0
    close_s: float = 10.0


class HostProcess:
    """One interpreter that hosts one simulator.

    Attributes:
        memory: what both sides map, `shim.HEADER_BYTES` until `grow`.
        version: of the interpreter, once it is known.
    """

    def __init__(self, stage: str, python: Path, environment: Mapping[str, str], patience: Patience) -> None:
        """Start it; returns before it is ready.

        Args:
            stage: for messages.
            python: the interpreter.
            environment: its variables.
            patience: how long it may be silent.

        Raises:
            GMIError: E0717 when it cannot be executed.
        """
        self.version = ""
        self._stage, self._python, self._patience = stage, python, patience
        self._mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._idle_s = patience.start_s
        self._busy = self._closing = False
        self._file = os.memfd_create(f"gmiflow-{stage}", os.MFD_CLOEXEC)
        os.ftruncate(self._file, shim.HEADER_BYTES)
        self.memory = mmap.mmap(self._file, shim.HEADER_BYTES)
        self._words = memoryview(self.memory).cast("q")
        self._request, self._reply = os.eventfd(0, os.EFD_CLOEXEC), os.eventfd(0, os.EFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        self._channel = shim.Channel(ours)
        try:
            self._process = self._start(theirs, environment)
        except OSError as problem:
            self._release()
            raise error(INTERPRETER_UNUSABLE, f"{python} cannot be executed: {problem.strerror}") from problem
        finally:
            theirs.close()
        self._descriptor = os.pidfd_open(self._process.pid)
        self._poller = select.poll()
        self._poller.register(self._reply, select.POLLIN)
        self._poller.register(self._descriptor, select.POLLIN)
        self._reader = Thread(target=self._forward, name=f"output of {stage}", daemon=True)
        self._reader.start()

    def _start(self, theirs: socket.socket, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        passed = (theirs.fileno(), self._request, self._reply, self._file)
        return subprocess.Popen(
            [str(self._python), "-u", "-c", shim.BOOT, _SHIM, str(os.getpid()), *map(str, passed)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=passed,
            env={**environment, MARK: self._mark},
        )

    def grow(self, size: int) -> None:
        """Give the memory ``size`` bytes, before the host maps the ports."""
        os.ftruncate(self._file, size)
        self._words.release()
        self.memory = mmap.mmap(self._file, size)
        self._words = memoryview(self.memory).cast("q")

    def started(self) -> None:
        """The simulator is set up: from now on silence is judged as that of a step."""
        self._idle_s = self._patience.step_s

    def step(self) -> None:
        """One step: the inputs are in the memory before, the outputs after it.

        Raises:
            GMIError: E0701 when the class raised, E0708, E0718.
        """
        self._words[shim.REQUEST] = shim.STEP
        self._busy = True
        os.write(self._request, shim.ADD_ONE)
        self._wait("a step")
        if self._words[shim.REPLY] != shim.DONE:
            self._read_answer("a step")

    def call(self, name: str, arrays: Arrays | None = None, **header: object) -> tuple[dict[str, Any], Arrays]:
        """One of the rare calls; the answer.

        Args:
            name: method of `shim.Host`, without the underscore.
            arrays: sent along.
            header: its other arguments, as JSON has them.

        Raises:
            GMIError: E0701, E0708, E0709, E0717, E0718.
        """
        doing = f"`{name}`"
        self._words[shim.REQUEST] = shim.MESSAGE
        self._busy = True
        os.write(self._request, shim.ADD_ONE)
        try:
            self._channel.send({"call": name, **header}, arrays)
        except OSError as problem:
            raise self._lost(doing) from problem
        self._wait(doing)
        return self._read_answer(doing)

    def _read_answer(self, doing: str) -> tuple[dict[str, Any], Arrays]:
        try:
            header, arrays = self._channel.receive()
        except (EOFError, OSError) as problem:
            raise self._lost(doing) from problem
        if "failed" in header:
            raise self._failure(header["failed"], header["message"], header["traceback"])
        return header, arrays

    def _wait(self, doing: str) -> None:
        """Return when the host has answered."""
        events = self._poller.poll(self._patience.look_s * 1000)
        if not events:
            events = self._wait_long(doing)
        if all(descriptor != self._reply for descriptor, _ in events):
            raise self._lost(doing)
        os.read(self._reply, 8)
        self._busy = False

    def _wait_long(self, doing: str) -> list[tuple[int, int]]:
        """As `_wait`, while looking whether the host does anything."""
        (_, ticks), idle_s = self._work(), self._patience.look_s
        while not (events := self._poller.poll(self._patience.look_s * 1000)):
            starved, used = self._work()
            if (starved or used != ticks) and not self._closing:
                ticks, idle_s = used, 0.0
                continue
            idle_s += self._patience.look_s  # not by the clock: while this process is stopped, so is the host
            if idle_s >= self._idle_s:
                raise self._silent(doing, idle_s)
        return events

    def _work(self) -> tuple[bool, int]:
        """Whether the host, or what it started, would run if it got a processor; its processor time in clock ticks."""
        looked = [processor_ticks(pid) for pid in (self._process.pid, *descendants(self._process.pid))]
        found = [each for each in looked if each is not None]
        return any(state == RUNNABLE for state, _ in found), sum(ticks for _, ticks in found)

    def _silent(self, doing: str, idle_s: float) -> GMIError:
        looked = processor_ticks(self._process.pid)
        stopped = looked is not None and looked[0] in "Tt"
        idle = "did not answer" if self._closing else "neither answered nor used any processor time"
        state = "is stopped" if stopped else idle
        message = f"the interpreter of {self._stage} {state} for {idle_s:.0f} s during {doing}"
        return error(INTERPRETER_LOST, message, *self._facts())

    def _lost(self, doing: str) -> GMIError:
        """The failure behind the end of the process."""
        try:
            status = self._process.wait(self._patience.close_s)
        except subprocess.TimeoutExpired:
            return self._silent(doing, self._patience.close_s)
        self._reader.join(self._patience.close_s / 5)  # its last words are on their way
        if status == shim.TOO_OLD:
            message = f"{self._python} is {' '.join(self._lines)}, and a simulator's interpreter must be 3.8 or later"
            return error(INTERPRETER_UNUSABLE, message, "give the stage another `python`")
        if status == shim.NO_NUMPY:
            mend = f"install it there: {self._python} -m pip install numpy"
            return error(INTERPRETER_UNUSABLE, f"NumPy cannot be imported in {self._python}", mend, *self._last_words())
        message = f"the interpreter of {self._stage} {was(ending(status))} during {doing}"
        return error(INTERPRETER_LOST, message, *self._facts())

    def _failure(self, kind: str, message: str, traceback: str) -> GMIError:
        """What the host tells of an exception."""
        if kind == "entry":
            where = f"modules are looked up in {self._python}, then beside the `.gmi` file and in the working directory"
            return error(ENTRY_UNUSABLE, message, where)
        if kind == "port":
            return error(PORT_MISMATCH, message)
        place = f"in {self._interpreter()}:"
        return error(STAGE_RAISED, f"{self._stage} raised {message}", place, *traceback.splitlines())

    def _facts(self) -> tuple[str, ...]:
        return (f"the interpreter is {self._interpreter()}", *self._last_words())

    def _interpreter(self) -> str:
        return f"{self._python} (Python {self.version})" if self.version else str(self._python)

    def _last_words(self) -> tuple[str, ...]:
        return ("its last output was:", *(f"  {line}" for line in self._lines)) if self._lines else ()

    def _forward(self) -> None:
        """Pass on to the GMI's log what the host writes, and keep the last lines."""
        output = self._process.stdout
        assert output is not None, "it was opened as a pipe"
        for line in output:
            with contextlib.suppress(OSError):  # a log that cannot be written must not stop the simulator
                os.write(2, line)
            self._lines.append(line.decode(errors="replace").rstrip())

    def close(self) -> None:
        """Close the simulator and end the process, by force when it does not; safe to call twice.

        Raises:
            GMIError: E0701 when the class's `close` raised; the process has ended then too.
        """
        if self._file < 0:
            return
        try:
            if not self._busy and self._process.poll() is None:
                self._idle_s, self._closing = self._patience.close_s, True
                self.call("close")
                self._process.wait(self._patience.close_s)
        except subprocess.TimeoutExpired:
            pass  # it has closed; ended below
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and what it started, at once; safe to call twice."""
        if self._file < 0:
            return
        self._process.kill()
        self._process.wait()
        for identity in marked(self._mark):  # by now nobody's children: their parent is gone
            identity.signal(signal.SIGKILL)
        self._reader.join(_LAST_WORDS_S)
        self._poller.unregister(self._descriptor)
        os.close(self._descriptor)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
        self._release()

    def _release(self) -> None:
        self._words.release()
        self._channel.connection.close()
        for descriptor in (self._request, self._reply, self._file):
            os.close(descriptor)
        self._file = -1
