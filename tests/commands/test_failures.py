"""Failures of a run as they are told: the cause first, its consequences shortly."""

from pathlib import Path

from gmiflow.commands.failures import as_diagnostics
from gmiflow.runtime.events import Failure
from gmiflow.runtime.failure import RuntimeFailure


def failure(gmi, code, message):
    told = RuntimeFailure(code=code, message=message)
    log = Path(f"gmi_{gmi}.log")
    return Failure(gmi=gmi, training="train", failure=told, reason="gave up", log=log, log_tail=("Traceback", "..."))


MISSED = failure(0, "E0704", "GMI 1 died while the channel waited for it")
DIED = failure(1, "E0702", "GMI 1 was killed by SIGKILL")


def test_the_cause_comes_first_and_what_follows_from_it_is_short():
    cause, consequence = as_diagnostics([MISSED, DIED])
    assert (cause.code, consequence.code) == ("E0702", "E0704")
    assert "  Traceback" in cause.notes and consequence.notes == ("gave up", "whole log: gmi_0.log")


def test_a_consequence_alone_has_its_log():
    (alone,) = as_diagnostics([MISSED])
    assert "  Traceback" in alone.notes
