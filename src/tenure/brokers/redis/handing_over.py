"""Jobs that were added with the end of a job of another queue.

The end of a job and what it adds are one step of its own queue, where a job for another queue waits to be handed
over.  Whoever settled does so right away; where it cannot, the next worker that takes from that queue does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.brokers.redis.layout import QUEUES
from tenure.brokers.redis.line import Ask, Line, as_fault
from tenure.brokers.redis.scripts import HAND_OVER, OUTGOING
from tenure.errors import ServerError


class Outgoing(NamedTuple):
    """A job that waits in `source` for its own queue."""

    source: str
    queue: str
    id: str
    head: bytes
    body: bytes


def hand_over(line: Line, jobs: Sequence[Outgoing]) -> dict[str, bool]:
    """Store the jobs in their own queues and then take them out of the others; returns which of them are new.

    Raises ConnectionError; what was done by then is not done twice.
    """
    made: dict[str, bool] = {}
    by_queue: dict[str, list[Outgoing]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    for queue, theirs in by_queue.items():
        _enter(line, queue)
        words = [word for job in theirs for word in (job.id, job.head, job.body)]
        _, answers = line.ask(HAND_OVER, queue, words)
        made |= {job.id: isinstance(answer, int) for job, answer in zip(theirs, answers, strict=True)}
    by_source: dict[str, list[str]] = {}
    for job in jobs:
        by_source.setdefault(job.source, []).append(job.id)
    line.ask_all([Ask(OUTGOING, source, ids) for source, ids in by_source.items()])
    return made


def _enter(line: Line, queue: str) -> None:
    try:
        line.command("SADD", QUEUES, queue, key=QUEUES)
    except ServerError as error:
        raise as_fault(error) from error


def hand_over_the_rest(line: Line, source: str) -> None:
    """Hand over some of what waits in a queue since whoever settled there could not do it; raises ConnectionError."""
    _, waiting = line.ask(OUTGOING, source, [])
    jobs = [Outgoing(source, queue.decode(), id.decode(), head, body) for queue, id, head, body in waiting]
    if jobs:
        hand_over(line, jobs)
