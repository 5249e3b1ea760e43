"""What becomes of a finished execution: from an exception to an outcome, and from an outcome to a settlement."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tenure.codec import pack_failure
from tenure.errors import (
    ConfigError,
    Dead,
    Discard,
    Interrupt,
    JobControl,
    LeaseLost,
    Retry,
    Snooze,
    Terminated,
    TimeLimitExceeded,
)
from tenure.message import DEFAULT_MAX_ATTEMPTS, Delivery, Settlement
from tenure.outcome import (
    NO_TASK,
    Broken,
    Died,
    Discarded,
    Failed,
    Failure,
    Interrupted,
    Newer,
    Outcome,
    Retried,
    Returned,
    Snoozed,
    TimedOut,
    UnknownTask,
    failure_from,
    kind_of,
    members_of,
    text_of,
)
from tenure.retry import DEFAULT_BACKOFF, MAX_DELAY, MAX_RETRY_AFTER, Backoff, as_seconds, delay_after

logger = logging.getLogger("tenure.worker")

MAX_REASON_CHARS = 500
"""Upper limit for a reason: it travels in a line of limited length, each character perhaps as nine."""

TIMEOUT = "timeout"
"""How the reason of a hand-out begins that was ended by its time limit."""

TERMINATED = "terminated: somebody has cancelled it while it ran"
"""The reason of a job that was cancelled and ended from outside."""

GAVE_UP = "gave up after"
"""How the reason of a job begins that is out of attempts."""

BROKEN = "tenure.Broken"
"""The kind of the failure of a job that could not be run: bad bytes, or arguments that do not fit."""

RELEASE_BASE = 1.0
RELEASE_CAP = 60.0
"""Seconds: how long a job that this worker cannot read rests, at first and at most."""

_MAX_LEAVES = 1000

Classes = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the task and the message allow; `max_attempts` counts executions, the first included.

    `retry_on`: only these exceptions are worth another try (None: all are).  `give_up_on`: these never are.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = DEFAULT_BACKOFF
    retry_on: Classes | None = None
    give_up_on: Classes = ()


# ---------------------------------------------------------------------------------------- an exception's outcome


def outcome_of(error: BaseException, policy: Policy, *, lease_lost: bool = True) -> Outcome:
    """Return what it means that the function raised `error`; never raises.

    A LeaseLost that the function raises although its lease is not lost is a failure like any other: an execution that
    is not counted could go on for ever.  An exception group counts as what its only member is, down through groups in
    groups.  Of several members, one in `give_up_on` is enough to give up, and all have to be in `retry_on`.
    """
    leaves = list(_leaves(error))
    failure = failure_from(error)
    asked = _asked(error, leaves, failure)
    if asked is not None:
        return asked
    if lease_lost and any(issubclass(type(leaf), LeaseLost) for leaf in leaves):
        return Interrupted(failure)
    why = _why_give_up(leaves, policy)
    if why is not None:
        return Died(failure, f"not to be tried again ({why}): {summary(failure)}")
    return Failed(failure, _retry_after(_only(error, leaves)))


def ended_as(kind: type[Interrupt], error: BaseException | None, policy: Policy, timeout: float | None) -> Outcome:
    """Return what it means that the function was ended from outside by `kind`; never raises.

    `error` is what it raised (None: nothing) and `timeout` its time limit in seconds.  Only what it asks for is heard:
    any other exception came of the end.
    """
    if error is not None:
        asked = _asked(error, list(_leaves(error)), failure_from(error))
        if asked is not None:
            return asked
    if kind is TimeLimitExceeded:
        return timed_out(timeout or 0.0, policy, error)
    if kind is Terminated:
        return Discarded(TERMINATED)
    return Interrupted(failure_from(kind() if error is None else error))


def timed_out(timeout: float, policy: Policy, error: BaseException | None = None) -> Outcome:
    """Return what it means that the time limit was over; `error` is what the function raised then."""
    over = TimeLimitExceeded(f"it ran longer than its time limit of {timeout:.10g} s")
    if error is not None:
        if isinstance(error, Interrupt) or kind_of(error) == "asyncio.exceptions.CancelledError":
            over.__traceback__ = error.__traceback__  # it is what ended the function
        else:
            over.__context__ = error
    failure = failure_from(over)
    why = _why_give_up([over], policy)
    if why is not None:
        return Died(failure, f"not to be tried again ({why}): {TIMEOUT}: {failure.text}")
    return TimedOut(failure)


@lru_cache(256)
def unheard(timeout: float, policy: Policy) -> Outcome:
    """Return what it means that the time limit was over and nothing was heard of the function."""
    return timed_out(timeout, policy)


def _only(error: BaseException, leaves: list[BaseException]) -> BaseException:
    return leaves[0] if len(leaves) == 1 else error


def _asked(error: BaseException, leaves: list[BaseException], failure: Failure) -> Outcome | None:
    """Return what the task asks for by raising `error`; None where it asks for nothing."""
    only = _only(error, leaves)
    return _as_asked(only, failure) if issubclass(type(only), JobControl) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the exceptions in a group and in the groups in it, a thousand at most; of any other, itself."""
    waiting = [error]
    found = 0
    while waiting and found < _MAX_LEAVES:
        one = waiting.pop()
        members = members_of(one)
        waiting.extend(reversed(members[:_MAX_LEAVES]))
        if not members:
            found += 1
            yield one


