"""The logger that a running job is given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any


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
