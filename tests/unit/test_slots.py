"""The slots with their executor: whatever a function does, its hand-out ends in exactly one settlement."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from tenure import App, current_job
from tenure.codec import NotStored, pack_value, unpack_result
from tenure.message import Delivery, Raw
from tenure.worker.admission import LONG
from tenure.worker.executor import Executor
from tenure.worker.keeper import is_due
from tenure.worker.room import NO_ROOM, Room
from tenure.worker.settler import Finished
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tenure.worker.unread import NOT_LISTENING
from tests.unit.worker_fakes import JOB, HandClock, delivery, message, receipt, settle_at_every_wait

app = App("shop")
seen: dict[str, Any] = {}
left_over: ContextVar[int] = ContextVar("left_over")


class OwnBase(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@app.task(name="ok")
def ok(value: Any = None) -> Any:
    return value


@app.task(name="takes")
def takes(seconds: float) -> None:
    seen["clock"].now += seconds


@app.task(name="boom")
def boom(name: str) -> None:
    kinds: dict[str, type[BaseException]] = {
        "SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit,
        "OwnBase": OwnBase, "Unprintable": Unprintable, "MemoryError": MemoryError,
    }  # fmt: skip
    raise kinds[name]


@app.task(name="odd_result")
def odd_result() -> object:
    return object()


@app.task(name="waits")
def waits() -> None:
    seen["gate"](10)


@app.task(name="forks")
def forks(raises: bool) -> bool:
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork in a process with threads
        child = os.fork()
    if child == 0:
        if raises:
            sys.exit(0)
        return True
    os.close(into)
    seen["gone"] = select.select([out], [], [], 10)[0] == [out]  # nothing is written: it becomes readable at the end
    os.close(out)
    if not seen["gone"]:
        os.kill(child, signal.SIGKILL)
    seen["status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return False


@app.task(name="context")
def context() -> None:
    seen.update(
        id=current_job.id, key=current_job.key, attempt=current_job.attempt, fence=current_job.fence,
        queue=current_job.queue, deadline=current_job.deadline, lost=current_job.lease_lost,
        left_over=left_over.get(0),
    )  # fmt: skip
    left_over.set(1)


class Rig:
    def __init__(self, count: int = 1) -> None:
        self.clock = HandClock()
        self.table = Table.create(count, shared=False)
        self.out: list[Finished] = []
        self.came = threading.Semaphore(0)
        executor = Executor(app.tasks, self.clock.boot, 1000)
        self.slots = Slots(count, self.table, executor, self._settle, self.clock, lambda: 1.0)
        self.slots.start()

    def _settle(self, finished: Finished) -> None:
        self.out.append(finished)
        self.came.release()

    def run(self, item: Delivery) -> Finished:
        self.slots.deliver([item])
        assert self.came.acquire(timeout=10)
        return self.out[-1]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.slots.stop()


def test_a_return_is_done_with_its_packed_result(rig: Rig) -> None:
    finished = rig.run(delivery(task="ok", args=(42,)))
    assert (finished.settlement.kind, finished.settlement.result) == ("done", pack_value(42))
    assert rig.table.unanswered() == [receipt()]
    assert rig.table.counts().started == 1


def test_what_cannot_start_in_time_any_more_is_given_back_unrun(rig: Rig) -> None:
    settlement = rig.run(delivery(task="ok")._replace(start_by=rig.clock.now)).settlement
    assert (settlement.kind, settlement.reason) == ("release", "it could not start in time")
    assert settlement.delay > 0  # the server's clock may be behind: it is not to come again at once
    assert rig.table.counts().started == 0
    assert rig.run(delivery(1, task="ok")._replace(start_by=rig.clock.now + 0.1)).settlement.kind == "done"


def test_all_that_a_revoked_take_brings_is_given_back_unrun() -> None:
    rig = Rig(2)
    rig.table.take.open(7, rig.clock.now)
    rig.table.take.revoke(7)
    rig.slots.deliver([delivery(0, task="ok"), delivery(1, task="ok")])
    assert [(one.settlement.kind, one.settlement.reason) for one in rig.out] == [("release", NOT_LISTENING)] * 2
    assert rig.table.counts().started == 0
    rig.slots.stop()


def test_all_that_a_take_brings_is_entered_before_any_of_it_starts() -> None:
    entered: list[int] = []
    rig = Rig(2)
    rig.table.take.open(7, rig.clock.now)
    rig.table.begin = lambda lane: entered.append(rig.table.held(0))  # type: ignore[method-assign]
    rig.slots.deliver([delivery(0, task="ok"), delivery(1, task="ok")])
    assert rig.came.acquire(timeout=10)
    assert rig.came.acquire(timeout=10)
    assert entered[0] == 2
    rig.slots.stop()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What the task that waits waits for."""
    gate = threading.Event()
    monkeypatch.setitem(seen, "gate", gate.wait)
    return gate


