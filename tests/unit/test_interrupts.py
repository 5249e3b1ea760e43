"""Interrupts: they reach the function that is over its time, once, and nothing else in its thread."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from queue import Empty, SimpleQueue
from time import sleep
from uuid import uuid4

import pytest

from tenure import App
from tenure.clock import SystemClock
from tenure.engine.store import Store
from tenure.errors import Interrupt, LeaseLost, TimeLimitExceeded
from tenure.worker import interrupts
from tenure.worker.interrupts import CoroutineRun, Interrupts, ThreadRun
from tests.unit.worker_fakes import HandClock


class Until:
    """An end that comes when `due` says so; `overruns` is called where a function goes on after it."""

    def __init__(
        self,
        due: Callable[[], float | None],
        kind: type[Interrupt] = LeaseLost,
        overruns: Callable[[], object] = lambda: None,
    ) -> None:
        self.due = due
        self._kind = kind
        self._overruns = overruns

    def kind(self) -> type[Interrupt]:
        return self._kind

    def missed(self, moment: float) -> None:
        """Its end is not missed."""

    def overrun(self) -> None:
        self._overruns()


class Rig:
    """A watcher whose looks are taken by hand, and one deadline."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.deadline: float | None = 1030.0
        self.watcher = Interrupts(self.clock)
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._looked: SimpleQueue[float] = SimpleQueue()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def due(self) -> float | None:
        return self.deadline

    def look(self, at: float) -> float:
        """Have a look taken in another thread, as the watcher does."""
        self.clock.now = at
        self._asked.put(True)
        return self._looked.get(timeout=10)

    def _look(self) -> None:
        while self._asked.get():
            self._looked.put(self.watcher.turn())

    def close(self) -> None:
        self._asked.put(False)
        self._thread.join(10)

    def run(self) -> ThreadRun:
        return ThreadRun(self.watcher, Until(self.due))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def test_a_function_is_interrupted_when_its_time_is_over_and_not_before(rig: Rig) -> None:
    seen: list[float] = []

    def function(_: None) -> None:
        seen.append(rig.look(1029.9))
        seen.append(rig.look(1030.0))
        seen.append(inf)  # never reached

    run = rig.run()
    with pytest.raises(LeaseLost, match="another worker may hold this job"):
        run.call(1030.0, function, None)
    assert run.interrupted
    assert seen == [1030.0]
    assert rig.look(2000.0) == inf


def test_a_deadline_that_has_moved_on_is_slept_for(rig: Rig) -> None:
    def function(_: None) -> float:
        rig.deadline = 1060.0
        return rig.look(1031.0)

    run = rig.run()
    assert run.call(1030.0, function, None) == 1060.0
    assert not run.interrupted


def test_a_lease_that_the_broker_has_ended_is_over_at_once(rig: Rig) -> None:
    def function(_: None) -> None:
        rig.deadline = None
        rig.look(1000.0)

    with pytest.raises(LeaseLost):
        rig.run().call(1030.0, function, None)


def test_one_that_is_caught_does_not_come_again(rig: Rig) -> None:
    caught: list[str] = []

    def function(_: None) -> float:
        try:
            rig.look(1030.0)
        except BaseException as error:  # noqa: BLE001  (what is tested)
            caught.append(type(error).__name__)
        return rig.look(1031.0)

    run = rig.run()
    assert run.call(1030.0, function, None) == inf
    assert run.interrupted
    assert caught == ["LeaseLost"]


def test_an_except_exception_does_not_catch_it(rig: Rig) -> None:
    steps: list[int] = []

    def function(_: None) -> None:
        for step in range(3):
            try:
                steps.append(step)
                rig.look(1030.0)
            except Exception:  # noqa: BLE001  (as in a loop over steps that may fail)
                pass

    with pytest.raises(LeaseLost):
        rig.run().call(1030.0, function, None)
    assert steps == [0]


