"""A simulator whose own environment lacks what it needs."""

import no_such_physics  # noqa: F401


class Simulator:
    pass
