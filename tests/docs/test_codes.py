"""The registry of codes agrees with the runtime's own table, and numbers are used once per family."""

import re
from pathlib import Path

import pytest

from gmiflow.codes import TITLES
from gmiflow.plan import GMIPlan
from gmiflow.runtime import failure
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.failure import CODES, GMIError
from gmiflow.runtime.gmi.green import GreenBackend

TESTS = Path(__file__).parents[1]


def test_run_time_codes_are_those_of_the_runtime():
    assert {code: title for code, title in TITLES.items() if code.startswith("E07")} == CODES


def test_codes_are_in_order_and_titles_are_phrases():
    codes = list(TITLES)
    assert codes == sorted(codes)
    assert all(re.fullmatch(r"E0[1-7]\d\d|W0\d\d\d", code) for code in codes)
    assert all(title and not title.endswith(".") for title in TITLES.values())
    assert len(set(TITLES.values())) == len(TITLES)


def test_every_run_time_code_is_in_a_test():
    """By its number or by the name of its constant; what makes a run fail is shown where the failure arises."""
    constants = {value: name for name, value in vars(failure).items() if isinstance(value, str) and value in CODES}
    assert constants.keys() == CODES.keys()
    tests = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))
    shown = {code for code, name in constants.items() if re.search(rf"\b({code}|{name})\b", tests)}
    assert CODES.keys() - shown == set()


def test_an_unusable_checkpoint_is_E0707(tmp_path):
    with pytest.raises(GMIError) as raised:
        CheckpointReader(tmp_path)
    assert raised.value.failure.code == failure.CHECKPOINT_UNUSABLE == "E0707"


def test_a_slice_that_is_not_there_is_E0712():
    """The proof that a GMI of the `green` backend has SMs of its own, in a process that got none."""
    gmi = GMIPlan(
        id=3, training="train", program="gmi_03.py", backend="green", device=0, share=0.5, cores=1, threads=1,
        stages=("sim",), num_env=16, env_offset=0,
    )  # fmt: skip
    with pytest.raises(GMIError, match="GMI 3 has no green context") as raised:
        GreenBackend().prove(gmi)
    assert raised.value.failure.code == failure.SLICE_UNPROVEN == "E0712"
