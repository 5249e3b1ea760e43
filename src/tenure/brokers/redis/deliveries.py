"""What a take answers, as deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.brokers.redis.packed import read_head
from tenure.clock import own_deadline
from tenure.codec import decode_body
from tenure.errors import DecodeError
from tenure.message import Delivery, Message, Raw, When

_FIELDS = 10
"""What the script answers for each job."""


def deliveries(queue: str, sent_at: float, now: int, fields: Sequence[Any]) -> list[Delivery]:
    """Return the jobs in an answer; `now` is the server's time in it (ms), `sent_at` the own one before the write."""
    return [
        _delivery(queue, sent_at, now, fields[at : at + _FIELDS])
        for at in range(0, len(fields) // _FIELDS * _FIELDS, _FIELDS)
    ]


def _delivery(queue: str, sent_at: float, now: int, job: Sequence[Any]) -> Delivery:
    id, number, hold, vt, attempts, losses, expires, _, _, _ = job
    return Delivery(
        message=_message(queue, job),
        receipt=b"%b:%d" % (id, number),
        fence=number,
        attempt=attempts + 1,
        losses=losses,
        visibility_timeout=vt / 1000,
        deadline=own_deadline(sent_at, hold / 1000),
        start_by=sent_at + (int(expires) - now) / 1000 if expires else None,
    )


def _message(queue: str, job: Sequence[Any]) -> Message | Raw:
    id, _, _, vt, _, _, expires, run_at, packed, body = job
    head = read_head(packed)
    try:
        version, args, checksum, headers, timeout = decode_body(body)
    except DecodeError as error:
        return Raw(id.decode(), queue, head.task, body, str(error), error.version)
    return Message(
        id=id.decode(),
        task=head.task,
        args=args,
        checksum=checksum,
        fingerprint=head.fingerprint,
        queue=queue,
        key=head.key,
        priority=head.priority,
        run_at=When(int(run_at) / 1000) if run_at else None,
        expires=When(int(expires) / 1000) if expires else None,
        timeout=timeout,
        visibility_timeout=vt / 1000,
        max_attempts=head.max_attempts,
        max_losses=head.max_losses,
        headers=headers,
        version=version,
    )
