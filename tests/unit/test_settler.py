from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tenure.broker import Settled
from tenure.codec import pack_failure
from tenure.errors import ServerError
from tenure.message import Settlement, Verb
from tenure.outcome import Failure
from tenure.worker.counts import Counts
from tenure.worker.patience import Patience
from tenure.worker.settler import MAX_BATCH, Finished, Settler
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, ScriptedConsumer, receipt

REASONS = {"retry": "ValueError: secret: x", "dead": "gave up after 2 attempts: KeyError: secret: x"}
ERRORS = {"retry": pack_failure(Failure("ValueError", "x")), "dead": pack_failure(Failure("KeyError", "x"))}


class Rig:
    def __init__(self, consumer: ScriptedConsumer, kinds: Sequence[Verb] = ("done",), size: int = 0) -> None:
        self.consumer = consumer
        self.clock = HandClock()
        self.table = Table.create(1, backlog=2000, shared=False)
        self.settler = Settler(consumer, self.table, Patience(self.clock, lambda: 1.0))
        for number, kind in enumerate(kinds, 1):
            place = self.table.hold(receipt(number), 1030.0, 30.0)
            assert place is not None
            self.table.settling(place, kind)
            reason, error = REASONS.get(kind, ""), ERRORS.get(kind, b"")
            self.put(place, Settlement(receipt(number), kind, reason=reason, error=error, result=b"x" * size))

    def put(self, place: int, settlement: Settlement) -> None:
        self.settler.put(Finished(place, settlement, "shop.charge", 1, 0.5))

    def run(self) -> Counts:
        self.settler.stop()
        self.settler.run()
        assert list(self.table.entries()) == []
        return self.table.counts()


def test_all_that_waits_goes_in_one_write_and_is_counted_by_its_answer() -> None:
    rig = Rig(ScriptedConsumer(), ["done", "retry", "release", "dead", "cancel", "done"])
    assert rig.run() == Counts(done=2, retried=1, released=1, dead=1, cancelled=1)
    assert len(rig.consumer.sent) == 1


def test_answers_other_than_ok_are_counted_apart() -> None:
    answers = [
        Settled("refused", "lost"), Settled("gone"), Settled("lost"), Settled("closed"), Settled("ok", "dead"),
        Settled("ok", "done", (True, False, True)),
    ]  # fmt: skip
    rig = Rig(ScriptedConsumer(settles=[answers]), ["done", "done", "release", "done", "retry", "done"])
    assert rig.run() == Counts(refused=1, unknown=1, dropped=2, dead=1, done=1, added=2)


def test_a_broken_connection_makes_it_send_the_same_again_until_answered() -> None:
    consumer = ScriptedConsumer(settles=[ConnectionError("cut")] * 5)
    rig = Rig(consumer, ["done", "retry"])
    assert rig.run() == Counts(done=1, retried=1)
    assert len(consumer.sent) == 6
    assert all(sent == consumer.sent[0] for sent in consumer.sent)
    assert len(rig.clock.waits) == 5


def test_nothing_is_counted_before_its_answer() -> None:
    seen: list[Counts] = []

    class Looking(ScriptedConsumer):
        def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
            seen.append(rig.table.counts())
            return super().settle(settlements)

    rig = Rig(Looking(settles=[ConnectionError()]), ["done"])
    rig.run()
    assert seen == [Counts(), Counts()]


def test_a_write_is_bounded_in_number_and_bytes() -> None:
    rig = Rig(ScriptedConsumer(), ["done"] * (MAX_BATCH + 1))
    rig.run()
    assert [len(sent) for sent in rig.consumer.sent] == [MAX_BATCH, 1]
    large = Rig(ScriptedConsumer(), ["done"] * 5, size=600_000)
    large.run()
    assert [len(sent) for sent in large.consumer.sent] == [2, 2, 1]


def test_one_that_cannot_be_sent_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    refused_once = [receipt(2)]

    class Picky(ScriptedConsumer):
        def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
            if any(item.receipt in refused_once for item in settlements):
                if len(settlements) == 1:
                    refused_once.clear()
                raise ServerError("too-large", "body")
            return super().settle(settlements)

    rig = Rig(Picky(), ["done"] * 3, size=10)
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        assert rig.run() == Counts(done=3)
    assert [[item.receipt for item in sent] for sent in rig.consumer.sent] == [
        [receipt(1)], [receipt(3)], [receipt(2)],
    ]  # fmt: skip
    # What is above the server's limit is left out: that the work is done must be told all the same.
    assert [len(sent[0].result or b"") for sent in rig.consumer.sent] == [10, 10, 0]
    assert "above the server's limit" in caplog.text


def test_a_store_that_cannot_write_is_asked_again_with_the_whole_batch() -> None:
    consumer = ScriptedConsumer(settles=[ServerError("storage", "disk full")] * 2)
    rig = Rig(consumer, ["done"] * 3)
    assert rig.run() == Counts(done=3)
    assert [len(sent) for sent in consumer.sent] == [3, 3, 3]


@pytest.mark.parametrize("error", [KeyError("what"), SystemExit(3), BaseException("strange")])
def test_an_unexpected_error_loses_no_settlement(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    rig = Rig(ScriptedConsumer(settles=[error, error]), ["done", "done"])
    assert rig.run() == Counts(done=2)
    assert "an unexpected error while settling" in caplog.text


def test_too_few_answers_count_nothing_and_are_asked_for_again() -> None:
    consumer = ScriptedConsumer(settles=[[Settled("ok", "done")]])
    rig = Rig(consumer, ["done"] * 2)
    assert rig.run() == Counts(done=2)


def test_each_end_is_one_line_without_the_text_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(ScriptedConsumer(), ["done", "retry", "dead", "release"])
    with caplog.at_level(logging.INFO, "tenure.worker"):
        rig.run()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["done", "retry", "dead", "released"]
    assert all("shop.charge" in record.getMessage() for record in caplog.records)
    assert "ValueError" in caplog.text
    assert "after 2 attempts: KeyError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("settlement", "line"),
    [
        (Settlement(b"", "dead", reason="no such customer", error=pack_failure(Failure("tenure.errors.Dead", "x"))),
         "attempt 1 after 0.500 s: no such customer"),
        (Settlement(b"", "retry", 5.0, "busy: 7", pack_failure(Failure("tenure.errors.Retry", "busy: 7"))),
         "next in 5.0 s: busy: 7"),
        (Settlement(b"", "retry", 5.0, "ValueError: secret", b"no failure"), "next in 5.0 s: ValueError"),
        (Settlement(b"", "cancel", reason="sold out"), "cancelled shop.charge"),
        (Settlement(b"", "release", 60.0, "closed"), "for 60.0 s: closed"),
    ],
)  # fmt: skip
def test_what_a_task_says_of_itself_is_logged(
    settlement: Settlement, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(ScriptedConsumer())
    place = rig.table.hold(receipt(9), 1030.0, 30.0)
    assert place is not None
    rig.table.settling(place, settlement.kind)
    rig.put(place, settlement._replace(receipt=receipt(9)))
    with caplog.at_level(logging.INFO, "tenure.worker"):
        rig.run()
    assert line in caplog.records[-1].getMessage()
    assert "secret" not in caplog.text
