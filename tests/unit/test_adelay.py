"""Adding from a coroutine: the loop goes on, and what was called for is added whatever becomes of the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tenure import App, BrokerUnavailable, JobContext
from tenure.broker import Added
from tenure.message import Message
from tests.unit.fake_broker import FakeBroker


class SlowBroker(FakeBroker):
    """Answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        self.at_once = self.most = 0
        self._own = threading.Lock()

    def add(self, messages: Sequence[Message]) -> list[Added]:
        with self._own:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.asked.release()
        assert self.go.wait(10)
        with self._own:
            self.at_once -= 1
            return super().add(messages)


@pytest.fixture
def broker() -> SlowBroker:
    return SlowBroker()


def shop(broker: Any, **options: Any) -> App:
    app = App("shop", broker=broker, **options)

    @app.task(name="charge")
    def charge(ctx: JobContext, order_id: int) -> int:
        return order_id

    return app


def test_the_loop_goes_on_while_jobs_are_added_by_as_many_threads_as_there_are_connections(broker: SlowBroker) -> None:
    app = shop(broker, pool_size=3)
    charge = app.tasks["charge"]
    ticks = 0

    async def run() -> list[str]:
        nonlocal ticks
        adding = [asyncio.create_task(charge.adelay(number)) for number in range(10)]
        adding.append(asyncio.create_task(charge.s(11).adelay()))
        adding.append(asyncio.create_task(charge.options(queue="q").adelay(12)))
        while broker.at_once < 3:
            await asyncio.sleep(0)
            ticks += 1
        broker.go.set()
        return [job.id for job in await asyncio.gather(*adding)]

    ids = asyncio.run(run())
    assert ticks > 0
    assert broker.most == 3
    assert sorted(ids) == sorted(message.id for message in broker.messages)
    assert broker.messages[-1].queue in ("q", "default")
    app.close()


def test_a_caller_that_is_cancelled_has_added_all_the_same(broker: SlowBroker) -> None:
    app = shop(broker)

    async def run() -> None:
        adding = asyncio.create_task(app.tasks["charge"].adelay(1))
        await asyncio.to_thread(broker.asked.acquire)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        broker.go.set()

    asyncio.run(run())
    app.close()
    assert len(broker.messages) == 1


def test_errors_of_the_call_come_before_any_thread_is_asked(broker: SlowBroker) -> None:
    app = shop(broker)

    async def run() -> None:
        with pytest.raises(TypeError):
            await app.tasks["charge"].adelay()

    asyncio.run(run())
    assert broker.most == 0


def test_errors_of_the_broker_come_through() -> None:
    class Away(FakeBroker):
        def add(self, messages: Sequence[Message]) -> list[Added]:
            raise BrokerUnavailable("no answer", messages[0].id)

    app = shop(Away())

    async def run() -> None:
        with pytest.raises(BrokerUnavailable):
            await app.tasks["charge"].adelay(1)

    asyncio.run(run())
    app.close()
