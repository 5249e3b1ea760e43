"""A scene whose clients reach the broker through proxies that break their connections."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from tenure.faults import Direction, Proxy
from tenure.testing.contract.scene import Scene
from tenure.testing.contract.site import BrokerSite

Fault = Literal["cut", "drop", "stall", "late"]
SILENCE = 4.0
"""Seconds for which a stalled connection is silent: longer than any client may wait for an answer."""
LATE_BY = 1.6
"""Seconds by which a request is late: its client has long sent it again over another connection."""


class RoughScene(Scene):
    """A scene behind proxies, one for each address; without an address it is a scene as any other."""

    def __init__(self, site: BrokerSite) -> None:
        self._own = {} if site.proxies else {address: Proxy(address) for address in site.addresses}
        self._proxies = [*site.proxies, *self._own.values()]
        self._swallowed = self._count_swallowed()
        super().__init__(site, {address: proxy.address for address, proxy in self._own.items()})
        self.insistent = True

    def strike(self, fault: Fault) -> None:
        """Break what is open now, or the next request, in this way."""
        for proxy in self._proxies:
            match fault:
                case "cut":
                    proxy.cut()
                case "drop":
                    proxy.drop_answer()
                case "stall":
                    proxy.stall(SILENCE)
                case "late":
                    proxy.late_request(LATE_BY)

    def mute(self) -> None:
        """Let requests through and no answer, of any connection, until `calm`."""
        for proxy in self._proxies:
            proxy.stall(None, new_connections=False, direction=Direction.ANSWER)

    def calm(self) -> None:
        """Let everything through again."""
        for proxy in self._proxies:
            proxy.pass_through()

    def _count_swallowed(self) -> int:
        return sum(proxy.swallowed for proxy in self._proxies)

    def settle_down(self, fault: Fault) -> None:
        """Wait until what was late has arrived, and let everything through."""
        if fault == "late":
            time.sleep(LATE_BY + 0.2)
        self.calm()

    @contextmanager
    def weather(self, seconds: float = 8.0) -> Iterator[None]:
        """Strike in squalls, for so many seconds at most, while the block runs; fails where none has hit anything.

        Between them is calm for long enough that a short wait comes to its end.
        """
        over = threading.Event()
        chance = random.Random(11)  # noqa: S311  (the same each time)
        hits = 0

        def blow() -> None:
            nonlocal hits
            end = time.monotonic() + seconds
            while not over.is_set() and time.monotonic() < end:
                for _ in range(6):
                    hits += self._squall(chance.choice(("cut", "drop")))
                    over.wait(chance.uniform(0.002, 0.03))
                over.wait(0.7)

        self.strike("drop")
        with background(blow):
            try:
                yield
            finally:
                over.set()
        hits += self._count_swallowed() - self._swallowed
        self.calm()
        assert hits, "the weather has hit nothing"

    def _squall(self, fault: Fault) -> int:
        """Strike once; returns how many connections were cut by it."""
        if fault == "cut":
            return sum(proxy.cut() for proxy in self._proxies)
        self.strike(fault)
        return 0

    def close(self) -> None:
        """Close all clients, then the proxies."""
        with ExitStack() as stack:
            for proxy in self._own.values():
                stack.callback(proxy.close)
            self.calm()
            super().close()


@contextmanager
def background(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` beside the block, and wait for its end after it."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(30.0)
