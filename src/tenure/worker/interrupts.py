"""Ends a function from outside when its time is over: by an exception in its thread, or by cancelling its coroutine.

An execution is interrupted once at most, and only while its function runs.  Its thread and the watcher both try to
decide how it ends, and one step tells who was first.  Closed first, it is never interrupted.  Interrupted first, its
thread takes back what has not arrived before it goes on; what arrives in these last lines comes out of them, and as it
comes once, nothing can come after it.

A function that still runs a while after its time limit made an end to it, in a system call for one, has overrun.  That
too is decided in one step: either it is over in time, or its slot goes to other jobs.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, Protocol, TypeVar

from tenure.clock import Clock
from tenure.errors import Interrupt, LeaseLost

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("tenure.worker")

A = TypeVar("A")
T = TypeVar("T")

OVERRUN_AFTER = 0.5
"""Seconds that a function has to clean up once it is interrupted: after these it has overrun."""

_AGAIN = 0.001
"""Seconds after which a run is looked at again that could not be interrupted just now."""

_TRIES = 25
"""How often such a run is let off: half of the 50 ms that the own deadline is early by."""

_KEEP_LOCKS = frozenset({"logging", "threading", "queue", "importlib._bootstrap"})
"""Modules that take locks in steps between which nothing must be raised: the lock would be held for ever."""


_TURNS = ("tenure.engine.", "tenure.server.")
"""Where nothing is raised at all: with `memory://` the function's own thread runs the queue, and turns are whole."""


class Run(Protocol):
    """One execution that may be interrupted."""

    def due(self) -> float | None:
        """Return when it is to be interrupted, in seconds of the boot clock; None: now.  It may move on later."""

    def interrupt(self) -> bool:
        """Interrupt it, unless it is over; False: it cannot be just now, so try again in a moment."""


class Ends(Protocol):
    """What tells of a run until when it may go on."""

    def due(self) -> float | None:
        """Return when it is to be interrupted, in seconds of the boot clock; None: now."""

    def kind(self) -> type[Interrupt]:
        """Return as what it is interrupted, now that it is due."""

    def missed(self, moment: float) -> type[Interrupt] | None:
        """Return as what it ought to have been interrupted by this moment; None: it was not due then."""

    def overrun(self) -> None:
        """Take note, in the watcher's thread, that it goes on although it was interrupted."""


