"""The frozen data that travels between callers, brokers and workers.

A `Message` is a job's wire form, a `Delivery` is one hand-out of it to a worker, a `Settlement` says how that hand-out
ended.  Each job makes one of each, so they are named tuples, which are made in a fifth of a frozen dataclass's time.
Nothing here touches a socket, a clock or a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

VERSION = 1
"""Version of the body's layout; a worker reads it before the rest and releases what is newer than it knows."""

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 20
DEFAULT_MAX_LOSSES = 5
DEFAULT_VISIBILITY_TIMEOUT = 30.0

MAX_NAME_BYTES = 512
"""Upper limit, in UTF-8 bytes, for the names of queues and tasks and for idempotency keys."""

DEFLATED = "deflated"
"""The header that says that the arguments are compressed, and how many bytes they were before."""

CARRIED = "carry"
"""The header that holds the values of context variables, each packed by itself, by their names."""

OWN_HEADERS = frozenset({DEFLATED, CARRIED})

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class When(NamedTuple):
    """A moment for `run_at` and `expires`: seconds since the epoch, or seconds from when the broker stores the job.

    The relative form is resolved by the broker's clock the first time it stores the job, so that a wrong clock on
    the producer's machine moves nothing.
    """

    seconds: float
    relative: bool = False


class Message(NamedTuple):
    """One call of a task, as every broker stores it.

    `id` is 32 hexadecimal digits (UUID version 7, so it sorts by time).  `key` is the explicit idempotency key or
    None, in which case the id is the key.  `args` are the packed arguments (bytes) and `checksum` is their CRC-32.
    `fingerprint` (16 bytes) tells whether two calls with one key are the same call.  `timeout` and
    `visibility_timeout` are seconds.  Unknown `headers` pass through untouched.
    """

    id: str
    task: str
    args: bytes
    checksum: int
    fingerprint: bytes
    queue: str = DEFAULT_QUEUE
    key: str | None = None
    priority: int = DEFAULT_PRIORITY
    run_at: When | None = None
    expires: When | None = None
    timeout: float | None = None
    visibility_timeout: float | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_losses: int = DEFAULT_MAX_LOSSES
    headers: Mapping[str, Any] = NO_HEADERS
    version: int = VERSION

    def with_headers(self, **more: Any) -> Message:
        """Return the message with these headers as well; the worker finds them in `JobContext.headers`.

        Raises ValueError for a name that Tenure uses itself.
        """
        if not OWN_HEADERS.isdisjoint(more):
            raise ValueError(f"headers named {' and '.join(sorted(OWN_HEADERS))} are Tenure's own; take another name")
        return self._replace(headers={**self.headers, **more})


@dataclass(frozen=True, slots=True)
class Raw:
    """A delivered message whose bytes did not decode, and why; kept so that an operator can look at it.

    `version` is set when the only fault is that the body is newer than this worker knows: then it is released and
    not dead.
    """

    id: str
    queue: str
    task: str
    body: bytes
    why: str
    version: int | None = None


class Delivery(NamedTuple):
    """One hand-out of a job to this worker.

    `receipt` names the hand-out (job id, a colon, hand-out number).  `fence` is that number, which only grows for
    a job.  `attempt` counts from 1.  `deadline` is this process's own limit for the work, in seconds of
    `clock.boot()`; it ends before the server's lease does.  `visibility_timeout` is seconds.  `start_by` is the latest
    moment at which the function may start, on the same clock; None: there is none.
    """

    message: Message | Raw
    receipt: bytes
    fence: int
    attempt: int
    losses: int
    visibility_timeout: float
    deadline: float
    start_by: float | None = None


Verb = Literal["done", "retry", "release", "dead", "cancel"]


class Settlement(NamedTuple):
    """How a hand-out ended, as the worker sees it; all of it is one transaction of the broker.

    `delay` is seconds, rolled once (a repeat sends the same bytes).  `error` is a packed failure, `result` the
    packed return value or None.  The messages in `then` are added if, and only if, the settlement is accepted.
    `ran`: whether the task ran at all; a job that is dead because it could not be run has no attempt more.
    """

    receipt: bytes
    kind: Verb
    delay: float = 0.0
    reason: str = ""
    error: bytes = b""
    result: bytes | None = None
    then: tuple[Message, ...] = ()
    ran: bool = True


Ended = Literal["done", "retried", "released", "left", "returned", "lost", "dead", "cancelled"]
"""The eight ways in which a hand-out ends; each hand-out ends in exactly one of them or is still running."""

State = Literal["scheduled", "ready", "running", "done", "dead", "cancelled"]


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a queue, a task or a key, else raise ValueError saying what the rule is.

    The rule is one for every broker: 1 to 512 bytes of UTF-8 without control characters.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{kind} {name!r} holds a lone surrogate, which has no UTF-8 form; use plain text") from None
    if not size:
        raise ValueError(f"{kind} '' is empty; give 1 to {MAX_NAME_BYTES} bytes of UTF-8")
    if size > MAX_NAME_BYTES:
        raise ValueError(f"{kind} {name[:60]!r} has {size} bytes; shorten it to {MAX_NAME_BYTES} bytes of UTF-8")
    if not name.isprintable() and any(ch < " " or ch == "\x7f" for ch in name):
        raise ValueError(f"{kind} {name!r} holds a control character; leave those out")
    return name
