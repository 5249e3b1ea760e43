from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from tenure.broker import Extend, Extended
from tenure.cli.health import health
from tenure.clock import SystemClock
from tenure.errors import ConfigError
from tenure.worker.health import Health, HealthServer, parse_address
from tenure.worker.heartbeat import HEARTBEAT, Heartbeat
from tenure.worker.vitals import ProcessVitals
from tests.unit.worker_fakes import HandClock


class Broker:
    """Answers extends, or raises what it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = threading.Event()
        self.closed = False

    def extend(self, items: list[Extend]) -> list[Extended]:
        self.asked.set()
        if self.error is not None:
            raise self.error
        return [Extended(None) for _ in items]

    def close(self) -> None:
        self.closed = True

    settle = bye = None


@pytest.fixture
def served() -> Iterator[Health]:
    one = Health("127.0.0.1:0", 1, SystemClock())
    yield one
    one.close()


def get(url: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    connection.request(method, path)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data


def working(pid: int = 7) -> ProcessVitals:
    now = SystemClock.boot()
    return ProcessVitals(pid, since=now, ready=True, frozen=False, busy=False, answered_at=now)


def test_a_worker_that_has_not_begun_lives_and_is_not_ready(served: Health) -> None:
    assert json.loads(get(served.url, "/live")[1]) == {"live": True, "why": []}
    status, data = get(served.url, "/ready")
    assert (status, json.loads(data)["ready"]) == (503, False)
    assert get(served.url, "/ready", "HEAD") == (503, b"")
    assert get(served.url, "/metrics")[0] == 404


def test_a_heartbeat_asks_and_remembers() -> None:
    broker, clock = Broker(), HandClock()
    beats = Heartbeat(broker, clock)  # type: ignore[arg-type]
    assert beats.beat() == HEARTBEAT
    assert beats.last == (clock.now, "")
    answered_at = clock.now
    clock.now += 3.0
    broker.error = ConnectionError("gone")
    assert beats.beat() < HEARTBEAT
    assert beats.last == (answered_at, "gone")
    broker.error = None
    beats.beat()
    assert beats.last == (clock.now, "")
    beats.stop()
    assert broker.closed


def test_the_command_tells_by_its_exit_code_and_says_why(served: Health) -> None:
    address = served.url.removeprefix("http://")
    served.see((), keeping=True, leaving=True)
    told = CliRunner().invoke(health, [address])
    assert told.exit_code == 1
    assert told.output.splitlines() == [
        "not ready: the worker is leaving",
        "not ready: the broker has not answered yet",
        "not ready: no worker process works: none is there",
    ]
    assert CliRunner().invoke(health, [address, "--live"]).output == "live\n"
    broker = Broker()
    served.ask(broker)  # type: ignore[arg-type]
    assert broker.asked.wait(5)
    while json.loads(get(served.url, "/ready")[1])["why"]:  # the answer is noted right after it was given
        served.see((working(),), keeping=True, leaving=False)
    told = CliRunner().invoke(health, [address])
    assert (told.exit_code, told.output) == (0, "ready\n")
    body: dict[str, Any] = json.loads(CliRunner().invoke(health, [address, "--json"]).output)
    assert body["processes"] == [{"pid": 7, "state": "working"}]


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        told = CliRunner().invoke(health, [address, "--timeout", "0.05"])
        assert (told.exit_code, told.output) == (
            1, f"not ready: no worker answers for its health at {address} (timed out)\n",
        )  # fmt: skip
    assert "refused" in CliRunner().invoke(health, [address]).output
    assert CliRunner().invoke(health, ["nonsense"]).exit_code == 2


def test_an_address_that_is_taken_is_said(served: Health) -> None:
    with pytest.raises(ConfigError, match=r"health cannot be answered at .*in use"):
        HealthServer(served.url.removeprefix("http://"), lambda path: (200, {}))


def test_a_client_that_says_nothing_keeps_nobody_waiting(served: Health) -> None:
    host, port = parse_address(served.url.removeprefix("http://"))
    idle = [socket.create_connection((host, port)) for _ in range(100)]
    assert [get(served.url, "/live")[0] for _ in range(50)] == [200] * 50
    assert idle[0].recv(1) == b"", "the oldest of them were closed"
    assert sum(thread.name.endswith("(process_request_thread)") for thread in threading.enumerate()) <= 33
    for one in idle:
        one.close()


def test_one_that_is_being_answered_is_not_closed_for_others() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer(path: str) -> tuple[int, dict[str, Any]]:
        if path == "/slow":
            asked.set()
            assert go_on.wait(10)
        return 200, {}

    server = HealthServer("127.0.0.1:0", answer)
    server.start()
    host, port = parse_address(server.url.removeprefix("http://"))
    slow = http.client.HTTPConnection(host, port, timeout=10)
    slow.request("GET", "/slow")
    assert asked.wait(10)
    idle = [socket.create_connection((host, port)) for _ in range(100)]
    assert get(server.url, "/live")[0] == 200
    go_on.set()
    assert slow.getresponse().status == 200
    slow.close()
    for one in idle:
        one.close()
    server.close()


@pytest.mark.parametrize(
    ("text", "parsed"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:0", ("::1", 0)), ("a.b:65535", ("a.b", 65535))]
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["", ":80", "80", "host:", "host:x", "host:65536", "host:²"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        parse_address(text)
