"""A stage whose broker is Redis: the tests that break the embedded server break this one in the same way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.faults import process
from tests.stage.fixtures import ended, stage
from tests.stage.harness import Running, Stage
from tests.stage.redis_servers import RedisServer

__all__ = ["bare", "stage"]


class RedisProcess(Running):
    """The server, as a stage has its own."""

    def __init__(self, server: RedisServer) -> None:
        self.redis = server
        self.log = server.place / "redis.log"

    @property
    def pid(self) -> int:
        return self.redis.pid

    def wait(self, seconds: float = 15.0) -> int:
        """Return once a killed server has gone."""
        process.wait_gone(self.pid, seconds)
        self.redis.destroy()
        return -signal.SIGKILL

    def destroy(self) -> None:
        self.redis.destroy()


class RedisStage(Stage):
    """One test's Redis, workers and commands; starting the server again brings it back with its data."""

    server: RedisProcess
    redis: RedisServer | None = None

    def start_server(self, listen: str = "127.0.0.1:0", *options: str, under: tuple[str, ...] = ()) -> Running:
        """Start Redis, or start it again at its port; options are those of our own server, so there are none."""
        assert not options, f"Redis has no {options}"
        if self.redis is None:
            self.redis = RedisServer(self.place / "redis")
            self.url = self.redis.url
            self.server = RedisProcess(self.redis)
            self._started.append(self.server)
        else:
            self.redis.restart()
        return self.server


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """A folder for processes of the command line; none runs yet."""
    with ended(RedisStage(tmp_path)) as stage:
        yield stage
