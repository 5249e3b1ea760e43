"""Scripted stand-ins for what a worker speaks to, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from tenure import App
from tenure.broker import EndedAs, Extend, Extended, Settled
from tenure.cli import signals
from tenure.cli.main import cli
from tenure.codec import pack_call
from tenure.context import TestHold
from tenure.message import Delivery, Message, Settlement
from tenure.outcome import Outcome
from tenure.settle import Policy
from tenure.worker import supervisor
from tenure.worker.executor import Executor
from tenure.worker.interrupts import Interrupts
from tenure.worker.options import WorkerOptions
from tenure.worker.settler import Finished
from tenure.worker.table import Table

JOB = "0190f3a2c0de7abc8def0123456789ab"


class HandClock:
    """All three clocks show `now`; a wait moves it on instead of taking time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None

    def wall(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now

    def mono(self) -> float:
        return self.now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        self.on_wait()
        return event.is_set()


def receipt(number: int = 1, job: int = 0) -> bytes:
    return b"%032x:%d" % (int(JOB, 16) + job, number)


def message(task: str = "shop.charge", job: int = 0, args: tuple[Any, ...] = (), **fields: Any) -> Message:
    words = {"args": pack_call(args, {}), "checksum": 0, "fingerprint": b"", **fields}
    return Message(id=f"{int(JOB, 16) + job:032x}", task=task, **words)


def delivery(job: int = 0, number: int = 1, *, deadline: float = 1030.0, attempt: int = 1, **fields: Any) -> Delivery:
    body = fields.pop("message", None) or message(job=job, **fields)
    return Delivery(body, receipt(number, job), number, attempt, 0, 30.0, deadline)


def look(watcher: Interrupts) -> None:
    """Return once a watcher, in its own thread, has looked and found no more to do."""
    again: SimpleQueue[bool] = SimpleQueue()
    watcher.watch(_Marker(again), 0.0)
    again.get(timeout=10)


class _Marker:
    def __init__(self, looked: SimpleQueue[bool]) -> None:
        self._looked = looked
        self._looks = 0

    def due(self) -> float | None:
        return None

    def interrupt(self) -> bool:
        # Others may come after it in one look; so it answers in the second.
        self._looks += 1
        if self._looks > 1:
            self._looked.put(True)
        return self._looks > 1


class WatchedHold(TestHold):
    """A hold with a watcher of its own, which goes by a clock that is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.watcher = Interrupts(self.clock)
        self.watcher.start()


def execute(app: App, item: Delivery, hold: WatchedHold) -> tuple[Outcome, Policy]:
    """Run a job as a slot does, or as the loop does where it is a coroutine; the hold's watcher ends with it."""
    executor = Executor(app.tasks, HandClock().boot, 1000, hold.watcher)
    try:
        if not executor.is_async(item):
            return executor.execute(item, hold)
        with asyncio.Runner() as runner:
            return runner.run(executor.execute_async(item, hold))
    finally:
        hold.watcher.stop()


def settle_at_every_wait(clock: HandClock, table: Table, out: list[Finished]) -> list[Finished]:
    """Have each wait end with an answer for the next job that has finished; returns those that had theirs."""
    answered: list[Finished] = []

    def answer(event: threading.Event, seconds: float) -> bool:
        finished = out[len(answered)]
        table.settled(finished.place, 2)
        answered.append(finished)
        return False

    clock.wait = answer  # type: ignore[method-assign]
    return answered


class ScriptedConsumer:
    """Answers each take and each settle with the next item of its script: a value, or an exception to raise."""

    def __init__(
        self,
        takes: Sequence[list[Delivery] | BaseException | Callable[[], list[Delivery]]] = (),
        settles: Sequence[list[Settled] | BaseException] = (),
    ) -> None:
        self._takes = list(takes)
        self._settles = list(settles)
        self.asked: list[int] = []
        self.queues: list[Sequence[str] | None] = []
        self.sent: list[list[Settlement]] = []
        self.interrupted = 0
        self.number = 1
        self.when_empty: Callable[[], None] = lambda: None

    def take(self, limit: int, wait: float, queues: Sequence[str] | None = None) -> list[Delivery]:
        assert 0 < wait <= 0.5 if queues is None else wait == 0
        self.asked.append(limit)
        self.queues.append(queues)
        if not self._takes:
            self.when_empty()
            return []
        step = self._takes.pop(0)
        if isinstance(step, BaseException):
            raise step
        self.number += 1
        return step() if callable(step) else step

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.sent.append(list(settlements))
        step = self._settles.pop(0) if self._settles else [_granted(item) for item in settlements]
        if isinstance(step, BaseException):
            raise step
        return step

    def interrupt(self) -> None:
        self.interrupted += 1

    def close(self) -> None:
        pass


class ScriptedKeeper:
    """Answers extends and byes by functions; what was asked is kept."""

    def __init__(self) -> None:
        self.extended: list[list[bytes]] = []
        self.progress: list[list[bytes | None]] = []
        self.byes: list[tuple[str, str, str, list[bytes]]] = []
        self.untaken: list[tuple[str, int, list[bytes]]] = []
        self.on_extend: Callable[[bytes], Extended] = lambda receipt: Extended(None)
        self.on_bye: Callable[[], list[EndedAs]] = list

    def extend(self, items: Sequence[Extend]) -> list[Extended]:
        self.extended.append([item.receipt for item in items])
        self.progress.append([item.progress for item in items])
        return [self.on_extend(item.receipt) for item in items]

    def settle(self, session: str, settlements: Sequence[Settlement]) -> list[Settled]:
        raise NotImplementedError

    def bye(self, session: str, end: Literal["left", "lost"], cause: str, settling: Sequence[bytes]) -> list[EndedAs]:
        self.byes.append((session, end, cause, list(settling)))
        return self.on_bye()

    def untake(self, session: str, number: int, cause: str, held: Sequence[bytes]) -> None:
        self.untaken.append((session, number, list(held)))

    def close(self) -> None:
        pass


_STATES = {"done": "done", "retry": "scheduled", "release": "released", "dead": "dead", "cancel": "cancelled"}


def _granted(settlement: Settlement) -> Settled:
    return Settled("ok", _STATES[settlement.kind])


def worker_command(monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str, list[WorkerOptions]]:
    """Call `tenure worker` and return its exit code, what it printed, and what the supervisor was asked for."""
    asked: list[WorkerOptions] = []

    def run(options: WorkerOptions) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr(supervisor, "run_supervisor", run)
    monkeypatch.setattr(signals, "no_more_ends", lambda: None)  # this process goes on
    done = CliRunner().invoke(cli, ["worker", "-A", "shop", *args])
    return done.exit_code, done.output, asked
