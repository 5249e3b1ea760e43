"""Which queue a job is in.

Its id does not tell, and a hint under each id would cost every add a key, in a cluster a round trip too.  So whoever
knows only an id asks all queues at once, and remembers the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.brokers.redis.layout import QUEUES
from tenure.brokers.redis.line import Ask, Line
from tenure.brokers.redis.scripts import WHERE

KEPT = 20_000
"""Jobs whose queue is remembered."""


class Whereabouts:
    """Remembers the queues of jobs; `line` is what is asked where it does not know."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._queue_of: dict[str, str] = {}

    def note(self, id: str, queue: str) -> None:
        """Remember where a job is."""
        self._queue_of[id] = queue
        if len(self._queue_of) > KEPT:
            self._queue_of.pop(next(iter(self._queue_of)), None)

    def forget(self, id: str) -> None:
        """Let go of a job that is settled."""
        self._queue_of.pop(id, None)

    def get(self, id: str) -> str | None:
        """Return what is remembered."""
        return self._queue_of.get(id)

    def queues(self) -> list[str]:
        """Return the names of all queues, in order; raises ConnectionError."""
        return sorted(name.decode() for name in self._line.command("SMEMBERS", QUEUES, key=QUEUES))

    def find(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the queue of each job that is known anywhere; raises ConnectionError."""
        ids = list(dict.fromkeys(ids))
        found = {id: queue for id in ids if (queue := self._queue_of.get(id)) is not None}
        missing = [id for id in ids if id not in found]
        if missing:
            found |= self._ask(missing)
        return found

    def _ask(self, ids: Sequence[str]) -> dict[str, str]:
        queues = self.queues()
        if not queues:
            return {}
        _, answers = self._line.ask_all([Ask(WHERE, queue, ids) for queue in queues])
        found: dict[str, str] = {}
        for queue, answer in zip(queues, answers, strict=True):
            for place in answer:
                found[ids[place - 1]] = queue
                self.note(ids[place - 1], queue)
        return found
