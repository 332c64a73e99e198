import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[1] / "runtime"
sys.path += [str(RUNTIME), str(RUNTIME / "foreign")]  # for `plans` and `foreign_support`


@pytest.fixture(scope="session")
def interpreters(tmp_path_factory):
    """An interpreter with NumPy alone, and one with torch and Gymnasium; GMIFLOW_TEST_PYTHON replaces the second."""
    import os

    from foreign_support import make_interpreter

    folder = tmp_path_factory.mktemp("interpreters")
    given = os.environ.get("GMIFLOW_TEST_PYTHON")
    whole = Path(given) if given else make_interpreter(folder / "whole", everything=True)
    return make_interpreter(folder / "bare"), whole