def test_a_run_that_is_over_is_not_interrupted(rig: Rig) -> None:
    run = rig.run()
    assert run.call(1030.0, lambda value: value, 7) == 7
    assert run.interrupt()
    assert not run.interrupted
    assert sum(range(100)) == 4950  # an exception that was on its way would have arrived by now


def test_nothing_is_raised_where_a_lock_is_being_taken(rig: Rig) -> None:
    """Released with its owner gone, the lock of a log handler would stop every thread that logs."""
    looks: list[float] = []

    class Slow(logging.Handler):
        def acquire(self) -> None:
            super().acquire()
            if not looks:
                thread.start()
                thread.join(10)

        def emit(self, record: logging.LogRecord) -> None:
            looks.append(-1.0)

    def function(_: None) -> None:
        rig.clock.now = 1030.0
        log.warning("its lock is being taken")
        rig.look(1030.1)

    def look() -> None:
        looks.append(rig.watcher.turn())

    thread = threading.Thread(target=look)
    log = logging.getLogger("apart")
    handler = Slow()
    log.addHandler(handler)
    log.propagate = False
    with pytest.raises(LeaseLost):
        rig.run().call(1030.0, function, None)
    assert looks == [1030.001, -1.0]
    another = threading.Thread(target=log.warning, args=("the next one",), daemon=True)
    another.start()
    another.join(5)
    assert looks == [1030.001, -1.0, -1.0]


def test_one_that_never_leaves_such_code_is_interrupted_all_the_same(rig: Rig) -> None:
    asked: list[bool] = []
    go, gone = threading.Event(), threading.Event()

    def interrupt(run: ThreadRun) -> None:
        go.wait(10)
        while not run.interrupted:
            asked.append(run.interrupt())
        gone.set()

    def function(run: ThreadRun) -> None:
        go.set()
        gone.wait(10)

    run = rig.run()
    thread = threading.Thread(target=interrupt, args=(run,))
    thread.start()
    with pytest.raises(LeaseLost):
        run.call(1030.0, function, run)
    thread.join(10)
    assert asked == [False] * 25 + [True]


def test_a_queue_that_runs_in_the_same_thread_finishes_its_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("shop", broker=f"memory://{uuid4().hex}")
    note = app.task(name="note")(len)
    begin, looks = Store.begin, []

    def begun(store: Store) -> None:
        begin(store)
        looks.append(rig.look(1030.0))

    def function(text: str) -> None:
        note.delay(text)
        looks.append(rig.look(1030.1))
        _loops(1000)

    monkeypatch.setattr(Store, "begin", begun)
    with pytest.raises(LeaseLost):
        rig.run().call(1030.0, function, "in the middle")
    monkeypatch.undo()
    assert looks[:-1] == [1030.001] * (len(looks) - 1)
    assert note.delay("after it").created
    assert app.counts.added == 2
    app.close()


def test_thousands_at_random_moments_reach_their_function_or_nobody() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    watcher = Interrupts(SystemClock())
    begun: list[None] = []
    ended: Counter[tuple[str, bool]] = Counter()

    def slot() -> None:
        dice = random.Random(seed)
        # How many are hit is the scheduler's choice: it goes on until there are enough of them to tell something.
        while len(begun) < 10_000 or (ended["LeaseLost", True] <= 10 and len(begun) < 200_000):
            begun.append(None)
            run = ThreadRun(watcher, Until(lambda: None))
            try:
                end = dice.choice(_ENDS)(run, dice.choice((0, 10, 300, 1500)))
            except (ValueError, LeaseLost) as error:
                end = type(error).__name__
            ended[end, run.interrupted is LeaseLost] += 1

    _run_beside(watcher, slot)
    assert ended.total() == len(begun) >= 10_000
    assert ended["LeaseLost", True] > 10
    assert ended["returned", False] > 100
    assert watcher.turn() == inf


