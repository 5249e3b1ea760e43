"""How many jobs a process may take: as many as slots are free, and of very short ones a few more."""

from __future__ import annotations

import threading

import pytest

from tenure.worker.admission import LONG, Admission
from tenure.worker.room import ASYNC, NO_ROOM, SYNC, Room
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, receipt


class Rig:
    """Two slots, and what may be in hand as the test says it."""

    def __init__(self, *, queues: dict[str, frozenset[int]] | None = None, alone: bool = False) -> None:
        self.clock = HandClock()
        self.table = Table.create(2, shared=False)
        self.draining = threading.Event()
        self.given_back: list[int] = []
        self.admission = Admission(
            (2, 2), queues or {}, self.table, self.clock, self.draining, self._put_back, alone,
        )  # fmt: skip

    def _put_back(self, count: int) -> None:
        self.given_back.append(count)
        for _ in range(count):
            self.admission.freed(SYNC)

    def pace(self, jobs: int, seconds: float = 0.0) -> None:
        """Have so many functions end within a moment."""
        self.admission._hand.size(self.clock.now)
        for _ in range(jobs):
            self.admission.ended(receipt(), seconds)
        self.clock.now += 0.025

    def took(self, jobs: int) -> None:
        for _ in range(jobs):
            self.admission.took(SYNC)

    def freed(self, jobs: int) -> None:
        for _ in range(jobs):
            self.admission.freed(SYNC)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_without_a_pace_there_is_room_for_free_slots_only(rig: Rig) -> None:
    assert rig.admission.room() == Room(2)
    rig.took(1)
    assert rig.admission.room() == Room(1)


def test_after_very_short_jobs_there_is_room_for_more(rig: Rig) -> None:
    rig.pace(63)
    assert rig.admission.room() == Room(2 + 10, parks=False)


def test_a_take_that_waits_at_the_broker_is_for_free_slots_only(rig: Rig) -> None:
    rig.pace(63)
    assert not rig.admission.room().parks
    assert rig.admission.room() == Room(2), "nothing has come: what comes later may take long"
    rig.took(1)
    rig.freed(1)
    rig.admission._collect()
    assert rig.admission.room() == Room(2 + 10, parks=False), "jobs come again"


def test_after_jobs_that_took_a_while_there_is_not(rig: Rig) -> None:
    rig.pace(63, LONG)
    rig.clock.on_wait = rig.draining.set  # else the room of slots whose ends were not answered is waited for
    assert rig.admission.room().limit <= 2


def test_more_is_asked_for_once_half_of_it_is_used_and_not_waited_for_at_the_broker(rig: Rig) -> None:
    rig.pace(63)
    rig.took(12)
    rig.freed(4)
    assert rig.admission.room() == NO_ROOM, "six of ten are in hand: it waits for one more to end, in vain"
    rig.admission._collect()
    rig.took(10)
    rig.freed(5)
    assert rig.admission.room() == Room(5, parks=False)


def test_an_empty_answer_is_not_asked_for_again_while_there_is_work_in_hand(rig: Rig) -> None:
    rig.pace(63)
    rig.took(7)
    assert rig.admission.room() == Room(5, parks=False)
    rig.freed(4)
    assert rig.admission.room() == NO_ROOM
    rig.admission._collect()
    rig.freed(1)
    assert rig.admission.room() == Room(1), "nothing waits here any more: the next take may wait at the broker"


def test_what_does_not_come_to_its_start_goes_back(rig: Rig) -> None:
    rig.pace(63)
    rig.took(12)
    assert rig.admission.room() == NO_ROOM
    assert rig.given_back == [10]
    assert rig.admission.slots.in_hand == 10, "until the next look"
    rig.admission._collect()
    assert rig.admission.slots.in_hand == 0


def test_nothing_is_in_hand_where_one_job_runs_at_a_time() -> None:
    rig = Rig(alone=True)
    rig.pace(1000)
    assert rig.admission.room() == Room(2)


def test_nothing_is_in_hand_where_coroutines_are_taken_too() -> None:
    rig = Rig(queues={"a": frozenset({SYNC}), "b": frozenset({ASYNC})})
    rig.pace(1000)
    assert rig.admission.room() == Room(2)


def test_nothing_is_in_hand_while_another_process_still_needs_slots(rig: Rig) -> None:
    rig.table.lend(1)
    rig.pace(1000)
    assert rig.admission.room() == Room(2)


def test_the_table_bounds_what_is_in_hand(rig: Rig) -> None:
    rig.pace(1000)
    for number in range(508):
        rig.table.hold(receipt(number), 2000.0, 30.0, SYNC)
    assert rig.admission.room() == Room(6, parks=False)


def test_a_worker_that_leaves_takes_nothing(rig: Rig) -> None:
    rig.pace(1000)
    rig.draining.set()
    assert rig.admission.room() == NO_ROOM
