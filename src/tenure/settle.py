"""What becomes of a finished execution: a pure function from its outcome to a settlement."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.codec import pack_failure
from tenure.message import DEFAULT_MAX_ATTEMPTS, Delivery, Settlement
from tenure.outcome import Broken, Failed, Failure, Newer, Outcome, Returned, UnknownTask
from tenure.retry import Backoff

MAX_REASON_CHARS = 500
"""Upper limit for a reason: it travels in a line of limited length, each character perhaps as nine."""

GAVE_UP = "gave up after"
"""How the reason of a job begins that is out of attempts."""

RELEASE_BASE = 1.0
RELEASE_CAP = 60.0
"""Seconds: how long a job that this worker cannot read rests, at first and at most."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the task and the message allow; `max_attempts` counts executions, the first included."""

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: Backoff = field(default_factory=Backoff)


def decide(outcome: Outcome, delivery: Delivery, policy: Policy, now: float, roll: float) -> Settlement:
    """Return how the hand-out ends; `roll` (0..1) is the jitter, `now` seconds since the epoch.

    The delay is rolled here, once: whoever sends the settlement repeats it byte for byte.
    """
    match outcome:
        case Returned(result):
            return Settlement(delivery.receipt, "done", result=result)
        case Failed(failure):
            return _failed(failure, delivery, policy, roll)
        case UnknownTask(name):
            return _release(delivery, f"this worker has no task {name}")
        case Newer(version):
            return _release(delivery, f"the message is of version {version}, newer than this worker reads")
        case Broken(why):
            return _dead(delivery, why, Failure("tenure.Broken", why))


def _failed(failure: Failure, delivery: Delivery, policy: Policy, roll: float) -> Settlement:
    what = f"{failure.kind}: {failure.text}" if failure.text else failure.kind
    if delivery.attempt >= policy.max_attempts:
        return _dead(delivery, f"{GAVE_UP} {_times(delivery.attempt)}: {what}", failure)
    delay = policy.backoff.delay(delivery.attempt, roll)
    return Settlement(delivery.receipt, "retry", delay=delay, reason=_bounded(what), error=pack_failure(failure))


def _dead(delivery: Delivery, reason: str, failure: Failure) -> Settlement:
    return Settlement(delivery.receipt, "dead", reason=_bounded(reason), error=pack_failure(failure))


def _release(delivery: Delivery, reason: str) -> Settlement:
    """Give back what another worker may be able to run; the more often it came, the longer it rests."""
    delay = min(RELEASE_CAP, RELEASE_BASE * 2.0 ** min(delivery.fence - 1, 16))
    return Settlement(delivery.receipt, "release", delay=delay, reason=_bounded(reason))


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _bounded(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON_CHARS else reason[: MAX_REASON_CHARS - 3] + "..."
