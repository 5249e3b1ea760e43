"""Sends what became of the jobs, and counts an answer only when it has been read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from tenure.broker import Consumer, Settled
from tenure.codec import unpack_failure
from tenure.errors import DecodeError, ServerError
from tenure.message import Delivery, Message, Settlement
from tenure.settle import BROKEN
from tenure.worker.counts import counter_of
from tenure.worker.patience import Patience
from tenure.worker.table import Table

logger = logging.getLogger("tenure.worker")

MAX_BATCH = 500
MAX_BATCH_BYTES = 1024 * 1024


class Finished(NamedTuple):
    """A settlement on its way; `place` is where it stands in the table, `seconds` how long the function ran.

    `delivery` is what it settles, kept only where the job is to be dead, for the hooks that want to know.  `queue` and
    `key` are the job's, for events.
    """

    place: int
    settlement: Settlement
    task: str
    attempt: int
    seconds: float
    delivery: Delivery | None = None
    queue: str = ""
    key: str = ""


def finished(delivery: Delivery, place: int, settlement: Settlement, seconds: float) -> Finished:
    """Return a settlement with what is to be known of its delivery once it is answered."""
    message = delivery.message
    for_hooks = delivery if settlement.kind == "dead" else None
    key = (message.key if type(message) is Message else None) or message.id
    return Finished(place, settlement, message.task, delivery.attempt, seconds, for_hooks, message.queue, key)


class Settler:
    """One thread that sends all waiting settlements in one write and repeats them until they are answered.

    `died` is called for each job of which the broker has answered that it is dead, and `answered` for each answer,
    where somebody wants to know; both have to return at once.
    """

    def __init__(
        self,
        consumer: Consumer,
        table: Table,
        patience: Patience,
        died: Callable[[Delivery, Settlement], None] = lambda delivery, settlement: None,
        answered: Callable[[Finished, Settled], None] | None = None,
    ) -> None:
        self._died = died
        self._answered = answered
        self._consumer = consumer
        self._table = table
        self._patience = patience
        self._inbox: SimpleQueue[Finished | None] = SimpleQueue()
        self._never = threading.Event()
        self._stopping = False
        self.put = self._inbox.put
        """Hand over a settlement whose entry already says that it is settling."""

    def run(self) -> None:
        """Settle until `stop()`, and then until nothing is left."""
        while batch := self._collect():
            try:
                self._settle(batch)
            except BaseException:
                logger.exception("an unexpected error while counting answers")

    def stop(self) -> None:
        """End once all that was handed over is answered; nothing may be handed over after this."""
        self._inbox.put(None)

    def _collect(self) -> list[Finished]:
        """Wait for one settlement and take along what else is there, within the bounds of one write."""
        batch: list[Finished] = []
        size = 0
        while len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
            try:
                finished = self._inbox.get(block=not batch and not self._stopping)
            except Empty:
                break
            if finished is None:
                self._stopping = True
            else:
                batch.append(finished)
                size += _size(finished.settlement)
        return batch

    def _settle(self, batch: Sequence[Finished]) -> None:
        settlements = [finished.settlement for finished in batch]
        while True:
            try:
                answers = self._ask(settlements)
            except BaseException as error:  # noqa: BLE001  (a settlement is never given up)
                self._patience.wait(error, "settling jobs", self._never)
                if not _worth_repeating(error):
                    self._one_by_one(batch)
                    return
            else:
                self._patience.reset()
                for finished, answer in zip(batch, answers, strict=True):
                    self._count(finished, answer)
                return

    def _one_by_one(self, batch: Sequence[Finished]) -> None:
        """One of them cannot be sent as it is: the others must not wait for it."""
        for finished in batch:
            try:
                answer = self._ask([finished.settlement])[0]
            except BaseException as error:  # noqa: BLE001  (a settlement is never given up)
                self._patience.wait(error, f"settling a job of {finished.task}", self._never)
                self._inbox.put(_smaller(finished) if _too_large(error) else finished)
            else:
                self._count(finished, answer)

    def _ask(self, settlements: Sequence[Settlement]) -> list[Settled]:
        answers = self._consumer.settle(settlements)
        if len(answers) != len(settlements):
            raise RuntimeError(f"{len(answers)} answers to {len(settlements)} settlements")
        return answers

    def _count(self, finished: Finished, answer: Settled) -> None:
        self._table.settled(finished.place, counter_of(answer), sum(answer.added))
        if self._answered is not None:
            self._answered(finished, answer)
        if answer.answer != "ok":
            _log_refusal(finished, answer)
            return
        if logger.isEnabledFor(logging.INFO):
            log_end(finished, answer.detail)
        if finished.delivery is not None and answer.detail == "dead":
            self._tell(finished.delivery, finished.settlement)

    def _tell(self, delivery: Delivery, settlement: Settlement) -> None:
        try:
            self._died(delivery, settlement)
        except Exception:
            logger.exception("on_dead could not be called for job %s", delivery.message.id)


def _size(settlement: Settlement) -> int:
    return len(settlement.result or b"") + len(settlement.error)


def _worth_repeating(error: BaseException) -> bool:
    """Whether all of the batch may go through later: the network, or a store that cannot write just now."""
    return isinstance(error, ConnectionError) or (isinstance(error, ServerError) and error.code == "storage")


def _too_large(error: BaseException) -> bool:
    return isinstance(error, ServerError) and error.code == "too-large"


def _smaller(finished: Finished) -> Finished:
    """The same settlement without its result or failure: what the job came to must be told all the same."""
    logger.warning("the result or failure of a job of %s is above the server's limit and is not kept", finished.task)
    return finished._replace(settlement=finished.settlement._replace(result=None, error=b""))


def log_end(finished: Finished, state: str) -> None:
    """Write the line that a hand-out ends with; `state` is what became of the job."""
    settlement = finished.settlement
    job, named = settlement.receipt[:32].decode(), _named(finished)
    where = (finished.task, job, finished.attempt, finished.seconds)
    if settlement.kind == "done":
        logger.info("done %s %s attempt %d in %.3f s", *where, extra=named)
        return
    why = _without_text(settlement)
    if state == "dead":
        logger.error("dead %s %s attempt %d after %.3f s: %s", *where, why, extra=named)
    elif settlement.kind == "retry":
        text = "retry %s %s attempt %d after %.3f s, next in %.1f s: %s"
        logger.warning(text, *where, settlement.delay, why, extra=named)
    elif settlement.kind == "cancel":
        logger.info("%s %s %s: %s", state, finished.task, job, why, extra=named)
    else:
        logger.info("%s %s %s for %.1f s: %s", state, finished.task, job, settlement.delay, why, extra=named)


def _named(finished: Finished) -> dict[str, object]:
    """Return what a record is given that is written outside of the job."""
    job = finished.settlement.receipt[:32].decode()
    return {"job_id": job, "task": finished.task, "attempt": finished.attempt}


def _without_text(settlement: Settlement) -> str:
    """Return the reason without what may quote arguments: the text of an exception that the task did not mean.

    Of a job that could not be run the beginning is told, such as `bad arguments`; the dead list has the rest.
    """
    if not settlement.error:
        return settlement.reason
    try:
        kind = unpack_failure(settlement.error).kind
    except DecodeError:
        return settlement.reason.partition(": ")[0]
    if kind == BROKEN:
        return settlement.reason.partition(": ")[0]
    before, found, _ = settlement.reason.partition(f"{kind}: ")
    return before + kind if found else settlement.reason


def _log_refusal(finished: Finished, answer: Settled) -> None:
    job = finished.settlement.receipt[:32].decode()
    kind = finished.settlement.kind
    why = f"{answer.answer} {answer.detail}".strip()
    level = logging.DEBUG if kind == "release" else logging.WARNING  # the job has gone back, which was all its wish
    logger.log(level, "the %s of %s %s came too late (%s)", kind, finished.task, job, why, extra=_named(finished))
