"""Names and numbers of job states and of the ways in which a hand-out ends, as the tables store them."""

from __future__ import annotations

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
