"""Failing functions through executor, slots and the server's rules: what is settled, and what comes back when."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure import App, Backoff, Dead, Discard, Retry, Snooze
from tenure.codec import unpack_failure
from tenure.message import Settlement
from tenure.outcome import MAX_FAILURE_BYTES
from tenure.settle import Policy, decide, outcome_of
from tenure.worker.executor import Executor
from tenure.worker.settler import Finished
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tests.property.lab import Lab, hexid
from tests.unit.worker_fakes import HandClock, delivery

DAY = 86_400.0
app = App("failing")


class OwnBase(BaseException):
    pass


class NoText(Exception):
    def __init__(self, one: object, *, two: object) -> None:
        self.held = (one, two)

    def __str__(self) -> str:
        raise OwnBase

    def __reduce__(self) -> Any:
        raise OwnBase


def grouped() -> BaseException:
    return BaseExceptionGroup("several", [KeyboardInterrupt(), ExceptionGroup("in", [ValueError("\ud800")])])


def endless() -> BaseException:
    error = RuntimeError("x" * 10**6)
    error.__cause__ = error.__context__ = error
    error.add_note("\0" * 10**6)
    return error


def never_ends(depth: int = 0) -> BaseException:
    return never_ends(depth + 1)


SHAPES: dict[str, Callable[[], BaseException]] = {
    "SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError, "OwnBase": OwnBase, "StopIteration": StopIteration,
    "NoText": lambda: NoText(threading.Lock(), two=socket.socket), "BaseExceptionGroup": grouped,
    "RuntimeError": endless, "RecursionError": never_ends, "ValueError": lambda: ValueError("😀\0\udcff\x1b"),
}  # fmt: skip


@app.task(name="shape")
def shape(name: str) -> None:
    error = SHAPES[name]()
    raise error


@app.task(name="quick")
def quick() -> None: ...


@app.task(name="asks", backoff=Backoff(base=10, jitter=False), retry_on=ValueError)
def asks(what: str) -> None:
    raise {
        "retry": Retry(5, "busy"), "backoff": Retry(), "snooze": Snooze(7, "closed"), "dead": Dead("gone"),
        "discard": Discard("sold out"), "value": ValueError("x"), "key": KeyError("x"), "unclear": Retry(-1),
    }[what]  # fmt: skip


class Rig:
    """One slot; what comes out of it is kept."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.table = Table.create(1, shared=False)
        self.out: list[Finished] = []
        self.came = threading.Semaphore(0)
        executor = Executor(app.tasks, self.clock.boot, 1000)
        self.slots = Slots(1, self.table, executor, self._settle, self.clock, roll=lambda: 1.0)
        self.slots.start()
        self.jobs = 0

    def _settle(self, finished: Finished) -> None:
        self.out.append(finished)
        self.came.release()

    def run(self, task: str, *args: object) -> Settlement:
        self.jobs += 1
        self.slots.deliver([delivery(self.jobs, task=task, args=args)])
        assert self.came.acquire(timeout=10)
        return self.out[-1].settlement


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.slots.stop()


@pytest.mark.parametrize("name", SHAPES)
def test_whatever_is_raised_is_kept_as_a_failure_and_the_slot_goes_on(rig: Rig, name: str) -> None:
    settlement = rig.run("shape", name)
    failure = unpack_failure(settlement.error)
    assert settlement.kind == "retry"
    assert failure.kind.endswith(name)
    assert "never_ends" in failure.traceback if name == "RecursionError" else "raise error" in failure.traceback
    assert len(settlement.error) <= MAX_FAILURE_BYTES
    assert rig.run("quick").kind == "done"


