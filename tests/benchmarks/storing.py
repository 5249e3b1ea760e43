"""What the store costs the server, beside a bare log in its place: the most that a store made for this could save."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgpack

from tenure.engine.engine import Engine
from tenure.message import Message, Settlement
from tenure.server.answers import Answers
from tenure.server.hub import Hub
from tenure.wire import encode
from tenure.wire.replies import ReplyReader, parse_jobs
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import Bench

BODY = bytes(60)
HAND = 64
"""Jobs that a worker takes, and settlements that it sends, in one go when jobs are very short."""


class Bare:
    """A hub in this process, over a data file at `normal`, spoken to in bytes and without a socket.

    `log`: what a commit would write goes into a file by one append in place of SQLite, and nothing can be read back.
    """

    def __init__(self, folder: Path, log: bool) -> None:
        folder.mkdir()
        self.engine = Engine(str(folder / "bare.db"), wall=_wall(), mono=time.monotonic(), durability="normal")
        self._hub = Hub(self.engine, answers=Answers("bare", secrets.token_hex(8), "normal"), mono=time.monotonic())
        self._place = self._hub.open(time.monotonic())
        self._number = 0
        self.say(encode.hello(secrets.token_hex(16), "worker", "bare"))
        self.say(added())
        self.drain(1)  # queue and worker have their numbers by now
        if log:
            _append_only(self.engine._store, folder / "bare.log")

    def say(self, data: bytes) -> bytes:
        """Have bytes arrive and return what is answered."""
        self._hub.receive(self._place, data, time.monotonic())
        self._hub.turn(_wall(), time.monotonic())
        out = b"".join(self._place.out)
        self._place.out.clear()
        return out

    def drain(self, jobs: int) -> None:
        """Take so many and settle them, as many at a time as a worker does."""
        while jobs > 0:
            self._number += 1
            taken = self.say(encode.take(self._number, min(HAND, jobs), 0.0, 30.0, ("default",)))
            [reply] = ReplyReader().feed(taken)
            receipts = [b"%b:%d" % (job.id.hex().encode(), job.number) for job in parse_jobs(reply.line, reply.payload)]
            self.say(b"".join(encode.settle(Settlement(receipt, "done")) for receipt in receipts))
            jobs -= len(receipts)


def _append_only(store: Any, path: Path) -> None:
    """Let a store write what it is told to a log, packed, one append a commit."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    waiting: list[bytes] = []
    pack = msgpack.Packer().pack

    def commit() -> None:
        os.write(file, b"".join(waiting))
        waiting.clear()
        store.begun = False

    def begin() -> None:
        store.begun = True

    store.execute = lambda sql, values=(): waiting.append(pack(values))
    store.many = lambda sql, rows: waiting.extend(map(pack, rows))
    store.each = lambda change, values, ids: waiting.append(pack((values, ids)))
    store.changes = lambda: 1
    store.begin, store.commit = begin, commit


def added() -> bytes:
    """Return the line that adds a job that does nothing."""
    return encode.add(Message(id=_id(), task="noop", args=b"", checksum=0, fingerprint=bytes(16)), BODY)


def _id() -> str:
    return f"{_wall():012x}{secrets.token_hex(10)}"


def _wall() -> int:
    return time.time_ns() // 1_000_000


def store(bench: Bench) -> list[Figure]:
    """Microseconds of the server's own work for an add in a turn alone, and for a hand-out and its done."""
    count = bench.sizes.jobs // 2
    seen: dict[tuple[str, bool], list[float]] = {}
    for round in range(bench.sizes.rounds):
        for log in (False, True):
            bare = Bare(bench.folder / f"store-{round}-{log}", log)
            lines = [added() for _ in range(count)]
            seen.setdefault(("add", log), []).append(_micros(count, lambda: _say_all(bare, lines)))  # noqa: B023
            seen.setdefault(("drain", log), []).append(_micros(count, lambda: bare.drain(count)))  # noqa: B023
    labels = {"add": "server's own work for an add", "drain": "for a hand-out and its done"}
    return [_beside(name, label, seen[name, False], seen[name, True]) for name, label in labels.items()]


def _say_all(bare: Bare, lines: Sequence[bytes]) -> None:
    for line in lines:
        bare.say(line)


def _micros(count: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) / count * 1e6


def _beside(name: str, label: str, ours: Sequence[float], logged: Sequence[float]) -> Figure:
    ratio = median(one / log for one, log in zip(ours, logged, strict=True))
    log = median(logged)
    return Figure(
        f"store-{name}", f"{label}, without the socket", median(ours), "us", 1, ratio=ratio, of="a bare log", base=log,
        note=f"a bare log {log:.1f} us", less=True, rounds=tuple(zip(ours, logged, strict=True)),
    )  # fmt: skip
