"""What a log says of a problem: no frames of the runtime, and none at all where it explains itself."""

import pytest

from gmiflow.runtime.failure import GMIError, error
from gmiflow.runtime.traceback_text import concise


def raised(code: str, filename: str) -> Exception:
    """The exception of a piece of code that was compiled under a file name."""
    with pytest.raises(Exception) as found:
        exec(compile(code, filename, "exec"), {"error": error})
    # Without this test's own frame, which is nobody's.
    return found.value.with_traceback(found.value.__traceback__ and found.value.__traceback__.tb_next)


def inside(name: str) -> str:
    """A file of gmiflow."""
    return str(GMIError.__init__.__code__.co_filename).replace("failure.py", name)


def test_a_failure_that_the_runtime_explains_has_no_traceback() -> None:
    problem = raised("raise error('E0707', 'it is damaged', 'take another')", inside("checkpoint.py"))
    assert concise(problem) == "E0707: it is damaged\ntake another"


def test_code_of_the_user_behind_a_failure_is_shown() -> None:
    code = "try:\n    1 / 0\nexcept ZeroDivisionError as zero:\n    raise error('E0709', 'no stage') from zero"
    text = concise(raised(code, "/home/me/pendulum.py"))
    assert 'File "/home/me/pendulum.py", line 2' in text and "ZeroDivisionError" in text


def test_any_other_exception_has_its_traceback() -> None:
    assert "Traceback" in concise(raised("1 / 0", inside("core.py")))
