"""The table in shared memory, also with its process killed at every single write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tenure.worker.counts import NAMES, Counts
from tenure.worker.lease import Lease
from tenure.worker.table import FREE, HELD, LOST, SETTLED, SETTLING, Table
from tenure.worker.wills import tag_of
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


# ------------------------------------------------------------------------------- what a function says, and asks for


def said(table: Table) -> bytes | None:
    (entry,) = table.entries()
    found = table.unsent(entry)
    return None if found is None else found[1]


def test_a_progress_is_seen_until_it_is_sent() -> None:
    table = Table.create(2, shared=False)
    place = hold(table)
    lease = Lease(table, place, receipt())
    assert said(table) is None
    lease.progress(b"one")
    (entry,) = table.entries()
    first = table.unsent(entry)
    assert first is not None
    assert first[1] == b"one"
    lease.progress(b"two")
    table.sent(entry, 1000.0, first[0])
    assert said(table) == b"two"  # what came meanwhile is not taken for sent
    second = table.unsent(entry)
    assert second is not None
    table.sent(entry, 1001.0, second[0])
    assert said(table) is None
    assert table.sent_at(entry) == 1001.0


def test_a_progress_belongs_to_its_hand_out_alone() -> None:
    table = Table.create(1, backlog=0, shared=False)
    place = hold(table)
    old = Lease(table, place, receipt())
    old.progress(b"old")
    table.drop(place)
    assert hold(table, number=2) == place
    assert said(table) is None
    old.progress(b"from a thread that was left behind")
    assert said(table) is None
    Lease(table, place, receipt(2)).progress(b"new")
    assert said(table) == b"new"


def test_a_progress_has_its_limit() -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    lease.progress(b"x" * 200)
    assert said(table) == b"x" * 200
    with pytest.raises(ValueError, match="201 bytes; the limit is 200"):
        lease.progress(b"x" * 201)


def test_a_progress_in_the_next_entry_is_not_touched() -> None:
    table = Table.create(2, backlog=0, shared=False)
    first, second = hold(table), hold(table, job=1)
    Lease(table, second, receipt(1, 1)).progress(b"y" * 200)
    Lease(table, first, receipt()).progress(b"x" * 200)
    entries = {entry.place: entry for entry in table.entries()}
    assert [table.unsent(entries[place]) for place in (first, second)] == [(2, b"x" * 200), (2, b"y" * 200)]


@pytest.mark.parametrize("left", range(6))
def test_killed_at_any_write_of_a_progress_nothing_torn_is_read_and_the_counts_are_exact(left: int) -> None:
    table = Table.create(2)
    seen = Table.attach(table.fd)
    done, place = hold(table), hold(table, job=1)
    lease = Lease(table, place, receipt(1, 1))
    lease.progress(b"before")
    table.settling(done, "done")
    table.settled(done, DONE)
    fuse = put_fuse(table, left)
    with suppress(Killed):
        lease.progress(b"after!")
    whole = fuse.left > 0 or left == 5
    assert said(seen) == (b"after!" if whole else b"before" if left == 0 else None)
    assert seen.recover() == Counts(done=1)
    seen.fd = -1
    seen.close()
    table.close()


def test_the_note_goes_on_after_a_thread_was_stopped_within() -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    whole = table._bytes, table._words, table._reals
    put_fuse(table, 3)
    with suppress(Killed):
        lease.progress(b"torn")
    table._bytes, table._words, table._reals = whole
    assert said(table) is None
    lease.progress(b"whole")
    assert said(table) == b"whole"


def test_a_reader_beside_a_writer_never_sees_a_mixture() -> None:
    table = Table.create(1, shared=False)
    lease = Lease(table, hold(table), receipt())
    over = threading.Event()

    def write() -> None:
        for number in range(3000):
            lease.progress(b"%d" % (number % 10) * (1 + number % 200))
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    (entry,) = table.entries()
    seen = set()
    while not over.is_set():
        found = table.unsent(entry)
        if found is not None:
            assert len(set(found[1])) == 1
            assert found[0] % 2 == 0
            seen.add(found[1])
    writer.join()
    assert said(table) == b"9" * 200


def test_a_function_asks_for_an_extend_and_is_told_of_a_cancel() -> None:
    table = Table.create(2, shared=False)
    lease = Lease(table, hold(table), receipt(), lambda: 1005.0)
    (entry,) = table.entries()
    assert not table.asked(entry)
    lease.extend()
    assert table.asked(entry)
    table.sent(entry, 1005.1, None)
    assert not table.asked(entry)
    assert not lease.cancelled()
    table.cancel(entry)
    assert lease.cancelled()
    assert not lease.stopping()
    table.surroundings.stopping = True
    assert lease.stopping()


def test_a_cancel_is_not_for_the_next_one_in_its_place() -> None:
    table = Table.create(1, backlog=0, shared=False)
    place = hold(table)
    (entry,) = table.entries()
    table.cancel(entry)
    table.drop(place)
    hold(table, number=2)
    assert not Lease(table, place, receipt(2)).cancelled()


def test_slots_are_counted_by_kind() -> None:
    table = Table.create(3, shared=False)
    hold(table)
    table.hold(receipt(1, 1), 1030.0, 30.0, kind=1)
    settling = table.hold(receipt(1, 2), 1030.0, 30.0, kind=1)
    assert settling is not None
    assert (table.held(0), table.held(1)) == (1, 2)
    table.settling(settling, "done")
    assert (table.held(0), table.held(1)) == (1, 1)
    table.tell_free_elsewhere(4, 9)
    assert (table.free_elsewhere(0), table.free_elsewhere(1)) == (4, 9)
