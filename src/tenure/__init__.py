"""Tenure: a task framework for work that must not be lost.

Decorate a function with `@app.task`, call `.delay()`, run a worker; the job gets done even when the worker, the
network or the server breaks in the middle.
"""

from __future__ import annotations

from tenure.cli import early as _early  # noqa: F401  (before all that takes long; it says why)

# isort: split
from tenure.app import App
from tenure.context import JobContext, current_job
from tenure.depends import Depends
from tenure.errors import (
    AddError,
    BrokerUnavailable,
    ConfigError,
    Dead,
    DecodeError,
    Discard,
    Interrupt,
    JobCancelled,
    JobControl,
    JobFailed,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    MessageTooLarge,
    NoSpace,
    NotInJob,
    NotSerializable,
    ProtocolError,
    QueueClosed,
    QueueNotFound,
    RemoteError,
    ResultError,
    ResultExpired,
    ResultNotStored,
    ResultsDisabled,
    ResultTimeout,
    Retry,
    ServerError,
    Snooze,
    TaskDefinitionError,
    TenureError,
    Terminated,
    TimeLimitExceeded,
    WouldDeadlock,
    WrongArgument,
)
from tenure.events import Event
from tenure.groups import TaskGroup
from tenure.job import Job, as_completed
from tenure.outcome import DeadJob, Failure
from tenure.retry import Backoff
from tenure.signature import Signature
from tenure.task import Task

__version__ = "0.1.0"

__all__ = [
    "AddError",
    "App",
    "Backoff",
    "BrokerUnavailable",
    "ConfigError",
    "Dead",
    "DeadJob",
    "DecodeError",
    "Depends",
    "Discard",
    "Event",
    "Failure",
    "Interrupt",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobControl",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "LeaseLost",
    "MessageTooLarge",
    "NoSpace",
    "NotInJob",
    "NotSerializable",
    "ProtocolError",
    "QueueClosed",
    "QueueNotFound",
    "RemoteError",
    "ResultError",
    "ResultExpired",
    "ResultNotStored",
    "ResultTimeout",
    "ResultsDisabled",
    "Retry",
    "ServerError",
    "Signature",
    "Snooze",
    "Task",
    "TaskDefinitionError",
    "TaskGroup",
    "TenureError",
    "Terminated",
    "TimeLimitExceeded",
    "WouldDeadlock",
    "WrongArgument",
    "__version__",
    "as_completed",
    "current_job",
]