def _run_beside(watcher: Interrupts, slot: Callable[[], None]) -> None:
    """Run a slot's thread beside that of its watcher, with very many switches between the two."""
    over = threading.Event()
    failed: list[BaseException] = []

    def watch() -> None:
        while not over.is_set():
            watcher.turn()

    def guarded() -> None:
        try:
            slot()
        except BaseException as error:  # noqa: BLE001  (an interrupt may have come where nothing may)
            failed.append(error)

    threads = [threading.Thread(target=watch, daemon=True), threading.Thread(target=guarded, daemon=True)]
    often = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    try:
        for thread in threads:
            thread.start()
        threads[1].join(30)
        assert not threads[1].is_alive()
    finally:
        over.set()
        sys.setswitchinterval(often)
    threads[0].join(30)
    assert failed == []


def _loops(times: int) -> str:
    for _ in range(times):
        pass
    return "returned"


def _fails(times: int) -> str:
    _loops(times)
    raise ValueError


def _swallows(times: int) -> str:
    try:
        return _loops(times)
    except BaseException:  # noqa: BLE001  (what is tested)
        return "swallowed"


def _raises_it_itself(times: int) -> str:
    _loops(times)
    raise LeaseLost


def _cleans_up(times: int) -> str:
    try:
        return _loops(times)
    finally:
        _loops(times)


_ENDS = [
    lambda run, times, function=function: run.call(0.0, function, times)
    for function in (_loops, _fails, _swallows, _raises_it_itself, _cleans_up)
]


async def _waits(rig: Rig, run: CoroutineRun, caught: list[str]) -> None:
    rig.look(1030.0)
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError as error:
        caught.append(str(error))
        raise


def test_a_coroutine_is_cancelled_with_the_reason(rig: Rig) -> None:
    caught: list[str] = []

    async def job() -> bool:
        run = CoroutineRun(rig.watcher, Until(rig.due))
        with pytest.raises(asyncio.CancelledError):
            await run.call(1030.0, _waits(rig, run, caught))
        return run.interrupted is LeaseLost

    with asyncio.Runner() as runner:
        assert runner.run(job())
    assert caught == ["LeaseLost: another worker may hold this job by now"]


def test_a_coroutine_that_is_over_is_not_cancelled(rig: Rig) -> None:
    async def look() -> None:
        rig.look(1030.0)

    async def job() -> str:
        run = CoroutineRun(rig.watcher, Until(rig.due))
        await run.call(1030.0, look())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "not cancelled"

    with asyncio.Runner() as runner:
        assert runner.run(job()) == "not cancelled"


def test_a_loop_that_is_closed_does_not_matter(rig: Rig) -> None:
    async def job() -> CoroutineRun:
        return CoroutineRun(rig.watcher, Until(rig.due))

    with asyncio.Runner() as runner:
        run = runner.run(job())
    assert run.interrupt()


def test_the_thread_sleeps_until_it_is_needed() -> None:
    looks: list[float] = []

    class Counted(Interrupts):
        def turn(self) -> float:
            while not first_is_over.is_set():
                sleep(0)
            looks.append(super().turn())
            return looks[-1]

    watcher = Counted(SystemClock())
    first_is_over = threading.Event()
    watcher.start()
    due = SystemClock().boot() + 0.5
    ThreadRun(watcher, Until(lambda: due)).call(due, sleep, 0.0)
    first_is_over.set()
    # It sleeps until then, although the run that told it so is over, and so no other one wakes it.
    while watcher._next_at != due:
        assert SystemClock().boot() < due
        sleep(0)
    for _ in range(300):
        ThreadRun(watcher, Until(lambda: due)).call(due, sleep, 0.0)
    assert len(looks) <= 2
    with pytest.raises(LeaseLost):
        ThreadRun(watcher, Until(lambda: due)).call(due, _wait, SimpleQueue())
    assert 0 <= SystemClock().boot() - due < 1.0
    assert len(looks) <= 4
    watcher.stop()


