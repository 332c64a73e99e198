"""Child processes of a benchmark: spawned, their output in a file, every answer with a time-out."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
import traceback

_SPAWN = multiprocessing.get_context("spawn")


class ChildError(Exception):
    """A child failed, died or did not answer in time."""


class Child:
    """A process that runs ``function(connection, *arguments)``, the function given as "module:name".

    The function answers with ``connection.send(...)``. Its own exceptions arrive here as `ChildError`.
    """

    def __init__(self, name, log, function, *arguments):
        """Start it; ``log`` receives what it and its libraries print."""
        self.name, self.log = name, log
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, str(log), function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, *request):
        """Ask for something."""
        try:
            self._connection.send(request)
        except OSError as problem:
            raise ChildError(f"{self.name} is gone: {self.last_words()}") from problem

    def receive(self, timeout_s):
        """The next answer.

        Raises:
            ChildError: none came within ``timeout_s`` seconds, or the child failed.
        """
        if not self._connection.poll(max(0.0, timeout_s)):
            raise ChildError(f"{self.name} gave no answer within {timeout_s:.0f} s: {self.last_words()}")
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as problem:
            raise ChildError(f"{self.name} died: {self.last_words()}") from problem
        if isinstance(answer, _Failure):
            raise ChildError(f"{self.name}: {answer.text}")
        return answer

    def ask(self, timeout_s, *request):
        """Send ``request`` and return the answer."""
        self.send(*request)
        return self.receive(timeout_s)

    def rows(self, timeout_s):
        """All answers until the child says None, within ``timeout_s`` seconds together."""
        end = time.monotonic() + timeout_s
        while (row := self.receive(end - time.monotonic())) is not None:
            yield row

    def last_words(self, characters=500):
        """The end of its log."""
        try:
            return self.log.read_text(errors="replace")[-characters:].strip()
        except OSError:
            return ""

    def close(self):
        """End it: politely, then not."""
        self._connection.close()
        self._process.join(5)
        for end in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                end()
                self._process.join(10)


class _Failure:
    def __init__(self, text):
        self.text = text


def _run(connection, log, function, arguments):
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(connection, *arguments)
    except EOFError:
        return  # the parent has closed the connection: nothing more to do
    except Exception as problem:
        traceback.print_exc()
        sys.stderr.flush()
        place = traceback.extract_tb(problem.__traceback__)[-1]
        text = f"{type(problem).__name__}: {problem} ({os.path.basename(place.filename)}:{place.lineno})"
        connection.send(_Failure(text[:1500]))
        raise SystemExit(1) from problem
