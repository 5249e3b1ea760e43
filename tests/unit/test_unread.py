"""A take whose answer a process does not read: found, revoked, and given back once."""

from __future__ import annotations

from tenure.worker.keeper import LeaseKeeper, Watched
from tenure.worker.table import Table
from tenure.worker.unread import NOT_LISTENING, SILENCE
from tests.unit.worker_fakes import HandClock, ScriptedKeeper, receipt

SESSION = "5" * 32


class Rig:
    """A keeper that watches one process of two slots."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.table = Table.create(2, shared=False)
        self.broker = ScriptedKeeper()
        self.keeper = LeaseKeeper(self.broker, self.clock, lambda: 1.0)
        self.stopped = False
        self.watched = Watched(self.table, lambda: self.stopped, session=SESSION)
        self.keeper.watch(self.watched)

    def open(self, number: int) -> None:
        assert self.table.take.open(number, self.clock.now)

    def hold(self, number: int, job: int) -> None:
        """Enter a job as the answer to the take of this number brings it."""
        self.open(number)
        assert self.table.hold(receipt(1, job), 9e9, 9e9) is not None

    def look(self, seconds: float = 0.0) -> list[tuple[str, int, list[bytes]]]:
        """Let so much time pass, and return what has been given back by then."""
        self.clock.now += seconds
        self.keeper.turn()
        return self.broker.untaken


def test_a_take_that_stays_open_is_revoked_at_one_look_and_given_back_at_the_next() -> None:
    rig = Rig()
    rig.hold(1, 1)
    rig.table.take.close()
    rig.hold(2, 2)
    assert rig.look(SILENCE) == []
    assert not rig.table.take.is_revoked()
    assert rig.look(0.01) == []
    assert rig.table.take.is_revoked()
    assert rig.look(0.01) == [(SESSION, 2, [receipt(1, 2)])], "with what it holds of this take, and of no other"
    assert len(rig.look(60.0)) == 1, "once"


def test_a_take_that_is_answered_in_time_is_left_alone() -> None:
    rig = Rig()
    for number in range(1, 20):
        rig.open(number)
        assert rig.look(SILENCE) == []
        rig.table.take.close()
    assert rig.look(60.0) == [], "none is open while all slots are busy"


def test_a_take_that_is_written_again_counts_anew() -> None:
    rig = Rig()
    for _ in range(9):
        rig.open(1)
        assert rig.look(SILENCE) == []
    assert not rig.table.take.is_revoked()


def test_what_is_closed_after_it_was_revoked_is_not_given_back() -> None:
    rig = Rig()
    rig.open(1)
    rig.look(SILENCE + 0.01)
    assert rig.table.take.is_revoked()
    rig.table.take.close()
    assert rig.look(60.0) == []
    rig.open(2)
    assert not rig.table.take.is_revoked(), "the next one is another"


def test_a_process_that_leaves_or_is_stopped_is_not_waited_for() -> None:
    for stopped in (True, False):
        rig = Rig()
        rig.open(1)
        rig.stopped = stopped
        if not stopped:
            rig.table.take.forbid()
        rig.look()
        assert rig.look() == [(SESSION, 1, [])]


def test_it_is_repeated_until_the_broker_has_answered() -> None:
    rig = Rig()
    rig.open(1)
    rig.look(SILENCE + 0.01)
    answers = [ConnectionError("cut"), ConnectionError("cut")]
    asked: list[tuple[int, str]] = []

    def untake(session: str, number: int, cause: str, held: object) -> None:
        asked.append((number, cause))
        if answers:
            raise answers.pop()

    rig.broker.untake = untake  # type: ignore[method-assign]
    for _ in range(2):
        try:
            rig.look()
        except ConnectionError:
            continue
    rig.look()
    rig.look()
    assert asked == [(1, NOT_LISTENING)] * 3


def test_a_process_that_leaves_writes_no_further_take() -> None:
    table = Table.create(1, shared=False)
    table.take.forbid()
    assert not table.take.open(1, 0.0)
    assert table.take.number() == 0


def test_a_process_that_is_gone_is_forgotten() -> None:
    rig = Rig()
    rig.open(1)
    rig.look(SILENCE + 0.01)
    rig.keeper.forget(rig.watched)
    assert rig.look(60.0) == []
