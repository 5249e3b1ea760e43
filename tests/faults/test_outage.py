"""The server is away for a while: how callers wait, what it costs them, and how they come back."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure import App, BrokerUnavailable
from tenure.broker import ProducerCounts
from tenure.brokers.server import from_url
from tenure.faults import Proxy, process
from tenure.faults.policy import PassAll
from tests.benchmarks.processes import resident_bytes
from tests.stage.apps import jobs
from tests.stage.blackhole import blackhole
from tests.stage.figures import recovered
from tests.stage.harness import Stage
from tests.stage.sizes import sized
from tests.unit.scripted import message

MIB = 1024 * 1024
BUCKET = 0.05
CLIENTS = 200


class Arrivals:
    """The proxy's script: it changes nothing, and notes when each connection came."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self) -> PassAll:
        self.at.append(time.monotonic())
        return PassAll()


class Crowd:
    """Clients with a connection each, which are all in the middle of an add when their server goes."""

    def __init__(self, url: str, first: int, roll: Callable[[], float] | None) -> None:
        rolls = {} if roll is None else {"roll": roll}
        self.arrivals = Arrivals()
        self._server = url
        self._proxy = Proxy(url, script=self.arrivals)
        self._clients = [from_url(self._proxy.url, pool_size=1, add_timeout=60.0, **rolls) for _ in range(CLIENTS)]
        self._first = first
        self._threads = ThreadPoolExecutor(CLIENTS)
        self._add_all()

    def _add_all(self) -> None:
        numbers = range(self._first, self._first + CLIENTS)
        self._first += CLIENTS
        self._adding = [
            self._threads.submit(client.add, [message(number)])
            for client, number in zip(self._clients, numbers, strict=True)
        ]

    def lose_server(self) -> None:
        """Have all clients add, cut their connections at one moment before they are answered, and refuse new ones."""
        for adding in self._adding:
            assert adding.result(20)[0].created
        self._proxy.stall(None, new_connections=False)
        self._add_all()
        time.sleep(0.6)
        self._proxy.close()

    def find_server(self) -> None:
        """Let new connections through again."""
        self.arrivals.at.clear()
        self._proxy = Proxy(self._server, listen=self._proxy.address, script=self.arrivals)

    def close(self) -> int:
        """Wait for all adds; returns the most arrivals in one span of 50 ms."""
        for adding in self._adding:
            assert adding.result(20)[0].created
        assert len(self.arrivals.at) == CLIENTS, "each came back once"
        for client in self._clients:
            assert client.counts() == ProducerCounts(2, 0, 0)
            client.close()
        self._threads.shutdown()
        self._proxy.close()
        return max(Counter(int((at - self.arrivals.at[0]) / BUCKET) for at in self.arrivals.at).values())


def test_200_connections_come_back_one_after_the_other(stage: Stage) -> None:
    crowds = [Crowd(stage.url, 1, None), Crowd(stage.url, 10_001, lambda: 1.0)]
    for crowd in crowds:
        crowd.lose_server()
    time.sleep(sized(3.0, 15.0))
    for crowd in crowds:
        crowd.find_server()
    back_at = time.monotonic()
    most, without = (crowd.close() for crowd in crowds)
    print(f"most arrivals in {BUCKET * 1000:.0f} ms: {most} of {CLIENTS}, without jitter {without}")
    recovered("200 connections are back after an outage", crowds[0].arrivals.at[-1] - back_at, 2.0)
    assert most <= CLIENTS / 4
    record = stage.ask("record", "--verify")
    assert record["balanced"]
    assert record["verified"], record["differences"]
    assert (record["totals"]["added"], record["totals"]["duplicates"]) == (4 * CLIENTS, 0)


WAITS = """
import os, sys, threading, time
from tenure import App, BrokerUnavailable
from tests.benchmarks.processes import resident_bytes

app = App("waits", add_timeout=0.5)
@app.task(name="tests.stage.apps.jobs.work")
def work(number): ...

def adds():
    while time.monotonic() < end:
        try:
            work.delay(1)
        except BrokerUnavailable:
            failed.append(1)

failed = []
warm, seconds = 2.0, float(sys.argv[1])
end = time.monotonic() + seconds
threads = [threading.Thread(target=adds) for _ in range(8)]
for thread in threads:
    thread.start()
time.sleep(warm)
before = resident_bytes(os.getpid())
time.sleep(seconds - warm)
grown = resident_bytes(os.getpid()) - before
for thread in threads:
    thread.join()
print(grown, len(failed), *app.counts)
"""


