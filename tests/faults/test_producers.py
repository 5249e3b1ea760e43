"""Processes that add jobs: forked ones, idle ones, very many, and ones that live long."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure import App, MessageTooLarge
from tenure.broker import ProducerCounts
from tenure.faults import Proxy, process
from tenure.faults.policy import PassAll
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import JOBS, Stage, wait_for
from tests.stage.sizes import sized


class CountsConnections:
    """The proxy's script: it changes nothing, and counts for how many connections it was made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> PassAll:
        self.made += 1
        return PassAll()


def test_a_preloading_web_server(stage: Stage) -> None:
    connections = CountsConnections()
    with Proxy(stage.url, script=connections) as proxy:
        stage.env["TENURE_BROKER"] = proxy.url
        args = ["--preload", "--workers", "4", "--bind", "127.0.0.1:0", "tests.stage.apps.web:app"]
        server = stage.start([sys.executable, "-m", "gunicorn", *args], stage.place / "web.log")
        at = wait_for(lambda: server.output.partition("Listening at: ")[2].partition(" ")[0], 15, "it listens")
        wait_for(lambda: server.output.count("Booting worker") == 4, 15, "its workers have started")

        def ask(number: int) -> list[str]:
            with urllib.request.urlopen(f"{at}?{number}", timeout=10) as answer:
                text: str = answer.read().decode()
            return text.split()

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(1000)))
        processes = {pid for pid, _ in answers}
        assert len({id for _, id in answers}) == 1000
        assert len(processes) > 1
        # One for the import, in the process that forked, and one for each of the others: none is shared.
        assert connections.made == proxy.connections == 1 + len(processes)
        assert server.stop() == 0
    stage.check(ProducerCounts(1001, 0, 0))


def test_the_first_call_after_a_rest(stage: Stage) -> None:
    """Everything on the way has forgotten the connections, or the server is another one; all of them at once."""
    address = stage.url.removeprefix("tenure://")
    with Proxy(stage.url) as proxy, ThreadPoolExecutor(8) as threads:
        stage.use(jobs.app, proxy.url)

        def call(number: int) -> float:
            began_at = time.monotonic()
            jobs.work.delay(number)
            return time.monotonic() - began_at

        def calls() -> float:
            together = threading.Barrier(8)
            return max(threads.map(lambda number: together.wait(10) * 0 + call(number), range(8)))

        calls()
        proxy.stall(None, new_connections=True)
        recovered("the first calls over connections that were forgotten on the way", calls(), 2.0)
        proxy.pass_through()
        proxy.cut()
        recovered("the first calls over connections that were reset", calls(), 0.5)
        process.kill(stage.server.pid)
        stage.server.wait()
        stage.start_server(address)
        recovered("the first calls to a server that was started again", calls(), 0.5)
        totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["duplicates"]) == (32, 0)


def test_32_producers_and_16_workers(stage: Stage) -> None:
    """In CI 4 processes of 8 threads, and 4 workers of 4 processes; a soak has 32 processes, and 16 workers."""
    stage.env["TENURE_BROKER"] = stage.url
    workers, processes = sized((4, 4), (16, 1))
    producers, threads = sized((4, 8), (32, 1))
    seconds = sized(4.0, 60.0)
    for number in range(workers):
        stage.start_worker(f"w{number}", "--processes", str(processes), "--threads", "1")
    began_at = time.monotonic()
    adding = [
        stage.start(
            [sys.executable, "-m", "tests.stage.adder", str(threads), str(seconds)], stage.place / f"p{number}.log"
        )
        for number in range(producers)
    ]
    for one in adding:
        assert one.wait(seconds + 30) == 0, one.output
    told = [json.loads(one.output) for one in adding]
    added = sum(counts[0] for counts, _, _ in told)
    stage.wait_done(added, sized(40, 600))
    print(f"{added} jobs, {added / (time.monotonic() - began_at):.0f} a second from the first add to the last done")
    print(f"the longest call took {max(worst for _, worst, _ in told):.2f} s")
    assert [failed for _, _, failed in told if failed] == []
    assert "locked" not in stage.server.output
    totals = stage.check(ProducerCounts(*(sum(counts[place] for counts, _, _ in told) for place in range(3))))["totals"]
    assert (totals["done"], totals["handed_out"]) == (added, added)
    for worker in stage.workers:
        assert "ERROR" not in worker.output


def test_a_message_above_the_servers_limit(bare: Stage) -> None:
    limit = 4096
    bare.start_server("127.0.0.1:0", "--max-body", str(limit))
    app = App("sizes")
    bare.use(app)

    @app.task(name=f"{JOBS}.broken")
    def send(text: str) -> None: ...

    def size_of(length: int) -> int:
        with pytest.raises(MessageTooLarge) as error:
            send.delay("x" * length)
        assert str(limit) in str(error.value)
        return error.value.size

    overhead = size_of(2 * limit) - 2 * limit
    assert size_of(limit - overhead + 1) == limit + 1
    stored = [send.delay("x" * (limit - overhead - below)) for below in (0, 1)]
    assert [bare.job(job.id)["state"] for job in stored] == ["ready", "ready"]
    assert bare.check(app.counts)["totals"]["added"] == 2


LIVES_LONG = """
import os, sys
from tests.benchmarks.processes import resident_bytes
from tests.stage.apps import jobs

def grown(times, act):
    act()
    before = resident_bytes(os.getpid())
    for _ in range(times):
        act()
    return (resident_bytes(os.getpid()) - before) / 1024 / 1024

adds, results = int(sys.argv[1]), int(sys.argv[2])
aside = jobs.work.options(queue="aside")
def drops():
    jobs.app.add_many([aside.s(number) for number in range(900)])
    for number in range(100):
        aside.delay(number)

def gets():
    for job in [jobs.work.delay(number) for number in range(100)]:
        assert job.result(timeout=60) is not None

for _ in range(2):
    drops()
print(grown(adds // 1000, drops))
gets()
print(grown(results // 100, gets))
print(*jobs.app.counts)
"""


def test_a_producer_that_lives_long_keeps_nothing(bare: Stage) -> None:
    bare.start_server("127.0.0.1:0", "--durability", "normal")
    bare.env["TENURE_BROKER"] = bare.url
    bare.start_worker("w", "--processes", "1", "--threads", "2")
    arguments = [str(sized(5_000, 200_000)), str(sized(300, 20_000))]
    producer = bare.start([sys.executable, "-c", LIVES_LONG, *arguments], bare.place / "producer.log")
    assert producer.wait(sized(50, 3_000)) == 0, producer.output
    adds, results, *counts = (float(word) for word in producer.output.split())
    print(f"grown by {adds:.1f} MiB over the adds, {results:.1f} MiB over the results")
    assert adds < 3.0
    assert results < 3.0
    bare.check(ProducerCounts(*map(int, counts)))
