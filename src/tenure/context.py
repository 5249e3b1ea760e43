"""What a running job may know about itself: `current_job` inside a task, `JobContext` for middleware and the worker."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass

from tenure import clock
from tenure.errors import NotInJob


@dataclass(frozen=True, slots=True)
class JobContext:
    """One execution of a job.

    `fence` is the hand-out number, which only grows for a job: pass it to what the task writes to, so that an older
    holder can be refused there.  `attempt` counts from 1.  `hold` returns the worker's own deadline for the work as
    it stands now, in seconds of `boot_clock`, or None once the lease is lost.
    """

    id: str
    key: str
    queue: str
    task: str
    attempt: int
    fence: int
    losses: int
    hold: Callable[[], float | None]
    boot_clock: Callable[[], float] = clock.boot

    @property
    def deadline(self) -> float | None:
        """Until when the job is surely held by this worker alone (seconds of `clock.boot()`); None: lease lost.

        It moves on while the worker extends the lease.
        """
        return self.hold()

    @property
    def lease_lost(self) -> bool:
        """True when another worker may hold the job by now: stop, and write nothing more."""
        deadline = self.hold()
        return deadline is None or self.boot_clock() >= deadline


_running: ContextVar[JobContext] = ContextVar("tenure_running_job")


def enter(context: JobContext) -> Token[JobContext]:
    """Make `context` the current job of this thread (or async task); give the token to `leave` afterwards."""
    return _running.set(context)


def leave(token: Token[JobContext]) -> None:
    """Undo the `enter` that made the token."""
    _running.reset(token)


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
    def deadline(self) -> float | None:
        """See `JobContext.deadline`."""
        return self.context.deadline

    @property
    def lease_lost(self) -> bool:
        """True when another worker may hold the job by now: stop, and write nothing more."""
        return self.context.lease_lost


current_job = CurrentJob()
