"""The pauses between tries, with the jitter passed in."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tenure.errors import ConfigError
from tenure.retry import Backoff, reconnect_delay


def test_the_backoff_doubles_up_to_its_cap() -> None:
    backoff = Backoff()
    assert [backoff.delay(attempt, 1.0) for attempt in (1, 2, 3, 12, 13, 14)] == [1, 2, 4, 2048, 3600, 3600]
    assert [backoff.delay(attempt, 0.0) for attempt in (1, 2, 13)] == [0.5, 1, 1800]
    assert backoff.delay(3, 0.5) == 3


@pytest.mark.parametrize("attempt", [1100, 10_000, 10**9])
@pytest.mark.parametrize("backoff", [Backoff(), Backoff(2, 3, 60), Backoff(factor=1.0, cap=1)])
def test_a_late_attempt_does_not_overflow(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt, 1.0) == backoff.cap


@pytest.mark.parametrize("words", [{"base": -1}, {"factor": 0.5}, {"cap": math.inf}, {"base": math.nan}, {"cap": "1"}])
def test_an_impossible_backoff_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(words))}="):
        Backoff(**words)


def test_ten_reconnects_fit_in_two_seconds() -> None:
    assert sum(reconnect_delay(attempt, 1.0) for attempt in range(1, 11)) <= 2.0
    assert reconnect_delay(10_000, 1.0) == 1.0
    assert reconnect_delay(10_000, 0.0) == 0.5