class Interrupts:
    """One thread that sleeps until the next run is due, and interrupts those that are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now = clock.boot
        """The clock by which all this is told."""
        self._runs: set[Run] = set()
        self.forget = self._runs.discard
        """Look at this run no more."""
        self._next_at = inf
        self._told: SimpleQueue[float] = SimpleQueue()
        """Times before that until which the thread sleeps.  A `put` is one step: an interrupt leaves nothing locked."""
        self._stopped = False

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self.run, name="tenure-interrupts", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped = True
        self._told.put(0.0)

    def watch(self, run: Run, earliest: float) -> None:
        """Interrupt this run when it is due, from now on; it is not due before `earliest`."""
        self._runs.add(run)
        if earliest < self._next_at:
            self._told.put(earliest)

    def look(self) -> None:
        """Look at once: some run may be due that was not when it began."""
        self._told.put(0.0)

    def follow(self, run: _Ending) -> None:
        """Look a while later whether this run, which was interrupted, has overrun."""
        at = self._clock.boot() + OVERRUN_AFTER
        self.watch(_Later(at, run.is_late), at)

    def run(self) -> None:
        """Sleep and interrupt until stopped."""
        told = inf
        while not self._stopped:
            self._next_at = inf  # a run that comes during the look is told of, so none is missed
            self._next_at = min(told, self.turn())
            told = self._sleep(self._next_at)

    def _sleep(self, until: float) -> float:
        """Sleep until then, or until an earlier time is told; returns that.

        The thread wakes for it also where the run that told of it is over by then: it is once a visibility timeout,
        while waking for the next run in its place could be once a job.
        """
        told = inf
        with suppress(Empty):
            told = self._told.get(timeout=min(threading.TIMEOUT_MAX, max(0.0, until - self._clock.boot())))
            while True:
                told = min(told, self._told.get_nowait())
        return told

    def turn(self) -> float:
        """Interrupt what is due; returns when to look again, in seconds of the boot clock."""
        now = self._clock.boot()
        next_at = inf
        for run in tuple(self._runs):
            due = run.due()
            if due is not None and due > now:
                next_at = min(next_at, due)
            elif run.interrupt():
                self.forget(run)
            else:
                next_at = min(next_at, now + _AGAIN)
        return next_at


class _Later:
    """A look that is taken at a later time."""

    def __init__(self, at: float, look: Callable[[], None]) -> None:
        self._at = at
        self._look = look

    def due(self) -> float:
        return self._at

    def interrupt(self) -> bool:
        self._look()
        return True


class _Ending:
    """How a run ends: closed by its function, or interrupted first, as `interrupted` says then."""

    __slots__ = ("_began", "_ends", "_first", "_watcher", "interrupted")

    def __init__(self, watcher: Interrupts, ends: Ends) -> None:
        self.interrupted: type[Interrupt] | None = None
        self._watcher = watcher
        self._ends = ends
        self._began = watcher.now()
        self._first: dict[str, str] = {}
        """Who was first, in each of two steps; its `setdefault` is one, and cheaper than a lock for each job."""

    def is_late(self) -> None:
        """Tell that the function has overrun, unless it is over."""
        if self._first.setdefault("late", "overrun") != "overrun":
            return
        try:
            self._ends.overrun()
        except Exception:
            logger.exception("the slot of a function that has overrun could not be given to other jobs")
        finally:
            self._first["told"] = "overrun"

    def due(self) -> float | None:
        """Return when it is to be interrupted."""
        return self._ends.due()

    def interrupt(self) -> bool:
        """Interrupt it, unless it is closed; False: it cannot be just now."""
        if self._first.setdefault("end", "interrupted") == "interrupted":
            kind = self._ends.kind()
            self._reach(kind)
            self.interrupted = kind
            if kind is not LeaseLost:
                self._watcher.follow(self)
        return True

    def _close(self) -> None:
        self._watcher.forget(self)
        if self._first.setdefault("end", "closed") == "closed":
            self._see_what_was_missed()
            return
        while not self.interrupted:
            sleep(0)  # the watcher is between its two steps
        self._take_back()

    def _see_what_was_missed(self) -> None:
        """What comes of a function long after its end counts no more also where the watcher could not run meanwhile."""
        moment = self._watcher.now() - OVERRUN_AFTER
        if moment >= self._began:  # else there was no time to miss anything in
            self.interrupted = self._ends.missed(moment)

    def _is_over(self) -> None:
        """Decide, of a run that was interrupted, whether it has overrun; nothing can arrive any more."""
        while not self.interrupted:
            sleep(0)
        if self._first.setdefault("late", "closed") != "closed":
            while "told" not in self._first:
                sleep(0)

    def _reach(self, kind: type[Interrupt]) -> None:
        raise NotImplementedError

    def _take_back(self) -> None:
        """Take back what has not arrived."""


class ThreadRun(_Ending):
    """A plain function in the thread that calls it; its end is raised in it when it is due."""

    __slots__ = ("_thread", "_tries")

    def call(self, earliest: float, function: Callable[[A], T], argument: A) -> T:
        """Run the function, not due before `earliest`; once this returns or raises, no interrupt can come any more."""
        self._thread = get_ident()
        self._tries = 0
        try:
            self._watcher.watch(self, earliest)
            return function(argument)
        finally:
            try:
                self._close()
            finally:  # what has arrived in there, has
                if self._first["end"] == "interrupted":
                    self._is_over()

    def interrupt(self) -> bool:
        """Raise in the thread, unless the function is over; False: it is where nothing must be raised just now."""
        if _runs_the_queue(self._thread):
            return False
        if self._tries < _TRIES and _may_take_a_lock(self._thread):
            self._tries += 1
            return False
        return super().interrupt()

    def _reach(self, kind: type[Interrupt]) -> None:
        _raise_in(self._thread, kind)

    def _take_back(self) -> None:
        _raise_in(self._thread, None)


class CoroutineRun(_Ending):
    """A coroutine in the asyncio task that makes this; it is cancelled, with its end's text, when it is due."""

    __slots__ = ("_loop", "_over", "_task")

    def __init__(self, watcher: Interrupts, ends: Ends) -> None:
        from asyncio import current_task  # where there are coroutines, it is loaded

        task = current_task()
        assert task is not None
        super().__init__(watcher, ends)
        self._task: asyncio.Task[object] = task
        self._loop = task.get_loop()
        self._over = False

    async def call(self, earliest: float, awaitable: Awaitable[T]) -> T:
        """Await it, not due before `earliest`; once this returns or raises, it is not cancelled from here any more."""
        self._watcher.watch(self, earliest)
        try:
            return await awaitable
        finally:
            self._over = True
            self._close()
            if self._first["end"] == "interrupted":
                self._is_over()

    def _reach(self, kind: type[Interrupt]) -> None:
        """Have it cancelled when the loop comes to it."""
        with suppress(RuntimeError):  # the loop is closed, and what ran in it is over
            self._loop.call_soon_threadsafe(self._cancel, f"{kind.__name__}: {kind()}")

    def _cancel(self, why: str) -> None:
        if not self._over:
            self._task.cancel(why)


def _may_take_a_lock(thread: int) -> bool:
    """Whether the thread is in code that takes locks, `logging`'s for one, which all threads then wait for."""
    frame = sys._current_frames().get(thread)
    return frame is not None and frame.f_globals.get("__name__") in _KEEP_LOCKS


def _runs_the_queue(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_TURNS):
            return True
        frame = frame.f_back
    return False


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Have `kind` raised in the thread when it runs Python code next; None: take back what has not arrived."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))
