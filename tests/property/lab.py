"""A hub over an engine in memory, with clocks that stand until they are told to go on: no sockets, no sleeping."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tenure.engine.core import Retention
from tenure.engine.engine import Engine
from tenure.engine.store import DbError
from tenure.server.answers import Answers
from tenure.server.crowd import Limits
from tenure.server.hub import Hub
from tenure.server.session import Connection

WALL, MONO = 1_700_000_000_000, 10_000.0
STEP = 0.2
"""Seconds between two turns while time passes: below the gap after which all leases get their full time again."""


def hexid(n: int, wall: int = WALL) -> str:
    """The id of job number `n`, as a client would make it at that time."""
    return (wall.to_bytes(6, "big") + n.to_bytes(10, "big")).hex()


def session_of(n: int) -> str:
    """The session of process number `n`."""
    return f"{n:032x}"


def take(n: int, wait: int = 0, limit: int = 5, vt: int = 30_000, queues: str = "q") -> str:
    """The line of a session's take number `n`; `wait` and `vt` are milliseconds."""
    return f"take {n} {limit} {wait} {vt} {queues}"


class Line:
    """A client's end of one connection."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.connection: Connection = lab.hub.open(lab.mono)

    def write(self, data: bytes) -> None:
        """Let bytes arrive; they are carried out in the next turn."""
        self._lab.hub.receive(self.connection, data, self._lab.mono)

    def read(self) -> bytes:
        """What the server has written since the last look."""
        data = b"".join(self.connection.out)
        self.connection.out.clear()
        return data

    def ask(self, text: str | bytes) -> str:
        """Write lines (without the last line end), have a turn, and return what came, without the last line end.

        As with a client that is alone, a plain add is carried out before a turn where the hub does so.
        """
        data = (text.encode() if isinstance(text, str) else text) + b"\n"
        lab = self._lab
        hub, turn_first = lab.hub, lab.hub.ends_leases or lab.hub.was_away(lab.mono)
        if turn_first or not hub.add_at_once(self.connection, data, lab.wall, lab.mono):
            self.write(data)
            lab.turn()
        return self.read().decode().removesuffix("\n")

    def cut(self) -> None:
        """The connection is gone."""
        self._lab.hub.lost(self.connection, self._lab.mono)


class Lab:
    """One server and its clients; `path` is the data file, or `:memory:`."""

    def __init__(self, path: str = ":memory:", retention: Retention | None = None, **limits: int) -> None:
        self.wall, self.mono = WALL, MONO
        self.path, self.retention, self.limits = path, retention, limits
        self.start()

    def start(self) -> None:
        """Start the server (again, on the same file)."""
        self.engine = Engine(
            self.path, wall=self.wall, mono=self.mono, durability="normal", retention=self.retention or Retention()
        )
        answers = Answers("0", "start", "normal")
        self.hub = Hub(self.engine, answers=answers, mono=self.mono, limits=Limits(**self.limits))

    def restart(self, away: float = 0.0) -> None:
        """End the server and start it after a while; every connection is gone."""
        self.engine.close()
        self.wall += int(away * 1000)
        self.mono += away
        self.start()

    def close(self) -> None:
        self.engine.close()

    def connect(self, session: int | str = 1, role: str = "worker", name: str = "w") -> Line:
        """A connection that has said hello."""
        line = Line(self)
        asked = session_of(session) if isinstance(session, int) else session
        answer = line.ask(f"hello 1 {asked} {role} {name}")
        assert answer.startswith("ok tenure/1"), answer
        return line

    def turn(self) -> None:
        """One turn of the server, with the long answers that it asks for, and those for lines that are left over."""
        self.hub.turn(self.wall, self.mono)
        work, self.hub.background = self.hub.background, []
        for connection, question in work:
            self.hub.finish(connection, question(), self.mono)
        if work or self.hub.next_wake(self.wall, self.mono) == self.mono:
            self.turn()

    def pass_time(self, seconds: float) -> None:
        """Let time go on, with turns as a running server has them."""
        end = self.mono + seconds
        while self.mono < end - 1e-9:
            step = min(STEP, end - self.mono)
            self.mono += step
            self.wall += round(step * 1000)
            self.turn()
        self.turn()

    def gap(self, seconds: float) -> None:
        """The server stands still for a while."""
        self.mono += seconds
        self.wall += round(seconds * 1000)

    def add(self, n: int, options: str = "", queue: str = "q", body: str = "body") -> str:
        """The line of an add."""
        space = " " if options else ""
        return f"add {hexid(n)} {queue} t {'f' * 32} {len(body)}{space}{options}\n{body}"

    # -- looking --------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """The whole store, without what only tells when and in which transaction something was written."""
        db = self.engine._store.db
        out = {}
        for table, left_out in (
            ("jobs", {"begin_commit", "end_commit", "place"}),
            ("handouts", {"begin_commit", "end_commit"}),
            ("keys", set[str]()),
            ("aliases", set[str]()),
            ("bodies", set[str]()),
            ("queues", set[str]()),
            ("workers", set[str]()),
            ("swept", set[str]()),
        ):
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in left_out]
            out[table] = sorted(db.execute(f"SELECT {', '.join(names)} FROM {table}"), key=repr)
        return out

    def record(self) -> dict[str, Any]:
        """The record, after it was checked against the rows."""
        verified = self.engine.verify()
        assert verified["verified"], verified["differences"]
        record = self.engine.record()
        assert record["balanced"]
        return record

    def counts(self, queue: str = "q") -> dict[str, int]:
        """A queue's counts that are not 0; hand-outs' ends with a slash before them."""
        tally = dict(self.record()["queues"].get(queue, {}))
        flat = {**tally, **{f"/{how}": n for how, n in tally.pop("handouts", {}).items()}}
        return {name: n for name, n in flat.items() if n and name != "handouts"}

    def job(self, n: int) -> dict[str, Any]:
        """All that the server shows of job number `n`."""
        shown = self.engine.show(bytes.fromhex(hexid(n)))
        assert shown is not None
        json.dumps(shown)
        return shown

    # -- breaking -------------------------------------------------------------------------------------------------

    def fail(self, refuses: Callable[[], bool] = lambda: True, error: type[Exception] = DbError) -> None:
        """From now on a commit fails with `error` whenever `refuses` says so, until `heal`."""
        store = self.engine._store
        commit = type(store).commit

        def full() -> None:
            if refuses():
                raise error("database or disk is full")
            commit(store)

        store.commit = full  # type: ignore[method-assign]  # `heal` takes it back

    def heal(self) -> None:
        """The disk has room again."""
        del self.engine._store.commit
