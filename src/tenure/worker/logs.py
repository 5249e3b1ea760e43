"""Where a worker that was started from the command line writes its log."""

from __future__ import annotations

import logging
import sys
import time

from tenure.job_log import JsonFormatter


def configure(level: str, form: str = "text") -> None:
    """Write the `tenure` loggers to stderr from this level on, as `text` or `json`; the root logger is left alone."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Formatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logger = logging.getLogger("tenure")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def restore(level: str, form: str = "text") -> None:
    """Let the `tenure` loggers write again after the app was imported.

    An app that configures logging, as with `logging.config.dictConfig`, disables all loggers that are there already,
    unless it says otherwise.  An app that configures the logger `tenure` itself has its way.
    """
    silenced = logging.getLogger("tenure").disabled
    for name in list(logging.root.manager.loggerDict):
        if name == "tenure" or name.startswith("tenure."):
            logging.getLogger(name).disabled = False
    if silenced:
        configure(level, form)


class _Formatter(logging.Formatter):
    """Writes the time with milliseconds; all of it but these is made once a second, for it costs most of a line."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self._second = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (logging's name)
        second, text = self._second
        if int(record.created) != second:
            second = int(record.created)
            text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._second = (second, text)
        return f"{text}.{int(record.msecs):03d}"
