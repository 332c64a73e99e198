import os
import uuid

import leftovers
import pytest


@pytest.fixture
def mark(monkeypatch, tmp_path):
    """Marks all processes started by the test, and checks at its end that none is left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftovers.MARK, value)
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    yield value
    assert leftovers.wait_for_none(value) == []
    assert leftovers.files(os.getpid()) == []
