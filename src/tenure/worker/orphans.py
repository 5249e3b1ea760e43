"""Tells hooks and subscribers what became of jobs whose own process was gone before it could.

The supervisor has settled such a job in the place of its process, or the broker has found it to be out of losses.  The
supervisor names the hand-out to a process that works, and this one asks the broker how it has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tenure.broker import Broker, Settled
from tenure.codec import decode_body
from tenure.errors import DecodeError
from tenure.message import Delivery, Message, Raw, Settlement, Verb
from tenure.worker.patience import Patience
from tenure.worker.settler import Finished, log_end

logger = logging.getLogger("tenure.worker")

_KINDS: Mapping[str, tuple[Verb, str]] = {
    "done": ("done", "done"),
    "retried": ("retry", "scheduled"),
    "released": ("release", "released"),
    "dead": ("dead", "dead"),
    "cancelled": ("cancel", "cancelled"),
}
"""For each end that somebody is told of: the settlement that makes it, and what the broker answers to that."""


class Orphans:
    """One thread, started for the first hand-out that is named to this process.

    `died` and `answered` are called as the settler calls them for the process's own jobs.
    """

    def __init__(
        self,
        broker: Broker,
        patience: Patience,
        died: Callable[[Delivery, Settlement], None],
        answered: Callable[[Finished, Settled], None],
    ) -> None:
        self._broker = broker
        self._patience = patience
        self._died = died
        self._answered = answered
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def put(self, receipt: bytes) -> None:
        """Have it told how this hand-out has ended; returns at once, and does nothing without a thread."""
        self._waiting.put(receipt)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="tenure-orphans", daemon=True)
            with suppress(RuntimeError):  # there is no further thread just now; it is tried again for the next one
                thread.start()
                self._thread = thread

    def close(self, seconds: float) -> None:
        """Let what waits be told, for at most so many seconds."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(seconds)
            self._over.set()

    def _run(self) -> None:
        while (receipt := self._waiting.get()) is not None:
            try:
                self._tell(receipt)
            except Exception:
                logger.exception("nobody is told what became of job %s", receipt[:32].decode())

    def _tell(self, receipt: bytes) -> None:
        job = self._ask(receipt[:32].decode())
        ended = None if job is None else end_of(job, receipt)
        if ended is None:
            return
        finished, answer = ended
        log_end(finished, answer.detail)
        self._answered(finished, answer)
        if finished.delivery is not None:
            self._died(finished.delivery, finished.settlement)

    def _ask(self, id: str) -> dict[str, Any] | None:
        """Return what the broker knows of a job, however long it is away; None: nothing, or this process leaves."""
        admin = self._broker.admin()
        while admin is not None and not self._over.is_set():
            try:
                job = admin.job(id)
            except ConnectionError as error:
                self._patience.wait(error, f"asking what became of job {id}", self._over)
            else:
                self._patience.reset()
                return job
        return None


def end_of(job: Mapping[str, Any], receipt: bytes) -> tuple[Finished, Settled] | None:
    """Return how a hand-out of this job has ended, as its process would have been told; None: it was given back.

    `job` is what `Admin.job` returns.
    """
    number = int(receipt[33:])
    handouts = job["handouts"]
    own = next((one for one in handouts if one["number"] == number), None)
    if own is None:
        return None
    how = own["ended"]
    if how == "lost" and own["end_at"] == job["ended_at"]:
        how = job["state"]  # it has ended the job: by the last loss, or because somebody had cancelled it
    if how not in _KINDS:
        return None
    kind, detail = _KINDS[how]
    later = sum(one["ended"] in ("done", "retried", "dead", "cancelled") for one in handouts if one["number"] > number)
    attempt = job["attempts"] - later + (own["ended"] in ("lost", "released"))
    waits = kind in ("retry", "release") and job["run_at"] is not None and own is handouts[-1]
    settlement = Settlement(
        receipt,
        kind,
        delay=(job["run_at"] - own["end_at"]) / 1000 if waits else 0.0,
        reason=own["cause"] if how == own["ended"] else job["reason"],
        error=bytes.fromhex(own["error"]),
    )
    delivery = _delivery(job, own, receipt, attempt) if how == job["state"] == "dead" else None
    seconds = (own["end_at"] - own["begin_at"]) / 1000
    finished = Finished(-1, settlement, job["task"], attempt, seconds, delivery, job["queue"], job["key"])
    return finished, Settled("ok", detail)


def _delivery(job: Mapping[str, Any], own: Mapping[str, Any], receipt: bytes, attempt: int) -> Delivery:
    body = bytes.fromhex(job["body"])
    message: Message | Raw
    try:
        _, args, checksum, headers, timeout = decode_body(body)
    except DecodeError as error:
        message = Raw(job["id"], job["queue"], job["task"], body, str(error))
    else:
        message = Message(
            job["id"], job["task"], args, checksum, bytes.fromhex(job["fingerprint"]), job["queue"], job["key"],
            headers=headers, timeout=timeout,
        )  # fmt: skip
    vt = own["visibility_timeout_ms"] / 1000
    return Delivery(message, receipt, own["number"], attempt, job["losses"], vt, 0.0)
