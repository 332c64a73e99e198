import shutil

import emulator
import pytest


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """Builds the emulated kernels of a group size, once per session."""
    if shutil.which("g++") is None:
        pytest.skip("the kernels of `ipc` are emulated with g++, which is not installed")
    folder = tmp_path_factory.mktemp("kernels")
    built = {}

    def get(members):
        if members not in built:
            built[members] = emulator.build(folder, members)
        return built[members]

    return get
