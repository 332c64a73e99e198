"""Classes that `python_entries.gmi` names; read by the compiler and never imported."""

from gmiflow.api import Agent, Simulator


class Walker(Simulator):
    """Accepts one parameter."""

    PARAMS = ("speed",)


class Picky(Simulator):
    """Cannot be constructed without an argument."""

    def __init__(self, path):
        self.path = path


class Policy(Agent):
    """Has another role."""


Assigned = type("Assigned", (Simulator,), {})
