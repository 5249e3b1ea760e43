"""A broker over a private Redis server whose clock stands until it is told to go on: no sleeping."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any
from zlib import crc32

from tenure.broker import Added
from tenure.brokers.redis import scripts
from tenure.brokers.redis.broker import RedisBroker, from_url
from tenure.brokers.redis.consumer import RedisConsumer
from tenure.codec import pack_call
from tenure.message import Delivery, Message, Settlement
from tests.stage.redis_servers import RedisServer, until

NOW = 1_700_000_000_000
_CLOCK = "call('TIME')"
_STANDING = "{math.floor(redis.call('GET', 'clock') / 1000), redis.call('GET', 'clock') % 1000 * 1000}"


def session_of(n: int) -> str:
    """The session of process number `n`."""
    return f"{n:032x}"


def hexid(n: int, wall: int = NOW) -> str:
    """The id of job number `n`, as a client would make it at that time."""
    return f"{wall:012x}7{n:019x}"


def message(n: int, **options: Any) -> Message:
    """Job number `n`."""
    args = options.pop("args", None) or pack_call((n,), {})
    made: dict[str, Any] = {"task": "t", "fingerprint": b"f" * 16, "queue": "q", **options}
    return Message(id=hexid(n), args=args, checksum=crc32(args), **made)


class LabClock:
    """The clients' clocks; `own` is milliseconds."""

    def __init__(self, own: int) -> None:
        self.own = own

    def wall(self) -> float:
        return self.own / 1000

    boot = mono = wall

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.is_set()


class RedisLab:
    """One server and its clients, whose clock goes along; `now` is milliseconds."""

    def __init__(self, server: RedisServer, **settings: Any) -> None:
        self.server = server
        self.now = NOW
        self.clock = LabClock(NOW)
        self.pass_time(0)
        self.broker: RedisBroker = from_url(server.url, clock=self.clock, **settings)
        self.keeper = self.broker.keeper()
        self._consumers: list[RedisConsumer] = []

    def pass_time(self, seconds: float) -> None:
        """Let time go on."""
        self.now += round(seconds * 1000)
        self.clock.own += round(seconds * 1000)
        self.server.command("SET", "clock", str(self.now))

    def add(self, *messages: Message) -> list[Added]:
        """Add jobs."""
        return self.broker.add(messages)

    def consumer(self, n: int = 1, queues: Sequence[str] = ("q",), vt: float = 30.0, name: str = "w") -> RedisConsumer:
        """A worker process's line."""
        one = self.broker.consumer(queues, session=session_of(n), name=name, visibility_timeout=vt)
        self._consumers.append(one)
        return one

    def until_waiting(self, workers: int) -> None:
        """Wait until so many workers sleep in takes."""
        until(lambda: int(self.server.info("clients")["blocked_clients"]) == workers, f"{workers} takes wait")

    def counts(self, queue: str = "q") -> dict[str, int]:
        """A queue's counts that are not 0; hand-outs' ends with a slash before them; checked against the jobs."""
        record = self.verified()["queues"][queue]
        flat = {**record, **{f"/{how}": n for how, n in record["handouts"].items()}}
        return {name: n for name, n in flat.items() if n and name != "handouts"}

    def verified(self) -> dict[str, Any]:
        """The record, after it was checked against the jobs."""
        answer = self.broker.admin().record(verify=True)
        assert answer["verified"], answer["differences"]
        record: dict[str, Any] = answer["record"]
        assert record["balanced"]
        return record

    def close(self) -> None:
        for one in self._consumers:
            one.close()
        self.keeper.close()
        self.broker.close()


def done(delivery: Delivery, result: bytes | None = None, **more: Any) -> Settlement:
    """The settlement of a job that went well."""
    return Settlement(delivery.receipt, "done", result=result, **more)


@contextmanager
def standing_clock() -> Iterator[None]:
    """Have all scripts read the time from a key of the lab's."""
    all_scripts = [one for one in vars(scripts).values() if isinstance(one, scripts.Script)]
    before = [(one.text, one.sha) for one in all_scripts]
    for one in all_scripts:
        assert _CLOCK in one.text
        text = one.text.replace(_CLOCK, _STANDING)
        _set(one, text, sha1(text.encode()).hexdigest())
    try:
        yield
    finally:
        for one, (text, sha) in zip(all_scripts, before, strict=True):
            _set(one, text, sha)


def _set(script: scripts.Script, text: str, sha: str) -> None:
    object.__setattr__(script, "text", text)
    object.__setattr__(script, "sha", sha)
