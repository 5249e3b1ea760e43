"""Every error that Tenure raises on purpose.

TenureError
|-- ConfigError                 a setting or an option that cannot be (also ValueError)
|-- TaskDefinitionError         a task that cannot be defined so (also TypeError)
|-- NotSerializable             an argument that has no wire form (also TypeError)
|-- WrongArgument               an argument that does not fit its hint (also TypeError)
|-- AddError                    one add was refused by the broker
|   |-- KeyConflict             same key, other arguments
|   |-- MessageTooLarge         above the broker's limit for a body
|   |-- NoSpace                 the broker's disk has no room for further jobs
|   `-- QueueClosed             an operator has closed the queue for new jobs
|-- BrokerUnavailable           no confirmed answer in time (also ConnectionError)
|-- ProtocolError               the other side spoke out of turn (also ConnectionError)
|-- ServerError                 the server answered `err CODE TEXT`
|-- DecodeError                 bytes that are no message (also ValueError)
|-- QueueNotFound               no queue of that name (also LookupError)
|-- NotInJob                    `current_job` read where no job runs (also RuntimeError)
|-- JobControl                  raised by a task to say what becomes of its job
|   |-- Retry                   again, counted as an attempt
|   |-- Snooze                  again later, not counted
|   |-- Dead                    failed for good, at once
|   `-- Discard                 not wanted any more: cancelled
|-- RemoteError                 stands for another process's error whose class is not known here
`-- ResultError                 a result cannot be had
    |-- JobNotFound             no job with that id (also LookupError)
    |-- JobFailed               the job is dead
    |-- JobCancelled            the job was cancelled
    |-- ResultExpired           it was kept for a while only, and that is over
    |-- ResultsDisabled         the task keeps no results
    |-- ResultNotStored         the job is done, its result could not be kept
    |-- ResultTimeout           not there within the timeout (also TimeoutError)
    `-- WouldDeadlock           a job waits for a job that no slot is free for

Interrupt                       ends a task from outside; a BaseException, so `except Exception` lets it through
|-- LeaseLost                   another worker may hold this job by now
|-- Terminated                  somebody has cancelled this job, and waits for no safe place
`-- TimeLimitExceeded           the job has run longer than its time limit
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any


class TenureError(Exception):
    """Base of all errors that Tenure raises on purpose; each can be pickled and copied, with its notes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, and not by calling the class again: most take other arguments than the text that they make of them.
        return _as_it_was, (type(self), self.args, dict(self.__dict__))


class Interrupt(BaseException):
    """Raised in a task from outside, at whatever line it has come to.

    It is no Exception, for the same reason as KeyboardInterrupt: an `except Exception` around one step of a loop is
    meant for that step's own failures, and must not let the loop go on.
    """

    __reduce__ = TenureError.__reduce__


