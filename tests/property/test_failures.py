"""Exceptions and waits of any shape: what is stored is bounded and readable, and no wait is out of bounds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure import Backoff, Retry, Snooze
from tenure.codec import pack_failure, unpack_failure
from tenure.outcome import MAX_FAILURE_BYTES, escape, failure_from, fit
from tenure.retry import MAX_DELAY
from tenure.settle import MAX_REASON_CHARS, Policy, decide, outcome_of
from tests.unit.worker_fakes import delivery

TEXTS = st.text(st.characters(codec=None, categories=None)) | st.text().map(lambda text: text * 2000)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary()
THINGS: st.SearchStrategy[Any] = PLAIN | st.lists(PLAIN, max_size=3) | st.builds(object) | st.timedeltas()


class Own(Exception):
    pass


class Base(BaseException):
    pass


@st.composite
def exceptions(draw: st.DrawFn, depth: int = 3) -> BaseException:
    """Draw an exception with notes, attributes, causes and members; each may be anything."""
    kind = draw(
        st.sampled_from([ValueError, Own, Base, OSError, KeyError, SystemExit, Retry, Snooze, BaseExceptionGroup])
    )
    error: BaseException
    if kind is BaseExceptionGroup:
        members = draw(st.lists(exceptions(depth - 1), min_size=1, max_size=4)) if depth else [Base()]
        error = BaseExceptionGroup(draw(TEXTS), members)
    elif kind is Retry or kind is Snooze:
        error = kind(draw(THINGS), draw(THINGS))
    else:
        error = kind(*draw(st.lists(THINGS, max_size=3)))
    if draw(st.booleans()):
        error.__notes__ = draw(st.lists(THINGS, max_size=12))
    if draw(st.booleans()):
        error.retry_after = draw(THINGS)  # type: ignore[attr-defined]
    if depth and draw(st.booleans()):
        error.__cause__ = draw(exceptions(depth - 1))
    if depth and draw(st.booleans()):
        error.__context__ = draw(st.just(error) | exceptions(depth - 1))
    return error


@given(exceptions())
def test_any_exception_is_stored_bounded_and_comes_back(error: BaseException) -> None:
    failure = failure_from(error)
    packed = pack_failure(failure)
    assert len(packed) <= MAX_FAILURE_BYTES
    assert pack_failure(unpack_failure(packed)) == packed
    said = [failure.kind, failure.text, failure.traceback, *failure.notes]
    said += [text for link in failure.chain for text in link[2:]]
    assert all(text == escape(text) for text in said)


@given(
    exceptions(),
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.sampled_from([None, (), (Exception,), (OSError, Base)]),
    st.sampled_from([(), (BaseException,), (KeyError,)]),
)
def test_any_exception_ends_in_a_settlement_that_can_be_sent(
    error: BaseException, attempt: int, roll: float, retry_on: Any, give_up_on: Any
) -> None:
    policy = Policy(20, Backoff(), retry_on, give_up_on)
    settlement = decide(outcome_of(error, policy), delivery(attempt=attempt), policy, 0.0, roll)
    assert settlement.kind in ("retry", "dead", "release")
    assert 0 <= settlement.delay <= MAX_DELAY
    assert settlement.kind != "retry" or attempt < 20
    assert settlement.kind == "release" or unpack_failure(settlement.error).kind
    assert len(settlement.reason) <= MAX_REASON_CHARS
    assert "\n" not in settlement.reason
    assert settlement.reason == escape(settlement.reason)
    settlement.reason.encode()


@given(
    st.floats(0, 1e9),
    st.floats(1, 100),
    st.none() | st.floats(0, 1e9),
    st.booleans(),
    st.integers(1, 10**9),
    st.floats(0, 1),
)
def test_a_pause_is_between_half_and_the_whole_and_never_longer_than_the_cap(
    base: float, factor: float, cap: float | None, jitter: bool, attempt: int, roll: float
) -> None:
    backoff = Backoff(base, factor, cap, jitter)
    whole = Backoff(base, factor, cap, jitter=False).delay(attempt, roll)
    assert 0 <= whole <= min(MAX_DELAY, math.inf if cap is None else cap)
    assert whole * 0.5 <= backoff.delay(attempt, roll) <= whole
    assert Backoff(base, factor, cap, jitter=False).delay(attempt + 1, roll) >= whole
    assert whole > 0 or base * factor == 0 or cap == 0 or base < 1e-300


@given(TEXTS, st.integers(64, 5000))
def test_a_text_is_fitted_into_bytes(text: str, limit: int) -> None:
    short = fit(escape(text), limit)
    assert len(short.encode()) <= limit
    assert short == escape(text) or "characters left out" in short


@given(st.timedeltas(timedelta(0), timedelta(days=30_000)))
def test_a_timedelta_and_its_seconds_are_one(delta: timedelta) -> None:
    by_delta, by_seconds = (outcome_of(Retry(value), Policy()) for value in (delta, delta.total_seconds()))
    assert by_delta == by_seconds
