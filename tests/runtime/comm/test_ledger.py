"""The ledger of asynchronous updates: the bound on staleness holds whatever happens when, and nobody waits for good."""

import os
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmiflow.runtime.comm.channel.ledger import Ledger
from gmiflow.runtime.failure import GMIError

SLOTS = 3


class Trainers:
    """The ledgers of trainers 10, 11, ..., each of which takes rollouts in order."""

    def __init__(self, count: int, staleness: int, *, limit: int = 10**6, gate: int = 10**6) -> None:
        path = f"gmiflow-{os.getpid()}-{uuid.uuid4().hex[:12]}-ledger"
        ids = tuple(10 + index for index in range(count))
        self.ledgers = [Ledger("train", path, ids, slots=SLOTS, max_staleness=staleness, timeout_s=60.0) for _ in ids]
        self.ledgers[0].open(limit, gate)
        for gmi, ledger in zip(ids, self.ledgers, strict=True):
            ledger.join(gmi)
        self.begun: list[list[int]] = [[] for _ in ids]  # version at the beginning, of what is under way
        self.made = [0] * count
        self.lags: list[int] = []

    def begin(self, index: int) -> bool:
        """Begin the next rollout of a trainer if there is a slot and the ledger lets it."""
        if len(self.begun[index]) == SLOTS:
            return False
        version = self.ledgers[index].version
        started = self.ledgers[0].begin(10 + index, self.made[index])
        if started:
            self.made[index] += 1
            self.begun[index].append(version)
        return started

    def apply(self, index: int) -> bool:
        """Apply the oldest rollout of a trainer if the ledger lets it."""
        if not self.begun[index]:
            return False
        with self.ledgers[index].applying() as version:
            if version is None:
                return False
            self.lags.append(version - self.begun[index].pop(0))
        return True

    def close(self) -> None:
        for ledger in self.ledgers:
            ledger.close()


@pytest.fixture
def trainers():
    made = []

    def make(*args, **kwargs):
        made.append(Trainers(*args, **kwargs))
        return made[-1]

    yield make
    for item in made:
        item.close()


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 4),
    staleness=st.integers(0, 6),
    events=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=80),
)
def test_the_lag_never_exceeds_its_bound_and_something_can_always_happen(count, staleness, events):
    group = Trainers(count, staleness)
    try:
        for beginning, index in events:
            (group.begin if beginning else group.apply)(index % count)
            assert sum(map(len, group.begun)) <= staleness + 1
        # Whatever is under way, its trainers can apply it, all of it, with nothing new.
        while any(group.begun):
            assert any([group.apply(index) for index in range(count)])
        assert any(group.begin(index) for index in range(count))
        assert max(group.lags, default=0) <= staleness
    finally:
        group.close()


def test_trainers_pass_each_other_as_far_as_the_bound_allows(trainers):
    group = trainers(2, 3)
    assert group.begin(0) and group.begin(1)
    # Trainer 11 holds version 0 with deadline 3: the other may apply versions 0, 1 and 2 before it.
    for _ in range(3):
        assert group.apply(0) and group.begin(0)
    assert not group.apply(0)
    assert group.apply(1)
    assert group.apply(0)
    assert group.lags == [0, 0, 0, 3, 1]


def test_without_staleness_the_trainers_take_turns(trainers):
    group = trainers(3, 0)
    order = []
    for _ in range(7):
        index = next(index for index in (2, 1, 0) if group.begin(index))
        assert not any(group.begin(other) for other in range(3))
        assert group.apply(index)
        order.append(index)
    assert order == [0, 1, 2, 0, 1, 2, 0]
    assert set(group.lags) == {0}


def test_a_place_is_kept_for_a_trainer_that_has_nothing_under_way(trainers):
    group = trainers(2, 2)
    assert group.begin(0) and group.begin(0)
    assert not group.begin(0)  # the third place is for the other
    assert group.begin(1)
    assert not group.begin(1)


def test_agents_of_one_trainer_begin_one_rollout(trainers):
    group = trainers(2, 1)
    ledger = group.ledgers[1]
    assert ledger.begin(10, 0) and ledger.begin(10, 0)
    assert ledger.begin(11, 0)
    assert not ledger.begin(10, 1)


def test_nothing_begins_beyond_the_gate_or_the_limit(trainers):
    group = trainers(2, 5, limit=3, gate=1)
    assert [group.begin(0), group.begin(0)] == [True, False]
    group.ledgers[0].open_gate(7)
    assert [group.begin(0), group.begin(0), group.begin(0)] == [True, True, False]
    assert group.ledgers[1].limit == 3


def test_a_stop_lets_every_trainer_come_to_the_same_number(trainers):
    group = trainers(2, 5)
    assert all(group.begin(index) for index in (0, 1, 0))
    group.ledgers[1].stop()
    assert (group.ledgers[0].limit, group.ledgers[0].stopped) == (2, True)
    assert not group.begin(0)
    assert group.begin(1)
    assert not group.begin(1)


def test_a_trainer_that_left_is_named_to_those_that_wait_for_it(trainers):
    group = trainers(2, 5)
    assert group.begin(0)
    group.ledgers[1].look(0.0)
    group.ledgers[0]._own.leave()
    with pytest.raises(GMIError, match="GMI 10 left while the shared parameters of train waited for it"):
        group.ledgers[1].look(0.0)