def test_what_is_in_hand_is_given_back_unrun_by_a_worker_that_leaves(gate: threading.Event) -> None:
    rig = Rig(1)
    rig.slots.deliver([delivery(n, task="waits") for n in range(3)])
    while rig.table.counts().started < 1:
        pass
    rig.slots.drain()
    assert [(one.settlement.kind, one.settlement.delay) for one in rig.out] == [("release", 0.0)] * 2
    gate.set()
    rig.slots.stop()
    assert [one.settlement.kind for one in rig.out] == ["release", "release", "done"]
    assert rig.table.counts().started == 1


def test_what_is_in_hand_behind_a_long_job_is_given_back_and_its_places_are_free_again(gate: threading.Event) -> None:
    rig = Rig(1)
    rig.slots.deliver([delivery(n, task="waits") for n in range(3)])
    assert rig.slots.free() == NO_ROOM
    assert [one.settlement.receipt for one in rig.out] == [receipt(1, 1), receipt(1, 2)]
    gate.set()
    rig.slots.stop()
    assert rig.slots.free() == Room(1)
    assert rig.table.counts().started == 1


def test_none_has_no_result(rig: Rig) -> None:
    assert rig.run(delivery(task="ok")).settlement.result is None


@pytest.mark.parametrize(
    "name", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "OwnBase", "Unprintable", "MemoryError"]
)
def test_whatever_is_raised_is_retried_and_the_slot_lives(rig: Rig, name: str) -> None:
    finished = rig.run(delivery(task="boom", args=(name,)))
    assert finished.settlement.kind == "retry"
    assert name in finished.settlement.reason
    assert rig.run(delivery(1, task="ok")).settlement.kind == "done"


def test_arguments_that_no_longer_fit_the_function_are_dead_at_once_with_their_reason(rig: Rig) -> None:
    finished = rig.run(delivery(task="context", args=(1, 2)))
    assert finished.settlement.kind == "dead"
    assert "bad arguments: " in finished.settlement.reason
    assert not finished.settlement.ran


def test_the_messages_own_limit_of_attempts_counts(rig: Rig) -> None:
    item = delivery(message=message("boom", args=("OwnBase",), max_attempts=2), attempt=2)
    assert rig.run(item).settlement.kind == "dead"


