"""What an operator sees and does: the record, the dead list, single jobs.

The command line and every other face reach jobs through this module only.  Values are JSON-shaped; failures and
dead jobs' arguments, which a broker keeps as bytes, are turned into text here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite, isnan
from typing import Any

from tenure import codec
from tenure.broker import Admin, CancelAnswer, QueueVerb
from tenure.brokers import connect
from tenure.config import find_broker
from tenure.context import unpack_progress
from tenure.errors import ConfigError, DecodeError, JobNotFound, QueueNotFound
from tenure.names import shown
from tenure.outcome import Failure, escape

PAGE = 200


class Inspection:
    """The operator's view of one broker."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def record(self, *, verify: bool = False) -> dict[str, Any]:
        """The broker's own ledger; with `verify` recounted from its rows, with what differs."""
        return self._admin.record(verify)

    def queues(self) -> list[dict[str, Any]]:
        """Each queue's sizes, how many takes wait for its jobs, whether it is paused or closed, and unknown tasks."""
        return self._admin.queues()

    def job(self, id: str) -> dict[str, Any]:
        """All that is known of a job: its state, every hand-out, worker and error.  Raises JobNotFound."""
        found = self._admin.job(id)
        if found is None:
            raise JobNotFound(
                f"no job {id} is known here (any more): done and cancelled jobs are kept for a while only"
            )
        return _readable(found)

    def dead(self, queue: str | None = None, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """The dead list, oldest first; of one queue or of all."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            page = self._admin.dead(queue, PAGE if left is None else min(PAGE, left), after)
            yield from map(_readable, page)
            if len(page) < PAGE:
                return
            after = page[-1]["id"]
            left = None if left is None else left - len(page)

    def requeue(self, id: str) -> str:
        """Put a dead job back; returns what became of it (`ready`, or `already STATE`).  Raises JobNotFound."""
        return _known(id, self._admin.requeue(id))

    def cancel(self, id: str, *, terminate: bool = False) -> CancelAnswer:
        """Say that a job is not wanted any more; see `tenure.Job.cancel`.  Raises JobNotFound."""
        return self._admin.cancel(id, terminate)

    def purge(self, id: str) -> str:
        """Take a dead job off the list for good; returns `purged` or `already STATE`.  Raises JobNotFound."""
        return _known(id, self._admin.purge(id))

    def pause_queue(self, queue: str) -> str:
        """Have nothing of a queue handed out any more; returns `paused`.  Raises QueueNotFound."""
        return self._switch("pause", queue)

    def resume_queue(self, queue: str) -> str:
        """Have the jobs of a queue handed out again; returns `resumed`.  Raises QueueNotFound."""
        return self._switch("resume", queue)

    def close_queue(self, queue: str) -> str:
        """Have adds to a queue refused with QueueClosed; returns `closed`.  Raises QueueNotFound."""
        return self._switch("close", queue)

    def open_queue(self, queue: str) -> str:
        """Have adds to a queue taken again; returns `open`.  Raises QueueNotFound."""
        return self._switch("open", queue)

    def purge_queue(self, queue: str) -> int:
        """Cancel all jobs that wait in a queue; returns how many they were.  Raises QueueNotFound."""
        try:
            return self._admin.purge_queue(queue)
        except QueueNotFound as error:
            raise self._with_hint(error, queue) from None

    def waiting_in(self, queue: str) -> int:
        """How many jobs wait in a queue, ready or for their time.  Raises QueueNotFound."""
        for row in self.queues():
            if row["name"] == queue:
                return int(row["ready"] + row["scheduled"])
        raise self._with_hint(QueueNotFound(f"no queue {shown(queue)} is known here; the first job makes it"), queue)

    def _switch(self, verb: QueueVerb, queue: str) -> str:
        try:
            return self._admin.switch(verb, queue)
        except QueueNotFound as error:
            raise self._with_hint(error, queue) from None

    def _with_hint(self, error: QueueNotFound, queue: str) -> QueueNotFound:
        close = get_close_matches(queue, [row["name"] for row in self.queues()], 1)
        return QueueNotFound(f"{error}. Did you mean {shown(close[0])}?") if close else error


@contextmanager
def inspect(broker: str | None = None) -> Iterator[Inspection]:
    """Open the operator's view of a broker; the URL is found as for an app.  Raises ConfigError, ConnectionError."""
    url = find_broker(broker)
    opened = connect(url)
    try:
        admin = opened.admin()
        if admin is None:
            raise ConfigError(f"{url} keeps no record and no dead list, so there is nothing to inspect")
        yield Inspection(admin)
    finally:
        opened.close()


def _known(id: str, answer: str) -> str:
    if answer == "unknown":
        raise JobNotFound(f"no job {id} is known here (any more)")
    return answer


def _readable(job: dict[str, Any]) -> dict[str, Any]:
    handouts = [{**handout, "error": _failure(handout["error"])} for handout in job["handouts"]]
    return {
        **job,
        "handouts": handouts,
        "arguments": _arguments(job["body"]),
        "result": _result(job) if job["state"] == "done" else None,
        "progress": _progress(job.get("progress")),
    }


def _result(job: dict[str, Any]) -> dict[str, Any]:
    """A done job's result as `{"value": ...}`, or why there is none as `{"missing": ...}`."""
    packed = job.get("result")
    if packed is None:
        return {"value": None}
    try:
        found = codec.unpack_result(bytes.fromhex(packed))
    except (DecodeError, ValueError) as error:
        return {"missing": f"it cannot be read here: {error}"}
    if isinstance(found, codec.NotStored):
        return {"missing": f"{found.kind}: {found.why}"}
    return {"value": json_shaped(found.value)}


def _progress(packed: str | None) -> dict[str, Any] | None:
    """How far a running job is, as `{"done", "total", "note"}`."""
    progress = unpack_progress(bytes.fromhex(packed)) if packed else None
    return None if progress is None else {name: json_shaped(value) for name, value in progress._asdict().items()}


def json_shaped(value: Any) -> Any:
    """Return a value as JSON can carry it and every reader takes it.

    NaN and infinity become the texts "NaN", "Infinity" and "-Infinity", tuples and sets lists, a dict with keys that
    are no text a list of pairs, an integer of more than 64 bits and whatever else JSON does not know text.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int):
        return value if value.bit_length() <= 64 else str(value) if value.bit_length() < 10_000 else hex(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [json_shaped(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: json_shaped(item) for key, item in value.items()}
        return [[json_shaped(key), json_shaped(item)] for key, item in value.items()]
    return str(value)


def _failure(packed: str) -> dict[str, Any] | None:
    """A packed failure as texts that a terminal can show, whoever has written them."""
    if not packed:
        return None
    try:
        failure = codec.unpack_failure(bytes.fromhex(packed))
    except (DecodeError, ValueError):
        failure = Failure("", f"bytes that are no failure: {packed[:200]}")
    return {
        "kind": escape(failure.kind),
        "text": escape(failure.text),
        "notes": list(map(escape, failure.notes)),
        "chain": [
            {"how": escape(link.how), "depth": link.depth, "kind": escape(link.kind), "text": escape(link.text)}
            for link in failure.chain
        ],
        "traceback": escape(failure.traceback),
    }


def _arguments(body: str | None) -> str | None:
    """A dead job's call as text; None where the broker keeps no body any more, or bytes that do not decode."""
    if not body:
        return None
    try:
        args, kwargs = codec.show_call(bytes.fromhex(body))
        return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    except (DecodeError, ValueError):  # Python spells no int of more than 4,300 digits
        return None
