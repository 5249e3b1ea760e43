"""The operator's verbs: the record, the dead list, single jobs and whole queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from tenure.broker import CancelAnswer, QueueVerb
from tenure.brokers.redis.ledger import differences, has_jobs, recounted, sizes, tallies, totals
from tenure.brokers.redis.line import Line
from tenure.brokers.redis.recounting import recount
from tenure.brokers.redis.scripts import CANCEL, DEAD, EMPTY, PURGE, QUEUE, RECORD, REQUEUE, SHOW, SWITCH, Script
from tenure.brokers.redis.settling import Retention
from tenure.brokers.redis.showing import readable
from tenure.brokers.redis.whereabouts import Whereabouts
from tenure.errors import BrokerUnavailable, JobNotFound, KeyConflict, QueueNotFound
from tenure.names import shown
from tenure.outcome import NO_TASK

T = TypeVar("T")

TRIES = 4
"""How often a question is asked: one that is not answered takes about a second."""

EMPTY_BATCH = 500
"""Jobs that one call takes out of a queue, during which the server answers nobody else."""


class RedisAdmin:
    """Looks at the record and the dead list, and moves jobs; every verb may be repeated.

    Raises BrokerUnavailable when the server cannot be reached, JobNotFound for an id that it does not know.
    """

    def __init__(self, line: Line, where: Whereabouts, retention: Retention, rest: Callable[[int], object]) -> None:
        """`rest` waits a while before the n-th try of something."""
        self._line = line
        self._where = where
        self._retention = retention
        self._rest = rest

    def record(self, verify: bool = False) -> dict[str, Any]:
        """Return the record, or with `verify` also what a recount of the jobs comes to.

        Raises ServerError where a queue changes too fast for that.
        """
        if verify:
            return self._verified()
        answers = {queue: answer for queue, answer in self._in_all_queues(RECORD, []).items() if has_jobs(answer)}
        return totals({queue: tallies(answer) for queue, answer in answers.items()})

    def _verified(self) -> dict[str, Any]:
        record, wrong, counted = {}, [], {}
        for queue in self._insist(self._where.queues):
            answer, jobs = self._insist(partial(recount, self._line, queue, self._rest))
            if has_jobs(answer):
                record[queue] = tallies(answer)
                counted[queue] = recounted(jobs.counts)
                wrong += [f"queue {queue!r}: {text}" for text in jobs.wrong]
                wrong += differences(queue, answer, jobs.counts)
        return {"record": totals(record), "verified": not wrong, "differences": wrong, "recounted": counted}

    def queues(self) -> list[dict[str, Any]]:
        """Return one entry a queue."""
        return [sizes(queue, answer) for queue, answer in self._in_all_queues(QUEUE, [NO_TASK]).items()]

    def job(self, id: str) -> dict[str, Any] | None:
        """Return all that is known of a job, or None."""
        queue = self._find(id)
        answer = None if queue is None else self._ask(SHOW, queue, [id])[0]
        return readable(id, queue, answer) if queue is not None and answer else None

    def dead(self, queue: str | None, limit: int, after: str | None) -> list[dict[str, Any]]:
        """Return a page of the dead list; `after` is the last id of the page before."""
        pages = self._in_all_queues(DEAD, [after or "", limit], queue)
        found = sorted((id.decode(), name) for name, ids in pages.items() for id in ids)[:limit]
        by_queue: dict[str, list[str]] = {}
        for id, name in found:
            by_queue.setdefault(name, []).append(id)
        jobs: dict[str, dict[str, Any]] = {}
        for name, ids in by_queue.items():
            answers = self._ask(SHOW, name, ids)
            jobs |= {id: readable(id, name, one) for id, one in zip(ids, answers, strict=True) if one}
        return [jobs[id] for id, _ in found if id in jobs]

    def requeue(self, id: str) -> str:
        """Put a dead job back: `ready`, or `already STATE`; raises KeyConflict when its key is held."""
        answer = self._verb(REQUEUE, id, [])
        if isinstance(answer, list):
            raise KeyConflict(id, answer[0].decode(), "")
        return self._word(id, answer)

    def purge(self, id: str) -> str:
        """Take a dead job off the list for good: `purged`, or `already STATE`."""
        return self._word(id, self._verb(PURGE, id, []))

    def cancel(self, id: str, terminate: bool = False) -> CancelAnswer:
        """Cancel a job: `cancelled`, `asked` when it runs, or `already STATE`."""
        answer = self._verb(CANCEL, id, [2 if terminate else 1, self._retention.result_ttl])
        return cast("CancelAnswer", self._word(id, answer))

    def switch(self, verb: QueueVerb, queue: str) -> str:
        """Pause, resume, close or open a queue: `paused`, `resumed`, `closed` or `open`."""
        word: str = self._ask(SWITCH, queue, [verb]).decode()
        if word == "unknown":
            raise _no_queue(queue)
        return word

    def purge_queue(self, queue: str) -> int:
        """Cancel what waits in a queue, a bounded number a call; what comes meanwhile may be among it."""
        count = 0
        while True:
            cancelled: int = self._ask(EMPTY, queue, [EMPTY_BATCH, self._retention.result_ttl])
            if cancelled < 0:
                raise _no_queue(queue)
            count += cancelled
            if cancelled < EMPTY_BATCH:
                return count

    def _verb(self, script: Script, id: str, words: Sequence[str | int]) -> Any:
        queue = self._find(id)
        return b"unknown" if queue is None else self._ask(script, queue, [id, *words])

    def _word(self, id: str, answer: bytes) -> str:
        if answer == b"unknown":
            raise JobNotFound(f"no job {id} is known here (any more)")
        return answer.decode()

    def _find(self, id: str) -> str | None:
        return self._insist(lambda: self._where.find([id])).get(id)

    def _ask(self, script: Script, queue: str, words: Sequence[str | int]) -> Any:
        return self._insist(lambda: self._line.ask(script, queue, words)[1])

    def _in_all_queues(self, script: Script, words: Sequence[str | int], only: str | None = None) -> dict[str, Any]:
        queues = self._insist(self._where.queues)
        if only is not None:
            queues = [queue for queue in queues if queue == only]
        return {queue: self._ask(script, queue, words) for queue in queues}

    def _insist(self, ask: Callable[[], T]) -> T:
        """Ask again where the connection broke, as while a replica becomes the primary; raises BrokerUnavailable."""
        for n in range(1, TRIES):
            try:
                return ask()
            except ConnectionError:
                self._rest(n)
        try:
            return ask()
        except ConnectionError as error:
            raise BrokerUnavailable(str(error)) from error


def _no_queue(queue: str) -> QueueNotFound:
    return QueueNotFound(f"no queue {shown(queue)} is known here; the first job makes it")
