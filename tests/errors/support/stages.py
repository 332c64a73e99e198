"""Stage classes that the error tests name; never imported."""

from gmiflow.api import Simulator


class Sim(Simulator):
    """Accepts one parameter."""

    PARAMS = ("speed",)


class NeedsPath(Simulator):
    """Cannot be constructed by the runtime."""

    def __init__(self, path):
        self.path = path
