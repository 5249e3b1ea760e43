"""The table in shared memory, also with its process killed at every single write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tenure.worker.counts import NAMES, Counts
from tenure.worker.table import FREE, HELD, LOST, SETTLED, SETTLING, Lease, Table, tag_of
from tests.unit.worker_fakes import receipt

DONE, RETRIED = NAMES.index("done"), NAMES.index("retried")


class Killed(BaseException):
    pass


class Fuse:
    """Lets `left` writes through and then ends the process, as SIGKILL does."""

    def __init__(self, left: int) -> None:
        self.left = left

    def burn(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class Watched:
    """A view of the memory whose writes burn a fuse."""

    def __init__(self, view: memoryview, fuse: Fuse) -> None:
        self._view = view
        self._fuse = fuse

    def __getitem__(self, place: Any) -> Any:
        return self._view[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._fuse.burn()
        self._view[place] = value

    def release(self) -> None:
        self._view.release()


def put_fuse(table: Table, left: int) -> Fuse:
    fuse = Fuse(left)
    for name in ("_bytes", "_words", "_reals"):
        setattr(table, name, Watched(getattr(table, name), fuse))
    return fuse


def hold(table: Table, number: int = 1, job: int = 0, deadline: float = 1030.0) -> int:
    place = table.hold(receipt(number, job), deadline, 30.0)
    assert place is not None
    return place


def test_both_sides_see_the_same_entries_and_counts() -> None:
    table = Table.create(2)
    seen = Table.attach(table.fd)
    place = hold(table)
    (entry,) = seen.entries()
    assert (entry.receipt, entry.stage, entry.deadline) == (receipt(), HELD, 1030.0)
    table.settling(place, "done")
    assert seen.unanswered() == [receipt()]
    table.settled(place, DONE, added=2)
    assert list(seen.entries()) == []
    assert seen.counts() == Counts(done=1, added=2)
    seen.fd = -1
    seen.close()
    table.close()


def test_memory_of_something_else_is_refused() -> None:
    table = Table.create(1)
    table._words[0] = 1
    with pytest.raises(ValueError, match="no table"):
        Table.attach(table.fd)


def test_a_receipt_that_is_here_is_not_entered_twice() -> None:
    table = Table.create(2, shared=False)
    place = hold(table)
    assert table.hold(receipt(), 1030.0, 30.0) is None
    table.settling(place, "done")
    assert table.hold(receipt(), 1030.0, 30.0) is None
    table.settled(place, DONE)
    assert table.hold(receipt(), 1030.0, 30.0) is not None
    assert table.hold(receipt(2), 1030.0, 30.0) is not None


def test_nothing_is_entered_when_there_is_no_room() -> None:
    table = Table.create(1, backlog=1, shared=False)
    hold(table, 1)
    hold(table, 2)
    assert table.room() == 0
    assert table.hold(receipt(3), 1030.0, 30.0) is None


def test_a_dropped_delivery_leaves_no_trace() -> None:
    table = Table.create(1, shared=False)
    table.drop(hold(table))
    assert list(table.entries()) == []
    assert table.counts() == Counts()
    assert table.hold(receipt(), 1030.0, 30.0) is not None


def test_functions_begun_are_counted_by_lane() -> None:
    table = Table.create(20, shared=False)
    for lane in (0, 19, 19):
        table.begin(lane)
    assert table.counts().started == 3
    assert list(table.entries()) == []


def test_an_extended_deadline_is_seen_and_never_shortens_the_own_one() -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    (entry,) = table.entries()
    table.extend(entry, 1050.0)
    assert lease.deadline() == 1050.0
    table.extend(entry, 1010.0)
    assert lease.deadline() == 1030.0


def test_a_lost_lease_is_told_at_once() -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    (entry,) = table.entries()
    table.lose(entry)
    assert lease.deadline() is None
    assert [entry.deadline for entry in table.entries()] == [LOST]


def test_an_answer_for_a_receipt_that_has_gone_moves_nothing() -> None:
    table = Table.create(1, shared=False)
    place = hold(table, 1)
    (entry,) = table.entries()
    table.drop(place)
    assert hold(table, 2) == place
    table.extend(entry, 9999.0)
    assert Lease(table, place, receipt(2)).deadline() == 1030.0


def test_a_lease_that_is_asked_after_its_end_is_lost() -> None:
    table = Table.create(1, shared=False)
    place = hold(table, 1)
    lease = Lease(table, place, receipt(1))
    table.drop(place)
    hold(table, 2)
    assert lease.deadline() is None


def test_tags_differ_for_every_hand_out_and_are_never_zero() -> None:
    tags = {tag_of(receipt(number, job)) for number in range(1, 200) for job in range(20)}
    assert len(tags) == 199 * 20
    assert 0 not in tags


@pytest.mark.parametrize("writes", range(4))
def test_the_supervisor_interrupted_while_extending_leaves_the_own_deadline_or_the_new_one(writes: int) -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    (entry,) = table.entries()
    table.extend(entry, 1040.0)
    put_fuse(table, writes)
    if writes < 3:
        with pytest.raises(Killed):
            table.extend(entry, 1050.0)
    else:
        table.extend(entry, 1050.0)
    assert lease.deadline() == (1040.0, 1030.0, 1030.0, 1050.0)[writes]


def life(table: Table, answered: Callable[[], None]) -> None:
    """Two jobs after one another, each from its hold to its counted answer; `answered`: the broker has answered."""
    first = hold(table, 1)
    table.begin(0)
    table.settling(first, "done")
    answered()
    table.settled(first, DONE, added=3)
    second = hold(table, 2)
    table.settling(second, "retry")
    answered()
    table.settled(second, RETRIED, added=1)


def writes_of_a_life() -> int:
    table = Table.create(1, shared=False)
    fuse = put_fuse(table, 10_000)
    life(table, lambda: None)
    return 10_000 - fuse.left


@pytest.mark.parametrize("writes", range(writes_of_a_life() + 1))
def test_a_process_killed_at_any_write_leaves_a_table_that_counts_exactly(writes: int) -> None:
    table = Table.create(1)
    supervisor = Table.attach(table.fd)
    put_fuse(table, writes)
    answers: list[int] = []
    with suppress(Killed):
        life(table, lambda: answers.append(1))
    unanswered = supervisor.unanswered()
    counts = supervisor.recover()
    # What the broker has taken is counted, or will be told by the answer to the bye: each exactly once.
    told = counts.done + counts.retried
    assert told + len(unanswered) in (len(answers), len(answers) + 1)
    assert told <= len(answers)
    assert told + len(unanswered) >= len(answers)
    assert counts.added == (0, 3, 4)[told]
    assert supervisor.recover() == counts
    assert all(entry.stage in (HELD, SETTLING) for entry in supervisor.entries())
    seen_bytes = supervisor._bytes
    first = supervisor._entries * 8
    assert seen_bytes[first] in (FREE, HELD, SETTLING)


def test_an_answer_found_half_counted_is_counted_once() -> None:
    table = Table.create(1)
    place = hold(table)
    table.settling(place, "done")
    put_fuse(table, 4)  # which counter, both targets, SETTLED
    with pytest.raises(Killed):
        table.settled(place, DONE, added=1)
    supervisor = Table.attach(table.fd)
    assert supervisor._bytes[supervisor._entries * 8 + place * 128] == SETTLED
    assert supervisor.unanswered() == []
    assert supervisor.recover() == Counts(done=1, added=1)
