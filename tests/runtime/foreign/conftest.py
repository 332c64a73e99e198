import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # for `plans` and what else the runtime's tests share


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """An interpreter without gmiflow; GMIFLOW_TEST_PYTHON names another one, for example of Python 3.8."""
    from foreign_support import make_interpreter

    given = os.environ.get("GMIFLOW_TEST_PYTHON")
    return Path(given) if given else make_interpreter(tmp_path_factory.mktemp("interpreter") / "venv")


@pytest.fixture
def hosted(python):
    """Sets simulators up in that interpreter; they are closed after the test."""
    from foreign_support import set_up

    made = []

    def make(name="PointMass", **options):
        made.append(set_up(python, name, **options))
        return made[-1]

    yield make
    for simulator in made:
        simulator.close()
