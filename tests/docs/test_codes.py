"""The registry of codes agrees with the runtime's own table, and numbers are used once per family."""

import re

from gmiflow.codes import TITLES
from gmiflow.runtime.failure import CODES


def test_run_time_codes_are_those_of_the_runtime():
    assert {code: title for code, title in TITLES.items() if code.startswith("E07")} == CODES


def test_codes_are_in_order_and_titles_are_phrases():
    codes = list(TITLES)
    assert codes == sorted(codes)
    assert all(re.fullmatch(r"E0[1-7]\d\d|W0\d\d\d", code) for code in codes)
    assert all(title and not title.endswith(".") for title in TITLES.values())
    assert len(set(TITLES.values())) == len(TITLES)
