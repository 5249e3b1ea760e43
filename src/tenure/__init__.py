"""Tenure: a task framework for work that must not be lost.

Decorate a function with `@app.task`, call `.delay()`, run a worker; the job gets done even when the worker, the
network or the server breaks in the middle.
"""

from __future__ import annotations

from tenure.app import App
from tenure.context import JobContext, current_job
from tenure.errors import (
    AddError,
    BrokerUnavailable,
    ConfigError,
    Dead,
    DecodeError,
    Discard,
    JobCancelled,
    JobControl,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    MessageTooLarge,
    NotInJob,
    NotSerializable,
    ProtocolError,
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
    WouldDeadlock,
)
from tenure.job import Job
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
    "Discard",
    "Failure",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobControl",
    "JobNotFound",
    "KeyConflict",
    "LeaseLost",
    "MessageTooLarge",
    "NotInJob",
    "NotSerializable",
    "ProtocolError",
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
    "TenureError",
    "WouldDeadlock",
    "__version__",
    "current_job",
]