def _as_it_was(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(TenureError, ValueError):
    """A setting or an option that cannot be."""


class TaskDefinitionError(TenureError, TypeError):
    """A task that cannot be defined so."""


class NotSerializable(TenureError, TypeError):
    """An argument or a result that has no wire form; the text names the value's path."""


class WrongArgument(TenureError, TypeError):
    """An argument that does not fit the function's type hint; the text names its path, the value and the hint."""


class DecodeError(TenureError, ValueError):
    """Bytes that are no message of this version; `version` is set when they are of a newer one."""

    def __init__(self, text: str, version: int | None = None) -> None:
        super().__init__(text)
        self.version = version


class AddError(TenureError):
    """The broker refused one add; `id` is the id that it carried."""

    def __init__(self, text: str, id: str) -> None:
        super().__init__(text)
        self.id = id


class KeyConflict(AddError):
    """The key is held by a job with other arguments; `id` is the refused one, `first_id` the holder.

    `key` is "" where a dead job was to be requeued whose key another job holds by now.
    """

    def __init__(self, id: str, first_id: str, key: str) -> None:
        super().__init__(_conflict_of_add(id, first_id, key) if key else _conflict_of_requeue(id, first_id), id)
        self.first_id = first_id
        self.key = key


def _conflict_of_add(id: str, first_id: str, key: str) -> str:
    return (
        f"key {key!r} is held by job {first_id}, which was called with other arguments; job {id} was not added. "
        "Use another key, or the same arguments."
    )


def _conflict_of_requeue(id: str, first_id: str) -> str:
    return (
        f"job {id} stays dead: its key is held by job {first_id} now. Look at that one (`tenure job {first_id}`): "
        "if it does the same work, purge this one; else requeue this one once the other has let go of the key."
    )


class MessageTooLarge(AddError):
    """The packed message is above the broker's limit; sizes in bytes.  `fixed`: the limit cannot be raised."""

    def __init__(self, id: str, size: int, limit: int, *, fixed: bool = False) -> None:
        super().__init__(
            f"the message has {size} bytes, the broker takes {limit}; store the data elsewhere and pass its address"
            + ("" if fixed else ", or raise the server's --max-body"),
            id,
        )
        self.size = size
        self.limit = limit


class NoSpace(AddError):
    """The broker's disk or memory is full, or nearly: the job was not stored, while those that are there go on.

    Trying again soon is of no use; somebody has to make room, after which adds are taken again by themselves.
    """


class QueueClosed(AddError):
    """The queue takes no new jobs until an operator opens it; those that are in it go on."""


class QueueNotFound(TenureError, LookupError):
    """No queue of that name is known; the first job makes it."""


class BrokerUnavailable(TenureError, ConnectionError):
    """The broker did not confirm in time: the job may or may not be stored, and it is safe to send it again.

    `id` and `key` belong to the (first) unconfirmed job; calling the task again with `options(key=error.key)` meets
    that job if it was stored.  `resend()` repeats the same line, up to five minutes after the first write; a copy
    that was pickled cannot.  A broker raises it with a callable that returns its answers, one for each message of the
    call.
    """

    def __init__(self, text: str, id: str = "", key: str = "", resend: Callable[[], Any] | None = None) -> None:
        super().__init__(text)
        self.id = id
        self.key = key
        self._resend = resend

    def __reduce__(self) -> tuple[Any, ...]:
        # What sends again belongs to this process's connections.
        return _as_it_was, (type(self), self.args, {**self.__dict__, "_resend": None})

    def resend(self) -> Any:
        """Send the same line again; returns what the call would have, or raises BrokerUnavailable once more."""
        if self._resend is None:
            raise self
        return self._resend()

    def adapt(self, convert: Callable[[Any], Any]) -> BrokerUnavailable:
        """Let `resend()` return `convert(what it returned so far)`, now and after every further failure."""
        inner = self._resend

        def again() -> Any:
            try:
                answers = inner() if inner is not None else None
            except BrokerUnavailable as error:
                raise error if error is self else error.adapt(convert) from None
            return convert(answers)

        if inner is not None:
            self._resend = again
        return self


class ProtocolError(TenureError, ConnectionError):
    """The other side closed in place of an answer, or sent bytes that no rule allows; the connection is of no use."""


class ServerError(TenureError):
    """The server answered `err CODE TEXT`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class NotInJob(TenureError, RuntimeError):
    """`current_job` was read where no job runs."""


class LeaseLost(Interrupt):
    """Another worker may hold this job by now: stop, and write nothing more.

    Raised in a task whose lease could not be extended in time, unless it says `on_lease_lost="finish"`; a coroutine is
    cancelled instead.  A task may raise it as well.
    """

    def __init__(self, text: str = "another worker may hold this job by now") -> None:
        super().__init__(text)


class Terminated(Interrupt):
    """Somebody has cancelled this job while it runs, by `cancel(terminate=True)`: clean up, and let it through.

    Raised in the task; a coroutine is cancelled instead.  The job ends as cancelled, whatever the task still returns.
    """

    def __init__(self, text: str = "somebody has cancelled this job") -> None:
        super().__init__(text)


class TimeLimitExceeded(Interrupt):
    """The job has run longer than its time limit: clean up, and let it through.

    Raised in a task whose time limit (`timeout=`) is over; a coroutine is cancelled instead.  Whatever the task still
    returns is dropped: this attempt has failed, and the failure is of this class.
    """

    def __init__(self, text: str = "the job has run longer than its time limit") -> None:
        super().__init__(text)


class JobControl(TenureError):
    """Raised by a task to say what becomes of its job; see the four kinds."""


class Retry(JobControl):
    """Run the job again: counts an attempt; out of attempts, it is dead.

    `delay` is seconds or a timedelta; None: by the task's declared backoff.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the task asked to be run again")
        self.delay = delay
        self.reason = reason


class Snooze(JobControl):
    """Run the job again in so many seconds (or a timedelta); counts neither as an attempt nor as a loss."""

    def __init__(self, seconds: float | timedelta, reason: str = "") -> None:
        super().__init__(reason or "the task asked to be run later")
        self.seconds = seconds
        self.reason = reason


class Dead(JobControl):
    """The job has failed for good, whatever attempts are left; it goes to the dead list with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(JobControl):
    """The job is not wanted any more: it ends as cancelled, with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ResultError(TenureError):
    """A job's result cannot be had; `id` is the job's."""

    def __init__(self, text: str, id: str = "") -> None:
        super().__init__(text, id)
        self.id = id

    def __str__(self) -> str:
        return str(self.args[0])


class JobNotFound(ResultError, LookupError):
    """No job with that id is known."""


class JobFailed(ResultError):
    """The job has failed for good; the text holds the worker's traceback.

    `reason` is what the dead list says, `kind` the class's path of the last error ("": there was none, as when its
    worker died), `traceback` the worker's report of it.  `__cause__` is that error, made anew, where its class is
    known here, else a `RemoteError`; a copy that was pickled has none.
    """

    def __init__(self, text: str, id: str = "", reason: str = "", kind: str = "", traceback: str = "") -> None:
        super().__init__(text, id)
        self.args = (text, id, reason, kind, traceback)  # what pickle makes a copy from
        self.reason = reason
        self.kind = kind
        self.traceback = traceback


class RemoteError(TenureError):
    """Stands for an error of another process that could not be made anew here; `kind` is its class's path."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text, kind)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind}: {self.args[0]}" if self.kind else str(self.args[0])


class JobCancelled(ResultError):
    """The job was cancelled; the text says why."""


class ResultExpired(ResultError):
    """The job's record was kept for a while only (`result_ttl`), and that is over."""


class ResultsDisabled(ResultError):
    """The task keeps no results."""


class ResultNotStored(ResultError):
    """The job is done; its result had no wire form, or was too large to be kept."""


class ResultTimeout(ResultError, TimeoutError):
    """The job had not ended within the timeout; it goes on."""


class WouldDeadlock(ResultError):
    """A job waits for another job while no slot of this worker is free to run it."""