@pytest.mark.parametrize(
    ("what", "kind", "delay", "reason"),
    [
        ("retry", "retry", 5.0, "busy"), ("backoff", "retry", 10.0, "the task asked to be run again"),
        ("snooze", "release", 7.0, "closed"), ("dead", "dead", 0.0, "gone"), ("discard", "cancel", 0.0, "sold out"),
        ("value", "retry", 10.0, "ValueError: x"),
        ("key", "dead", 0.0, "not to be tried again (it is not in retry_on): KeyError: 'x'"),
    ],
)  # fmt: skip
def test_a_task_says_what_becomes_of_its_job(rig: Rig, what: str, kind: str, delay: float, reason: str) -> None:
    settlement = rig.run("asks", what)
    assert (settlement.kind, settlement.delay, settlement.reason) == (kind, delay, reason)
    assert rig.run("quick").kind == "done"


def test_only_a_death_takes_its_delivery_along_for_the_hooks(rig: Rig) -> None:
    for what in ("retry", "snooze", "dead", "discard"):
        rig.run("asks", what)
    assert [finished.delivery is not None for finished in rig.out] == [False, False, True, False]


# ------------------------------------------------------------------------------ with the server's rules, in fake time


class Work:
    """A server, and a worker that fails every job that it takes, by the rules of a task."""

    def __init__(self, task: str = "shape") -> None:
        own = app.tasks[task].defaults
        self.policy = Policy(own.max_attempts, own.backoff, own.retry_on, own.give_up_on)
        self.lab = Lab()
        self.line = self.lab.connect()
        self.takes = 0
        self.rolls = random.Random(3)

    def take(self) -> list[tuple[str, int]]:
        """Take all that is ready: receipts, and which attempt it is."""
        self.takes += 1
        answer = self.line.ask(f"take {self.takes} 1000 0 30000 q").splitlines()
        jobs = [line.split() for line in answer if line.startswith("job ")]
        return [(f"{words[1]}:{words[2]}", int(words[5])) for words in jobs]

    def fail(self, receipt: str, attempt: int, error: BaseException) -> Settlement:
        """Fail one hand-out, as the worker would."""
        outcome = outcome_of(error, self.policy)
        item = delivery(attempt=attempt)
        settlement = decide(outcome, item, self.policy, 0.0, self.rolls.random())
        body = settlement.error.hex()
        line = f"{settlement.kind} {receipt} "
        line += f"{round(settlement.delay * 1000)} " if settlement.kind == "retry" else ""
        assert self.line.ask(f"{line}failed {len(body)}\n{body}").startswith("ok ")
        return settlement


def test_by_default_a_task_that_always_fails_stops_at_twenty_attempts_within_a_day() -> None:
    work = Work()
    work.line.ask(work.lab.add(1))
    begin = work.lab.mono
    delays: list[float] = []
    kinds: list[str] = []
    while work.lab.mono - begin < DAY:
        for receipt, attempt in work.take():
            assert attempt == len(kinds) + 1
            settlement = work.fail(receipt, attempt, ValueError("always"))
            kinds.append(settlement.kind)
            delays.append(settlement.delay)
        work.lab.gap(max(1.0, delays[-1]))
        work.lab.turn()
    assert kinds == ["retry"] * 19 + ["dead"]
    whole = [min(3600.0, 2.0**n) for n in range(19)]
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, whole, strict=False))
    job = work.lab.job(1)
    assert (job["state"], job["attempts"], job["losses"]) == ("dead", 20, 0)
    assert [row["id"] for row in work.lab.engine.browse_dead(None, 10, None)] == [hexid(1)]
    assert work.lab.counts()["/retried"] == 19
    work.lab.close()


def test_a_thousand_jobs_that_fail_together_come_back_spread_out() -> None:
    work = Work()
    count = 1000
    for n in range(1, count + 1):
        work.line.write(work.lab.add(n).encode() + b"\n")
    work.lab.turn()
    work.line.read()
    for receipt, _ in work.take():
        work.fail(receipt, 6, ConnectionError("the service is down"))
    back = []
    for _ in range(33):
        work.lab.pass_time(1.0)
        back.append(len(work.take()))
    assert sum(back) == count
    assert sum(back[:15]) == 0
    assert max(back) < 3 * count / 16
    work.lab.close()
