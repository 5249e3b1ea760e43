"""Code around the adding of jobs: what it may change, what it may not, and what the caller sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from tenure import AddError, App, BrokerUnavailable, ConfigError, JobContext
from tenure.broker import Added
from tenure.message import Message
from tenure.middleware import PublishNext
from tenure.signature import NO_OPTIONS
from tenure.testing import inline_worker
from tests.unit.fake_broker import FakeBroker

tenant: ContextVar[str] = ContextVar("tenant")


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def app(broker: FakeBroker) -> App:
    app = App("shop", broker=broker)
    app.task(name="charge")(lambda order_id: order_id)
    return app


def traced(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
    return call_next([message.with_headers(trace=tenant.get("none"), by="a") for message in messages])


def test_it_may_put_headers_on_a_message_and_the_job_finds_them() -> None:
    app = App("shop", compress_over=10)
    found: list[Any] = []

    @app.task(name="looks")
    def looks(ctx: JobContext, text: str) -> str:
        found.append({name: ctx.headers[name] for name in ("trace", "by")})
        return text

    app.publish_middleware(traced)
    with inline_worker(app) as worker:
        job = looks.delay("long " * 20)
        worker.run_all()
        assert job.result(timeout=5) == "long " * 20  # its own header, of compressed arguments, is still there
    assert found == [{"trace": "none", "by": "a"}]


def test_the_first_one_registered_is_the_outermost(app: App, broker: FakeBroker) -> None:
    app.publish_middleware(traced)

    @app.publish_middleware
    def inner(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
        assert messages[0].headers["by"] == "a"
        return call_next([messages[0].with_headers(by="b")])

    app.tasks["charge"].delay(1)
    assert broker.last.headers["by"] == "b"


def test_the_handle_is_of_what_was_sent(app: App, broker: FakeBroker) -> None:
    @app.publish_middleware
    def moves(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
        return call_next([message._replace(queue="slow", key="k") for message in messages])

    job = app.tasks["charge"].delay(1)
    assert (job.queue, job.key, job.id) == ("slow", "k", broker.last.id)
    (many,) = app.add_many([app.tasks["charge"].s(2)])
    assert not isinstance(many, AddError)
    assert (many.queue, many.id) == ("slow", broker.last.id)


def test_add_many_is_one_call_of_it(app: App, broker: FakeBroker) -> None:
    sizes: list[int] = []

    @app.publish_middleware
    def counts(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
        sizes.append(len(messages))
        answers = call_next(messages)
        assert [answer.id for answer in answers] == [message.id for message in messages]
        return answers

    charge = app.tasks["charge"]
    answers = app.add_many([charge.s(1), charge.s(2), charge.s(3)])
    assert [type(answer).__name__ for answer in answers] == ["Job", "Job", "Job"]
    assert app.add_many([]) == []
    assert sizes == [3]


def test_by_adelay_it_finds_what_the_caller_has_set(app: App, broker: FakeBroker) -> None:
    app.publish_middleware(traced)

    async def caller(name: str) -> None:
        tenant.set(name)
        await app.tasks["charge"].adelay(1)

    async def both() -> None:
        await asyncio.gather(caller("acme"), caller("bolt"))

    asyncio.run(both())
    app.close()
    assert sorted(message.headers["trace"] for message in broker.messages) == ["acme", "bolt"]


def test_what_it_raises_comes_out_of_the_call_and_nothing_is_added(app: App, broker: FakeBroker) -> None:
    @app.publish_middleware
    def refuses(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
        raise PermissionError("not in this account")

    with pytest.raises(PermissionError, match="not in this account"):
        app.tasks["charge"].delay(1)
    with pytest.raises(PermissionError):
        app.add_many([app.tasks["charge"].s(1)])
    assert broker.messages == []


def test_an_unconfirmed_add_comes_through_it_and_can_be_sent_again(app: App, broker: FakeBroker) -> None:
    errors: list[str] = []

    @app.publish_middleware
    def watches(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
        try:
            return call_next([message._replace(queue="slow") for message in messages])
        except BrokerUnavailable as error:
            errors.append(error.id)
            raise

    broker.unavailable = 2
    with pytest.raises(BrokerUnavailable) as caught:
        app.tasks["charge"].delay(1)
    assert errors == [caught.value.id]
    with pytest.raises(BrokerUnavailable):
        caught.value.resend()
    job = caught.value.resend()
    assert (job.id, job.queue) == (broker.last.id, "slow")
    broker.unavailable = 1
    with pytest.raises(BrokerUnavailable) as caught:
        app.add_many([app.tasks["charge"].s(1), app.tasks["charge"].s(2)])
    assert [job.queue for job in caught.value.resend()] == ["slow", "slow"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda messages, call_next: call_next([]),
        lambda messages, call_next: call_next([*messages, messages[0]]),
        lambda messages, call_next: call_next(["charge"]),
        lambda messages, call_next: [],
        lambda messages, call_next: None,
    ],
)
def test_it_has_to_pass_on_as_many_as_it_was_given(app: App, wrong: Any) -> None:
    app.publish_middleware(wrong)
    with pytest.raises(TypeError, match=r"<lambda> was given 1 messages and has to pass on as many to call_next\(\)"):
        app.tasks["charge"].delay(1)


async def waits(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
    return call_next(messages)


@pytest.mark.parametrize("wrong", [5, lambda: None, lambda messages: messages, waits])
def test_what_cannot_be_one_is_refused_where_it_is_registered(app: App, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app\.publish_middleware goes on a plain function"):
        app.publish_middleware(wrong)


def test_headers_that_cannot_travel_are_named(app: App) -> None:
    with inline_worker(app):

        @app.publish_middleware
        def wrong(messages: Sequence[Message], call_next: PublishNext) -> Sequence[Added]:
            return call_next([message.with_headers(user=object()) for message in messages])

        with pytest.raises(AddError, match=r"headers\['user'\]"):
            app.tasks["charge"].delay(1)


@pytest.mark.parametrize("name", ["carry", "deflated"])
def test_a_header_of_tenures_own_is_not_written_over(app: App, name: str) -> None:
    message = app.tasks["charge"].message((1,), {}, NO_OPTIONS)
    with pytest.raises(ValueError, match="headers named carry and deflated are Tenure's own; take another name"):
        message.with_headers(**{name: 1})
