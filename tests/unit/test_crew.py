"""The threads of a worker process: one takes, runs a single job itself, and another one goes on taking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from threading import get_ident

import pytest

from tenure.worker.crew import Crew


class Rig:
    """A crew whose takes are given by the test, and whose jobs wait for the test."""

    def __init__(self, count: int, takes: bool = True) -> None:
        self.given: SimpleQueue[str | None] = SimpleQueue()
        self.takers: SimpleQueue[int] = SimpleQueue()
        self.begun: SimpleQueue[tuple[str, int, int]] = SimpleQueue()
        self.gates: dict[str, threading.Event] = {}
        self.ended: SimpleQueue[int] = SimpleQueue()
        self.crew: Crew[str] = Crew(count, self._process, lambda: self.ended.put(get_ident()))
        self.crew.start(self._take if takes else None)

    def _take(self) -> str | None:
        self.takers.put(get_ident())
        return self.given.get()

    def _process(self, lane: int, job: str) -> None:
        gate = self.gates.setdefault(job, threading.Event())
        self.begun.put((job, lane, get_ident()))
        gate.wait(10)

    def give(self, job: str) -> tuple[str, int, int]:
        """Have a take bring one job, and return what began, in which lane and thread."""
        self.given.put(job)
        return self.begun.get(timeout=10)

    def taker(self) -> int:
        return self.takers.get(timeout=10)

    def stop(self) -> None:
        for gate in self.gates.values():
            gate.set()
        if self.crew.takes:
            self.given.put(None)
            self.crew.finish_taking()
        self.crew.stop()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(2)
    yield rig
    rig.stop()


def test_a_single_job_runs_in_the_thread_that_took_it_and_another_one_goes_on_taking(rig: Rig) -> None:
    first = rig.taker()
    assert rig.give("a")[2] == first
    second = rig.taker()
    assert second != first
    assert rig.give("b")[2] == second
    third = rig.taker()
    assert third not in (first, second)
    rig.gates["a"].set()
    assert rig.ended.get(timeout=10) == first
    assert rig.give("c")[2] == third


def test_jobs_that_run_at_once_have_lanes_of_their_own(rig: Rig) -> None:
    lanes = {rig.give("a")[1], rig.give("b")[1]}
    assert lanes == {0, 1}
    rig.gates["a"].set()
    rig.ended.get(timeout=10)
    assert rig.give("c")[1] in lanes


def test_the_thread_that_takes_runs_nothing_that_waits(rig: Rig) -> None:
    for job in "abc":
        rig.crew.put(job)
    assert {rig.begun.get(timeout=10)[0] for _ in range(2)} == {"a", "b"}
    assert rig.crew.waiting() == 1
    rig.gates["a"].set()
    assert rig.begun.get(timeout=10)[0] == "c"


def test_without_a_take_all_threads_run_jobs() -> None:
    rig = Rig(2, takes=False)
    assert not rig.crew.takes
    rig.crew.put("a")
    rig.crew.put("b")
    assert {rig.begun.get(timeout=10)[0] for _ in range(2)} == {"a", "b"}
    rig.stop()


def test_what_waits_can_be_pulled_and_the_turn_to_take_stays() -> None:
    rig = Rig(1)
    rig.taker()
    rig.give("a")
    rig.taker()
    rig.crew.put("b")
    assert (rig.crew.pull(), rig.crew.pull()) == ("b", None)
    rig.crew.put("take")  # as it stands there between two takes
    assert rig.crew.pull() is None
    rig.gates["a"].set()
    assert rig.taker(), "a second thread takes: the turn was not lost"
    rig.given.put(None)
    rig.stop()


def test_a_replaced_thread_ends_with_its_job_and_its_lane_goes_on(rig: Rig) -> None:
    _, lane, _ = rig.give("a")
    overrun = rig.crew._in_lane[lane]
    assert overrun is not None
    assert rig.crew.replace(lane)
    _, first, _ = rig.give("b")
    _, second, _ = rig.give("c")
    assert {first, second} == {0, 1}
    rig.gates["a"].set()
    overrun.join(10)
    assert not overrun.is_alive()
    assert rig.ended.empty(), "it had no lane any more that could become free"
    rig.gates["b"].set()
    rig.ended.get(timeout=10)
    assert rig.crew._overrun == []


def test_where_there_are_no_more_threads_a_job_that_overruns_keeps_its_lane(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    _, lane, _ = rig.give("a")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not rig.crew.replace(lane)
    rig.gates["a"].set()
    rig.ended.get(timeout=10)
    assert {rig.give("b")[1], rig.give("c")[1]} == {0, 1}


def test_a_stop_waits_for_what_runs() -> None:
    rig = Rig(1)
    rig.give("a")
    rig.given.put(None)
    rig.crew.finish_taking()
    stopping = threading.Thread(target=rig.crew.stop)
    stopping.start()
    assert stopping.is_alive()
    rig.gates["a"].set()
    stopping.join(10)
    assert not stopping.is_alive()
    assert not any(thread.is_alive() for thread in rig.crew._threads)
