"""Clients that are broken or mean: the server answers them an error or closes, and goes on serving the others.

In each test a neighbour adds jobs all the while, and how long it had to wait is held against a limit.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.benchmarks.processes import cpu_seconds, resident_bytes
from tests.stage import almost
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.raw import Neighbour, RawClient, add_line, new_id, raw_clients
from tests.stage.sizes import seeds, sized

MIB = 1024 * 1024
ANSWERS = (b"ok", b"err", b"jobs", b"json", b"states", b"refused", b"gone", b"lost")
RESET = struct.pack("ii", 1, 0)


def memory(stage: Stage) -> int:
    return resident_bytes(stage.server.pid)


def open_files(stage: Stage) -> int:
    return len(os.listdir(f"/proc/{stage.server.pid}/fd"))  # noqa: PTH208  counted only


@contextmanager
def watched(stage: Stage, what: str, growth: float = 16.0) -> Iterator[None]:
    """Have a neighbour beside what is done here, and hold the server's memory (MiB), its files and its record."""
    with Neighbour():  # whatever is loaded at the first use is there
        time.sleep(0.3)
    memory_before, files_before = memory(stage), open_files(stage)
    with Neighbour() as neighbour:
        yield
    grown = (memory(stage) - memory_before) / MIB
    print(f"{what}: the server grew by {grown:.1f} MiB, the neighbour's worst add took {neighbour.worst:.3f} s")
    recovered("an add beside a client that abuses the protocol", neighbour.worst, 0.25)
    assert grown < growth
    # SQLite keeps the files of a few recounts open for the next ones.
    wait_for(lambda: open_files(stage) <= files_before + 16, 5, "the connections are closed on the server's side")
    record: dict[str, Any] = stage.ask("record", "--verify")
    assert record["balanced"]
    assert record["verified"], record["differences"]
    assert record["overlaps"] == 0
    assert record["queues"]["default"]["added"] == jobs.app.counts.added
    assert "Traceback" not in stage.server.output


@pytest.fixture
def strict(bare: Stage) -> Stage:
    """A server that waits for one second only for the rest of a line."""
    bare.start_server("127.0.0.1:0", "--line-timeout", "1s")
    bare.use(jobs.app)
    return bare


ADD = f"add {'1' * 32} q t {'f' * 32}"


ENDS = {
    "a line without an end": (b"x" * 4 * MIB, b"err line-too-long"),
    "a line that is too long": (b"take 1 1 0 1 " + b"q" * 65_536 + b"\n", b"err line-too-long"),
    "a body longer than stated": (f"{ADD} 3\nabcd\n".encode(), b"err framing"),
    "a body shorter than stated": (f"{ADD} 9\nabcd\n".encode(), b"err timeout"),
    "a length below nothing": (f"{ADD} -1\n".encode(), b"err framing"),
    "a length beyond all limits": (f"{ADD} {10**18}\n".encode(), b"err framing"),
    "a large body that does not come": (f"{ADD} {60 * MIB}\nabc".encode(), b"err timeout"),
    "adds that do not come": (b"done " + b"1" * 32 + b":1 then=3\n", b"err timeout"),
    "half a line": (b"add 1234", b"err timeout"),
    "another protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\nhalf", b"err timeout"),
    "the beginning of TLS": (b"\x16\x03\x01\x02\x00" + b"\xff" * 300, b"err timeout"),
}
"""What is sent, and the answer after which the server closes."""


def test_lines_after_which_the_connection_ends(strict: Stage) -> None:
    with watched(strict, "broken lines"), raw_clients(strict.url, len(ENDS)) as opened:
        clients = dict(zip(ENDS, opened, strict=True))
        for what, client in clients.items():
            with suppress(ConnectionError):  # it is closed in the middle of an endless line
                client.send(ENDS[what][0])
        began_at = time.monotonic()
        heard = {what: client.hear_all()[1:] for what, client in clients.items()}
        assert time.monotonic() - began_at < 6
    for what, answers in heard.items():
        # Where bytes of it are still on their way when the server closes, the answer is lost with the connection.
        assert answers or what == "a line without an end"
        assert all(answer.startswith(ENDS[what][1]) for answer in answers[-1:]), what


def test_a_line_is_sent_byte_by_byte(strict: Stage) -> None:
    with watched(strict, "slow senders"), raw_clients(strict.url, 100) as slow:
        line = add_line(new_id(), b"x" * 200)
        sent, end = 0, time.monotonic() + 2.0
        while time.monotonic() < end:
            for client in slow:
                try:
                    client.send(line[sent : sent + 1])
                except ConnectionError:
                    continue
            sent += 1
            time.sleep(0.05)
        for client in slow:
            assert client.hear_all()[-1].startswith(b"err timeout")
    assert strict.totals()["added"] == jobs.app.counts.added


def test_answers_that_nobody_reads(stage: Stage) -> None:
    with RawClient(stage.url) as client:  # a result of a megabyte, to be asked for with forty bytes
        id, body = new_id(), b"x" * (MIB - 100)
        client.ask(add_line(id))
        client.ask(b"take 1 1 0 30000 raw\n")
        assert client.ask(f"done {id}:1 {len(body)}\n".encode() + body + b"\n") == b"ok done"
    asked = f"wait 0 {id}\n".encode()
    count = sized(400, 4_000)
    with watched(stage, "slow readers", growth=48.0), raw_clients(stage.url, 4) as clients:
        for client in clients:
            client.socket.setblocking(False)
            assert client.socket.send(asked * 20_000) > count * len(asked)
        time.sleep(1.0)
        assert memory(stage) < 128 * MIB
        clients[0].socket.settimeout(10.0)
        left = count * len(body)
        while left > 0:  # what it asked for comes once it reads
            left -= len(clients[0].socket.recv(MIB))


