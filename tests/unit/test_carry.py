"""Context variables that travel with a job, and those that must not."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from tenure import AddError, App, ConfigError, NotSerializable
from tenure.carry import MAX_CARRIED_BYTES
from tenure.message import CARRIED
from tenure.testing import InlineWorker, inline_worker
from tests.unit.fake_broker import FakeBroker

tenant: ContextVar[Any] = ContextVar("tenant", default="nobody")
private: ContextVar[str] = ContextVar("private", default="unset")


class Colour(Enum):
    RED = "red"


def make_app(**words: Any) -> App:
    app = App("shop", **words)
    assert app.carry(tenant) is tenant

    @app.task(name="reads")
    def reads() -> list[str]:
        found = [str(tenant.get()), private.get()]
        tenant.set("changed by the job")
        private.set("changed by the job")
        return found

    @app.task(name="areads")
    async def areads() -> list[str]:
        await asyncio.sleep(0)
        found = [str(tenant.get()), private.get()]
        tenant.set("changed by the job")
        private.set("changed by the job")
        return found

    @app.task(name="adds")
    def adds() -> str:
        return app.tasks["reads"].delay().id

    return app


def add_as(app: App, value: Any, task: str = "reads") -> Any:
    def add() -> Any:
        tenant.set(value)
        private.set("of the caller")
        return app.tasks[task].delay()

    return copy_context().run(add)


@pytest.mark.parametrize("task", ["reads", "areads"])
def test_each_job_finds_the_value_of_its_own_call_and_nothing_else(task: str) -> None:
    app = make_app()
    with inline_worker(app) as worker:
        jobs = [add_as(app, value, task) for value in ("acme", "bolt")]
        unset = app.tasks[task].delay()
        worker.run_all()
        found = [job.result(timeout=5) for job in (*jobs, unset)]
    assert found == [["acme", "unset"], ["bolt", "unset"], ["nobody", "unset"]]


def test_nothing_of_the_process_leaks_into_a_job() -> None:
    app = make_app()

    def in_the_worker() -> list[str]:
        with inline_worker(app) as worker:
            job = app.tasks["reads"].delay()
            private.set("of the process")
            tenant.set("of the process")
            worker.run_all()
            found: list[str] = job.result(timeout=5)
            return found

    assert copy_context().run(in_the_worker) == ["nobody", "unset"]


def test_a_job_that_a_job_adds_carries_it_on() -> None:
    app = make_app()
    with inline_worker(app) as worker:
        adding = add_as(app, "acme", "adds")
        worker.run_all()
        assert app.job(adding.result(timeout=5), app.tasks["reads"]).result(timeout=5) == ["acme", "unset"]


def test_every_attempt_finds_it() -> None:
    app = make_app()
    found: list[str] = []

    @app.task(name="fails_once")
    def fails_once() -> None:
        found.append(tenant.get())
        tenant.set("changed by the first attempt")
        if len(found) == 1:
            raise ValueError("once")

    with inline_worker(app) as worker:
        add_as(app, "acme", "fails_once")
        worker.run_all()
    assert found == ["acme", "acme"]


def test_middleware_finds_it_too() -> None:
    app = make_app()
    found: list[str] = []

    @app.middleware
    def looks(context: Any, call_next: Any) -> Any:
        found.append(tenant.get())
        return call_next()

    with inline_worker(app) as worker:
        add_as(app, "acme")
        worker.run_all()
    assert found == ["acme"]


def run_one(worker: InlineWorker, job: Any) -> Any:
    worker.run_all()
    return job.result(timeout=5)


@pytest.mark.parametrize("value", [None, 7, Decimal("1.50"), ("a", b"b"), {"id": 1}, Colour.RED])
def test_it_comes_back_with_its_type(value: Any) -> None:
    app = make_app()
    app.register(Colour)
    got: list[Any] = []

    @app.task(name="keeps")
    def keeps() -> None:
        got.append(tenant.get())

    with inline_worker(app) as worker:
        run_one(worker, add_as(app, value, "keeps"))
    assert got == [value]
    assert type(got[0]) is type(value)


def test_it_makes_no_other_call_of_it() -> None:
    broker = FakeBroker()
    app = make_app(broker=broker)
    add_as(app, "acme")
    add_as(app, "bolt")
    app.tasks["reads"].delay()
    one, two, three = broker.messages
    assert one.fingerprint == two.fingerprint == three.fingerprint
    assert one.headers[CARRIED] != two.headers[CARRIED]
    assert CARRIED not in three.headers


def test_it_is_taken_when_the_job_is_added_and_not_when_its_signature_is_made() -> None:
    broker = FakeBroker()
    app = make_app(broker=broker)
    call = app.tasks["reads"].s()
    copy_context().run(lambda: (tenant.set("acme"), call.delay()))
    assert list(broker.last.headers[CARRIED]) == ["tenant"]


def test_what_cannot_travel_is_refused_at_the_call_by_name() -> None:
    app = make_app(broker=FakeBroker())
    with pytest.raises(NotSerializable, match="the carried context variable tenant"):
        add_as(app, object())
    with pytest.raises(NotSerializable, match=rf"tenant have \d+ bytes, limit {MAX_CARRIED_BYTES}; carry an id"):
        add_as(app, "x" * MAX_CARRIED_BYTES)
    add_as(app, "x" * (MAX_CARRIED_BYTES - 20))
    (answer,) = copy_context().run(lambda: (tenant.set(object()), app.add_many([app.tasks["reads"].s()]))[1])
    assert isinstance(answer, AddError)


def test_a_worker_that_does_not_carry_it_runs_the_job_all_the_same() -> None:
    app = make_app()
    with inline_worker(app) as worker:
        job = add_as(app, "acme")
        app.carried = {}
        assert run_one(worker, job) == ["nobody", "unset"]


def test_only_context_variables_are_carried_and_of_each_name_one() -> None:
    app = make_app()
    app.carry(tenant)
    with pytest.raises(ConfigError, match=r"app\.carry takes a contextvars\.ContextVar, not 'tenant'"):
        app.carry("tenant")  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="two context variables named 'tenant'"):
        app.carry(ContextVar("tenant"))
