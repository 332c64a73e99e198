"""Stage classes that the error tests name; never imported."""

from gmiflow.api import Simulator


class Sim(Simulator):
    """Accepts one parameter."""

    PARAMS = ("speed",)


class NeedsPath(Simulator):
    """Cannot be constructed by the runtime."""

    def __init__(self, path):
        self.path = path


class Hosted:
    """For an interpreter of its own: inherits from nothing."""

    def setup(self, context):
        self.out = context.buffers

    def reset(self):
        return self.out

    def step(self, inputs):
        return self.out
