"""Lines that are answered at once from the engine, each by a method of its own.

An add, a take, a wait, a bye and a report have to do with lines that wait: these are the hub's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.engine.engine import Engine
from tenure.server.answers import Answers
from tenure.server.crowd import Crowd
from tenure.server.reports import Reports
from tenure.server.session import Adds, Connection, Settles
from tenure.wire import encode
from tenure.wire.commands import (
    Bad,
    Browse,
    CancelJob,
    Extend,
    Hello,
    Purge,
    PurgeQueue,
    Requeue,
    Show,
    Switch,
)

Verb = Callable[[Connection, Any, float, int, float], bytes | None]
"""Carries out one line: (connection, command, arrived, wall, mono) -> its answer, None where that comes later."""


class Verbs:
    """The lines by their commands, in `table`."""

    def __init__(self, engine: Engine, answers: Answers, crowd: Crowd, reports: Reports) -> None:
        self._engine = engine
        self._answers = answers
        self._crowd = crowd
        self._reports = reports
        self.table: dict[type, Verb] = {
            Hello: self._hello,
            Adds: self._add_all,
            Settles: self._settle,
            Extend: self._extend,
            CancelJob: self._cancel_job,
            Requeue: self._requeue,
            Purge: self._purge,
            Switch: self._switch,
            PurgeQueue: self._purge_queue,
            Show: self._show,
            Browse: self._browse,
            Bad: self._bad,
        }

    def _hello(self, connection: Connection, h: Hello, arrived: float, wall: int, mono: float) -> bytes:
        if connection.hello is not None and connection.hello.session != h.session:
            return encode.err("bad-line", "this connection has said hello for another session")
        if self._engine.is_closed(h.session):
            return encode.err("closed", "this session has said bye; a new process makes a new one")
        self._crowd.greet(connection, h)
        return self._answers.hello(self._engine.store_id, wall)

    def _add_all(self, connection: Connection, a: Adds, arrived: float, wall: int, mono: float) -> bytes:
        return b"".join([self._answers.add(answer) for answer in self._engine.add_all(a.lines, wall)])

    def _settle(self, connection: Connection, s: Settles, arrived: float, wall: int, mono: float) -> bytes:
        assert connection.hello is not None  # checked in the hub
        return self._answers.settle(self._engine.settle(connection.hello.session, s.lines, wall))

    def _extend(self, connection: Connection, e: Extend, arrived: float, wall: int, mono: float) -> bytes:
        assert connection.hello is not None  # checked in the hub
        return self._answers.extend(self._engine.extend(connection.hello.session, e.items, arrived, mono))

    def _cancel_job(self, connection: Connection, c: CancelJob, arrived: float, wall: int, mono: float) -> bytes:
        return self._answers.operator(self._engine.cancel_job(c.id, c.terminate, wall))

    def _requeue(self, connection: Connection, r: Requeue, arrived: float, wall: int, mono: float) -> bytes:
        return self._answers.operator(self._engine.requeue(r.id, wall))

    def _purge(self, connection: Connection, p: Purge, arrived: float, wall: int, mono: float) -> bytes:
        return self._answers.operator(self._engine.purge(p.id, wall))

    def _switch(self, connection: Connection, s: Switch, arrived: float, wall: int, mono: float) -> bytes:
        return self._answers.switch(self._engine.switch(s.verb, s.queue))

    def _purge_queue(self, connection: Connection, p: PurgeQueue, arrived: float, wall: int, mono: float) -> bytes:
        return self._answers.purge_queue(self._engine.purge_queue(p.queue, p.after, wall))

    def _show(self, connection: Connection, s: Show, arrived: float, wall: int, mono: float) -> bytes:
        return self._reports.show(s)

    def _browse(self, connection: Connection, b: Browse, arrived: float, wall: int, mono: float) -> bytes:
        return self._reports.browse(b)

    def _bad(self, connection: Connection, bad: Bad, arrived: float, wall: int, mono: float) -> bytes:
        connection.closing = connection.closing or bad.fatal
        return encode.err(bad.code, bad.text)
