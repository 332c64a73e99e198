"""Failures of a run as they are told: the cause first, its consequences shortly."""

import dataclasses
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


def test_a_log_that_only_repeats_the_failure_is_left_out():
    told = RuntimeFailure(code="E0707", message="another one", notes=("`flat` is [2] there and [3] here",))
    same = ("ERROR:gmiflow.runtime.process:GMI 0 gives up", "E0707: another one", "`flat` is [2] there and [3] here")
    event = Failure(gmi=0, training="train", failure=told, reason="gave up", log=Path("a.log"), log_tail=same)
    (shown,) = as_diagnostics([event])
    assert shown.notes == ("gave up", "`flat` is [2] there and [3] here", "whole log: a.log")
    (more,) = as_diagnostics([dataclasses.replace(event, log_tail=("a last word", *same))])
    assert more.notes[2:4] == ("last lines of its log:", "  a last word")
