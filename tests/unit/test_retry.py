"""The pauses between tries, with the jitter passed in."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

import pytest

from tenure.errors import ConfigError
from tenure.retry import DEFAULT_BACKOFF, MAX_DELAY, Backoff, as_seconds, delay_after, reconnect_delay


def test_the_default_doubles_from_a_second_to_an_hour() -> None:
    delays = [DEFAULT_BACKOFF.delay(attempt, 1.0) for attempt in (1, 2, 3, 12, 13, 14)]
    assert delays == [1, 2, 4, 2048, 3600, 3600]
    assert [DEFAULT_BACKOFF.delay(attempt, 0.0) for attempt in (1, 2, 13)] == [0.5, 1, 1800]
    assert DEFAULT_BACKOFF.delay(3, 0.5) == 3


@pytest.mark.parametrize("jitter", [False, True])
def test_hours_stay_hours_where_no_cap_is_given(jitter: bool) -> None:
    backoff = Backoff(base=3600, factor=2, jitter=jitter)
    whole = [3600, 7200, 14400, 28800]
    assert [backoff.delay(attempt, 1.0) for attempt in (1, 2, 3, 4)] == whole
    least = [seconds / 2 for seconds in whole] if jitter else whole
    assert [backoff.delay(attempt, 0.0) for attempt in (1, 2, 3, 4)] == least
    rolls = random.Random(1)
    for attempt, most in enumerate(whole, 1):
        delays = [backoff.delay(attempt, rolls.random()) for _ in range(1000)]
        assert 0 < most / 2 <= min(delays) <= max(delays) <= most


@pytest.mark.parametrize("attempt", [1100, 10_000, 10**9])
@pytest.mark.parametrize("backoff", [DEFAULT_BACKOFF, Backoff(2, 3, 60), Backoff(factor=1.0, cap=1)])
def test_a_late_attempt_does_not_overflow(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt, 1.0) == backoff.cap


def test_without_a_cap_a_late_attempt_waits_for_a_hundred_years_at_most() -> None:
    assert Backoff().delay(10**9, 1.0) == MAX_DELAY
    assert Backoff(base=0).delay(10**9, 1.0) == 0.0


@pytest.mark.parametrize(
    "words",
    [
        {"base": -1}, {"factor": 0.5}, {"cap": math.inf}, {"base": math.nan}, {"cap": "1"}, {"base": True},
        {"jitter": 0.5}, {"jitter": None}, {"base": None},
    ],
)  # fmt: skip
def test_an_impossible_backoff_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(words))}="):
        Backoff(**words)


def test_what_a_service_asks_for_is_the_least_and_is_spread_by_a_tenth() -> None:
    assert (delay_after(60.0, 0.0), delay_after(60.0, 1.0)) == (60.0, 66.0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (1, 1.0), (2.5, 2.5), (timedelta(minutes=1), 60.0)]
    + [(value, None) for value in (-1, math.nan, math.inf, 10**400, "5", None, True, timedelta(-1), b"1", [1])],
)
def test_seconds_are_a_number_or_a_timedelta(value: object, seconds: float | None) -> None:
    assert as_seconds(value) == seconds


def test_a_connection_that_is_cut_and_ten_tries_that_fail_cost_less_than_two_seconds() -> None:
    assert sum(reconnect_delay(attempt, 1.0) for attempt in range(1, 12)) <= 1.5
    assert reconnect_delay(10_000, 1.0) == 1.0
    assert reconnect_delay(10_000, 0.0) == 0.5
