"""A server in this process: the hub that a server drives, and connections to it without a socket.

Nothing here is a second form of a rule: the client's lines go as bytes to the same `Hub`, and its answers are read by
the same code.  What is missing is the network, the disk and the server's own process.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from tenure.broker import JobState
from tenure.brokers.connection import Address, Connection
from tenure.brokers.leasing import Line
from tenure.brokers.results import IDS_PER_LINE, read_states
from tenure.clock import Clock
from tenure.engine.engine import Engine
from tenure.errors import BrokerUnavailable
from tenure.results import OVER
from tenure.server.answers import Answers
from tenure.server.hub import GAP, Hub
from tenure.server.session import Connection as Place
from tenure.server.session import Parked
from tenure.wire import encode
from tenure.wire.commands import FLOOR, LINE_AGE, MAX_WAIT
from tenure.wire.replies import Reply, ReplyReader, parse_welcome

_STEP = GAP * 0.9
"""Seconds of a turn that makes up for time in which nobody asked: a longer one would count as the server's absence."""
_LONGEST_WAY = FLOOR + LINE_AGE
"""Seconds that are made up for at most while no job is handed out: after them nothing changes any more by turns."""
_LONGEST_LOOK = 0.25
"""Seconds after which a waiting line looks at the clock again, which may have been moved meanwhile."""
_LOOK = 0.001
_LOOKS = 1_000
"""Seconds between two looks whether what was handed out has been read, and how many there are at most."""
_ADDRESS = Address("memory")