def test_questions_one_behind_the_other(stage: Stage) -> None:
    with watched(stage, "many questions"), raw_clients(stage.url, 4) as clients:
        for client in clients:
            client.send(b"verify\nrecord\nqueues\nbrowse dead - 1000 -\n" * 50)
        for client in clients:
            assert {reply.line.split()[0] for reply in client.hear(201)[1:]} == {b"json"}


def test_connections_that_come_and_go(stage: Stage) -> None:
    def comes_and_goes(number: int) -> None:
        client = RawClient(stage.url, greet=number % 3 == 0)
        if number % 5 == 0:
            client.send(b"take 1 1 30000 1000 raw\nadd 12")
        if number % 2:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()

    with watched(stage, "opens and closes"):
        for number in range(sized(2_000, 10_000)):
            comes_and_goes(number)


def heard(url: str, data: bytes) -> None:
    """Say this to the server; every answer has to be one, and the server has to close when nothing more comes."""
    with RawClient(url, greet=False) as client:
        for answer in client.say_all(data):
            assert answer.split(b" ")[0] in ANSWERS, answer


def test_random_bytes(stage: Stage) -> None:
    @settings(max_examples=sized(300, 30_000), suppress_health_check=[HealthCheck.too_slow])
    @given(st.binary(max_size=3_000), st.booleans())
    def throws(data: bytes, greets: bool) -> None:
        heard(stage.url, b"hello 1 %b worker w\n" % new_id().encode() * greets + data)

    with watched(stage, "random bytes"):
        throws()


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_lines_that_are_almost_right(stage: Stage, seed: int) -> None:
    print(f"seed {seed}")
    source = random.Random(seed)
    end = time.monotonic() + sized(1.0, 120.0)
    connections = 0
    with watched(stage, "lines that are almost right"):
        while time.monotonic() < end or connections < 100:
            heard(stage.url, almost.lines(source.getrandbits(64), 30))
            connections += 1
    print(f"{connections} connections")
    assert stage.totals()["handed_out"] > 0


def test_more_connections_than_there_may_be(bare: Stage) -> None:
    bare.start_server("127.0.0.1:0", "--max-connections", "50")
    bare.use(jobs.app)
    with watched(bare, "too many connections"), raw_clients(bare.url, 200, greet=False) as clients:
        clients[-1].hear(1)  # it came last, so all of them are there
        answers = [client.say_all(b"") for client in clients]
        refused = [answer for answer in answers if answer]
        assert len(refused) >= 150
        assert all(answer[-1].startswith(b"err limit this server serves 50 connections") for answer in refused)
        with RawClient(bare.url) as client:
            client.ask(add_line(new_id()))


def test_a_server_that_may_not_open_more_files(bare: Stage) -> None:
    bare.start_server(under=("sh", "-c", 'ulimit -n 128; exec "$@"', "sh"))
    bare.use(jobs.app)
    assert "at most 64 connections, not 10000" in bare.server.output
    with watched(bare, "no more files"):
        with raw_clients(bare.url, 600, greet=False):
            before = cpu_seconds(bare.server.pid)
            time.sleep(1.0)
            assert cpu_seconds(bare.server.pid) - before < 0.5, "it does not go round in circles"
        with RawClient(bare.url) as client:
            client.ask(add_line(new_id()))


def batch_of_jobs(client: RawClient, number: int, size: int) -> None:
    """Add, take and finish so many jobs, with a few lines in between that are wrong."""
    ids = [new_id() for _ in range(size)]
    client.ask(b"".join(add_line(id, b"body") for id in ids) + b"add wrong\nnonsense\n", size + 2)
    client.ask(f"take {number} {size} 0 30000 raw\n".encode())
    taken = [line.split()[1:3] for line in client.replies[-1].payload.splitlines() if line.startswith(b"job ")]
    assert len(taken) == size
    client.ask(b"".join(b"done %b:%b 2\nok\n" % (id, hand_out) for id, hand_out in taken), size)
    assert {reply.line for reply in client.replies[-size:]} == {b"ok done"}
    client.replies.clear()


def test_memory_is_flat_over_many_jobs(bare: Stage) -> None:
    bare.start_server("127.0.0.1:0", "--durability", "normal", "--result-ttl", "1s")
    bare.use(jobs.app)
    rounds = sized(30, 1_000)
    seen: list[float] = []
    with watched(bare, f"{rounds},000 jobs", growth=96.0), RawClient(bare.url) as client:
        for number in range(1, rounds + 1):
            batch_of_jobs(client, number, 1_000)
            seen.append(memory(bare) / MIB)
    half = len(seen) // 2
    print(f"MiB after each tenth: {[round(value, 1) for value in seen[:: max(1, rounds // 10)]]}")
    assert max(seen[half:]) - max(seen[:half]) < 8.0
    assert bare.totals()["done"] == rounds * 1_000
