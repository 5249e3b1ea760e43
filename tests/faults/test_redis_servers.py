"""What can happen to Redis alone: failovers, a full memory, lost keys, settings that would lose jobs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import App, NoSpace
from tenure.faults import Proxy
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.fixtures import ended
from tests.stage.harness import JOBS, TENURE, Stage, wait_for
from tests.stage.producer import Producer
from tests.stage.redis_servers import Watched, clustered
from tests.stage.redis_stage import RedisStage, bare, stage
from tests.stage.sizes import sized

__all__ = ["bare", "stage"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Stage]:
    """A stage whose broker is told by the test."""
    with ended(RedisStage(tmp_path)) as stage:
        yield stage


@pytest.mark.parametrize("how", sized(["is told to go", "is killed"], ["is told to go", "is killed", "stands still"]))
def test_the_primary_is_another_one_while_1000_jobs_run(elsewhere: Stage, redis_watched: Watched, how: str) -> None:
    """Every job is done whose add was confirmed; an answer waits for its copy, so nothing confirmed is lost."""
    elsewhere.url = f"{redis_watched.url}?replicas=1"
    elsewhere.use(jobs.app)
    elsewhere.start_worker("w", "--processes", "2", "--threads", "4")
    producer = Producer(0.002, 0.005, limit=1000, threads=2)
    elsewhere.wait_done(200)
    if how == "is killed":
        redis_watched.primary.kill()
        redis_watched.wait_promoted()
        redis_watched.primary.restart()
    elif how == "stands still":
        redis_watched.primary.freeze()
        redis_watched.wait_promoted()
        redis_watched.primary.thaw()  # it does not know yet that it is none any more
    else:
        redis_watched.fail_over()
    promoted_at = time.monotonic()
    ids = producer.stop()
    elsewhere.wait_done(1000, 45)
    print(f"all done {time.monotonic() - promoted_at:.1f} s after the promotion")
    totals = elsewhere.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["done"]) == (1000, len(set(ids)))
    assert {one.job for one in elsewhere.executions()} == set(ids)
    assert redis_watched.replica.info("replication")["role"] == "master"
    assert redis_watched.primary.info("replication")["role"] == "slave"


def test_a_node_of_a_cluster_is_killed_and_comes_back(elsewhere: Stage, tmp_path: Path) -> None:
    queues = [f"queue-{number}" for number in range(6)]
    with clustered(tmp_path / "cluster") as cluster:
        elsewhere.url = cluster.url
        elsewhere.use(jobs.app)
        elsewhere.start_worker("w", "--processes", "1", "--queues", ",".join(queues))
        work = [jobs.work.options(queue=queue) for queue in queues]
        for number in range(60):
            work[number % 6].delay(number, 0.01)
        elsewhere.wait_done(12)
        cluster.nodes[1].kill()
        cluster.nodes[1].restart()
        cluster.wait_ok()
        ok_at = time.monotonic()
        for number in range(60):
            work[number % 6].delay(number)
        elsewhere.wait_done(120)
        recovered("a cluster's jobs are done once it serves all slots again", time.monotonic() - ok_at, 3.0)
        record = elsewhere.check(jobs.app.counts)
        assert {name: row["done"] for name, row in record["queues"].items()} == dict.fromkeys(queues, 20)


def test_a_queue_moves_from_node_to_node_while_its_jobs_run(elsewhere: Stage, tmp_path: Path) -> None:
    """It stands still meanwhile: no script begins where some of its keys are, and ends where others are."""
    with clustered(tmp_path / "cluster") as cluster:
        elsewhere.url = cluster.url
        elsewhere.use(jobs.app)
        worker = elsewhere.start_worker("w", "--processes", "2", "--threads", "2")
        producer = Producer(0.005, 0.01, limit=500)
        for number in range(3):
            elsewhere.wait_done(50 * (number + 1))
            print(f"{cluster.move('tenure:{default}')} keys have moved")
        ids = producer.stop()
        elsewhere.wait_done(500)
        totals = elsewhere.check(jobs.app.counts)["totals"]
        assert (totals["done"], totals["handed_out"]) == (len(set(ids)), 500)
        assert "Traceback" not in worker.output


def test_a_full_memory_refuses_new_jobs_and_ends_those_that_are_there(stage: RedisStage) -> None:
    redis = stage.redis
    assert redis is not None
    held = [jobs.hold.delay(number) for number in range(4)]
    retried = jobs.second_try.options(delay=0.2).delay(1)
    waiting = [jobs.work.delay(number) for number in range(20)]
    stage.start_worker("w", "--processes", "1", "--threads", "5")
    wait_for(lambda: len(stage.executions()) >= 4, 10, "the held jobs have started")
    redis.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(NoSpace, match=r"memory|maxmemory"):
        jobs.work.delay(99)
    stage.let_go()
    stage.wait_done(len(held) + len(waiting) + 1)
    assert [one.result(timeout=5) for one in held] == [0, 1, 2, 3]
    assert retried.result(timeout=5) == 1
    redis.command("CONFIG", "SET", "maxmemory", 0)
    freed_at = time.monotonic()
    assert jobs.work.delay(100).result(timeout=10) == 100
    recovered("an add is taken once there is memory again", time.monotonic() - freed_at, 0.5)
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["done"], totals["handouts"]["retried"]) == (26, 26, 1)


def test_an_error_that_nobody_expects_ends_no_worker(stage: RedisStage) -> None:
    """The line of a queue is something else for a while, at which every take fails in a way of its own."""
    redis = stage.redis
    assert redis is not None
    worker = stage.start_worker("w", "--processes", "1")
    children = worker.children
    jobs.work.delay(1)
    stage.wait_done(1)
    line = "tenure:{default}:ready"
    assert redis.command("EXISTS", line) == 0
    redis.command("SET", line, "not a line")
    wait_for(lambda: "an unexpected error while taking jobs" in worker.output, 10, "takes fail")
    redis.command("DEL", line)
    mended_at = time.monotonic()
    jobs.work.delay(2)
    stage.wait_done(2)
    recovered("jobs flow after an error that nobody expects", time.monotonic() - mended_at, 1.0)
    assert worker.children == children
    stage.check(jobs.app.counts)


def test_answers_are_lost(stage: Stage) -> None:
    """Whatever the answer was to: adds, takes, settlements, extends, wake-ups."""
    with Proxy(stage.url) as proxy:
        stage.use(jobs.app, proxy.url)
        stage.start_worker("w", "--processes", "2", "--threads", "2", broker=proxy.url)
        producer = Producer(0.002, 0.01, limit=300)
        for _ in range(sized(30, 200)):
            proxy.drop_answer()
            time.sleep(0.05)
        ids = producer.stop()
        proxy.pass_through()
        stage.wait_done(300)
        print(f"{proxy.swallowed} answers were lost")
        assert proxy.swallowed >= sized(20, 150)
        totals = stage.check(jobs.app.counts)["totals"]
    assert Counter(one.job for one in stage.executions()) == Counter(ids), "each job once"
    assert (totals["added"], totals["done"], totals["handed_out"]) == (300, 300, 300)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("maxmemory-policy", "allkeys-lru", "Set it to noeviction"),
        ("requirepass", "secret", "it wants a password: write redis://:PASSWORD@HOST"),
    ],
)
def test_a_server_of_no_use_ends_the_worker_with_what_to_do(
    stage: RedisStage, setting: str, value: str, says: str
) -> None:
    redis = stage.redis
    assert redis is not None
    redis.command("CONFIG", "SET", setting, value)
    worker = stage.start_worker("w", "--processes", "1", wait=False)
    assert worker.wait() == 1
    assert says in worker.output
    assert "Traceback" not in worker.output
    assert says in stage.run("record", "--broker", stage.url, code=1).stderr


def test_no_password_is_shown_by_a_worker_or_its_processes(stage: RedisStage) -> None:
    redis = stage.redis
    assert redis is not None
    redis.command("CONFIG", "SET", "requirepass", "hush")
    url = stage.url.replace("://", "://:hush@")
    stage.env["TENURE_BROKER"] = url
    worker = stage.start([str(TENURE), "worker", "-A", JOBS, "--processes", "1", "--name", "w"], stage.place / "w.log")
    wait_for(lambda: "worker w: " in worker.output, 15, "the worker has started")
    app = App("caller", broker=url)
    app.send(f"{JOBS}.work", [1]).result(timeout=10)
    for pid in (worker.pid, *worker.children):
        assert b"hush" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    redis.command_as("hush", "CONFIG", "SET", "requirepass", "other")
    redis.command_as("other", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    wait_for(lambda: "it does not know this user, or this password" in worker.output, 10, "it says what is wrong")
    redis.command_as("other", "CONFIG", "SET", "requirepass", "hush")
    assert app.send(f"{JOBS}.work", [2]).result(timeout=10) == 2
    app.close()
    assert worker.stop() == 0
    assert "hush" not in worker.output
    assert "Traceback" not in worker.output


def test_many_producers_and_workers_on_one_server(stage: Stage) -> None:
    """No error of any kind, and nothing twice; what it came to is printed."""
    threads, seconds = sized((16, 3.0), (32, 60.0))
    for number in range(sized(2, 4)):
        stage.start_worker(f"w{number}", "--processes", "2", "--threads", "4")
    began_at = time.monotonic()
    producer = Producer(0.001, 0.0, threads=threads)
    time.sleep(seconds)
    ids = producer.stop()
    stage.wait_done(len(ids), 60)
    took = time.monotonic() - began_at
    print(f"{threads} producers: {len(ids)} jobs in {took:.1f} s, {len(ids) / took:,.0f}/s")
    record = stage.check(jobs.app.counts)
    assert record["totals"]["done"] == len(ids) == len(set(ids))
    assert len(stage.executions()) == len(ids)
    for worker in stage.workers:
        assert "WARNING" not in worker.output
        assert "ERROR" not in worker.output
