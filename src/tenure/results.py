"""Results, whatever keeps them: waiting in a thread or on an event loop, and what a state means to the caller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from tenure.broker import JobState, ResultStore
from tenure.causes import cause_of
from tenure.codec import NotStored, Stored, unpack_failure
from tenure.errors import (
    BrokerUnavailable,
    DecodeError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultError,
    ResultExpired,
    ResultNotStored,
    ResultsDisabled,
    ResultTimeout,
)
from tenure.outcome import Failure
from tenure.wire import commands

if TYPE_CHECKING:  # an app that only adds jobs need not load it
    import asyncio

T = TypeVar("T")

OVER = commands.OVER
"""States that nothing comes after by itself."""
SLICE = 3_600.0
"""Seconds of one call of a store's `wait`; whoever waits longer calls it again."""


@runtime_checkable
class WatchingStore(ResultStore, Protocol):
    """A store that many callers can wait on without a thread each."""

    def watch(
        self, ids: Sequence[str], seconds: float | None, tell: Callable[[], None]
    ) -> tuple[Callable[[], list[JobState]], Callable[[], None]]:
        """Have `tell` called, by any thread, once one of the jobs has ended, or nothing can be known of them.

        Returns (what `wait` returns or raises, stop); the caller stops it, after `seconds` at the latest.
        """


# ------------------------------------------------------------------------------------------------------- waiting


def wait_for(store: ResultStore, ids: Sequence[str], timeout: float | None) -> list[JobState]:
    """Wait until one of the jobs is over, at most `timeout` seconds (None: as long as it takes); their states.

    Raises ResultTimeout when not even their states could be had in time, and BrokerUnavailable.
    """
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE if end is None else end - time.monotonic()
        try:
            states = store.wait(ids, min(SLICE, left)) if left > 0 else store.states(ids)
        except BrokerUnavailable as error:
            if end is not None and time.monotonic() >= end - 0.001:
                raise unreached(ids, timeout, error) from error
            raise
        if left <= 0 or any(state.state in OVER for state in states):
            return states
        if end is not None and time.monotonic() >= end:
            return states


async def wait_in_loop(store: ResultStore, ids: Sequence[str], seconds: float | None) -> list[JobState]:
    """Do what `wait_for` does, without ever blocking the event loop."""
    import asyncio

    if not isinstance(store, WatchingStore):
        return await in_a_thread(lambda: wait_for(store, ids, seconds))
    told, tell = _told_from_threads()
    answer, stop = store.watch(ids, seconds, tell)
    try:
        await asyncio.wait([told], timeout=seconds)
        return answer()
    except BrokerUnavailable as error:
        if told.done():
            raise
        raise unreached(ids, seconds, error) from error
    finally:
        stop()


async def in_a_thread(ask: Callable[[], T]) -> T:
    """Call `ask` in a thread of its own: those of the loop's executor are few, and others need them."""
    answers: list[T] = []
    errors: list[BaseException] = []
    told, tell = _told_from_threads()

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            errors.append(error)
        tell()

    threading.Thread(target=run, name="tenure-result", daemon=True).start()
    await told
    if errors:
        raise errors[0]
    return answers[0]


def _told_from_threads() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """A future of the running loop, and what any thread calls to have it done."""
    import asyncio

    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not told.done():
            told.set_result(None)

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return

    return told, tell


def unreached(ids: Sequence[str], timeout: float | None, why: BrokerUnavailable) -> ResultTimeout:
    """The error for a timeout within which nothing could be asked."""
    return ResultTimeout(f"job {ids[0]}: the broker could not be asked within {timeout:g} s: {why}", ids[0])


# --------------------------------------------------------------------------------------------- what a state means


def value_of(
    state: JobState,
    read: Callable[[bytes], Stored | NotStored],
    *,
    timeout: float | None = None,
    importable: Collection[str] = (),
    queue: str = "",
    full: bool = False,
) -> Any:
    """Return a job's result, or raise what the caller of a job is to be told; `read` unpacks a result.

    `timeout` is how many seconds were waited, `importable` are modules of which exception classes may be imported.
    `queue` is the job's, if that is known; `full`: it was waited for inside of a job whose worker has no room for it.
    """
    check_known(state)
    if state.state == "done":
        return None if state.result is None else _read(state, read)
    if state.state == "dead":
        raise failed(state, importable)
    if state.state == "cancelled":
        raise JobCancelled(f"job {state.id} was cancelled: {state.reason or 'no reason was given'}", state.id)
    within = "" if timeout is None else f" within {timeout:g} s"
    what = _why_ready(queue, full) if state.state == "ready" else f"it is {state.state}, and goes on"
    raise ResultTimeout(f"job {state.id} has not ended{within}: {what}", state.id)


def _why_ready(queue: str, full: bool) -> str:
    """Say why a job may still be ready, as far as that can be known here."""
    if full:
        return "it is ready, and no slot of this worker is free to take it"
    named = f"queue {queue}" if queue else "its queue"
    return f"it is ready, and no worker has taken it: does one run that takes {named} and has a free slot for its task?"


def check_known(state: JobState) -> None:
    """Raise JobNotFound or ResultExpired where there is nothing to know of a job."""
    if state.state == "unknown":
        raise JobNotFound(f"no job {state.id} is known here; is it the broker that the job was added to?", state.id)
    if state.state == "expired":
        raise ResultExpired(
            f"job {state.id} was kept for a while only after its end (the server's --result-ttl), and that is over",
            state.id,
        )


def _read(state: JobState, read: Callable[[bytes], Stored | NotStored]) -> Any:
    assert state.result is not None  # looked at by the caller
    try:
        found = read(state.result)
    except DecodeError as error:
        raise ResultError(f"job {state.id} is done; its result cannot be read here: {error}", state.id) from error
    if isinstance(found, Stored):
        return found.value
    if found.kind == "disabled":
        raise ResultsDisabled(f"job {state.id} is done; {found.why}", state.id)
    raise ResultNotStored(f"job {state.id} is done; its result was not kept ({found.kind}): {found.why}", state.id)


def failed(state: JobState, importable: Collection[str]) -> JobFailed:
    """The error of a dead job, with its last exception as cause."""
    failure = _failure(state)
    text = f"job {state.id} has failed for good: {state.reason}"
    if failure is None:
        return JobFailed(text, state.id, state.reason)
    report = failure.traceback or f"{failure.kind}: {failure.text}"
    error = JobFailed(f"{text}\n\nIts worker said:\n{report}", state.id, state.reason, failure.kind, failure.traceback)
    error.__cause__ = cause_of(failure, importable)
    return error


def _failure(state: JobState) -> Failure | None:
    if not state.failure:
        return None
    try:
        return unpack_failure(state.failure)
    except DecodeError as error:
        return Failure("", f"bytes that are no failure ({error})")