def _as_asked(error: BaseException, failure: Failure) -> Outcome | None:
    """Return the outcome that the task asked for; None for a class of the user's own that asks for nothing."""
    kind = type(error)
    reason = _reason_of(error)
    try:
        if issubclass(kind, Retry):
            asked = _attribute(error, "delay")
            return Retried(failure, reason, None if asked is None else _asked_seconds("Retry(delay", asked))
        if issubclass(kind, Snooze):
            return Snoozed(_asked_seconds("Snooze(seconds", _attribute(error, "seconds")), reason)
    except ConfigError as bad:
        return Failed(replace(failure, kind=kind_of(bad), text=text_of(bad), args=None))
    if issubclass(kind, Dead):
        return Died(failure, reason)
    return Discarded(reason) if issubclass(kind, Discard) else None


def _reason_of(error: BaseException) -> str:
    reason = _attribute(error, "reason")
    return text_of(reason) if reason else text_of(error) or kind_of(error)


def _asked_seconds(name: str, value: object) -> float:
    seconds = as_seconds(value)
    if seconds is None or seconds > MAX_DELAY:
        raise ConfigError(
            f"{name}={_shown(value)}) is not possible: give seconds from 0 to {MAX_DELAY:.10g} as int or float, "
            "or a timedelta"
        )
    return seconds


def _why_give_up(leaves: list[BaseException], policy: Policy) -> str | None:
    for error in leaves:
        if _is_one_of(error, policy.give_up_on):
            return "it is in give_up_on"
    if policy.retry_on is not None and not all(_is_one_of(error, policy.retry_on) for error in leaves):
        return "it is not in retry_on"
    return None


def _is_one_of(error: BaseException, classes: Classes) -> bool:
    # As `except` does it: what a class says of its subclasses is not asked.
    return any(type.__subclasscheck__(one, type(error)) for one in classes)


