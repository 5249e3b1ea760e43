"""The seam between Tenure and whatever holds the jobs.

A broker is made from a URL by `tenure.brokers.connect`.  Everything above this file speaks to brokers only through
these protocols, and every broker keeps the same promises or says in its `Capabilities` which it cannot keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from tenure.message import Delivery, Message, Settlement, State


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a broker can hold, as flags and limits (bytes, seconds; None: no limit of its own)."""

    max_body: int
    """Bytes of a job's packed part (`codec.encode_body`) at most."""
    max_batch: int
    """Jobs that go to the broker in one write at most; a longer list is sent in parts."""
    max_delay: float | None = None
    """Seconds to a job's earliest start at most; 0: a job can only be started at once."""
    priorities: bool = True
    """Ten priorities, 9 first."""
    keeps_record: bool = True
    """`Admin.record` says exactly what became of every job and every hand-out."""
    lease_tied_to_connection: bool = False
    """A lease ends with the connection over which its job was taken."""
    one_process: bool = False
    """The jobs are in the process that opened the broker; no other one meets them."""
    first_in_first_out: bool = True
    """Jobs of one priority are handed out in the order in which they were added."""
    queues_in_turn: bool = True
    """A take from several queues brings some of each, however many jobs one of them has."""
    keys: bool = True
    """Idempotency keys: a second job with a key that is held is not made."""
    keys_across_queues: bool = True
    """A task's key is one for all queues; else each queue has its own."""
    job_visibility_timeout: bool = True
    """A job's own visibility timeout goes before the worker's."""
    growing_fences: bool = True
    """The number of a job's hand-out only grows."""
    counts_losses: bool = True
    """Losses are counted apart from attempts, and a job ends with loss number `max_losses`."""
    atomic: bool = True
    """A settlement and the jobs in its `then` are one transaction."""
    repeats_takes: bool = True
    """A take whose answer was lost is given the same jobs again at once, and not only after their lease."""
    keeps_results: bool = True
    """`Broker.results` is there: states and results, and waits for them that are ended by the broker."""
    operated: bool = True
    """`Broker.admin` is there: the dead list, cancelling, pausing, purging."""
    survives_restart: bool = True
    """A kill of the broker's server loses nothing that it has answered."""
    renews_leases: bool = True
    """After a start of the broker's server each running lease has its full time again."""


class Added(NamedTuple):
    """The broker's answer to one add: the job's id, whether this add made it, or why it was refused."""

    id: str
    created: bool
    error: Exception | None = None


class Settled(NamedTuple):
    """The broker's answer to one settlement.

    `ok`: taken, `detail` is what became of the job (done, scheduled, dead, cancelled, released).  `refused`: the
    hand-out had ended otherwise, `detail` says how.  `lost`: a release whose hand-out had ended.  `gone`: the broker
    knows the hand-out no more.  `closed`: the session was said bye to.  `added` says for each message in
    `Settlement.then` whether it was created.
    """

    answer: Literal["ok", "refused", "lost", "gone", "closed"]
    detail: str = ""
    added: tuple[bool, ...] = ()


class Extend(NamedTuple):
    """Ask to hold a receipt longer; `progress` is an opaque note of the task on how far it is."""

    receipt: bytes
    progress: bytes | None = None


class Extended(NamedTuple):
    """The answer to one `Extend`: the new own deadline (seconds of `clock.boot()`; None: the lease is lost)."""

    deadline: float | None
    cancel: Literal["ask", "terminate"] | None = None


class EndedAs(NamedTuple):
    """How a hand-out had ended when its session was said bye to; `how` is `unknown` once its row was swept.

    `late` tells that a settlement of it was refused.
    """

    how: str
    late: bool = False


class JobState(NamedTuple):
    """What the broker knows of a job.

    `state` is one of the six, or `unknown` (never heard of), or `expired` (its record was kept for a while only).
    `result` is the packed result of a done job (None: it returned None), `failure` the packed last failure, `progress`
    what a running job last said of itself (packed).  `reason` says why it is dead or cancelled.  `queue` is where the
    job was added, which the caller of a duplicate need not know; empty where the job is not known.
    """

    id: str
    state: State | Literal["unknown", "expired"]
    attempts: int = 0
    losses: int = 0
    reason: str = ""
    result: bytes | None = None
    failure: bytes = b""
    progress: bytes | None = None
    queue: str = ""


class ProducerCounts(NamedTuple):
    """What this process's adds came to, by the broker's answers.

    `added` are new jobs, `duplicates` those whose key was there before, `unconfirmed` those without an answer.
    """

    added: int
    duplicates: int
    unconfirmed: int

    def plus(self, more: ProducerCounts) -> ProducerCounts:
        """Return both together."""
        return ProducerCounts(*map(sum, zip(self, more, strict=True)))


NOTHING_ADDED = ProducerCounts(0, 0, 0)

