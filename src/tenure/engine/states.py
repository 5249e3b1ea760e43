"""Names and numbers of job states and of the ways in which a hand-out ends, as the tables store them."""

from __future__ import annotations

from typing import NamedTuple

SCHEDULED, READY, RUNNING, DONE, DEAD, CANCELLED, PURGED = range(1, 8)

STATE_NAMES = {
    SCHEDULED: "scheduled",
    READY: "ready",
    RUNNING: "running",
    DONE: "done",
    DEAD: "dead",
    CANCELLED: "cancelled",
    PURGED: "purged",
}

H_DONE, H_RETRIED, H_RELEASED, H_LEFT, H_RETURNED, H_LOST, H_DEAD, H_CANCELLED = range(1, 9)

HOW_NAMES = {
    H_DONE: "done",
    H_RETRIED: "retried",
    H_RELEASED: "released",
    H_LEFT: "left",
    H_RETURNED: "returned",
    H_LOST: "lost",
    H_DEAD: "dead",
    H_CANCELLED: "cancelled",
}

ATTEMPTS = frozenset({H_DONE, H_RETRIED, H_DEAD, H_CANCELLED})
"""The ends that count towards `max_attempts`: the task ran, and its worker said how that ended."""

LOSSES = frozenset({H_RETURNED, H_LOST})
"""The ends that count towards `max_losses`: the work was cut off, nobody gave it back."""

ANSWERS = {
    "done": {H_DONE: "done"},
    "retry": {H_RETRIED: "scheduled", H_DEAD: "dead", H_CANCELLED: "cancelled"},
    "release": {H_RELEASED: "released", H_CANCELLED: "cancelled"},
    "dead": {H_DEAD: "dead"},
    "cancel": {H_CANCELLED: "cancelled"},
}
"""For each settling verb: the ends of a hand-out that this verb itself can have made, and what is answered then.

A repeat of the line finds one of these in the row and gets its first answer again; any other end is `refused`.
"""


class Move(NamedTuple):
    """One way in which a job comes from a state into another one; None: it is not there yet, or not any more.

    `why` is for people.  `how` is the end of the hand-out, where one ends with it.
    """

    before: int | None
    after: int | None
    why: str
    how: int | None = None


MOVES = (
    Move(None, READY, "added"),
    Move(None, SCHEDULED, "added for later"),
    Move(None, RUNNING, "added while a worker waits for it"),
    Move(SCHEDULED, READY, "its time has come"),
    Move(SCHEDULED, DEAD, "expired"),
    Move(SCHEDULED, CANCELLED, "called off"),
    Move(READY, RUNNING, "handed out to a worker"),
    Move(READY, DEAD, "expired"),
    Move(READY, CANCELLED, "called off"),
    Move(RUNNING, DONE, "the task has returned", H_DONE),
    Move(RUNNING, SCHEDULED, "the task has failed, and has attempts left", H_RETRIED),
    Move(RUNNING, SCHEDULED, "given back for later, as by `Snooze`", H_RELEASED),
    Move(RUNNING, READY, "given back at once", H_RELEASED),
    Move(RUNNING, READY, "the worker left before the task had ended", H_LEFT),
    Move(RUNNING, READY, "the process died", H_LOST),
    Move(RUNNING, READY, "the lease ran out", H_RETURNED),
    Move(RUNNING, DEAD, "the task has failed for good, or for the last time", H_DEAD),
    Move(RUNNING, DEAD, "the process died, as often before", H_LOST),
    Move(RUNNING, DEAD, "the lease ran out, as often before", H_RETURNED),
    Move(RUNNING, CANCELLED, "not wanted any more, and the task has ended otherwise than well", H_CANCELLED),
    Move(RUNNING, CANCELLED, "not wanted any more, and the worker left", H_LEFT),
    Move(RUNNING, CANCELLED, "not wanted any more, and the process died", H_LOST),
    Move(RUNNING, CANCELLED, "not wanted any more, and the lease ran out", H_RETURNED),
    Move(DEAD, READY, "requeued by an operator"),
    Move(DEAD, PURGED, "purged by an operator"),
    Move(DONE, None, "kept long enough"),
    Move(CANCELLED, None, "kept long enough"),
    Move(PURGED, None, "kept long enough"),
)
"""Every way from one state into another.  There is no other one: tests hold the engine to this table."""

EXPIRED = "expired"
"""The reason of a job that is dead because it did not start in time."""

KEPT = 100
"""Earlier hand-outs of a job that stay, however old they are."""
