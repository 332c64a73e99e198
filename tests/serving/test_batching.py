"""Batches and latencies."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE_S

from gmiflow.serving.batching import Batcher, Request
from gmiflow.serving.statistics import Latencies


def test_batches_are_what_waited_in_order_of_arrival():
    batches, delivered, gate, taken = [], [], threading.Event(), threading.Event()

    def answer(rows):
        taken.set()
        gate.wait(PATIENCE_S)
        batches.append(len(rows))
        return rows * 2

    batcher = Batcher([answer], batch_rows=8, deliver=delivered.extend)
    requests = [Request(np.full((rows, 1), rows, np.float32), None, rows) for rows in (1, 3, 4, 1, 9, 2)]
    batcher.put(requests[0])
    taken.wait(PATIENCE_S)
    for request in requests[1:]:
        batcher.put(request)
    assert batcher.waiting_rows == 19
    gate.set()
    batcher.close()
    # 3 + 4 + 1 fill a batch of 8; 9 rows are more than a batch and go alone.
    assert batches == [1, 8, 9, 2]
    assert [request.number for request, _ in delivered] == [1, 3, 4, 1, 9, 2]
    assert all(np.array_equal(result, 2 * request.observations) for request, result in delivered)
    totals = batcher.totals()
    assert (totals.requests, totals.rows, totals.batches) == ((6,), (20,), (4,))


def test_a_failure_is_that_of_its_batch_only():
    delivered = []

    def answer(rows):
        if rows[0, 0] < 0:
            raise ValueError("negative")
        return rows

    batcher = Batcher([answer], batch_rows=1, deliver=delivered.extend)
    for value in (1.0, -1.0, 2.0):
        batcher.put(Request(np.full((1, 1), value, np.float32), None, 0))
    batcher.close()
    assert [isinstance(result, ValueError) for _, result in delivered] == [False, True, False]


@given(st.lists(st.floats(2e-6, 50.0), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_are_right_within_a_bucket(seconds, part):
    latencies = Latencies()
    for value in seconds:
        latencies.add(value)
    exact = float(np.quantile(seconds, part, method="inverted_cdf"))
    assert latencies.quantile_s(part) == pytest.approx(exact, rel=0.024)
    assert latencies.summary_ms()["max"] == pytest.approx(1e3 * max(seconds), abs=1e-3)


def test_nothing_counted_has_no_quantiles():
    assert Latencies().summary_ms() == {"p50": None, "p95": None, "p99": None, "max": None}


def test_the_client_needs_no_torch():
    code = "import sys, gmiflow.serving; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
