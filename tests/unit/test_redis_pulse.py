"""What a script on Redis is told of the time in which its caller wanted nothing."""

from __future__ import annotations

import pytest

from tenure.brokers.redis.broker import from_url
from tenure.brokers.redis.line import Pulse
from tests.unit.worker_fakes import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_before_any_answer_nothing_can_be_told(clock: HandClock) -> None:
    assert Pulse(clock).quiet("q") == ""


def test_a_line_that_counts_all_of_its_first_wait_as_in_vain(clock: HandClock) -> None:
    pulse = Pulse(clock, "0")
    assert pulse.quiet("q") == "0"
    pulse.answered("q")
    clock.now += 2
    assert pulse.quiet("q") == "2000"
    clock.now += 3  # tries in vain are no quiet
    assert pulse.quiet("q") == "2000"


def test_what_one_queue_keeps_a_line_waiting_for_is_no_quiet_of_another(clock: HandClock) -> None:
    """A worker asks one queue after the other; a server that stands still keeps it at the first one."""
    pulse = Pulse(clock)
    for queue in ("a", "b"):
        pulse.quiet(queue)
        pulse.answered(queue)
    clock.now += 0.25
    assert pulse.quiet("a") == "250"
    clock.now += 3
    assert pulse.quiet("a") == "250"  # once more, over a new connection
    pulse.answered("a")
    assert pulse.quiet("b") == "250"
    pulse.answered("b")
    clock.now += 2
    assert pulse.quiet("b") == "2000"


def test_a_wait_at_the_server_is_quiet_as_far_as_it_was_asked_for(clock: HandClock) -> None:
    pulse = Pulse(clock)
    for queue in ("a", "b"):
        pulse.quiet(queue)
        pulse.answered(queue)
    assert pulse.quiet("a", 2.0) == "2000"
    clock.now += 2.5
    pulse.answered("a")
    assert pulse.quiet("b") == "2000"


def test_a_keeper_counts_so_and_a_consumer_does_not() -> None:
    broker = from_url("redis://127.0.0.1:1")
    try:
        assert broker.keeper()._line._asking._pulse.quiet("q") == "0"
        consumer = broker.consumer(["q"], session="0" * 32, name="w", visibility_timeout=30.0)
        assert consumer._taking._asking._pulse.quiet("q") == ""
    finally:
        broker.close()