def _retry_after(error: BaseException) -> float:
    """Return the seconds that an exception asks to wait at least; 0 when it does not, or not for a sane time."""
    asked = _attribute(error, "retry_after")
    if asked is None:
        return 0.0
    seconds = as_seconds(asked)
    if seconds is None or seconds > MAX_RETRY_AFTER:
        logger.warning(
            "retry_after=%s of %s is ignored: it is not 0 to %g seconds as int, float or timedelta; the task's own "
            "backoff is used",
            _shown(asked),
            kind_of(error),
            MAX_RETRY_AFTER,
        )
        return 0.0
    return seconds


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001  (an exception's own code may raise anything at all)
        return None


def _shown(value: object) -> str:
    return text_of(value if type(value) is not str else repr(value))[:100]


# ------------------------------------------------------------------------------------------ an outcome's settlement


def decide(outcome: Outcome, delivery: Delivery, policy: Policy, now: float, roll: float) -> Settlement:
    """Return how the hand-out ends; `roll` (0..1) is the jitter, `now` seconds since the epoch.

    The delay is rolled here, once: whoever sends the settlement repeats it byte for byte.
    """
    match outcome:
        case Returned(result):
            return Settlement(delivery.receipt, "done", result=result)
        case Failed(failure, after):
            delay = delay_after(after, roll) if after else policy.backoff.delay(delivery.attempt, roll)
            return _again(failure, summary(failure), delay, delivery, policy)
        case Retried(failure, reason, asked):
            delay = policy.backoff.delay(delivery.attempt, roll) if asked is None else asked
            return _again(failure, reason, delay, delivery, policy)
        case Interrupted(failure):
            return _interrupted(failure, delivery, policy, roll)
        case TimedOut(failure):
            delay = policy.backoff.delay(delivery.attempt, roll)
            return _again(failure, f"{TIMEOUT}: {failure.text}", delay, delivery, policy)
        case Snoozed(seconds, reason):
            return Settlement(delivery.receipt, "release", delay=seconds, reason=_bounded(reason))
        case Died(failure, reason):
            return _dead(delivery, reason, failure)
        case Discarded(reason):
            return Settlement(delivery.receipt, "cancel", reason=_bounded(reason))
    return _unrun(outcome, delivery)


def summary(failure: Failure) -> str:
    """Return a failure as one line: the class and what it says."""
    return f"{failure.kind}: {failure.text}" if failure.text else failure.kind


def _unrun(outcome: UnknownTask | Newer | Broken, delivery: Delivery) -> Settlement:
    match outcome:
        case UnknownTask(name):
            return _release(delivery, f"{NO_TASK}{name}")
        case Newer(version):
            return _release(delivery, f"the message is of version {version}, newer than this worker reads")
        case Broken(why):
            return _dead(delivery, why, Failure(BROKEN, why))._replace(ran=False)


def _again(failure: Failure, why: str, delay: float, delivery: Delivery, policy: Policy) -> Settlement:
    if delivery.attempt >= policy.max_attempts:
        return _dead(delivery, f"{GAVE_UP} {_times(delivery.attempt)}: {why}", failure)
    return Settlement(delivery.receipt, "retry", delay=delay, reason=_bounded(why), error=pack_failure(failure))


def _interrupted(failure: Failure, delivery: Delivery, policy: Policy, roll: float) -> Settlement:
    """Say that the function did not finish.

    As a rule the server has ended the lease, refuses this, and counts that.  Where it has not, because it stood still
    itself, the job must not die of it: the last attempt is given back uncounted.
    """
    delay = policy.backoff.delay(delivery.attempt, roll)
    if delivery.attempt >= policy.max_attempts:
        return Settlement(delivery.receipt, "release", delay=delay, reason=_bounded(summary(failure)))
    return _again(failure, summary(failure), delay, delivery, policy)


def _dead(delivery: Delivery, reason: str, failure: Failure) -> Settlement:
    return Settlement(delivery.receipt, "dead", reason=_bounded(reason), error=pack_failure(failure))


def _release(delivery: Delivery, reason: str) -> Settlement:
    """Give back what another worker may be able to run; the more often it came, the longer it rests."""
    delay = min(RELEASE_CAP, RELEASE_BASE * 2.0 ** min(delivery.fence - 1, 16))
    return Settlement(delivery.receipt, "release", delay=delay, reason=_bounded(reason))


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _bounded(reason: str) -> str:
    """Make one line of a reason, of limited length."""
    line = reason if reason.isprintable() else " ".join(reason.split())
    return line if len(line) <= MAX_REASON_CHARS else line[: MAX_REASON_CHARS - 3] + "..."
