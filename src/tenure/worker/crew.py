"""The threads of a worker process: one of them takes, the others run what was taken.

Where a take brings a single job, the thread that took it runs it, and another one goes on taking.  So a job that comes
to a worker at rest does not wait for a second thread to wake, which costs as much as all else that is done for it here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, Literal, TypeVar

logger = logging.getLogger("tenure.worker")

J = TypeVar("J")

Take = Callable[[], J | None]
"""Takes until there is a job that its thread is to run itself, or until it is stopped (None)."""

_TAKE: Literal["take"] = "take"


class Crew(Generic[J]):
    """Runs up to `count` jobs at a time, each in a lane of its own (0 to `count` - 1) by `process`, which never raises.

    `ended` is called in the job's thread, where that still has its lane.  A thread whose job overruns can be replaced;
    it ends with that job.
    """

    def __init__(self, count: int, process: Callable[[int, J], None], ended: Callable[[], None]) -> None:
        self._process = process
        self._ended = ended
        self._work: SimpleQueue[J | Literal["take"] | None] = SimpleQueue()
        self._take: Take[J] = lambda: None
        self._taking = threading.Event()
        self._lanes = list(range(count - 1, -1, -1))
        self._in_lane: list[threading.Thread | None] = [None] * count
        self._started = 0
        self._threads: list[threading.Thread] = []
        self._overrun: list[threading.Thread] = []
        self.put = self._work.put
        """Have a job run by the next thread that is free."""
        self.waiting = self._work.qsize

    def start(self, take: Take[J] | None) -> None:
        """Start the threads, and one more where there is something to `take`."""
        if take is not None:
            self._take = take
            self._work.put(_TAKE)
        for _ in range(len(self._lanes) + (take is not None)):
            self._threads.append(self._start_one())

    def _start_one(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=f"tenure-slot-{self._started}", daemon=True)
        thread.start()
        self._started += 1
        return thread

    @property
    def takes(self) -> bool:
        """Whether a thread of the crew takes, which can run a job itself."""
        return len(self._threads) > len(self._in_lane)

    def pull(self) -> J | None:
        """Return a job that waits for a thread, which now never runs it; None: there is none.  From any thread."""
        try:
            job = self._work.get_nowait()
        except Empty:
            return None
        if job is None or job == _TAKE:
            self._work.put(job)
            return None
        return job

    def replace(self, lane: int) -> bool:
        """Give the lane of a job that overruns to others, from another thread; False: there are no more threads."""
        thread = self._in_lane[lane]
        assert thread is not None  # it has been decided that its job is not over
        self._overrun.append(thread)
        self._in_lane[lane] = None
        try:
            new = self._start_one()
        except RuntimeError as error:
            self._in_lane[lane] = thread
            self._overrun.remove(thread)
            logger.error("a slot has to wait for a job that goes on after its end: %s", error)
            return False
        self._threads = [new if one is thread else one for one in self._threads]
        self._lanes.append(lane)
        return True

    def finish_taking(self) -> None:
        """Return when nothing more is taken; after the stop of what takes."""
        self._taking.wait()

    def stop(self) -> None:
        """Let what runs finish, and end the threads; returns when they have ended.  Nothing may be put after this."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        for thread in tuple(self._overrun):
            thread.join()

    def _run(self) -> None:
        this = threading.current_thread()
        while (job := self._work.get()) is not None:
            if job == _TAKE:
                job = self._take()
                if job is None:
                    self._taking.set()
                    continue
                self._work.put(_TAKE)
            if not self._run_one(this, job):
                return
            job = None  # its arguments are not kept until the next one comes

    def _run_one(self, this: threading.Thread, job: J) -> bool:
        """Run a job; False when this thread has been replaced meanwhile."""
        lane = self._lanes.pop()
        self._in_lane[lane] = this
        self._process(lane, job)
        if self._in_lane[lane] is not this:
            self._overrun.remove(this)
            return False
        self._lanes.append(lane)
        self._ended()
        return True
