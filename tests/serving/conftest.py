"""A policy server in this process, on a thread of its own."""

import contextlib

import pytest
from serving_support import LIMITS, TERMS, Running, act


@pytest.fixture
def serve(tmp_path):
    """`serve(answers=..., terms=..., limits=...)` starts one and gives it."""
    with contextlib.ExitStack() as stack:

        def start(answers=(act,), terms=TERMS, limits=LIMITS):
            running = Running(tmp_path, answers, terms, limits)
            stack.callback(running.stop)
            return running

        yield start
