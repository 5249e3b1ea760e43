"""What happens to jobs and workers, as frozen data that subscribers are given; they may watch, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

EventName = Literal[
    "job.added", "job.started", "job.done", "job.retried", "job.released", "job.dead", "job.cancelled", "lease.lost",
    "worker.started", "worker.stopped",
]  # fmt: skip
"""What can be subscribed to."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, told where it was learnt.

    `at` is seconds since the epoch, by this process's clock.  A job's events have `job_id`, `job_key`, `task` and
    `queue`; those in a worker its `attempt` and the `worker`'s name; those that end a hand-out how many `seconds` the
    function ran, and why it ended so (`reason`).  `delay`: seconds until it may run again (retried, released).
    """

    name: EventName
    at: float
    job_id: str = ""
    job_key: str = ""
    task: str = ""
    queue: str = ""
    attempt: int = 0
    worker: str = ""
    seconds: float | None = None
    delay: float | None = None
    reason: str = ""


Subscriber = Callable[[Event], object]
"""A plain function that is told of an event."""


def tell(subscribers: Iterable[Subscriber], event: Event) -> None:
    """Tell each subscriber; what one raises is logged and stops no other."""
    for subscriber in subscribers:
        try:
            subscriber(event)
        except Exception:
            import logging  # a process that only adds jobs does not load it

            who = getattr(subscriber, "__qualname__", repr(subscriber))
            logging.getLogger("tenure.events").exception("the subscriber %s failed at %s", who, event.name)
