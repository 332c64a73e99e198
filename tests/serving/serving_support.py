"""A policy server in this process, on a thread of its own."""

import asyncio
import threading

import numpy as np
from waiting import PATIENCE_S

from gmiflow.serving.protocol import Terms
from gmiflow.serving.server import Limits, PolicyServer

TERMS, LIMITS = Terms(3, 2, 100, 4), Limits()
TOKEN = "a token of more than sixteen characters"
WEIGHT = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


def act(observations):
    return observations @ WEIGHT


class Running:
    """A started server; `stop` ends it in order."""

    def __init__(self, folder, answers, terms, limits):
        self.path = folder / "serve.sock"
        self._loop = asyncio.new_event_loop()
        self.server = PolicyServer(answers, terms, TOKEN, limits)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.places = self.call(self.server.start(path=self.path, port=0))
        self.port = int(self.places[1].rpartition(":")[2])
        self._stopped = False

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def after(self, action):
        """Let the server's thread do something before it goes on."""
        self._loop.call_soon_threadsafe(action)

    def stop(self):
        if not self._stopped:
            self._stopped = True
            self.call(self.server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
