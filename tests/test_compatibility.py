"""Combinations of backend and collective: the known impossible ones, and the ones that must be admitted."""

import pytest

from gmiflow.compatibility import incompatibilities


@pytest.mark.parametrize(
    ("backend", "collective", "options"),
    [
        ("cpu", "ip", {"members_per_gpu": 4}),
        ("timeshare", "ip", {"members_per_gpu": 2}),
        ("timeshare", "rp", {"gpus": 4}),
        ("mps", "ipc", {"members_per_gpu": 4}),
        ("mps", "hybrid", {"members_per_gpu": 4, "gpus": 2}),
        ("mig", "ip", {"members_per_gpu": 7}),
        ("green", "local", {"members_per_gpu": 4}),
        ("green", "hybrid", {"members_per_gpu": 4, "gpus": 2}),
        ("mps", None, {"members_per_gpu": 48, "process_isolation": True, "memory_cap": True}),
        ("mps", "local", {"members_per_gpu": 1}),  # a group of one needs nothing
    ],
)
def test_combinations_that_work(backend, collective, options):
    assert incompatibilities(backend, collective, **options) == ()


@pytest.mark.parametrize(
    ("backend", "collective", "options", "words"),
    [
        ("cpu", "ipc", {"members_per_gpu": 2}, "no GPU"),
        ("mig", "ipc", {"members_per_gpu": 2}, "no CUDA IPC"),
        ("mig", "hybrid", {"members_per_gpu": 2, "gpus": 2}, "no CUDA IPC"),
        ("mps", "rp", {"members_per_gpu": 2, "gpus": 2}, "one member per GPU"),
        ("green", "ipc", {"members_per_gpu": 2}, "inside one process"),
        ("mps", "ipc", {"members_per_gpu": 2, "gpus": 2}, "inside one GPU"),
        ("mps", "local", {"members_per_gpu": 2}, "a process each"),
        ("green", "local", {"members_per_gpu": 1, "gpus": 2}, "a process each"),
        ("green", None, {"process_isolation": True}, "none survives"),
        ("green", None, {"memory_cap": True}, "none can be capped"),
        ("green", None, {"foreign_simulator": True}, "outside of the green context"),
        ("mps", None, {"members_per_gpu": 49}, "48 GMIs per GPU"),
        ("mig", None, {"members_per_gpu": 8}, "7 GMIs per GPU"),
    ],
)
def test_combinations_that_cannot_work_say_why_and_what_would(backend, collective, options, words):
    (found,) = incompatibilities(backend, collective, **options)
    assert words in found.reason
    assert found.mend


def test_several_reasons_are_all_given():
    found = incompatibilities("green", "ipc", members_per_gpu=2, process_isolation=True, memory_cap=True)
    assert len(found) == 3
