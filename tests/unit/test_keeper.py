from __future__ import annotations

from math import inf
from typing import Literal

import pytest

from tenure.broker import EndedAs, Extended
from tenure.clock import own_deadline
from tenure.message import Settlement
from tenure.worker.keeper import (
    LISTEN_PERIOD,
    LISTEN_RATE,
    PERIOD,
    PROGRESS_PERIOD,
    Farewell,
    LeaseKeeper,
    Watched,
    leave,
)
from tenure.worker.lease import Lease
from tenure.worker.patience import Patience
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, ScriptedKeeper, receipt


class Rig:
    def __init__(self, listen: float = inf) -> None:
        self.clock = HandClock(1000.0)
        self.broker = ScriptedKeeper()
        self.broker.on_extend = lambda receipt: Extended(self.clock.now + 30.0)
        self.notified = 0
        self.keeper = LeaseKeeper(self.broker, self.clock, lambda: 1.0, self._notify, listen)
        self.table = Table.create(4, shared=False)
        self.stopped = False
        self.watched = Watched(self.table, lambda: self.stopped)
        self.keeper.watch(self.watched)
        self.told: list[list[EndedAs]] = []

    def _notify(self) -> None:
        self.notified += 1
        assert not self.keeper.pending()

    def hold(self, number: int = 1, deadline: float = 1030.0, vt: float = 30.0) -> int:
        place = self.table.hold(receipt(number), deadline, vt)
        assert place is not None
        return place

    def lease(self, place: int, number: int = 1) -> Lease:
        return Lease(self.table, place, receipt(number))

    def at(self, now: float) -> list[bytes]:
        """Let the keeper look once at this moment; returns what it extended."""
        self.clock.now = now
        before = len(self.broker.extended)
        self.keeper.turn()
        return [item for batch in self.broker.extended[before:] for item in batch]

    def farewell(self, session: str = "s1", *settling: bytes) -> Farewell:
        farewell = Farewell(session, "lost", "SIGKILL", settling, self.told.append)
        self.keeper.farewell(farewell)
        return farewell


def test_a_lease_is_extended_after_a_third_of_its_own_visibility_timeout() -> None:
    rig = Rig()
    place = rig.hold()
    assert rig.at(1009.9) == []
    assert rig.at(1010.0) == [receipt()]
    assert rig.lease(place).deadline() == 1040.0
    assert rig.at(1019.9) == []
    assert rig.at(1020.1) == [receipt()]


def test_short_leases_are_looked_at_more_often() -> None:
    rig = Rig()
    assert rig.keeper.turn() == PERIOD
    rig.hold(1, deadline=1000.6, vt=0.6)
    assert rig.keeper.turn() == pytest.approx(0.1)
    rig.hold(2, deadline=1000.01, vt=0.01)
    assert rig.keeper.turn() == 0.02


def test_nothing_is_extended_beyond_the_time_limit_and_what_is_allowed_for_it() -> None:
    rig = Rig()
    late = Watched(rig.table, overtime=5.0)
    rig.keeper.forget(rig.watched)
    rig.keeper.watch(late)
    place = rig.hold(deadline=1030.0)
    rig.table.wills.write(place, receipt(), 1020.0, Settlement(receipt(), "retry"))
    assert rig.at(1012.0) == [receipt()]
    assert rig.at(1024.9) == [receipt()]
    assert rig.at(1025.0) == []
    assert rig.at(1053.0) == []


@pytest.mark.parametrize(("word", "looks"), [("ask", 0), ("terminate", 1), (None, 0)])
def test_a_process_is_told_to_look_when_a_job_of_it_is_to_be_terminated(
    word: Literal["ask", "terminate"] | None, looks: int
) -> None:
    rig = Rig()
    told: list[float] = []
    rig.keeper.forget(rig.watched)
    rig.keeper.watch(Watched(rig.table, look=lambda: told.append(rig.clock.now)))
    rig.broker.on_extend = lambda receipt: Extended(rig.clock.now + 30.0, word)
    place = rig.hold()
    assert rig.at(1010.0) == [receipt()]
    assert told == [1010.0] * looks
    lease = rig.lease(place)
    assert (lease.cancelled(), lease.terminated()) == (word is not None, word == "terminate")


