"""What became of jobs, over our server's protocol: any number of callers wait over one connection.

Callers put their jobs together.  One of them at a time *leads*: it sends a `wait` for the jobs of all and reads the
answers; the others sleep.  A newcomer ends a wait that is parked with a line behind it, so that its jobs are asked for
at once.  Whoever leads stops when its own time is over, in the middle of an answer if need be: what is on its way
belongs to all, and the next one reads on.  For callers that cannot be blocked, a thread leads while there are some.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, cast

from tenure.broker import JobState
from tenure.brokers.connection import Connection
from tenure.brokers.forks import tell_of_forks
from tenure.brokers.pipe import Pipe
from tenure.brokers.pool import IDLE_LIMIT, Pool
from tenure.brokers.waiter import Waiter
from tenure.clock import Clock
from tenure.errors import BrokerUnavailable, ServerError
from tenure.retry import reconnect_delay
from tenure.wire import encode
from tenure.wire.commands import StateLine
from tenure.wire.replies import Reply, parse_states

POLL = 0.5
"""Seconds that a wait is parked at most, so that a connection that died is found soon."""
MARGIN = 0.01
"""Seconds that are left for the answer to a caller that gives up soon."""
IDS_PER_LINE = 500
LINES_PER_WRITE = 8
"""Lines in one write: few enough for the buffers between both ends, for while it writes it reads nothing."""
PATIENCE = 30.0
"""Seconds without any answer after which a caller is told that the server cannot be reached."""
_LOOK_AGAIN = 1.0
"""Seconds after which a sleeping caller looks whether anybody still leads: an interrupt may have hit the last one."""


class ServerResults:
    """The `ResultStore` of our server; see the module's text.

    `open` makes the connection for waits (within the seconds it is given), single questions go over `pool` for up to
    `patience` seconds.  `read_limit` is the seconds beyond what was asked for after which silence is a broken
    connection.
    """

    def __init__(
        self,
        pool: Pool[Connection],
        open: Callable[[float], Pipe],
        *,
        clock: Clock,
        roll: Callable[[], float],
        closing: threading.Event,
        patience: float,
        read_limit: float,
    ) -> None:
        self._pool = pool
        self._open = open
        self._clock = clock
        self._boot = clock.boot
        self._roll = roll
        self._closing = closing
        self._patience = patience
        self._read_limit = read_limit
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Begin with nobody: the callers are threads of the parent."""
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._by_id: dict[str, dict[Waiter, None]] = {}
        self._leader: Waiter | None = None
        self._pipe: Pipe | None = None
        self._asked: deque[Sequence[str]] = deque()  # the jobs of each line whose answer is still to come
        self._parked = False  # all lines are written, so that one more may be written behind them
        self._kicked = False
        self._answer_by = 0.0
        self._unread_since: float | None = None
        self._next_line = 0
        self._failures = 0
        self._contact = 0.0

    # -- the callers ----------------------------------------------------------------------------------------------

    def states(self, ids: Sequence[str]) -> list[JobState]:
        """What is known of each job now, in order; raises BrokerUnavailable."""
        started = self._boot()
        found: dict[str, JobState] = {}
        failures = 0
        why: Exception | None = None
        while missing := [id for id in dict.fromkeys(ids) if id not in found]:
            left = self._patience - (self._boot() - started)
            if left <= 0 or self._closing.is_set():
                raise self._unavailable(why)
            try:
                self._ask_once(missing[:IDS_PER_LINE], left, found)
            except ConnectionError as error:
                why = error
                failures += 1
                self._clock.wait(self._closing, min(left, reconnect_delay(failures, self._roll())))
        return [found[id] for id in ids]

    def _ask_once(self, ids: Sequence[str], left: float, found: dict[str, JobState]) -> None:
        connection: Connection = self._pool.lend(left)
        replies: list[Reply] = []
        try:
            connection.exchange(encode.wait(ids, 0.0), 1, min(left, self._read_limit), replies)
            found.update((state.id, state) for state in read_states(replies[0], ids))
        except BaseException:
            self._pool.give_up(connection)
            raise
        self._pool.give_back(connection)

    def wait(self, ids: Sequence[str], seconds: float) -> list[JobState]:
        """Wait until at least one of the jobs has ended (or is unknown), at most `seconds`; the state of each.

        Raises BrokerUnavailable when the server did not answer for half a minute, or not at all within `seconds`.
        """
        if seconds <= 0 or not ids:
            return self.states(ids)
        waiter = Waiter(ids, self._boot(), seconds)
        try:
            self._enter(waiter)
            while not waiter.served and (left := waiter.deadline - self._boot()) > 0:
                if self._take_lead(waiter):
                    self._lead(lambda: 0.0 if waiter.served else waiter.deadline - self._boot())
                else:
                    waiter.wake.wait(min(left, _LOOK_AGAIN))
                    waiter.wake.clear()
        finally:
            self._leave(waiter)
        return waiter.answer()

    def watch(
        self, ids: Sequence[str], seconds: float | None, tell: Callable[[], None]
    ) -> tuple[Callable[[], list[JobState]], Callable[[], None]]:
        """Have `tell` called, by another thread, once `wait` would return; returns (what `wait` returns, stop).

        `stop` has to be called in the end, after `seconds` at the latest.
        """
        waiter = Waiter(ids, self._boot(), seconds, tell)
        self._enter(waiter)
        return waiter.answer, lambda: self._leave(waiter)

    def close(self) -> None:
        """End all waits with BrokerUnavailable; the broker's `closing` is set before."""
        with self._lock:
            waiters = list(self._waiters)
            pipe, led = self._pipe, self._leader is not None
        for waiter in waiters:
            waiter.fail(self._unavailable(None))
        if pipe is not None:
            if led:
                pipe.interrupt()
            else:
                self._drop()

    def _enter(self, waiter: Waiter) -> None:
        """Put a caller to the others, and end the wait that is parked without its jobs."""
        if self._closing.is_set():
            raise self._unavailable(None)
        with self._lock:
            self._waiters[waiter] = None
            for id in waiter.missing:
                self._by_id.setdefault(id, {})[waiter] = None
            if self._parked:
                self._kick(waiter)
            if not waiter.sleeps and not self._led():
                self._start_helper()

    def _leave(self, waiter: Waiter) -> None:
        """Take a caller off; where it led, or nobody does, another one has to."""
        self._waiters.pop(waiter, None)  # first, and in one step: a leader that is not here leads no more
        with self._lock:
            for id in dict.fromkeys(waiter.ids):
                waiting = self._by_id.get(id)
                if waiting is not None:
                    waiting.pop(waiter, None)
                    if not waiting:
                        del self._by_id[id]
            if self._leader is waiter:
                self._leader = None
                self._unread_since = self._boot()
            if not self._led():
                self._find_leader()

    def _led(self) -> bool:
        return self._leader is not None and self._leader in self._waiters

    def _find_leader(self) -> None:
        sleeping = next((waiter for waiter in self._waiters if waiter.sleeps and not waiter.served), None)
        if sleeping is not None:
            sleeping.wake.set()
        elif any(not waiter.sleeps for waiter in self._waiters):
            self._start_helper()

    def _take_lead(self, waiter: Waiter) -> bool:
        with self._lock:
            if self._led():
                return self._leader is waiter
            self._leader = waiter
            if self._unread_since is not None:  # the time in which nobody read does not count
                self._answer_by += self._boot() - self._unread_since
                self._unread_since = None
            return True

    def _start_helper(self) -> None:
        """Let a thread lead, as long as there are callers that cannot; called with the lock."""
        helper = Waiter((), self._boot(), None)
        self._waiters[helper] = None
        self._leader = helper
        threading.Thread(target=self._help, args=(helper,), name="tenure-results", daemon=True).start()

    def _help(self, helper: Waiter) -> None:
        def left() -> float:
            with self._lock:
                return PATIENCE if any(not waiter.sleeps and not waiter.served for waiter in self._waiters) else 0.0

        try:
            self._lead(left)
        finally:
            self._leave(helper)

    # -- the leader -----------------------------------------------------------------------------------------------

    def _lead(self, seconds_left: Callable[[], float]) -> None:
        """Ask and read for all, while the function says that there is time left."""
        try:
            while (left := seconds_left()) > 0:
                try:
                    self._step(left)
                except (ConnectionError, ServerError) as error:
                    self._broke(error, seconds_left)
        except BaseException:
            self._drop()  # it may have been torn out of the middle of an answer
            raise

    def _step(self, left: float) -> None:
        """Do one thing: connect, ask, or read what there is within `left` seconds."""
        pipe = self._pipe
        if pipe is None or pipe.closed or self._boot() - pipe.used_at >= IDLE_LIMIT:
            self._drop()
            self._pipe = self._open(left)
            return
        if not self._asked and not self._ask(pipe, left):
            return
        silence = self._answer_by - self._boot()
        replies = pipe.receive(max(0.001, min(left, silence)))
        for reply in replies:
            self._take(reply)
        if not replies and self._boot() >= self._answer_by:
            raise ConnectionError(f"the server at {pipe.address} did not answer within {POLL + self._read_limit:g} s")

    def _ask(self, pipe: Pipe, left: float) -> bool:
        """Write lines for the jobs of all callers; False when there is none."""
        with self._lock:
            for waiter in self._waiters:
                waiter.asked_for = True
            ids = list(dict.fromkeys(id for waiter in self._waiters for id in waiter.missing))
            # Whoever has to give up soon is to know what it gives up on.
            end = min([waiter.deadline for waiter in self._waiters if waiter.knows_nothing], default=float("inf"))
        if not ids:
            return False
        lines, last = self._lines(ids)
        self._asked.extend(lines)
        self._answer_by = self._boot() + POLL + self._read_limit
        park = max(0.0, min(POLL, end - self._boot() - MARGIN)) if last else 0.0
        pipe.send(b"".join(encode.wait(line, park) for line in lines), min(left, self._read_limit))
        with self._lock:
            self._parked = True
            late = next((waiter for waiter in self._waiters if not waiter.asked_for), None)
            if late is not None:
                self._kick(late)
        return True

    def _lines(self, ids: list[str]) -> tuple[list[list[str]], bool]:
        """Share the jobs out to lines; of very many, the next ones in turn, and whether these are the last of a round.

        Each round is parked once, so that no number of jobs makes it ask without a rest.
        """
        lines = [ids[at : at + IDS_PER_LINE] for at in range(0, len(ids), IDS_PER_LINE)]
        if len(lines) <= LINES_PER_WRITE:
            first = self._next_line = (self._next_line + 1) % len(lines)  # another one is parked each time
            return lines[first:] + lines[:first], True
        first = self._next_line if self._next_line < len(lines) else 0
        self._next_line = first + LINES_PER_WRITE
        return lines[first : self._next_line], self._next_line >= len(lines)

    def _kick(self, waiter: Waiter) -> None:
        """Write a line behind the parked one, which ends its wait; called with the lock."""
        pipe = self._pipe
        if self._kicked or pipe is None or pipe.closed:
            return
        self._kicked = True
        ids = waiter.ids[:1]
        self._asked.append(ids)
        try:
            pipe.kick(encode.wait(ids, 0.0))
        except OSError:
            pipe.interrupt()  # the leader sees to it
        except BaseException:
            pipe.interrupt()
            raise

    def _take(self, reply: Reply) -> None:
        """Hand one answer's states to whom they are for."""
        states = read_states(reply, self._asked[0])
        now = self._boot()
        with self._lock:
            self._asked.popleft()
            if not self._asked:
                self._parked = self._kicked = False
            self._failures, self._contact = 0, now
            self._answer_by = now + POLL + self._read_limit
            met: dict[Waiter, None] = {}
            for state in states:
                for waiter in self._by_id.get(state.id, ()):
                    waiter.note(state)
                    met[waiter] = None
            served = [waiter for waiter in met if waiter.served]
        for waiter in served:
            waiter.call()

    def _broke(self, error: Exception, seconds_left: Callable[[], float]) -> None:
        """Begin anew after a rest; callers that have waited too long for any answer are told."""
        self._drop()
        now = self._boot()
        for_good = isinstance(error, ServerError) or self._closing.is_set()
        with self._lock:
            over = [
                waiter
                for waiter in self._waiters
                if waiter.ids and (for_good or now - max(waiter.since, self._contact) >= PATIENCE)
            ]
        for waiter in over:
            waiter.fail(self._unavailable(error))
        self._failures += 1
        rest = reconnect_delay(self._failures, self._roll())
        self._clock.wait(self._closing, max(0.0, min(seconds_left(), rest)))

    def _drop(self) -> None:
        with self._lock:
            pipe, self._pipe = self._pipe, None
            self._asked.clear()
            self._parked = self._kicked = False
        if pipe is not None:
            pipe.close()

    def _unavailable(self, why: Exception | None) -> BrokerUnavailable:
        if self._closing.is_set():
            return BrokerUnavailable("the broker is closed")
        error = BrokerUnavailable(f"{why or 'no answer in time'}; is `tenure server` running there?")
        error.__cause__ = why
        return error


def read_states(reply: Reply, ids: Sequence[str]) -> Iterable[JobState]:
    """The states in the answer to a wait, but for those that had no room; raises ConnectionError or ServerError."""
    try:
        lines = parse_states(reply.line, reply.payload, ids)
    except ServerError as error:
        if error.code == "storage":
            raise ConnectionError(f"the server cannot answer now: {error.text}") from error
        raise
    return [_state(line) for line in lines if line.kind != "later"]


def _state(line: StateLine) -> JobState:
    kind, body = line.kind, line.body
    return JobState(
        line.id.hex(),
        cast("Literal['unknown']", line.state),
        line.attempts,
        line.losses,
        line.reason,
        body if kind == "result" else None,
        body if kind == "failure" else b"",
        body if kind == "progress" else None,
        line.queue,
    )