class MemoryServer:
    """One hub and its engine, which any number of threads drive in turn; `clock` is its only source of time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        # The hub's own time: it goes on with the clock, but for long times in which nothing could happen.
        self._mono = self._seen = mono = clock.mono()
        self._seen_wall = self._wall()
        self.engine = Engine(":memory:", wall=self._wall(), mono=mono, durability="normal")
        self.hub = Hub(self.engine, answers=Answers("memory", secrets.token_hex(8), "normal"), mono=mono)
        self._jumped = 0.0
        self._waiting: dict[Place, threading.Event] = {}
        self.closed = False

    def open(self) -> Place:
        """A new connection."""
        with self.lock:
            if self.closed:
                raise ConnectionError("the broker is closed")
            self._catch_up()  # else it would be as old as the last line of anybody
            return self.hub.open(self._mono)

    def ask(
        self, place: Place, data: bytes, woken: threading.Event, answered: Callable[[bytes], bool]
    ) -> tuple[float, float]:
        """Let bytes arrive, give `answered` what comes back until it is content, and return when they arrived (boot).

        With it comes when that was for leases, which a `jump` since then has left as long as they were.  `woken` may be
        set from outside, which ends the wait.  Raises ConnectionError.
        """
        with self.lock:
            if self.closed or place.gone or place.closing:
                raise ConnectionError("the connection is closed")
            arrived, jumped = self._arrival(), self._jumped
            self.hub.receive(place, data, self._mono)
            self._waiting[place] = woken
            try:
                while not answered(self._turn(place)):
                    self._rest(place, woken)
            finally:
                del self._waiting[place]
            return arrived, arrived + self._jumped - jumped

    def _arrival(self) -> float:
        """Bring the hub's time up to now and return now by the boot clock; again, where the clock was moved meanwhile.

        Deadlines count from the one and leases from the other.
        """
        while True:
            before = self.clock.boot()
            self._catch_up()
            if self.clock.boot() - before < GAP:
                return before

    def _turn(self, place: Place) -> bytes:
        """Have a turn and return what there is for this connection."""
        self.turn()
        out = b"".join(place.out)
        place.out.clear()
        return out

    def _rest(self, place: Place, woken: threading.Event) -> None:
        """Let others have their turns until there is an answer, or time for a look; raises ConnectionError."""
        if place.closing or self.closed:
            raise ConnectionError("the server closed the connection")
        seconds = min(_LONGEST_LOOK, max(0.0, self.hub.next_wake(self._wall(), self._mono) - self._mono))
        self._let_others(woken, seconds)
        if woken.is_set() and not place.out:
            raise ConnectionError("the wait was interrupted")

    def _let_others(self, woken: threading.Event, seconds: float) -> None:
        self.lock.release()
        try:
            self.clock.wait(woken, seconds)
        finally:
            self.lock.acquire()

    def turn(self) -> None:
        """Apply what has arrived and what time has brought, and wake those who wait for it; call it with the lock."""
        self._catch_up()
        self._wake(self.hub.turn(self._wall(), self._mono))
        work, self.hub.background = self.hub.background, []
        for place, question in work:
            self._wake(self.hub.finish(place, question(), self._mono))
        if work:
            self.turn()

    def _wake(self, places: Iterable[Place]) -> None:
        for place in places:
            if place in self._waiting:
                self._waiting[place].set()

    def _catch_up(self, *, renewing: bool = False) -> None:
        """Have the turns that a server would have had while nobody asked: no lease is longer for it, and none lost.

        What falls due meanwhile does so after them: a take that waited when the clock was moved would be given it in
        the first of them, and the others would use up its lease before anybody could have read the answer.
        `renewing`: each lease is extended all the time.
        """
        now, wall = self.clock.mono(), self._wall()
        left, self._seen = max(0.0, now - self._seen), now
        way = 0.0
        while left > _STEP and (way < _LONGEST_WAY or (self.engine.next_lease_end() is not None and not renewing)):
            self._step(_STEP, self._seen_wall, renewing)
            left -= _STEP
            way += _STEP
        self._seen_wall = wall
        if way:
            self._step(min(left, _STEP), wall, renewing)
        else:
            self._mono += left

    def _step(self, seconds: float, wall: int, renewing: bool) -> None:
        self._mono += seconds
        if renewing:
            self.engine.renew_leases(self._mono)
        self._wake(self.hub.turn(wall, self._mono))

    @contextmanager
    def jump(self, all_read: Callable[[], bool]) -> Iterator[None]:
        """Have the clock moved on inside of this block as if whoever holds a job extended its lease all the time.

        Begins when all that was handed out is read, or somebody waits for a job, who has read what came before.
        """
        with self.lock:
            for _ in range(_LOOKS):
                if all_read() or any(isinstance(place.parked, Parked) for place in self._waiting):
                    break
                self._let_others(threading.Event(), _LOOK)
            if self.closed:
                yield
                return
            before = self.clock.boot()
            self._catch_up()
            yield
            self._jumped += self.clock.boot() - before
            self._catch_up(renewing=True)

    def lost(self, place: Place) -> None:
        """The connection is gone."""
        with self.lock:
            if not self.closed:
                self.hub.lost(place, self._mono)

    def next_due(self) -> float | None:
        """When the next scheduled job falls due, in seconds since the epoch."""
        with self.lock:
            self.turn()
            due = self.engine.next_due()
        return None if due is None else due / 1000

    def look(self) -> None:
        """Have a turn: the clock was moved."""
        with self.lock:
            if not self.closed:
                self.turn()

    def close(self) -> None:
        """Let go of the database and end all waits."""
        with self.lock:
            if not self.closed:
                self.closed = True
                for woken in self._waiting.values():
                    woken.set()
                self.engine.close()

    def _wall(self) -> int:
        return int(self.clock.wall() * 1000)


class MemoryConnection(Connection):
    """A connection without a socket: an exchange is a call of the hub, and a wait ends by the server's clock."""

    def __init__(self, server: MemoryServer, hello: bytes) -> None:
        self.address = _ADDRESS
        self.closed = False
        self._server = server
        self._place = server.open()
        self._woken = threading.Event()
        self._interrupted = False
        self.used_at = self.lease_from = server.clock.boot()
        replies: list[Reply] = []
        self.exchange(hello, 1, 1.0, replies)
        self.welcome = parse_welcome(replies[0].line)

    def exchange(self, data: bytes, answers: int, limit: float, out: list[Reply]) -> None:
        """Hand `data` over and append the complete answers to `out`; raises ConnectionError and closes."""
        reader = ReplyReader()
        missing = answers

        def answered(got: bytes) -> bool:
            nonlocal missing
            self._woken.clear()  # before the look at what may have set it
            found = reader.feed(got) if got else []
            out.extend(found[:missing])  # behind them may stand that the connection has grown too old, and is closed
            missing -= len(found)
            if missing > 0 and self._interrupted:
                raise ConnectionError("the wait was interrupted")
            return missing <= 0

        if self.closed:
            raise ConnectionError("the connection is closed")
        try:
            self.used_at, self.lease_from = self._server.ask(self._place, data, self._woken, answered)
        except BaseException:
            self.close()
            raise

    def ask(self, line: bytes, limit: float, now: float) -> bytes:
        """Hand a line over and return its one-line answer without its end."""
        out: list[Reply] = []
        self.exchange(line, 1, limit, out)
        return out[0].line

    def interrupt(self) -> None:
        """Make an exchange that waits in another thread end now, as if the server had closed."""
        self._interrupted = True
        self._woken.set()

    def close(self) -> None:
        """The server forgets the connection; a second time does nothing."""
        if not self.closed:
            self.closed = True
            self._server.lost(self._place)


