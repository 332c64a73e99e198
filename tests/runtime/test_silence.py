"""When a GMI that says nothing counts as stalled: by its state and its processor time, not by what else is going on."""

import socket

import pytest
from plans import launch_plan, training_plan

from gmiflow.runtime.launchers.rank import Rank
from gmiflow.runtime.members import Limits, Member, judge_silence

LIMITS = Limits(silence_s=10.0, busy_silence_s=60.0)


def verdicts(*looks: tuple[float, str, int]) -> list[str | None]:
    """Of one GMI, looked at after so many seconds of silence, in that state, with so many clock ticks used."""
    (gmi,) = launch_plan(training_plan(), gmis=1).gmis
    member = Member(gmi)
    return [judge_silence(member, after, LIMITS, lambda s=state, t=ticks: (s, t)) for after, state, ticks in looks]


@pytest.mark.parametrize(("state", "said"), [("S", "gave no sign of life"), ("T", "is stopped")])
def test_who_does_nothing_is_given_up_when_patience_ends(state: str, said: str) -> None:
    assert verdicts((4.9, state, 7), (5.0, state, 7), (9.9, state, 7), (10.0, state, 7)) == [None, None, None, said]


@pytest.mark.parametrize(("state", "ticks"), [("S", 8), ("R", 7)])
def test_who_computes_or_gets_no_processor_has_more_time(state: str, ticks: int) -> None:
    """One has used a tick since it was first looked at; the other would, if the machine had a processor for it."""
    looks = [(5.0, "R", 7), (10.0, state, ticks), (59.0, state, ticks), (60.0, state, ticks)]
    assert verdicts(*looks) == [None, None, None, "gave no sign of life"]


def test_what_a_lost_rank_told_last_does_not_count_for_long() -> None:
    with socket.socket() as connection:
        rank = Rank(number=0, first=0, node="a", connection=connection, looked=("R", 7), told=100.0)
    assert [rank.look(now) for now in (104.0, 106.0)] == [("R", 7), ("S", 7)]
