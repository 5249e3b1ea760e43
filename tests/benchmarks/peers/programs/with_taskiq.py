"""taskiq on a Redis stream, its broker with late ack; tasks are coroutines, for which it is made, results off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from taskiq_redis import RedisStreamBroker

from tests.benchmarks.peers.programs import body

broker = RedisStreamBroker(os.environ.get(body.BROKER))


async def _do_noop(number: int) -> None:
    body.noop(number)


async def _do_tell(number: int) -> None:
    body.tell(number)


_noop = broker.register_task(_do_noop, task_name="noop")
_tell = broker.register_task(_do_tell, task_name="tell")
_loop = asyncio.new_event_loop()
_started: list[bool] = []


def _run(coroutine: Coroutine[Any, Any, object]) -> None:
    if not _started:
        _loop.run_until_complete(broker.startup())
        _started.append(True)
    _loop.run_until_complete(coroutine)


def send_tell(number: int) -> None:
    """Add a job that tells when it began."""
    _run(_tell.kiq(number))


def send(count: int) -> None:
    """Add so many no-op jobs, one by one."""

    async def all_of_them() -> None:
        for number in range(count):
            await _noop.kiq(number)

    _run(all_of_them())