def test_what_is_settling_is_extended_too_and_what_is_over_is_not() -> None:
    rig = Rig()
    place = rig.hold()
    rig.table.settling(place, "done")
    assert rig.at(1015.0) == [receipt()]
    rig.table.settled(place, 0)
    assert rig.at(1030.0) == []


def test_a_receipt_whose_own_deadline_has_passed_is_never_extended_again() -> None:
    rig = Rig()
    rig.hold()
    assert rig.at(1030.0) == []
    assert rig.at(1031.0) == []


def _late(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "in time" in (text := record.getMessage())]


def test_it_is_said_once_that_a_functions_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.broker.on_extend = _refuse
    rig.hold(1)
    for now in (1015.0, 1029.0):
        with pytest.raises(ConnectionError):
            rig.at(now)
    assert _late(caplog) == []
    rig.hold(2, deadline=1040.0)
    with pytest.raises(ConnectionError):
        rig.at(1030.0)
    rig.at(1041.0)
    rig.at(1042.0)
    job = receipt()[:32].decode()
    text = f"the lease of job {job} could not be extended in time: another worker may run it now"
    assert _late(caplog) == [text, text]


def test_what_has_ended_or_was_told_already_is_not_late(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.table.settling(rig.hold(1), "done")
    rig.hold(2)
    rig.broker.on_extend = lambda receipt: Extended(None)
    rig.at(1010.0)
    rig.at(1031.0)
    assert "is lost" in caplog.text
    assert _late(caplog) == []


def _refuse(receipt: bytes) -> Extended:
    raise ConnectionError("no server")


def test_nothing_is_extended_for_a_process_that_is_stopped() -> None:
    rig = Rig()
    rig.hold()
    rig.stopped = True
    assert rig.at(1015.0) == []
    rig.stopped = False
    assert rig.at(1015.0) == [receipt()]


def test_an_extend_without_an_answer_moves_no_deadline() -> None:
    rig = Rig()
    place = rig.hold()

    def broken(receipt: bytes) -> Extended:
        raise ConnectionError("cut")

    rig.broker.on_extend = broken
    with pytest.raises(ConnectionError):
        rig.at(1015.0)
    assert rig.lease(place).deadline() == 1030.0


def test_a_lost_lease_is_told_and_not_asked_for_again() -> None:
    rig = Rig()
    place = rig.hold()
    rig.broker.on_extend = lambda receipt: Extended(None)
    assert rig.at(1015.0) == [receipt()]
    assert rig.lease(place).deadline() is None
    assert rig.at(1016.0) == []


def test_an_answer_read_after_the_own_deadline_moves_nothing() -> None:
    rig = Rig()
    place = rig.hold()

    def slow(receipt: bytes) -> Extended:
        rig.clock.now = 1030.5
        return Extended(1045.0)

    rig.broker.on_extend = slow
    rig.at(1029.9)
    assert rig.lease(place).deadline() == 1030.0


def test_an_answer_for_a_process_that_is_gone_meanwhile_touches_nothing() -> None:
    rig = Rig()
    rig.hold()

    def gone(receipt: bytes) -> Extended:
        rig.keeper.forget(rig.watched)
        rig.table.close()
        return Extended(1045.0)

    rig.broker.on_extend = gone
    assert rig.at(1015.0) == [receipt()]
    assert rig.at(1020.0) == []


def test_many_receipts_go_in_bounded_writes() -> None:
    rig = Rig()
    table = Table.create(1, backlog=700, shared=False)
    rig.keeper.watch(Watched(table))
    for number in range(600):
        table.hold(receipt(number + 1), 1030.0, 30.0)
    rig.at(1015.0)
    assert [len(batch) for batch in rig.broker.extended] == [500, 100]


def test_a_bye_is_repeated_until_answered_and_then_counted_once() -> None:
    rig = Rig()
    rig.farewell("s1", receipt())

    def broken() -> list[EndedAs]:
        raise ConnectionError("cut")

    rig.broker.on_bye = broken
    wait = rig.keeper.turn()
    assert 0 < wait <= PERIOD
    assert rig.keeper.pending() == 1
    rig.at(1000.0)  # not before its time
    assert len(rig.broker.byes) == 1
    rig.broker.on_bye = lambda: [EndedAs("done")]
    rig.at(1002.0)
    assert rig.broker.byes == [("s1", "lost", "SIGKILL", [receipt()])] * 2
    assert rig.told == [[EndedAs("done")]]
    assert (rig.keeper.pending(), rig.notified) == (0, 1)
    rig.at(1003.0)
    assert len(rig.broker.byes) == 2


def test_one_bye_a_turn_so_that_extends_are_never_held_up_by_more() -> None:
    rig = Rig()
    rig.notified = -10
    rig.keeper._notify = lambda: None
    for name in ("s1", "s2", "s3"):
        rig.farewell(name)
    assert rig.keeper.turn() == 0.0
    assert len(rig.broker.byes) == 1
    rig.at(1000.0)
    rig.at(1000.0)
    assert sorted(bye[0] for bye in rig.broker.byes) == ["s1", "s2", "s3"]


def test_an_unexpected_error_does_not_end_a_bye() -> None:
    rig = Rig()
    rig.farewell()

    def odd() -> list[EndedAs]:
        raise KeyError("odd")

    rig.broker.on_bye = odd
    rig.keeper.turn()
    rig.broker.on_bye = list
    rig.at(1002.0)
    assert rig.told == [[]]


def test_a_bye_is_tried_also_while_extends_fail() -> None:
    rig = Rig()
    rig.hold()
    rig.farewell()

    def broken(receipt: bytes) -> Extended:
        raise ConnectionError("cut")

    rig.broker.on_extend = broken
    with pytest.raises(ConnectionError):
        rig.at(1015.0)
    assert rig.told == [[]]


def test_leaving_repeats_until_answered() -> None:
    clock, broker = HandClock(), ScriptedKeeper()
    tries: list[int] = []

    def third_time() -> list[EndedAs]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("cut")
        return []

    broker.on_bye = third_time
    leave(broker, "s1", clock, Patience(clock, lambda: 1.0))
    assert broker.byes == [("s1", "left", "", [])] * 3


def test_leaving_with_nothing_in_hand_ends_soon_without_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> list[EndedAs]:
        raise ConnectionError("no server")

    broker, clock = ScriptedKeeper(), HandClock()
    broker.on_bye = refuse
    begun = clock.now
    leave(broker, "s1", clock, Patience(clock, lambda: 1.0))
    assert 3.0 <= clock.now - begun < 4.5
    assert len(broker.byes) > 5
    assert "holds no job" in caplog.text


# --------------------------------------------------------------------------------------- progress, and being asked


def sent(rig: Rig) -> list[bytes | None]:
    return [progress for batch in rig.broker.progress for progress in batch]


def test_a_progress_is_sent_soon_and_not_more_often_than_its_period() -> None:
    rig = Rig()
    lease = rig.lease(rig.hold())
    lease.progress(b"1")
    assert rig.at(1000.0) == [receipt()]
    lease.progress(b"2")
    assert rig.at(1000.4) == []
    lease.progress(b"3")
    assert rig.at(1000.0 + PROGRESS_PERIOD) == [receipt()]
    assert rig.at(1002.0) == []
    assert sent(rig) == [b"1", b"3"]


def test_a_progress_rides_on_a_renewal_that_is_due_and_is_repeated_until_answered() -> None:
    rig = Rig()
    lease = rig.lease(rig.hold())
    lease.progress(b"1")
    rig.broker.on_extend = lambda receipt: (_ for _ in ()).throw(ConnectionError("cut"))
    with pytest.raises(ConnectionError):
        rig.at(1001.0)
    rig.broker.on_extend = lambda receipt: Extended(rig.clock.now + 30.0)
    assert rig.at(1001.1) == [receipt()]
    assert rig.at(1012.0) == [receipt()]
    assert sent(rig) == [b"1", b"1", None]


def test_what_is_over_is_not_extended_for_its_progress_nor_because_it_asks() -> None:
    rig = Rig()
    lease = Lease(rig.table, rig.hold(), receipt(), rig.clock.boot)
    lease.progress(b"1")
    lease.extend()
    assert rig.at(1030.0) == []
    rig.stopped = True
    assert rig.at(1004.0) == []


def test_a_function_that_asks_is_extended_at_the_next_look_once() -> None:
    rig = Rig()
    place = rig.hold()
    lease = Lease(rig.table, place, receipt(), rig.clock.boot)
    assert rig.at(1002.0) == []
    lease.extend()
    assert rig.at(1002.2) == [receipt()]
    assert lease.deadline() == 1032.2
    assert rig.at(1002.4) == []


def test_a_cancel_in_the_answer_reaches_the_function() -> None:
    rig = Rig()
    lease = rig.lease(rig.hold())
    rig.broker.on_extend = lambda receipt: Extended(1040.0, "ask")
    rig.at(1010.0)
    assert lease.cancelled()
    assert lease.deadline() == 1040.0


def test_a_lease_is_extended_soon_only_to_hear_of_a_cancel() -> None:
    rig = Rig(LISTEN_PERIOD)
    rig.broker.on_extend = lambda receipt: Extended(own_deadline(rig.clock.now, 30.0))
    rig.hold(deadline=own_deadline(1000.0, 30.0))
    heard = [now for now in (1000.2 + 0.2 * look for look in range(15)) if rig.at(now)]
    assert heard == pytest.approx([1001.0, 1002.0, 1003.0])


def test_a_job_that_is_over_soon_is_never_extended_for_that() -> None:
    rig = Rig(LISTEN_PERIOD)
    for number in range(20):
        taken_at = 1000.0 + 0.3 * number
        place = rig.hold(number, deadline=own_deadline(taken_at + 0.5, 30.0))  # the take was parked for a while
        assert rig.at(taken_at + 0.2) == []
        rig.table.drop(place)


def test_the_more_jobs_run_the_less_often_each_is_extended_for_that() -> None:
    rig = Rig(LISTEN_PERIOD)
    rig.table = Table.create(LISTEN_RATE * 4, shared=False)
    rig.keeper.watch(Watched(rig.table))
    for number in range(LISTEN_RATE * 4):
        rig.hold(number, deadline=own_deadline(1000.0, 30.0))
    assert rig.at(1003.9) == []
    assert len(rig.at(1004.1)) == LISTEN_RATE * 4


def test_what_is_over_is_not_asked_about() -> None:
    rig = Rig(LISTEN_PERIOD)
    rig.hold(deadline=1000.0)
    assert rig.at(1000.0) == rig.at(1002.0) == []
    rig.hold(2, deadline=own_deadline(1002.0, 30.0))
    rig.stopped = True
    assert rig.at(1004.0) == []


def test_each_process_is_told_what_is_free_in_the_others() -> None:
    rig = Rig()
    rig.keeper.forget(rig.watched)
    tables = [Table.create(4, shared=False) for _ in range(3)]
    stopped = Watched(tables[2], lambda: True, (2, 10))
    for table in tables[:2]:
        rig.keeper.watch(Watched(table, slots=(2, 10)))
    rig.keeper.watch(stopped)
    tables[0].hold(receipt(1), 1030.0, 30.0, kind=0)
    place = tables[0].hold(receipt(2), 1030.0, 30.0, kind=1)
    assert place is not None
    rig.keeper.turn()
    free = [tuple(table.free_elsewhere(kind) for kind in range(3)) for table in tables]
    assert free == [(2, 10, 2), (1, 9, 1), (3, 19, 3)]  # the third: of both kinds in one process
    tables[0].settling(place, "done")
    rig.keeper.turn()
    assert tables[1].free_elsewhere(1) == 10


def test_a_lease_that_ends_while_its_job_is_settled_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.hold(1)
    rig.table.settling(rig.hold(2), "release")
    rig.broker.on_extend = lambda receipt: Extended(None)
    rig.clock.now += 15.0
    rig.keeper.turn()
    assert len(rig.broker.extended[0]) == 2
    assert caplog.text.count("is lost") == 1
