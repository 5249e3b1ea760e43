"""Log lines about jobs: the logger that a running job is given, what its records know of it, and their JSON form."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tenure.context import named, running

OF_JOB: Mapping[str, object] = {"job_id": "", "job_key": "", "task": "", "attempt": 0}
"""The attributes that each record has in a worker, with what they are where no job runs."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MakeRecord = Callable[..., logging.LogRecord]


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Writes to the logger `tenure.job`; each line begins with the job and has `extra` as fields of its record.

    The job is put before the text as arguments of its own: a task's name may hold a `%`.
    """

    def __init__(self, extra: Mapping[str, object]) -> None:
        super().__init__(logging.getLogger("tenure.job"), extra)
        self._own = dict(extra)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write one line, if the logger wants this level."""
        if not self.isEnabledFor(level):
            return
        own = self._own
        kwargs["extra"] = {**own, **(kwargs.get("extra") or {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, and not this one
        text = "%s %s attempt %d: " + str(msg) if args else "%s %s attempt %d: %s"
        self.logger.log(level, text, own["task"], own["job_id"], own["attempt"], *(args or (msg,)), **kwargs)


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON, with its job where it has one, and with what `extra=` gave it.

    `time` is in UTC; `error` is a traceback.  What JSON has no form for is written as its text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        given = {name: value for name, value in record.__dict__.items() if name not in _OWN and name not in line}
        line |= {name: value for name, value in given.items() if name not in OF_JOB or value != OF_JOB[name]}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # keys that are no names, values that hold themselves, numbers that are none
            return json.dumps({name: str(value) for name, value in line.items()})


def name_jobs() -> None:
    """Let every record of this process that is made inside of a job know it, whichever logger it is written to.

    Records are made as before, by the factory that is there, and then given `job_id`, `job_key`, `task` and `attempt`
    where they have none.
    """
    made_by = logging.getLogRecordFactory()
    if not isinstance(made_by, _Factory):
        logging.setLogRecordFactory(_Factory(made_by))


class _Factory:
    def __init__(self, made_by: _MakeRecord) -> None:
        self._made_by = made_by

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._made_by(*args, **kwargs)
        job = running()
        found = record.__dict__ = _Attributes(record.__dict__)
        for name, value in OF_JOB.items() if job is None else named(job).items():
            found.setdefault(name, value)
        return record


class _Attributes(dict[str, Any]):
    """A record's attributes, among which `extra=` may have one of ours: `logging` refuses what is there already.

    The user's code has no means to know of ours, and must not fail in a worker for a word that it logs elsewhere.
    """

    def __contains__(self, name: object) -> bool:
        return name not in OF_JOB and super().__contains__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Whoever reads a record from another process need not know us.
        return dict, (dict(self),)
