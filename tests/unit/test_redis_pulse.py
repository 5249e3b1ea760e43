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


def test_a_keeper_counts_so_and_a_consumer_does_not() -> None:
    broker = from_url("redis://127.0.0.1:1")
    try:
        assert broker.keeper()._line._asking._pulse.quiet("q") == "0"
        consumer = broker.consumer(["q"], session="0" * 32, name="w", visibility_timeout=30.0)
        assert consumer._taking._asking._pulse.quiet("q") == ""
    finally:
        broker.close()