class Noted:
    """A run that only notes that it was interrupted."""

    def __init__(self, due: float) -> None:
        self.at = due
        self.told: SimpleQueue[bool] = SimpleQueue()

    def due(self) -> float:
        return self.at

    def interrupt(self) -> bool:
        self.told.put(True)
        return True


def test_a_run_that_begins_during_a_look_is_not_missed() -> None:
    now = SystemClock().boot()
    first, second = Noted(now + 0.02), Noted(now + 0.1)

    class Busy(Interrupts):
        def turn(self) -> float:
            next_at = super().turn()
            if not first.told.empty() and second.told.empty():
                self.watch(second, second.at)
            return next_at

    watcher = Busy(SystemClock())
    watcher.start()
    watcher.watch(first, first.at)
    assert second.told.get(timeout=10)
    watcher.stop()


def test_what_has_not_arrived_when_the_function_is_over_is_taken_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[tuple[int, type[BaseException] | None]] = []
    monkeypatch.setattr(interrupts, "_raise_in", lambda thread, kind: raised.append((thread, kind)))
    assert rig.run().call(1030.0, rig.look, 1030.0) == inf
    assert raised == [(threading.get_ident(), LeaseLost), (threading.get_ident(), None)]
    assert rig.run().call(1060.0, lambda value: value, 7) == 7
    assert len(raised) == 2


def _wait(gate: SimpleQueue[None]) -> None:
    while True:
        with suppress(Empty):
            gate.get(timeout=0.01)


def test_one_that_arrives_while_its_run_is_closed_leaves_nothing_undecided(rig: Rig) -> None:
    overruns: list[bool] = []

    class Late(ThreadRun):
        def _close(self) -> None:
            super()._close()
            raise TimeLimitExceeded  # as if it had come in the last line

    run = Late(rig.watcher, Until(rig.due, TimeLimitExceeded, lambda: overruns.append(True)))
    with pytest.raises(TimeLimitExceeded):
        run.call(1030.0, lambda at: _swallowed(rig, at), 1030.0)
    rig.look(1030.0 + interrupts.OVERRUN_AFTER)
    assert run.interrupted is TimeLimitExceeded
    assert overruns == []


def _swallowed(rig: Rig, at: float) -> None:
    with suppress(TimeLimitExceeded):
        rig.look(at)


WAYS = ("in time", "interrupted", "overrun")


def test_each_of_thousands_has_ended_in_time_or_has_overrun_and_never_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told to have overrun has lost its slot: told too late, or twice, a slot would be lost or doubled."""
    monkeypatch.setattr(interrupts, "OVERRUN_AFTER", 0.0005)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    watcher = Interrupts(SystemClock())
    told: Counter[int] = Counter()
    closed: Counter[str] = Counter()

    def slot() -> None:
        dice = random.Random(seed)
        # Each way has to be seen more than ten times: on a busy machine one of them may be rare, so go on until it was.
        for number in count():
            if number >= 2_000 and min(closed[how] for how in WAYS) > 10:
                return
            run = ThreadRun(watcher, Until(lambda: None, TimeLimitExceeded, partial(told.update, [number])))
            with suppress(TimeLimitExceeded, LeaseLost, ValueError):
                dice.choice(_ENDS)(run, dice.choice((300, 3_000, 30_000)))
            at_the_end = told[number]
            _loops(dice.choice((0, 100)))
            assert told[number] == at_the_end, "told after its end"
            closed["overrun" if at_the_end else "interrupted" if run.interrupted else "in time"] += 1

    _run_beside(watcher, slot)
    assert set(told.values()) <= {1}
    print(closed)
    assert min(closed[how] for how in WAYS) > 10, closed
    assert sum(closed.values()) >= 2_000
    while watcher.turn() != inf:  # looks at those that were interrupted last
        sleep(0)
