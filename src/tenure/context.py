"""What a running job may know about itself, and ask for: `JobContext`, and `current_job` inside a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenure import clock
from tenure.codec import pack_value, unpack_value
from tenure.errors import DecodeError, NotInJob
from tenure.names import shown

if TYPE_CHECKING:
    import logging

MAX_PROGRESS_BYTES = 200
"""Upper limit for a packed progress: it rides on the lines that renew the lease."""

_LARGEST = 2**63


class Hold(Protocol):
    """What holds a running job, as the worker knows it; none of these blocks."""

    def deadline(self) -> float | None:
        """The own deadline, in seconds of the boot clock; None once the lease is lost."""

    def limit(self) -> float:
        """When the job's time limit is over, in seconds of the boot clock; infinite where it has none."""

    def terminated(self) -> bool:
        """Whether the job was cancelled, and is to be ended now."""

    def terminated_at(self) -> float:
        """When somebody asked for that, in seconds of the boot clock; infinite where nobody has."""

    def overrun(self) -> None:
        """Take note that the function goes on although it was ended."""

    def extend(self) -> None:
        """Have the lease extended now, and not only when its turn comes."""

    def progress(self, packed: bytes) -> None:
        """Take note of how far the job is, for the next extend."""

    def cancelled(self) -> bool:
        """Whether somebody has asked for this job to be cancelled."""

    def stopping(self) -> bool:
        """Whether the worker takes nothing new and waits for this job to finish."""

    def idle(self, task: str | None, queue: str | None = None) -> bool:
        """Whether this worker has room to take a job of `task` (None: any) from `queue` (None: the task's own)."""


class Progress(NamedTuple):
    """How far a job is, by its own word: `done` of `total` (None: unknown), and a short note."""

    done: float
    total: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class JobContext:
    """One execution of a job: what a task knows of itself, and what it may ask of its worker.

    A task whose first parameter is annotated `JobContext` is given it; the parameter is no part of the call.
    `fence` is the hand-out number, which only grows for a job: pass it to what the task writes to, so that an older
    holder can be refused there.  `attempt` counts from 1.  `losses` are hand-outs that ended by a dead process or a
    lease that ran out.  `headers` came with the message, from the publishing middleware of whoever added the job.
    """

    id: str
    key: str
    queue: str
    task: str
    attempt: int
    fence: int
    losses: int
    hold: Hold = field(repr=False)
    boot_clock: Callable[[], float] = field(default=clock.boot, repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def deadline(self) -> float | None:
        """Until when the job is surely held by this worker alone (seconds of `clock.boot()`); None: lease lost.

        It moves on while the worker extends the lease.
        """
        return self.hold.deadline()

    @property
    def lease_lost(self) -> bool:
        """True when another worker may hold the job by now: stop, and write nothing more."""
        deadline = self.hold.deadline()
        return deadline is None or self.boot_clock() >= deadline

    @property
    def time_left(self) -> float | None:
        """How many seconds of the time limit are left, below 0 when it is over; None: the job has none."""
        limit = self.hold.limit()
        return None if limit == inf else limit - self.boot_clock()

    @property
    def stopping(self) -> bool:
        """True once the worker is leaving: finish soon, or stop at a safe place and raise `Snooze(0)`."""
        return self.hold.stopping()

    @property
    def cancelled(self) -> bool:
        """True once somebody has asked for this job to be cancelled: stop at a safe place and raise `Discard`.

        It is known here about a second later.
        """
        return self.hold.cancelled()

    def extend(self) -> None:
        """Ask for the lease to be extended now; returns at once.

        The worker does so by itself, every third of the visibility timeout at the latest.  `deadline` moves on when the
        server has answered, within a quarter of a second at rest.
        """
        self.hold.extend()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the job is; `job.progress()` reads it, about a second later.

        It costs no line of its own: what was said last rides on the renewal of the lease.  A note that makes it more
        than 200 bytes is cut.  Raises TypeError and ValueError for what is no number.
        """
        self.hold.progress(pack_progress(Progress(done, total, note)))

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that begins each line with task, job id and attempt, and has these (and the key) as `extra`."""
        from tenure.job_log import JobLogger  # a process that only adds jobs does not load logging

        return JobLogger(named(self))

    @classmethod
    def for_test(cls, **fields: Any) -> JobContext:
        """Return a context for calling a task's function directly in a test.

        Give any field to set it; `hold` may be a `TestHold`, whose attributes are what the task will find, and which
        keeps what the task has said.
        """
        words: dict[str, Any] = {
            "id": "0" * 32, "key": "0" * 32, "queue": "default", "task": "test", "attempt": 1, "fence": 1, "losses": 0,
        }  # fmt: skip
        return cls(**words | {"hold": TestHold()} | fields)


@dataclass
class TestHold:
    """A hold for tests: set what the task is to find; `said` and `extended` are what it did."""

    __test__ = False  # pytest must not take it for a class of tests

    lease_lost: bool = False
    is_cancelled: bool = False
    is_stopping: bool = False
    is_idle: bool = True
    time_limit: float | None = None
    said: list[Progress] = field(default_factory=list)
    extended: int = 0

    def deadline(self) -> float | None:
        """Half a minute from now, or None."""
        return None if self.lease_lost else clock.boot() + 30.0

    def limit(self) -> float:
        """So many seconds from now as `time_limit` says; None: there is none."""
        return inf if self.time_limit is None else clock.boot() + self.time_limit

    def terminated(self) -> bool:
        """It is not."""
        return False

    def terminated_at(self) -> float:
        """Never."""
        return inf

    def overrun(self) -> None:
        """Do nothing: what is called in a test is not ended from outside."""

    def extend(self) -> None:
        """Count it."""
        self.extended += 1

    def progress(self, packed: bytes) -> None:
        """Keep it in `said`."""
        progress = unpack_progress(packed)
        assert progress is not None
        self.said.append(progress)

    def cancelled(self) -> bool:
        """What `is_cancelled` says."""
        return self.is_cancelled

    def stopping(self) -> bool:
        """What `is_stopping` says."""
        return self.is_stopping

    def idle(self, task: str | None, queue: str | None = None) -> bool:
        """What `is_idle` says."""
        return self.is_idle


def pack_progress(progress: Progress) -> bytes:
    """Pack a progress into at most 200 bytes, its note cut; raises TypeError and ValueError for what is no number."""
    done, total, note = progress
    _check_number("done", done)
    if total is not None:
        _check_number("total", total)
    if not isinstance(note, str):
        raise TypeError(f"progress(note={shown(note)}) has to be a text")
    # Cut by bytes, and twice: a lone surrogate becomes `?`, half a character at the end goes.
    text = note[:MAX_PROGRESS_BYTES].encode("utf-8", "replace")[: MAX_PROGRESS_BYTES - 24].decode("utf-8", "ignore")
    return pack_value([done, total, text])


def unpack_progress(packed: bytes) -> Progress | None:
    """Read what `pack_progress` made; None for anything else."""
    try:
        done, total, note = unpack_value(packed)
        return Progress(done, total, note)
    except (DecodeError, TypeError, ValueError):
        return None


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"progress({name}={shown(value)}) has to be a number")
    if not isfinite(value) or abs(value) >= _LARGEST:
        raise ValueError(f"progress({name}={shown(value)}) has to be a finite number below 2**63")


