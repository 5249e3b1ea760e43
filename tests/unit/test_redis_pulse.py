"""What a script on Redis is told of the time in which its caller wanted nothing."""

from __future__ import annotations

import pytest

from tenure.brokers.redis.broker import from_url
from tenure.brokers.redis.line import Pulse, Vain
from tests.unit.worker_fakes import HandClock


class Process:
    """A process with a line to take and one to settle, at a clock that stands."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.taking, self.settling = Vain(self.clock), Vain(self.clock)
        self.pulse = Pulse(self.clock, [self.taking, self.settling])
        for queue in ("a", "b"):
            self.ask(queue)
            self.read(queue)

    def ask(self, queue: str, seconds: float = 0.0) -> int:
        """Begin a try of the taking line; returns what the script is told."""
        self.taking.asked(seconds)
        quiet = self.pulse.quiet(queue, seconds)
        return int(quiet) if quiet else -1

    def read(self, queue: str) -> None:
        self.taking.answered()
        self.pulse.answered(queue)


@pytest.fixture
def process() -> Process:
    return Process()


def test_time_in_which_nothing_was_asked_is_quiet(process: Process) -> None:
    process.clock.now += 2
    assert process.ask("a") == 2000


def test_tries_in_vain_are_no_quiet(process: Process) -> None:
    process.clock.now += 0.25
    assert process.ask("a") == 250
    process.clock.now += 3
    assert process.ask("a") == 250  # once more, over a new connection
    process.read("a")
    process.clock.now += 1
    assert process.ask("a") == 1000


def test_what_one_queue_keeps_a_line_waiting_for_is_no_quiet_of_another(process: Process) -> None:
    """A worker asks one queue after the other; a server that stands still keeps it at the first one."""
    process.clock.now += 0.25
    process.ask("a")
    process.clock.now += 3
    process.read("a")
    assert process.ask("b") == 250
    process.read("b")
    process.clock.now += 2
    assert process.ask("b") == 2000


def test_what_is_settled_in_vain_is_no_quiet_of_a_process_that_does_not_take(process: Process) -> None:
    process.clock.now += 0.25
    process.settling.asked()
    process.clock.now += 3
    assert process.ask("a") == 250  # still without an answer
    process.settling.answered()
    assert process.ask("a") == 250
    process.read("a")
    process.clock.now += 2
    assert process.ask("a") == 2000


def test_a_wait_at_the_server_is_quiet_as_far_as_it_was_asked_for(process: Process) -> None:
    assert process.ask("a", 2.0) == 2000
    process.clock.now += 2.5
    process.read("a")
    assert process.ask("b") == 2000


def test_before_any_answer_a_process_says_what_it_was_made_with(process: Process) -> None:
    assert process.pulse.quiet("new") == ""
    assert Pulse(process.clock, [], "0").quiet("new") == "0"


def test_a_keeper_counts_all_of_its_first_wait_as_in_vain_and_a_consumer_none() -> None:
    broker = from_url("redis://127.0.0.1:1")
    try:
        assert broker.keeper()._line._asking._pulse.quiet("q") == "0"
        consumer = broker.consumer(["q"], session="0" * 32, name="w", visibility_timeout=30.0)
        taking, settling = consumer._taking._asking, consumer._settling._asking
        assert taking._pulse.quiet("q") == ""
        assert taking._pulse._vains == [taking.vain, settling.vain]
    finally:
        broker.close()
