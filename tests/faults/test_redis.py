"""Redis stands still, is full, is emptied of its scripts: what happens to the jobs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenure import App
from tenure.broker import Extend, Settled
from tenure.brokers import connect
from tenure.brokers.redis.broker import RedisBroker, from_url
from tenure.brokers.redis.consumer import RedisConsumer
from tenure.errors import BrokerUnavailable, MessageTooLarge, NoSpace
from tenure.message import Delivery, Settlement
from tests.stage.redis_lab import done, message, session_of
from tests.stage.redis_servers import RedisServer, until


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[RedisBroker]:
    one = from_url(redis_server.url)
    yield one
    one.close()


def test_a_server_that_stood_still_ends_no_lease(redis_server: RedisServer, broker: RedisBroker) -> None:
    broker.add([message(1), message(2)])
    first = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=2.0)
    second = broker.consumer(["q"], session=session_of(2), name="w", visibility_timeout=2.0)
    keeper = broker.keeper()
    (held,) = first.take(1, 0)
    (other,) = second.take(1, 0)
    keeper.extend([Extend(held.receipt)])
    redis_server.freeze()
    frozen_at = time.monotonic()
    try:
        while time.monotonic() < frozen_at + 3.0:
            with pytest.raises(ConnectionError):
                second.take(1, 0)
    finally:
        redis_server.thaw()
    until(lambda: takes(second) == [], "it answers again")
    assert keeper.extend([Extend(held.receipt)])[0].deadline is not None
    assert first.settle([done(held)]) == [Settled("ok", "done")]
    assert second.settle([done(other)]) == [Settled("ok", "done")]
    for one in (first, second, keeper):
        one.close()


@pytest.mark.parametrize("how", ["asked for another queue", "only settled", "extended for the first time"])
def test_whoever_speaks_first_does_not_hide_that_the_server_stood_still(
    redis_server: RedisServer, broker: RedisBroker, how: str
) -> None:
    """All that it asks is in vain for longer than the visibility timeout, but it asks nothing of the queue itself."""
    broker.add([message(1), message(2)])
    queues = ["a", "q"] if how == "asked for another queue" else ["q"]
    holder, worker, newcomer = (
        broker.consumer(names, session=session_of(n), name="w", visibility_timeout=2.0)
        for n, names in enumerate((["q"], queues, ["q"]), 1)
    )
    keeper = broker.keeper()
    (held,), (other,) = holder.take(1, 0), worker.take(1, 0)
    ask: Callable[[], object] = {
        "asked for another queue": lambda: worker.take(1, 0),
        "only settled": lambda: worker.settle([done(other)]),
        "extended for the first time": lambda: keeper.extend([Extend(other.receipt)]),
    }[how]
    redis_server.freeze()
    frozen_at = time.monotonic()
    try:
        while time.monotonic() < frozen_at + 3.0:
            with pytest.raises(ConnectionError):
                ask()
    finally:
        redis_server.thaw()
    answers: list[object] = []
    until(lambda: not raises(lambda: answers.append(ask())), "it answers again")
    if how == "asked for another queue":
        assert answers == [[]]
    assert (worker if how == "only settled" else newcomer).take(1, 0) == []
    assert holder.settle([done(held)]) == [Settled("ok", "done")]
    for one in (holder, worker, newcomer, keeper):
        one.close()


def raises(ask: Callable[[], object]) -> bool:
    """Whether the server did not answer."""
    try:
        ask()
    except ConnectionError:
        return True
    return False


def takes(consumer: RedisConsumer) -> list[Delivery] | None:
    """Take a job; None where the server did not answer."""
    try:
        return consumer.take(1, 0)
    except ConnectionError:
        return None


def test_a_full_server_refuses_jobs_and_lets_those_that_run_end(tmp_path: Path) -> None:
    with RedisServer(tmp_path, durable=False) as server:
        broker = from_url(server.url)
        consumer = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
        broker.add([message(n) for n in range(1, 7)])
        jobs = consumer.take(5, 0)
        server.command("CONFIG", "SET", "maxmemory", "500kb")
        full, again = broker.add([message(7)]), broker.add([message(8), message(9)])
        assert all(isinstance(one.error, NoSpace) for one in (*full, *again))
        keeper = broker.keeper()
        assert keeper.extend([Extend(jobs[0].receipt, b"half")])[0].deadline is not None
        assert consumer.settle(
            [
                done(jobs[0], b"r"),
                Settlement(jobs[1].receipt, "retry", delay=60.0, error=b"e"),
                Settlement(jobs[2].receipt, "dead"),
                Settlement(jobs[3].receipt, "release"),
            ]
        ) == [Settled("ok", word) for word in ("done", "scheduled", "dead", "released")]
        assert keeper.bye(session_of(1), "left", "a drain", []) == []
        other = broker.consumer(["q"], session=session_of(2), name="w", visibility_timeout=30.0)
        assert len(other.take(9, 0)) == 3
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert broker.add([message(7)])[0].created
        answer = broker.admin().record(verify=True)
        assert answer["verified"], answer["differences"]
        for one in (consumer, other, keeper, broker):
            one.close()


def test_a_server_that_forgot_its_scripts_is_given_them_again(redis_server: RedisServer, broker: RedisBroker) -> None:
    broker.add([message(1)])
    consumer = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
    redis_server.command("SCRIPT", "FLUSH")
    assert broker.add([message(2)])[0].created
    jobs = consumer.take(5, 0)
    redis_server.command("SCRIPT", "FLUSH")
    assert consumer.settle([done(job) for job in jobs]) == [Settled("ok", "done")] * 2
    consumer.close()


def test_a_server_that_was_emptied_knows_the_queue_of_the_next_job(
    redis_server: RedisServer, broker: RedisBroker
) -> None:
    broker.add([message(1)])
    redis_server.command("FLUSHALL")
    broker.add([message(2)])
    assert broker.admin().record()["totals"]["added"] == 1


def test_how_long_results_and_keys_are_kept_is_the_apps_to_say(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_RESULT_TTL", "90s")
    monkeypatch.setenv("TENURE_KEY_WINDOW", "2m")
    app = App("kept", broker=redis_server.url)
    broker = app.broker
    broker.add([message(1, key="k")])
    consumer = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
    (job,) = consumer.take(1, 0)
    consumer.settle([done(job, b"r")])
    assert redis_server.command("HGET", f"tenure:{{q}}:j:{job.message.id}", "ttl") == b"90000"
    assert 118_000 < redis_server.command("PTTL", "tenure:{q}:k:t\0k") <= 120_000
    consumer.close()
    app.close()


def test_callers_that_wait_are_told_though_the_server_was_started_again_meanwhile(
    redis_server: RedisServer, broker: RedisBroker
) -> None:
    jobs = [message(n) for n in range(1, 101)]
    broker.add(jobs)
    results = broker.results()
    told = [threading.Event() for _ in jobs]
    watches = [results.watch([job.id], None, event.set) for job, event in zip(jobs, told, strict=True)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(results.wait, [jobs[0].id], 30.0)
        until(lambda: redis_server.command("HEXISTS", f"tenure:{{q}}:j:{jobs[0].id}", "wt"), "it waits")
        redis_server.restart()
        consumer = broker.consumer(["q"], session=session_of(1), name="w", visibility_timeout=30.0)
        until(lambda: takes_and_ends(consumer), "the first jobs are done")
        assert waiting.result(5)[0].result == b"r"
        until(lambda: takes_and_ends(consumer) and broker.admin().record()["totals"]["done"] == 100, "all are done")
    assert all(event.wait(5) for event in told)
    assert [answer()[0].result for answer, _ in watches] == [b"r"] * 100
    for _, stop in watches:
        stop()
    consumer.close()


def takes_and_ends(consumer: RedisConsumer) -> bool:
    """Take ten jobs and end them; False where the server did not answer."""
    try:
        consumer.settle([done(job, b"r") for job in consumer.take(10, 0)])
    except ConnectionError:
        return False
    return True


def test_who_waits_is_told_that_the_broker_was_closed(redis_server: RedisServer) -> None:
    broker = from_url(redis_server.url)
    broker.add([message(1)])
    told = threading.Event()
    answer, stop = broker.results().watch([message(1).id], None, told.set)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.results().wait, [message(1).id], 30.0)
        until(lambda: redis_server.command("HEXISTS", f"tenure:{{q}}:j:{message(1).id}", "wt"), "it waits")
        broker.close()
        with pytest.raises(BrokerUnavailable, match="closed"):
            waiting.result(5)
    assert told.wait(5)
    with pytest.raises(BrokerUnavailable, match="closed"):
        answer()
    stop()


def test_a_broker_of_a_server_that_is_not_there_is_made_all_the_same() -> None:
    broker = connect("redis://127.0.0.1:1", add_timeout=0.2)
    assert broker.counts() == (0, 0, 0)
    broker.close()


def test_a_first_add_at_a_full_server_is_refused_and_its_operator_can_go_on(tmp_path: Path) -> None:
    with RedisServer(tmp_path, durable=False) as server:
        earlier, first = from_url(server.url), from_url(server.url)
        earlier.add([message(n) for n in range(1, 4)])
        server.command("CONFIG", "SET", "maxmemory", "500kb")
        for answer in (*first.add([message(4)]), *first.add([message(5), message(6, queue="r")])):
            assert isinstance(answer.error, NoSpace)
            assert re.search(r"Redis is full: it is at its `maxmemory` \(500\.00K\)\. Raise that", str(answer.error))
            assert "script" not in str(answer.error)
        assert first.counts() == (0, 0, 0)
        admin = first.admin()
        assert [admin.switch(verb, "q") for verb in ("pause", "resume", "close", "open")] == [
            "paused", "resumed", "closed", "open"
        ]  # fmt: skip
        assert admin.purge_queue("q") == 3
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert first.add([message(4)])[0].created
        first.close()
        earlier.close()


def test_an_add_that_a_server_was_never_told_of_is_not_unconfirmed(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "u", "on", ">right", "~*", "&*", "+@all")
    broker = from_url(redis_server.url.replace("redis://", "redis://u:wrong@"))
    with pytest.raises(BrokerUnavailable, match=r"^2 jobs, \w+ the first, not added: .* does not know this") as caught:
        broker.add([message(1), message(2)])
    assert broker.counts() == (0, 0, 0)
    redis_server.command("ACL", "SETUSER", "u", ">wrong")
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(BrokerUnavailable, match=r"not added: .* throws keys away"):
        caught.value.resend()
    assert broker.counts() == (0, 0, 0)
    redis_server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert [one.created for one in caught.value.resend()] == [True, True]
    assert broker.counts() == (2, 0, 0)
    broker.close()


def test_what_is_too_large_for_redis_is_stored_elsewhere(broker: RedisBroker) -> None:
    (answer,) = broker.add([message(1, args=b"a" * (broker.max_body + 1))])
    assert isinstance(answer.error, MessageTooLarge)
    assert str(answer.error).endswith("store the data elsewhere and pass its address")