def test_waiting_for_a_server_costs_no_memory(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "1", "--threads", "4")
    jobs.work.delay(1)
    stage.wait_done(1)
    address = stage.url.removeprefix("tenure://")
    process.kill(stage.server.pid)
    stage.server.wait()
    stage.env["TENURE_BROKER"] = stage.url
    seconds = sized(6.0, 600.0)
    producer = stage.start([sys.executable, "-c", WAITS, str(seconds)], stage.place / "producer.log")
    time.sleep(2.0)
    before = {pid: resident_bytes(pid) for pid in (worker.pid, *worker.children)}
    assert producer.wait(seconds + 20) == 0, producer.output
    grown = {pid: (resident_bytes(pid) - size) / MIB for pid, size in before.items()}
    of_producer, failed, *counts = map(int, producer.output.split())
    print(f"MiB: the producer {of_producer / MIB:.2f}, the worker's processes {list(grown.values())}")
    assert of_producer / MIB < 2.0
    assert max(grown.values()) < 2.0
    assert counts == [0, 0, failed]
    assert failed >= 8 * (seconds - 3) / 2
    stage.start_server(address)
    began_at = time.monotonic()
    jobs.work.delay(2)
    stage.wait_done(2)
    recovered("a job is done after a long outage", time.monotonic() - began_at, 2.0)
    assert len(worker.output.splitlines()) < 60, "it does not fill the disk with its complaints"
    stage.check(jobs.app.counts)


def test_a_worker_without_jobs_rests(stage: Stage) -> None:
    """For longer than three times the limit of an answer: it makes no connection anew and complains of nothing."""
    arrivals = Arrivals()
    with Proxy(stage.url, script=arrivals) as proxy:
        worker = stage.start_worker("w", "--processes", "1", broker=proxy.url)
        jobs.work.delay(1)
        stage.wait_done(1)
        time.sleep(1.0)
        made, said = len(arrivals.at), worker.output
        time.sleep(sized(4.5, 120.0))
        assert len(arrivals.at) - made <= sized(0, 6)  # an idle connection is replaced after 45 s
        assert worker.output == said
        jobs.work.delay(2)
        stage.wait_done(2, 2)
        stage.check(jobs.app.counts)


def unavailable(url: str, add_timeout: float = 1.5) -> tuple[BrokerUnavailable, float]:
    """Add by an app of its own, which fails; returns the error and how long it took."""
    app = App("impatient", broker=url, add_timeout=add_timeout)

    @app.task(name="tests.stage.apps.jobs.work")
    def work(number: int) -> None: ...

    began_at = time.monotonic()
    with pytest.raises(BrokerUnavailable) as error:
        work.delay(1)
    took = time.monotonic() - began_at
    assert app.counts == (0, 0, 1)
    app.close()
    return error.value, took


def test_an_address_that_swallows_everything() -> None:
    with blackhole() as (host, port):
        error, took = unavailable(f"tenure://{host}:{port}")
    recovered("an add to an address that never answers has ended", took, 1.5)
    assert f"no connection to the server at {host}:{port}: timed out" in str(error)


def test_a_name_that_nobody_knows_an_answer_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    over = threading.Event()

    def never(host: str, *_: object, flags: int = 0, **__: object) -> list[tuple[object, ...]]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        asked.append(host)
        over.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        error, took = unavailable("tenure://server.test")
    finally:
        over.set()
    recovered("an add to a name that is never found has ended", took, 1.5)
    assert "the address of server.test was not found within" in str(error)
    assert asked == ["server.test"], "one thread looks, however often it is asked for"


def test_a_name_of_several_addresses_of_which_one_is_silent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with blackhole() as silent:
        good = ("127.0.0.1", int(stage.url.rpartition(":")[2]))

        def both(host: str, *_: object, flags: int = 0, **__: object) -> list[tuple[object, ...]]:
            if flags & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "not a number")
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (silent, good)]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        took = []
        for number in range(2):
            broker = from_url("tenure://both.test")
            began_at = time.monotonic()
            assert broker.add([message(number)])[0].created
            took.append(time.monotonic() - began_at)
            broker.close()
        monkeypatch.undo()
    recovered("an add past an address that is silent", took[0], 1.0)
    assert took[1] < 0.45 < took[0], "the address that answered is tried first"
    stage.check(ProducerCounts(2, 0, 0))


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
from tests.faults.test_outage import unavailable
print(unavailable(sys.argv[1])[1])
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_signals_do_not_lengthen_a_wait(stage: Stage) -> None:
    """A profiler's timer, say, which interrupts the main thread more often than a read's limit ends."""
    process.freeze(stage.server.pid)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, stage.url], env=stage.env, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    process.thaw(stage.server.pid)
    assert done.returncode == 0, done.stderr
    recovered("an add that signals interrupt has ended", float(done.stdout), 1.5)


NO_FILES = """
import os, resource, sys
from tenure import BrokerUnavailable
from tenure.brokers.server import from_url
from tests.unit.scripted import message

first, second = [from_url(sys.argv[1], add_timeout=1.5) for _ in range(2)]
assert first.add([message(1)])[0].created  # so that all is imported
first.close()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(open(os.devnull))
except OSError:
    pass
try:
    second.add([message(2)])
except BrokerUnavailable as error:
    print(error)
    for file in files:
        file.close()
    print(error.resend()[0].created, *second.counts())
"""


def test_a_process_without_a_file_left(stage: Stage) -> None:
    producer = stage.start([sys.executable, "-c", NO_FILES, stage.url], stage.place / "producer.log")
    assert producer.wait(30) == 0, producer.output
    said, after = producer.output.splitlines()
    assert "Too many open files; close some, or raise `ulimit -n`" in said
    assert after == "True 1 0 0"
    stage.check(ProducerCounts(2, 0, 0))
