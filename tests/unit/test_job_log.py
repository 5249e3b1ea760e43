"""Log records inside of jobs, their JSON form, and what must not change for the user's own logging."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import pytest
import structlog

from tenure import JobContext
from tenure.context import enter
from tenure.contrib.structlog import add_job
from tenure.job_log import JsonFormatter, name_jobs

JOB = {"job_id": "a" * 32, "job_key": "order:7", "task": "shop.charge", "attempt": 3}
NONE = {"job_id": "", "job_key": "", "task": "", "attempt": 0}


class Kept(logging.Handler):
    """Keeps the records that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def kept(factory: None) -> Iterator[Kept]:
    handler = Kept()
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield handler
    logger.removeHandler(handler)


def in_job(function: Any) -> Any:
    def run() -> Any:
        enter(JobContext.for_test(id=JOB["job_id"], key="order:7", task="shop.charge", attempt=3))
        return function()

    return Context().run(run)


def names_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in NONE}


def test_every_record_inside_of_a_job_knows_it_and_the_others_know_none(kept: Kept) -> None:
    name_jobs()
    shop = logging.getLogger("shop.deep.down")
    in_job(lambda: shop.info("inside"))
    shop.info("outside")
    assert [names_of(record) for record in kept.records] == [JOB, NONE]
    line = logging.Formatter("%(message)s %(job_id).3s %(job_key)s %(task)s %(attempt)d")
    assert [line.format(record) for record in kept.records] == ["inside aaa order:7 shop.charge 3", "outside    0"]


@pytest.mark.parametrize("word", list(NONE))
def test_what_the_users_own_lines_say_has_its_way(kept: Kept, word: str) -> None:
    name_jobs()
    in_job(lambda: logging.getLogger("shop").info("inside", extra={word: "own"}))
    assert names_of(kept.records[0]) == JOB | {word: "own"}


def test_other_words_are_refused_as_ever(kept: Kept) -> None:
    name_jobs()
    taken = {"lineno": 1}
    with pytest.raises(KeyError, match="overwrite 'lineno'"):
        logging.getLogger("shop").info("inside", extra=taken)


def test_the_users_own_factory_is_still_asked_and_is_wrapped_once(kept: Kept) -> None:
    class Own(logging.LogRecord):
        host = "h1"

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = Own(*args, **kwargs)
        record.task = "own"
        return record

    logging.setLogRecordFactory(make)
    name_jobs()
    wrapped = logging.getLogRecordFactory()
    name_jobs()
    assert logging.getLogRecordFactory() is wrapped
    in_job(lambda: logging.getLogger("shop").info("inside"))
    (record,) = kept.records
    assert (type(record), names_of(record)) == (Own, JOB | {"task": "own"})


def test_a_record_can_be_copied_and_sent_to_another_process(kept: Kept) -> None:
    name_jobs()
    in_job(lambda: logging.getLogger("shop").info("inside"))
    (record,) = kept.records
    sent = pickle.dumps(record)
    assert b"tenure.job_log" not in sent
    for other in (copy.copy(record), pickle.loads(sent)):
        assert (names_of(other), other.getMessage()) == (JOB, "inside")


def test_the_logger_of_a_job_goes_with_it(factory: None, caplog: pytest.LogCaptureFixture) -> None:
    name_jobs()
    with caplog.at_level("INFO", "tenure.job"):
        in_job(lambda: JobContext.for_test(task="other").log.info("n = %d", 7, extra={"attempt": 9}))
    (record,) = caplog.records
    assert names_of(record) == {"job_id": "0" * 32, "job_key": "0" * 32, "task": "other", "attempt": 9}


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


def test_json_has_the_job_and_what_was_given_beside_it(kept: Kept) -> None:
    name_jobs()
    in_job(lambda: logging.getLogger("shop").warning("n = %d\nmore", 7, extra={"order": 7, "where": object}))
    logging.getLogger("shop").info("outside")
    inside, outside = map(line_of, kept.records)
    assert inside.pop("time").endswith("Z")
    assert inside.pop("process") == kept.records[0].process
    assert inside == JOB | {
        "level": "warning", "logger": "shop", "message": "n = 7\nmore", "order": 7, "where": "<class 'object'>",
    }  # fmt: skip
    assert set(outside) == {"time", "process", "level", "logger", "message"}


@pytest.mark.parametrize("odd", [{(1, 2): 3}, float("nan"), [[]], "\ud800"])
def test_json_has_a_form_for_whatever_is_given(kept: Kept, odd: Any) -> None:
    if odd == [[]]:
        odd[0].append(odd)
    logging.getLogger("shop").info("odd", extra={"odd": odd})
    text = JsonFormatter().format(kept.records[0])

    def refused(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(text, parse_constant=refused)["odd"] in (str(odd), odd)


def test_json_has_the_moment_in_utc() -> None:
    record = logging.makeLogRecord({"created": 0.5, "msg": "m"})
    assert line_of(record)["time"] == "1970-01-01T00:00:00.500Z"


def test_json_has_a_traceback_in_one_line(kept: Kept) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("shop").exception("broken", stack_info=True)
    line = line_of(kept.records[0])
    assert line["error"].endswith("ValueError: no")
    assert line["stack"].startswith("Stack (most recent call last)")


def test_structlog_names_the_job_by_a_processor() -> None:
    output: list[Any] = []

    def keep(logger: Any, method: str, event: Any) -> str:
        output.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, processors=[add_job, keep])
    in_job(lambda: log.info("inside", order=7, attempt="own"))
    log.info("outside")
    assert output == [JOB | {"event": "inside", "order": 7, "attempt": "own"}, {"event": "outside"}]
