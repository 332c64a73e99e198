"""Children of a benchmark: how they end, and what is said then."""

import math
import os
import sys
import time

import pytest
from waiting import until

from gmiflow.bench.child import ChildError, OutOfTime, Tail, execute

PROGRAM = """
import os, pathlib, signal, sys, time
how = sys.argv[1]
print("said on stdout")
if how == "fail":
    print("the reason", file=sys.stderr)
    sys.exit(3)
if how == "until":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
if how == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if how == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
pathlib.Path("pid.new").write_text(str(os.getpid()))
pathlib.Path("pid.new").rename("pid")
pathlib.Path("ready").touch()
while how != "end":
    time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bench_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(folder, how, limit_s=60.0, deadline=math.inf, enough=lambda: False):
    return execute(["bench_program", how], folder, "child", limit_s=limit_s, deadline=deadline, enough=enough)


def until_ready(folder):
    """Never enough, but looked at only once the child is ready: what ends it comes after that."""

    def look():
        until((folder / "ready").exists, "the child")
        return False

    return look


def is_gone(folder):
    """Whether the child has ended; on a busy machine its time may be over before it could tell its number."""
    if not (folder / "pid").exists():
        return True
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_a_child_that_ends_leaves_its_words_in_files(folder):
    assert run(folder, "end") > 0.0
    assert (folder / "child.out").read_text() == "said on stdout\n"


def test_a_child_that_fails_is_quoted(folder):
    with pytest.raises(ChildError, match="exit status 3: the reason"):
        run(folder, "fail")


def test_enough_stops_it_in_order(folder):
    run(folder, "until", enough=(folder / "ready").exists)
    assert is_gone(folder)


def test_one_that_no_longer_listens_is_stopped_in_order_too(folder):
    """While Python ends its handlers are gone: the signal ends the process, whose work is done."""
    run(folder, "deaf", enough=(folder / "ready").exists)
    assert is_gone(folder)


def test_a_child_that_takes_too_long_is_ended(folder, monkeypatch):
    monkeypatch.setattr("gmiflow.bench.child.CUT_OFF_PATIENCE_S", 0.2)
    with pytest.raises(ChildError, match="not ready after 1 s"):
        run(folder, "stubborn", limit_s=1.0, enough=until_ready(folder))
    assert is_gone(folder)


def test_the_budget_ends_it_too(folder):
    with pytest.raises(OutOfTime):
        run(folder, "until", deadline=time.monotonic() + 0.5, enough=until_ready(folder))
    assert is_gone(folder)


def test_a_tail_gives_whole_lines_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail() == []
    path.write_text('{"a": 1}\n{"a"')
    assert tail() == [{"a": 1}]
    with path.open("a") as file:
        file.write(": 2}\n")
    assert (tail(), tail()) == ([{"a": 2}], [])


def test_the_child_s_python_is_this_one(folder):
    (folder / "bench_who.py").write_text("import sys; print(sys.executable)")
    execute(["bench_who"], folder, "who", limit_s=60.0, deadline=math.inf)
    assert (folder / "who.out").read_text().strip() == sys.executable
