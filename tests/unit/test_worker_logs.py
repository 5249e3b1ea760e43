from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.worker import logs


@pytest.fixture
def tenure_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tenure")
    before = (logger.handlers[:], logger.propagate, logger.level)
    yield logger
    logger.handlers[:], logger.propagate = before[0], before[1]
    logger.setLevel(before[2])


def test_a_line_has_its_time_and_the_root_logger_is_left_alone(
    tenure_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger().handlers[:]
    logs.configure("info")
    worker = logging.getLogger("tenure.worker")
    worker.debug("not this")
    worker.info("done %s", "x")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    \[\d+\] done x", lines[0])
    assert logging.getLogger().handlers == root


def test_as_json_a_line_is_an_object(tenure_logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logging.getLogger("tenure.worker").info("done %s", "x", extra={"job_id": "a1"})
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["message"], line["job_id"], line["level"]) == ("done x", "a1", "info")


SAYS = """
import logging.config
from tenure.worker import logs
logs.configure("info")
worker = logging.getLogger("tenure.worker")
logging.config.dictConfig({config})
logs.restore("info")
worker.info("done x")
worker.warning("late y")
"""
OWN = {
    "version": 1,
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "formatters": {"own": {"format": "own: %(message)s"}},
    "loggers": {"tenure": {"handlers": ["own"], "level": "WARNING"}},
}


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        ({"version": 1}, ["done x", "late y"]),
        ({"version": 1, "disable_existing_loggers": False}, ["done x", "late y"]),
        (OWN, ["own: late y"]),
    ],
)
def test_an_app_that_configures_logging_does_not_silence_the_worker(config: dict[str, Any], lines: list[str]) -> None:
    program = SAYS.replace("{config}", repr(config))
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    shown = said.stderr.splitlines()
    assert len(shown) == len(lines), said.stderr
    assert all(line.endswith(text) for line, text in zip(shown, lines, strict=True))


def test_each_second_has_its_own_text() -> None:
    formatter = logs._Formatter("%(asctime)s")
    record = logging.makeLogRecord({})
    texts = []
    for record.created, record.msecs in ((100.0, 5.0), (100.9, 900.0), (101.0, 0.0)):
        texts.append(formatter.format(record)[-6:])
    assert texts[0].endswith("0.005")
    assert texts[1].endswith("0.900")
    assert texts[2].endswith("1.000")
