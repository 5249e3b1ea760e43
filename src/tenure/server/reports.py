"""The operator's questions, answered as JSON; nothing here changes anything."""

from __future__ import annotations

import json
from typing import Any

from tenure.engine import record
from tenure.engine.engine import Engine
from tenure.engine.store import Db
from tenure.server.parking import Parking
from tenure.wire import encode
from tenure.wire.commands import Browse, Show

MAX_BROWSE = 1_000
_SIZES = ("ready", "scheduled", "running", "dead", "done", "added")


class Reports:
    """What the engine and the parking know, as the bytes of an answer."""

    def __init__(self, engine: Engine, parking: Parking) -> None:
        self._engine = engine
        self._parking = parking

    def show(self, s: Show) -> bytes:
        """All that is known of a job."""
        job = self._engine.show(s.id)
        return encode.err("unknown", "no job with this id") if job is None else as_json(job)

    def browse(self, b: Browse) -> bytes:
        """A page of the dead list."""
        if b.limit > MAX_BROWSE:
            return encode.err("limit", f"at most {MAX_BROWSE} jobs a page")
        return as_json(self._engine.browse_dead(b.queue, b.limit, b.after))

    def record(self) -> bytes:
        """The record."""
        return as_json(self._engine.record())

    def queues(self, wall: int) -> bytes:
        """Every queue: its sizes, the takes that wait for it, whether it is stopped, tasks that its workers lack."""
        waiting = {name: len(self._parking.waiting(name)) for parked in self._parking for name in parked.take.queues}
        queues = self._engine.record()["queues"]
        names = sorted(queues.keys() | waiting.keys())
        unknown = self._engine.unknown_tasks(wall)
        return as_json(
            [
                {
                    "name": name,
                    **{size: queues.get(name, {}).get(size, 0) for size in _SIZES},
                    "waiting": waiting.get(name, 0),
                    "paused": self._engine.is_paused(name),
                    "closed": self._engine.is_closed_for_adds(name),
                    "unknown_tasks": unknown.get(name, {}),
                }
                for name in names
            ]
        )


def recount(db: Db, claimed: dict[str, Any]) -> dict[str, Any]:
    """The record `claimed` for a snapshot, and what a recount of that says; closes the connection."""
    try:
        return {"record": claimed, **record.verify(db, claimed)}
    finally:
        db.close()


def as_json(value: object) -> bytes:
    """An answer whose body is this value."""
    return encode.json_answer(json.dumps(value, ensure_ascii=True, allow_nan=False).encode())