_running: ContextVar[JobContext] = ContextVar("tenure_running_job")


def enter(context: JobContext) -> Token[JobContext]:
    """Make `context` the current job of this thread (or async task); give the token to `leave` afterwards."""
    return _running.set(context)


def leave(token: Token[JobContext]) -> None:
    """Undo the `enter` that made the token."""
    _running.reset(token)


def named(job: JobContext) -> dict[str, object]:
    """Return what the log records of a job are given: `job_id`, `job_key`, `task` and `attempt`."""
    return {"job_id": job.id, "job_key": job.key, "task": job.task, "attempt": job.attempt}


def running() -> JobContext | None:
    """Return the context of the job that runs here, None where there is none."""
    return _running.get(None)


class CurrentJob:
    """The job that runs here and now; outside of a job each attribute raises NotInJob."""

    __slots__ = ()

    @property
    def context(self) -> JobContext:
        """The whole context of the running job."""
        context = _running.get(None)
        if context is None:
            raise NotInJob(
                "current_job was read outside of a job; it exists only while a worker runs a task, "
                "not when the task's function is called directly. Look at `bool(current_job)` first where both happen."
            )
        return context

    def __bool__(self) -> bool:
        """True while a job runs here."""
        return _running.get(None) is not None

    def __repr__(self) -> str:
        context = _running.get(None)
        return "<current_job: none runs here>" if context is None else f"<current_job {context.id} of {context.task}>"

    @property
    def id(self) -> str:
        """The job's id: 32 hexadecimal digits."""
        return self.context.id

    @property
    def key(self) -> str:
        """The idempotency key; the id where none was given."""
        return self.context.key

    @property
    def queue(self) -> str:
        """The queue that it came from."""
        return self.context.queue

    @property
    def task(self) -> str:
        """The task's name."""
        return self.context.task

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.context.attempt

    @property
    def losses(self) -> int:
        """How many hand-outs of this job ended by a dead process or a lease that ran out."""
        return self.context.losses

    @property
    def fence(self) -> int:
        """The hand-out number, which only grows for a job: give it to what you write to."""
        return self.context.fence

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers that came with the message."""
        return self.context.headers

    @property
    def deadline(self) -> float | None:
        """See `JobContext.deadline`."""
        return self.context.deadline

    @property
    def lease_lost(self) -> bool:
        """True when another worker may hold the job by now: stop, and write nothing more."""
        return self.context.lease_lost

    @property
    def time_left(self) -> float | None:
        """How many seconds of the time limit are left; None: the job has none."""
        return self.context.time_left

    @property
    def stopping(self) -> bool:
        """True once the worker is leaving."""
        return self.context.stopping

    @property
    def cancelled(self) -> bool:
        """True once somebody has asked for this job to be cancelled."""
        return self.context.cancelled

    def extend(self) -> None:
        """See `JobContext.extend`."""
        self.context.extend()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """See `JobContext.progress`."""
        self.context.progress(done, total, note)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """See `JobContext.log`."""
        return self.context.log


current_job = CurrentJob()


def would_deadlock(task: str | None = None, queue: str | None = None) -> bool:
    """Whether waiting here for a job of `task` (None: any) in `queue` (None: the task's own) could be for ever.

    True inside a job while its worker has no room to take that job; False outside of a job, and for a task that this
    worker does not have or a queue that it does not serve.
    """
    context = _running.get(None)
    return context is not None and not context.hold.idle(task, queue)
