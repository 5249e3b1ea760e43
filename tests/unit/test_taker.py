from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tenure.message import Delivery
from tenure.worker.patience import Patience
from tenure.worker.room import Room
from tenure.worker.table import Table
from tenure.worker.taker import Taker
from tests.unit.worker_fakes import HandClock, ScriptedConsumer, delivery


class Rig:
    """A taker whose consumer stops it when the script is over."""

    def __init__(self, consumer: ScriptedConsumer, free: Sequence[int | Room] = (), rounds_when_empty: int = 1) -> None:
        self.clock = HandClock()
        self.table = Table.create(4, shared=False)
        self.delivered: list[Delivery] = []
        self.open: list[int] = []
        self._free = list(free)
        self._left = rounds_when_empty
        self.rests: list[float] = []
        consumer.when_empty = self._count_down
        self.taker: Taker[Delivery] = Taker(
            consumer, self._room, self._deliver, self.clock,
            Patience(self.clock, lambda: 1.0), self.table,
        )  # fmt: skip

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.delivered.extend(deliveries)
        self.open.append(self.table.take.number())

    def _room(self, rest: float) -> Room:
        self.rests.append(rest)
        item = self._free.pop(0) if self._free else 4
        return Room(item) if isinstance(item, int) else item

    def _count_down(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.taker.stop()


def test_it_asks_for_as_many_as_there_are_free_slots() -> None:
    consumer = ScriptedConsumer([[delivery(0)], [delivery(1), delivery(2)]])
    rig = Rig(consumer, free=[3, 2, 1])
    rig.taker.run()
    assert consumer.asked == [3, 2, 1]
    assert rig.delivered == [delivery(0), delivery(1), delivery(2)]


def test_it_asks_for_nothing_while_there_is_no_room() -> None:
    consumer = ScriptedConsumer()
    rig = Rig(consumer, free=[0, 0, 2])
    rig.taker.run()
    assert consumer.asked == [2]


def test_broken_connections_make_it_wait_longer_and_go_on() -> None:
    consumer = ScriptedConsumer([ConnectionError("cut")] * 30 + [[delivery()]])
    rig = Rig(consumer)
    rig.taker.run()
    assert rig.delivered == [delivery()]
    waits = rig.clock.waits[:30]
    assert waits == sorted(waits)
    assert sum(waits[:10]) <= 2.0
    assert waits[-1] <= 1.0


def test_a_good_answer_resets_the_delay() -> None:
    consumer = ScriptedConsumer([ConnectionError(), ConnectionError(), [delivery()], ConnectionError()])
    rig = Rig(consumer)
    rig.taker.run()
    assert rig.clock.waits[2] == rig.clock.waits[0] < rig.clock.waits[1]


@pytest.mark.parametrize("error", [KeyError("what"), SystemExit(3), KeyboardInterrupt(), BaseException("strange")])
def test_an_unexpected_error_is_logged_and_it_goes_on(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    consumer = ScriptedConsumer([error, [delivery()]])
    rig = Rig(consumer)
    with caplog.at_level(logging.ERROR, "tenure.worker"):
        rig.taker.run()
    assert rig.delivered == [delivery()]
    assert "unexpected" in caplog.text
    assert rig.clock.waits[0] > 0


def test_empty_answers_that_come_at_once_make_no_tight_loop() -> None:
    rig = Rig(ScriptedConsumer(), rounds_when_empty=40)
    rig.taker.run()
    assert len(rig.clock.waits) >= 36
    assert max(rig.clock.waits) == 0.1


def test_an_empty_answer_after_the_whole_wait_costs_no_pause() -> None:
    def parked() -> list[Delivery]:
        rig.clock.now += 0.5
        return []

    rig = Rig(ScriptedConsumer([parked] * 20))
    rig.taker.run()
    assert rig.clock.waits == []


def test_stop_interrupts_the_take_and_keeps_what_it_was_given() -> None:
    def told_to_stop() -> list[Delivery]:
        rig.taker.stop()
        return [delivery()]

    consumer = ScriptedConsumer([told_to_stop, [delivery(1)]])
    rig = Rig(consumer)
    rig.taker.run()
    assert rig.delivered == [delivery()]
    assert consumer.interrupted == 1


def test_some_of_the_queues_are_asked_without_waiting_at_the_broker_and_less_often_while_they_are_empty() -> None:
    some = Room(3, ("async",))
    consumer = ScriptedConsumer([[], [], [], [], [], [], [delivery()], [], []])
    rig = Rig(consumer, free=[some] * 8 + [4])
    rig.taker.run()
    assert consumer.queues == [("async",)] * 8 + [None, None]
    assert rig.rests[:7] == [0.0, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05]
    assert rig.rests[7] == 0.0
    assert rig.delivered == [delivery()]


def test_a_take_is_open_in_the_table_until_what_it_brought_is_there() -> None:
    consumer = ScriptedConsumer([ConnectionError("cut"), [delivery()], []])
    rig = Rig(consumer)
    rig.taker.run()
    assert rig.open == [1]
    assert rig.table.take.number() == 0


def test_nothing_is_taken_once_the_supervisor_has_forbidden_it() -> None:
    consumer = ScriptedConsumer([[delivery()]])
    rig = Rig(consumer)
    rig.table.take.forbid()
    rig.clock.on_wait = rig.taker.stop
    rig.taker.run()
    assert consumer.asked == []