CancelAnswer = Literal["cancelled", "asked", "already done", "already dead", "already cancelled"]
"""What becomes of a wish to cancel: the job never runs; it runs, and is told; or it had ended before."""


QueueVerb = Literal["pause", "resume", "close", "open"]


class Consumer(Protocol):
    """One worker process's line to the broker; `take` and `settle` are called from different threads."""

    @property
    def number(self) -> int:
        """The number of the next take, from 1 on: the same one until a complete answer has been read."""

    def take(self, limit: int, wait: float, queues: Sequence[str] | None = None) -> list[Delivery]:
        """Take up to `limit` jobs, waiting up to `wait` seconds for the first; an empty list when none came.

        `queues`: from these only (None: from all of the consumer's).
        Raises ConnectionError when the connection broke or fell silent; the next call repeats the same line over a
        new connection, so nothing that the broker handed out in between is stranded.
        """

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Send all settlements in one write and return the broker's answers in the same order.

        Raises ConnectionError when there was no complete answer: call it again with the same settlements.
        """

    def interrupt(self) -> None:
        """End a `take` that waits in another thread, soon and without losing what it was given."""

    def close(self) -> None:
        """Close the connections; a `take` or `settle` that waits raises ConnectionError.  It ends no lease."""


class Keeper(Protocol):
    """Extends and ends leases; usable from another process than the consumer's."""

    def extend(self, items: Sequence[Extend]) -> list[Extended]:
        """Extend each receipt's lease; raises ConnectionError when there was no complete answer."""

    def settle(self, session: str, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle for a child that was stopped, before its `bye`."""

    def bye(self, session: str, end: Literal["left", "lost"], cause: str, settling: Sequence[bytes]) -> list[EndedAs]:
        """Give back all that the session still holds; returns how each receipt in `settling` had ended."""

    def untake(self, session: str, number: int, cause: str, held: Sequence[bytes]) -> None:
        """Give back what a session's take of this number was given, but for the receipts in `held`.

        The take itself, where it waits or comes late, is answered empty.  No loss is counted.
        """

    def close(self) -> None:
        """Close the connection; ends no lease."""


class ResultStore(Protocol):
    """Where a caller learns what became of its jobs; safe to use from many threads."""

    def states(self, ids: Sequence[str]) -> list[JobState]:
        """What is known of each job now, in order; raises BrokerUnavailable."""

    def wait(self, ids: Sequence[str], seconds: float) -> list[JobState]:
        """Wait until at least one of the jobs has ended (or is unknown), at most `seconds`; returns the state of each.

        It waits at the broker and polls nothing; any number of threads may wait over few connections.
        Raises BrokerUnavailable.
        """


class Admin(Protocol):
    """The operator's verbs; JSON-shaped values (dict, list, str, int, float, bool, None)."""

    def record(self, verify: bool = False) -> dict[str, Any]:
        """Return the record, recounted from the rows where `verify` says so."""

    def queues(self) -> list[dict[str, Any]]:
        """Return one entry a queue."""

    def job(self, id: str) -> dict[str, Any] | None:
        """Return all that is known of a job, or None."""

    def dead(self, queue: str | None, limit: int, after: str | None) -> list[dict[str, Any]]:
        """Return a page of the dead list; `after` is the last id of the page before."""

    def requeue(self, id: str) -> str:
        """Put a dead job back: `ready`, or `already STATE`; raises JobNotFound and KeyConflict (its key is held)."""

    def purge(self, id: str) -> str:
        """Take a dead job off the list for good: `purged`, or `already STATE`; raises JobNotFound."""

    def cancel(self, id: str, terminate: bool = False) -> CancelAnswer:
        """Cancel a job; one that runs is told, and with `terminate` ended from outside.  Raises JobNotFound."""

    def switch(self, verb: QueueVerb, queue: str) -> str:
        """Pause, resume, close or open a queue; returns what it is then.  Raises QueueNotFound."""

    def purge_queue(self, queue: str) -> int:
        """Cancel what waits in a queue; returns how many jobs that were.  Raises QueueNotFound."""


class Broker(Protocol):
    """What holds the jobs."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can hold."""

    def add(self, messages: Sequence[Message]) -> list[Added]:
        """Store the messages and return once they are safe; one answer a message, in order.

        Raises BrokerUnavailable when the broker did not confirm within `add_timeout`.
        """

    def counts(self) -> ProducerCounts:
        """What the adds of this process came to so far."""

    def consumer(self, queues: Sequence[str], *, session: str, name: str, visibility_timeout: float) -> Consumer:
        """Return a worker process's line; `session` is 32 hexadecimal digits, new for each.

        `name` is a label, `visibility_timeout` is seconds.
        """

    def keeper(self) -> Keeper:
        """Return what extends leases, over a connection of its own."""

    def results(self) -> ResultStore | None:
        """Return where results are kept, or None where they are not."""

    def admin(self) -> Admin | None:
        """Return the operator's verbs, or None where there are none."""

    def close(self) -> None:
        """Close all connections for adding and for results."""
