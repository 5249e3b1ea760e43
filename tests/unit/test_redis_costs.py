"""What the scripts of an ordinary job cost, counted in commands, and what they leave as it was."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.brokers.redis import consumer
from tenure.brokers.redis.broker import RedisBroker, from_url
from tests.stage.redis_lab import done, hexid, message, session_of
from tests.stage.redis_servers import RedisServer, until


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[RedisBroker]:
    one = from_url(redis_server.url)
    yield one
    one.close()


def commands(server: RedisServer) -> dict[str, int]:
    """How often each command has been carried out since this was asked last."""
    stats = server.info("commandstats")
    server.command("CONFIG", "RESETSTAT")
    counts = {name.removeprefix("cmdstat_"): int(words.split(",")[0][6:]) for name, words in stats.items()}
    return {name: n for name, n in counts.items() if name not in ("info", "config|resetstat")}


def test_a_plain_add_and_the_take_that_it_wakes_are_few_commands(
    redis_server: RedisServer, broker: RedisBroker
) -> None:
    worker = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
    with ThreadPoolExecutor(1) as pool:
        for number in range(3):
            taken = pool.submit(worker.take, 10, 20.0)
            until(lambda: int(redis_server.info("clients")["blocked_clients"]) == 1, "the take waits")
            commands(redis_server)
            broker.add([message(number, queue="q")])
            (delivery,) = taken.result(5)
            if number:  # before that the scripts have to be loaded, and the queue is empty of everything
                found = commands(redis_server)
                assert found.pop("evalsha") == 2
                # Sixteen, the wait included, and four more now and then: when it was last noted and swept is old.
                assert sum(found.values()) <= 20, found
            worker.settle([done(delivery)])
    worker.close()


def test_jobs_that_have_no_room_in_an_answer_stay_in_their_places(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "TAKE_BYTES", 250)
    broker.add([message(number, queue="q", args=b"a" * 100) for number in range(1, 8)])
    broker.add([message(8, queue="q", priority=9)])
    worker = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
    seen = [[one.message.id for one in worker.take(10, 0.0)] for _ in range(3)]
    worker.close()
    assert seen == [[hexid(number) for number in part] for part in ((8, 1, 2, 3), (4, 5, 6), (7,))]
    assert broker.admin().record(verify=True)["verified"]
