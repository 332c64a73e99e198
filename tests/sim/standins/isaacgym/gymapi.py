"""Stand-in for Isaac Gym's native module: simulations that exist until they are destroyed."""


class Sim:
    """An opaque handle."""


class Gym:
    """Makes and destroys simulations."""

    def create_sim(self):
        """A new simulation."""
        return Sim()

    def destroy_sim(self, sim):
        """Say so on the standard output, as a test wants to see it."""
        assert isinstance(sim, Sim)
        print("simulation destroyed", flush=True)


def acquire_gym():
    """The library's only object."""
    return Gym()