def test_a_result_without_a_wire_form_is_left_out_and_the_job_is_done(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    settlement = rig.run(delivery(task="odd_result")).settlement
    assert settlement.kind == "done"
    assert settlement.result is not None
    kept = unpack_result(settlement.result)
    assert isinstance(kept, NotStored)
    assert kept.kind == "not storable"
    assert "object" in kept.why
    assert "is not kept" in caplog.text


def test_a_result_that_is_too_large_is_told_of(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    settlement = rig.run(delivery(task="ok", args=("x" * 2000,))).settlement
    assert settlement.kind == "done"
    assert settlement.result is not None
    kept = unpack_result(settlement.result)
    assert isinstance(kept, NotStored)
    assert kept.kind == "too large"
    assert "limit 1000" in caplog.text


def test_an_unknown_task_is_released_with_a_warning(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    assert rig.run(delivery(task="shop.other")).settlement.kind == "release"
    assert "shop.other" in caplog.text


def test_bytes_that_do_not_decode_are_dead_and_newer_ones_are_released(rig: Rig) -> None:
    raw = Raw(JOB, "default", "ok", b"\xff", "the checksum is wrong")
    assert rig.run(delivery(message=raw)).settlement.kind == "dead"
    newer = Raw(JOB, "default", "ok", b"\xff", "newer", version=9)
    assert rig.run(delivery(1, message=newer)).settlement.kind == "release"
    broken = message("ok", job=2)
    spoilt = broken._replace(args=b"\xc1")
    assert rig.run(delivery(2, message=spoilt)).settlement.kind == "dead"


def test_a_job_knows_about_itself_and_about_nothing_of_the_one_before(rig: Rig) -> None:
    for number in (1, 2):
        rig.run(delivery(number=number, task="context"))
        assert seen == {
            "id": JOB, "key": JOB, "attempt": 1, "fence": number, "queue": "default", "deadline": 1030.0,
            "lost": False, "left_over": 0,
        }  # fmt: skip


def test_a_job_whose_own_deadline_has_passed_is_not_started(rig: Rig) -> None:
    rig.slots.deliver([delivery(task="ok", deadline=1000.0)])
    assert rig.run(delivery(1, task="ok")).settlement.receipt == receipt(1, 1)
    assert len(rig.out) == 1
    assert rig.table.counts().started == 1
    assert rig.table.hold(receipt(), 1030.0, 30.0) is not None


def test_a_receipt_that_is_here_is_not_started_again(rig: Rig) -> None:
    rig.run(delivery(task="ok"))
    rig.slots.deliver([delivery(task="ok")])
    rig.run(delivery(1, task="ok"))
    assert [finished.settlement.receipt for finished in rig.out] == [receipt(), receipt(1, 1)]


def test_a_messages_timeout_does_not_end_the_extending_of_its_lease(rig: Rig) -> None:
    gate = threading.Event()
    seen["gate"] = gate.wait
    rig.slots.deliver([delivery(message=message("waits", timeout=0.5))])
    (entry,) = rig.table.entries()
    for now in (1010.0, 1035.0, 2000.0):
        rig.table.extend(entry, now + 30.0)
        (entry,) = rig.table.entries()
        assert is_due(entry, now + 10.0)
    gate.set()
    assert rig.came.acquire(timeout=10)


@pytest.mark.parametrize("raises", [False, True])
def test_a_fork_that_comes_back_out_of_the_function_is_ended_at_once(rig: Rig, raises: bool) -> None:
    finished = rig.run(delivery(task="forks", args=(raises,)))
    assert seen["gone"]
    assert seen["status"] == 1
    assert (finished.settlement.kind, finished.settlement.result) == ("done", pack_value(False))
    assert rig.table.unanswered() == [receipt()]
    assert rig.table.counts().started == 1


@pytest.mark.parametrize("count", [1, 2])
def test_the_slot_of_a_job_that_took_a_while_is_free_once_its_end_is_answered(count: int) -> None:
    rig = Rig(count)
    seen["clock"] = rig.clock
    finished = rig.run(delivery(task="takes", args=(2 * LONG,)))
    assert max(rig.slots.free().limit for _ in range(20)) <= count - 1
    rig.table.settled(finished.place, 0)
    assert rig.slots.free() == Room(count)
    rig.run(delivery(1, task="takes", args=(LONG / 2,)))
    rig.slots.stop()
    assert rig.slots.free() == Room(count)


def test_free_slots_are_counted_back(rig: Rig) -> None:
    assert rig.slots.free() == Room(1)
    rig.run(delivery(task="ok"))
    assert rig.slots.free() == Room(1)


def test_what_comes_while_draining_is_released(rig: Rig) -> None:
    rig.slots.drain()
    finished = rig.run(delivery(task="ok"))
    assert (finished.settlement.kind, finished.settlement.delay) == ("release", 0.0)
    assert rig.table.counts().started == 0


def test_an_error_around_the_function_is_a_failed_attempt(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.slots._executor = None  # type: ignore[assignment]
    finished = rig.run(delivery(task="ok"))
    assert finished.settlement.kind == "retry"
    assert "unexpected error around a job" in caplog.text


def test_of_the_jobs_that_were_lost_before_one_runs_at_a_time() -> None:
    rig = Rig(2)
    gate = threading.Event()
    seen["gate"] = gate.wait
    first, second, other = delivery(1, task="waits"), delivery(2, task="ok"), delivery(3, task="ok")
    rig.slots.deliver([first._replace(losses=2)])
    released = rig.run(second._replace(losses=2)).settlement
    assert (released.kind, released.receipt, released.delay) == ("release", second.receipt, 1.0)
    assert rig.run(other._replace(losses=1)).settlement.kind == "done"
    gate.set()
    assert rig.came.acquire(timeout=10)
    rig.slots.free()
    while rig.slots._suspects:
        rig.slots.free()
    assert rig.run(delivery(2, 2, task="ok")._replace(losses=2)).settlement.kind == "done"
    rig.slots.stop()


def test_a_suspect_starts_only_when_the_others_are_given_back() -> None:
    rig = Rig(3)
    answered = settle_at_every_wait(rig.clock, rig.table, rig.out)
    rig.slots.deliver([delivery(job, task="ok")._replace(losses=4) for job in range(3)])
    for _ in range(3):
        assert rig.came.acquire(timeout=10)
    assert [finished.settlement.kind for finished in rig.out] == ["release", "release", "done"]
    assert len(answered) == 2
    rig.slots.stop()
