"""Values from `.delay()` through the broker and the worker's code to the function, and its result back."""

from __future__ import annotations

import enum
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32
from zoneinfo import ZoneInfo

import pydantic
import pytest

from tenure import App, ConfigError, MessageTooLarge, NotSerializable, ResultNotStored, Task
from tenure.codec import encode_body, unpack_call
from tenure.signature import NO_OPTIONS
from tenure.testing import InlineWorker, inline_worker
from tests.unit.labels import label


class Status(enum.Enum):
    PAID = "paid"


class Line(pydantic.BaseModel):
    sku: str
    status: Status


class Basket(pydantic.BaseModel):
    lines: list[Line]
    best: Line | None = None


@dataclass
class Parcel:
    baskets: list[Basket]
    sent: datetime | None = None


@dataclass
class Outer:
    inner: Any = field(default_factory=lambda: {"deep": {"lock": threading.Lock()}})


class Point(NamedTuple):
    x: int
    y: int


@pytest.fixture
def app() -> App:
    return App("travel")


@pytest.fixture
def worker(app: App) -> Iterator[InlineWorker]:
    with inline_worker(app) as worker:
        yield worker


def there_and_back(app: App, worker: InlineWorker, hint: Any, value: Any) -> tuple[Any, Any]:
    """What the function was called with, and what its caller gets as the result."""
    got = []

    def take(value: Any) -> Any:
        got.append(value)
        return value

    take.__annotations__ = {"value": hint, "return": hint}
    job = app.task(name="take")(take).delay(value)
    worker.run_all()
    assert job.state() == "done"
    return got[0], job.result()


PLAIN: list[Any] = [
    {1: "a", (2, 3): "b", None: 0},
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    10**40,
    ("a", ("b", ["c"])),
    {"x", ("y", frozenset({1}))},
    [math.inf, -math.inf, -0.0],
    datetime(2026, 10, 25, 2, 30, 1, 7, tzinfo=ZoneInfo("Europe/Paris"), fold=1),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    [Decimal("1.10"), UUID(int=7), timedelta(microseconds=1)],
    bytearray(b"\x00\xff"),
]


@pytest.mark.parametrize("value", PLAIN, ids=label)
def test_plain_values_are_the_same_in_the_task_and_in_the_result(app: App, worker: InlineWorker, value: Any) -> None:
    for got in there_and_back(app, worker, Any, value):
        assert (type(got), repr(got) if not isinstance(got, set) else got) == (
            type(value),
            repr(value) if not isinstance(value, set) else value,
        )


def test_nan_comes_back(app: App, worker: InlineWorker) -> None:
    assert all(map(math.isnan, there_and_back(app, worker, float, math.nan)))


@pytest.mark.parametrize("value", [Point(1, 2), range(3), Status.PAID, Parcel([])], ids=label)
def test_what_would_change_its_kind_is_refused_without_a_hint(app: App, worker: InlineWorker, value: Any) -> None:
    @app.task
    def take(value: Any) -> Any: ...

    with pytest.raises(NotSerializable, match=r"args\[0\]\['k'\]\[1\] is a"):
        take.delay({"k": [0, value]})
    assert worker.added() == []


def test_models_in_dataclasses_arrive_as_declared(app: App, worker: InlineWorker) -> None:
    line = Line(sku="a", status=Status.PAID)
    parcel = Parcel([Basket(lines=[line, line], best=line), Basket(lines=[])], datetime(2026, 1, 1, tzinfo=UTC))
    for hint, value in ((Parcel, parcel), (list[Parcel | None], [parcel, None]), (Point, Point(1, 2))):
        assert there_and_back(app, worker, hint, value) == (value, value)


@pytest.mark.parametrize("what", ["file", "lambda", "lock"])
def test_a_result_that_cannot_be_kept_is_told_and_not_run_again(app: App, worker: InlineWorker, what: str) -> None:
    runs = []

    @app.task
    def make() -> Any:
        runs.append(what)
        return {"lambda": lambda: 0, "lock": Outer(), "file": io}[what]

    with open(os.devnull) as io:  # noqa: PTH123
        job = make.delay()
        worker.run_all()
    assert (job.state(), runs) == ("done", [what])
    with pytest.raises(ResultNotStored, match="no wire form"):
        job.result()


# ------------------------------------------------------------------------------------------------ what the worker meets


def test_a_changed_byte_is_dead_as_corrupt(app: App, worker: InlineWorker) -> None:
    @app.task
    def take(value: str) -> None: ...

    message = take.message(("abc",), {}, NO_OPTIONS)
    worker.broker.add([message._replace(args=message.args.replace(b"abc", b"abd"))])
    worker.run_all(raise_errors=False)
    found = worker.broker.admin().job(message.id)
    assert found is not None
    assert (found["state"], found["reason"], found["attempts"]) == ("dead", "corrupt", 0)


def test_a_newer_message_is_released_whatever_else_it_holds(app: App, worker: InlineWorker) -> None:
    @app.task
    def take(value: str) -> None: ...

    message = take.message(("abc",), {}, NO_OPTIONS)
    worker.broker.add([message._replace(version=2, checksum=0)])
    worker.run_all(raise_errors=False)
    found = worker.broker.admin().job(message.id)
    assert found is not None
    assert (found["state"], found["attempts"], found["losses"]) == ("scheduled", 0, 0)
    assert [one["ended"] for one in found["handouts"]] == ["released"]


# ---------------------------------------------------------------------------------------------------------- compression


def compressing(over: int | None) -> tuple[App, Task[..., Any]]:
    app = App("bulk", compress_over=over)

    @app.task(name="count")
    def count(text: str) -> int:
        return len(text)

    return app, count


def test_large_arguments_travel_compressed_and_arrive_whole() -> None:
    app, count = compressing(1000)
    with inline_worker(app) as worker:
        small, large = count.delay("x" * 100), count.delay("x" * 3_000_000)
        first, second = worker.broker.messages
        assert (first.headers, unpack_call(first.args)) == ({}, (("x" * 100,), {}))
        assert len(second.args) < 10_000
        assert second.checksum == crc32(second.args)
        assert len(encode_body(second)) < 10_000
        assert worker.added()[1].args == ("x" * 3_000_000,)
        worker.run_all()
        assert (small.result(), large.result()) == (100, 3_000_000)


def test_compression_is_off_by_default_and_the_same_call_has_the_same_fingerprint() -> None:
    (_, plain), (_, compressed) = compressing(None), compressing(0)
    one, two = (task.message(("x" * 5000,), {}, NO_OPTIONS) for task in (plain, compressed))
    assert one.headers == {}
    assert unpack_call(one.args) == (("x" * 5000,), {})
    assert len(two.args) < len(one.args)
    assert one.fingerprint == two.fingerprint
    assert plain.unpack(two) == compressed.unpack(one)


def test_what_is_too_large_also_when_compressed_says_size_and_limit() -> None:
    app, count = compressing(1000)
    with inline_worker(app):
        noise = os.urandom(1_500_000).hex()
        with pytest.raises(MessageTooLarge) as caught:
            count.delay(noise)
    assert caught.value.limit == 1_048_576 < caught.value.size < 2_000_000
    assert str(caught.value.size) in str(caught.value)


@pytest.mark.parametrize("over", [-1, 1.5, "1000", True, 2**40])
def test_a_wrong_limit_for_compression_is_refused(over: Any) -> None:
    with pytest.raises(ConfigError, match="compress_over"):
        App("bulk", compress_over=over)
