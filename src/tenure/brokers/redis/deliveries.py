"""What a take answers, as deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.brokers.redis.packed import UNKNOWN_TASK, read_head
from tenure.clock import own_deadline
from tenure.codec import decode_body
from tenure.errors import DecodeError
from tenure.message import Delivery, Message, Raw, When

_FIELDS = 10
"""What the script answers for each job."""


def deliveries(queue: str, sent_at: float, now: int, fields: Sequence[Any]) -> list[Delivery]:
    """Return the jobs in an answer; `now` is the server's time in it (ms), `sent_at` the own one before the write."""
    return [_delivery(queue, sent_at, now, *fields[at : at + _FIELDS]) for at in range(0, len(fields), _FIELDS)]


def _delivery(
    queue: str,
    sent_at: float,
    now: int,
    id: bytes,
    number: int,
    hold: int,
    vt: int,
    attempts: int,
    losses: int,
    expires: int | bytes,
    run_at: int | bytes,
    packed: bytes,
    body: bytes,
) -> Delivery:
    return Delivery(
        _message(queue, id.decode(), vt / 1000, expires, run_at, packed, body),
        b"%b:%d" % (id, number),
        number,
        attempts + 1,
        losses,
        vt / 1000,
        own_deadline(sent_at, hold / 1000),
        sent_at + (int(expires) - now) / 1000 if expires else None,
    )


def _message(
    queue: str,
    id: str,
    visibility_timeout: float,
    expires: int | bytes,
    run_at: int | bytes,
    packed: bytes,
    body: bytes,
) -> Message | Raw:
    task = UNKNOWN_TASK
    try:
        task, fingerprint, key, priority, max_attempts, max_losses = read_head(packed)
        version, args, checksum, headers, timeout = decode_body(body)
    except DecodeError as error:
        return Raw(id, queue, task, body, str(error), error.version)
    return Message(
        id,
        task,
        args,
        checksum,
        fingerprint,
        queue,
        key,
        priority,
        When(int(run_at) / 1000) if run_at else None,
        When(int(expires) / 1000) if expires else None,
        timeout,
        visibility_timeout,
        max_attempts,
        max_losses,
        headers,
        version,
    )
