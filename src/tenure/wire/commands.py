"""The lines of the protocol as values: what a client asks and what the server was asked.

`docs/reference/protocol.md` is the specification.  Ids, sessions and fingerprints are 16 raw bytes here and 32
hexadecimal digits on the wire.  Times are whole milliseconds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PROTOCOL = 1
MAX_LINE = 65_536
MAX_BODY = 1_048_576
MAX_BATCH_LINES = 1_000
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_TAKE = 1_000
MAX_WAIT_IDS = 1_000
"""Jobs that one `wait` asks for at most."""
MAX_WAIT = 30_000
"""Milliseconds that a take or a wait is parked at most; a longer wait is cut, for it would let a line grow too old."""
LINE_TIMEOUT = 10.0
"""Seconds in which a line and its body have to be complete."""
IDLE_TIMEOUT = 60.0
"""Seconds without a complete line after which the server closes; it bounds the age of a line."""
LINE_AGE = 120.0
FLOOR = 600.0
"""Seconds for which ids and hand-outs stay known at least; not an option."""
DEFAULT_PORT = 7333

Role = Literal["producer", "worker", "keeper", "admin"]


class Hello(NamedTuple):
    protocol: int
    session: bytes
    role: Role
    name: str


class Add(NamedTuple):
    """`run_at` and `expires` are (milliseconds, relative?) or None; `key` is None for an automatic key."""

    id: bytes
    queue: str
    task: str
    fingerprint: bytes
    body: bytes
    key: str | None = None
    priority: int = 5
    run_at: tuple[int, bool] | None = None
    expires: tuple[int, bool] | None = None
    vt: int | None = None
    max_attempts: int = 20
    max_losses: int = 5


class Take(NamedTuple):
    number: int
    limit: int
    wait: int
    vt: int
    queues: tuple[str, ...]


SettleVerb = Literal["done", "retry", "release", "dead", "cancel"]


class Settle(NamedTuple):
    """`body` is the result of a `done` (None: no result) and the failure of a `retry` or `dead`.

    `ran` is False for a `dead` of a job whose task could not be run, which is no attempt.
    """

    verb: SettleVerb
    id: bytes
    number: int
    delay: int = 0
    reason: str = ""
    body: bytes | None = None
    then: tuple[Add, ...] = ()
    session: bytes | None = None
    ran: bool = True


class ExtendItem(NamedTuple):
    id: bytes
    number: int
    progress: bytes | None = None


class Extend(NamedTuple):
    items: tuple[ExtendItem, ...]


class Bye(NamedTuple):
    session: bytes
    end: Literal["left", "lost"]
    cause: str
    receipts: tuple[tuple[bytes, int], ...]


class Untake(NamedTuple):
    """Give back what a session's take `number` was given, but for these receipts: its process does not listen."""

    session: bytes
    number: int
    cause: str
    receipts: tuple[tuple[bytes, int], ...]


class CancelJob(NamedTuple):
    id: bytes
    terminate: bool


class Requeue(NamedTuple):
    id: bytes


class Purge(NamedTuple):
    id: bytes


QueueVerb = Literal["pause", "resume", "close", "open"]


class Switch(NamedTuple):
    """Stop a queue, or let it go on: what it hands out, or what it takes in."""

    verb: QueueVerb
    queue: str


class PurgeQueue(NamedTuple):
    """Call off what waits in a queue, from behind the job `after`."""

    queue: str
    after: bytes | None


class Show(NamedTuple):
    id: bytes


class Browse(NamedTuple):
    queue: str | None
    limit: int
    after: bytes | None


class Wait(NamedTuple):
    """Ask for the states of jobs, parked up to `wait` until one of them has ended."""

    wait: int
    ids: tuple[bytes, ...]


OVER = frozenset(("done", "dead", "cancelled", "unknown", "expired"))
"""States that nothing comes after by itself: whoever waits for such a job is answered at once."""


class Report(NamedTuple):
    """A question without words: `record`, `verify` or `queues`."""

    what: Literal["record", "verify", "queues"]


class Bad(NamedTuple):
    """A line that cannot be carried out; `fatal` when the next line's beginning is not known any more."""

    code: str
    text: str
    fatal: bool = False


Command = (
    Hello | Add | Take | Settle | Extend | Bye | Untake | CancelJob | Requeue | Purge | Switch | PurgeQueue | Show
    | Browse | Wait | Report | Bad
)  # fmt: skip


class Job(NamedTuple):
    """A `job` line as it stands in the answer to a take."""

    id: bytes
    number: int
    hold: int
    vt: int
    attempt: int
    losses: int
    queue: str
    task: str
    fingerprint: bytes
    body: bytes
    key: str | None
    priority: int
    run_at: int | None
    expires: int | None
    max_attempts: int
    max_losses: int


class StateLine(NamedTuple):
    """A `state` line as it stands in the answer to a wait; `kind` says what `body` is.

    `queue` is empty for a job that is not known.  `later`: there is a body, which this answer had no room for.
    """

    id: bytes
    state: str
    queue: str
    attempts: int
    losses: int
    reason: str
    kind: Literal["none", "result", "failure", "progress", "later"]
    body: bytes