class MemoryResults:
    """What became of jobs; each caller that waits has a connection of its own, which costs nothing here."""

    def __init__(self, open: Callable[[], Connection], clock: Clock) -> None:
        self._open = open
        self._boot = clock.boot

    def states(self, ids: Sequence[str]) -> list[JobState]:
        """What is known of each job now, in order; raises BrokerUnavailable."""
        return self.wait(ids, 0.0)

    def wait(self, ids: Sequence[str], seconds: float) -> list[JobState]:
        """Wait until at least one of the jobs has ended, at most `seconds`; returns the state of each."""
        deadline = self._boot() + seconds
        parts = [ids[at : at + IDS_PER_LINE] for at in range(0, len(ids), IDS_PER_LINE)]
        longest = MAX_WAIT / 1000 if len(parts) == 1 else _LONGEST_LOOK
        try:
            connection = self._open()
            try:
                while True:
                    found = _known(connection, parts)
                    left = min(deadline - self._boot(), longest)
                    if left <= 0 or any(found[id].state in OVER for id in ids):
                        return [found[id] for id in ids]
                    _asked(connection, parts[0], left)
                    parts = [*parts[1:], parts[0]]
            finally:
                connection.close()
        except ConnectionError as error:
            raise BrokerUnavailable(str(error)) from error


def _known(connection: Connection, parts: Iterable[Sequence[str]]) -> dict[str, JobState]:
    found: dict[str, JobState] = {}
    for part in parts:
        while missing := [id for id in part if id not in found]:
            found.update((state.id, state) for state in _asked(connection, missing, 0.0))
    return found


def _asked(connection: Connection, ids: Sequence[str], seconds: float) -> Iterable[JobState]:
    replies: list[Reply] = []
    connection.exchange(encode.wait(ids, seconds), 1, seconds, replies)
    return read_states(replies[0], ids)


class MemoryLine(Line):
    """A line whose writing and arrival are one moment, however long it had to wait for its turn.

    The calendar is looked at with each exchange: a test may have moved it, or let it stand.
    """

    def exchange(self, data: bytes, answers: int, wait: float = 0.0) -> tuple[float, list[Reply]]:
        """Return when `data` arrived, and the answers; raises ConnectionError."""
        with self._lock:
            connection = self._ready()
            assert isinstance(connection, MemoryConnection)  # it opens no others
            replies: list[Reply] = []
            connection.exchange(data, answers, wait + self._read_limit, replies)
            self.epoch = self._boot() - self._wall()
            return connection.lease_from, replies
