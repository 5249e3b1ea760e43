"""Extends the leases of what worker processes hold, and gives back what a process that is gone had held."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from tenure.broker import EndedAs, Extend, Extended, Keeper, Settled
from tenure.clock import Clock, own_deadline
from tenure.message import Settlement
from tenure.retry import reconnect_delay
from tenure.worker.patience import Patience
from tenure.worker.table import HELD, LOST, Entry, Table
from tenure.worker.unread import NOT_LISTENING, Unread, UnreadTakes

logger = logging.getLogger("tenure.worker")

PERIOD = 0.2
"""Seconds between two looks at the tables; shorter where a visibility timeout asks for it."""

LISTEN_PERIOD = 1.0
"""Seconds after which a lease is extended in any case, for the answer tells whether its job is to be cancelled."""

LISTEN_RATE = 200
"""Leases a second that are extended only for that; of more than these each has its turn later."""

PROGRESS_PERIOD = 0.5
"""Seconds from one extend of a receipt to the next that only brings its progress."""

EMPTY_BYE_TIME = 3.0
"""Seconds for which one that holds nothing tries to say bye: no job hangs on it."""

NO_BYE = "the broker did not answer the last word of this worker process, which holds no job; leaving without"

_SHORTEST_PERIOD = 0.02
_MAX_ITEMS = 500


@dataclass(frozen=True, eq=False)
class Watched:
    """One process whose table is watched; nothing is extended while it is stopped."""

    table: Table
    stopped: Callable[[], bool] = lambda: False
    slots: tuple[int, int] = (0, 0)
    """How many slots it has, for plain functions and for coroutines."""
    overtime: float = inf
    """Seconds for which a lease is extended after the time limit of its job."""
    alone: bool = False
    """Whether it runs one job at a time, of whichever kind."""
    look: Callable[[], None] = lambda: None
    """Has it look at once which of its jobs are to be terminated."""
    session: str = ""
    """Whose takes are given back to the broker where they are not read; empty: they are not."""


@dataclass(eq=False)
class Farewell:
    """A `bye` that is repeated until answered; `answered` gets how each of `settling` had ended."""

    session: str
    end: Literal["left", "lost"]
    cause: str
    settling: Sequence[bytes]
    answered: Callable[[list[EndedAs]], None]
    held: bool = True
    """Whether it may hold any job, or has an unanswered settlement."""
    wills: Sequence[Settlement] = ()
    """What is to be said before it of jobs that the process was ended for; `settled` gets the answers."""
    settled: Callable[[list[Settled]], None] = lambda answers: None
    tries: int = field(default=0)
    next_at: float = field(default=0.0)


class _Due(NamedTuple):
    """A lease to be extended, and the progress that goes with it, with its number."""

    watched: Watched
    entry: Entry
    said: tuple[int, bytes] | None


class LeaseKeeper:
    """Extends each lease when a third of its visibility timeout is over; one thread for any number of processes.

    It does so every `listen` seconds at the latest, because only the answers tell whose job is to be cancelled: one
    short line a second, whatever the worker runs.  It extends the receipts that are in the tables and nothing else, and
    none whose own deadline has passed: the broker may have given that job to another worker.  `notify` is called after
    each bye that was answered.
    """

    def __init__(
        self,
        keeper: Keeper,
        clock: Clock,
        roll: Callable[[], float],
        notify: Callable[[], None] = lambda: None,
        listen: float = LISTEN_PERIOD,
    ) -> None:
        self._listen = listen
        self._keeper = keeper
        self._notify = notify
        self._clock = clock
        self._roll = roll
        self._patience = Patience(clock, roll)
        self._watched: list[Watched] = []
        self._farewells: list[Farewell] = []
        self._unread = UnreadTakes()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._overdue: set[bytes] = set()
        """Receipts whose own deadline has passed while their functions run, and of which that was said."""

    def watch(self, watched: Watched) -> None:
        """Extend from now on what this table holds."""
        with self._lock:
            self._watched.append(watched)

    def forget(self, watched: Watched) -> None:
        """Never touch this table again; it may be closed after this."""
        with self._lock:
            if watched in self._watched:
                self._watched.remove(watched)
                self._unread.forget(watched)

    @contextmanager
    def jump(self, seconds: float) -> Iterator[None]:
        """Have the clock moved on by so much inside of this block: what is held is held as much longer."""
        with self._lock:
            now = self._clock.boot()
            for watched in self._watched:
                for entry in watched.table.entries():
                    if now < entry.deadline:
                        watched.table.extend(entry, entry.deadline + seconds)
            yield

    def farewell(self, farewell: Farewell) -> None:
        """Say bye for a process that is gone, until it is answered."""
        with self._lock:
            self._farewells.append(farewell)
        self._wake.set()

    def pending(self) -> int:
        """Return how many byes are not answered yet."""
        return len(self._farewells)

    def owes(self) -> bool:
        """Whether an unanswered bye is to give back a job."""
        with self._lock:
            return any(farewell.held for farewell in self._farewells)

    def run(self) -> None:
        """Extend and say bye until stopped."""
        while not self._stopped:
            self._wake.clear()
            try:
                period = self.turn()
            except Exception as error:  # noqa: BLE001  (without a keeper every lease is lost)
                self._patience.wait(error, "extending leases", self._wake)
            else:
                self._clock.wait(self._wake, period)

    def stop(self) -> None:
        """End after the try that is in progress."""
        self._stopped = True
        self._wake.set()

    def turn(self) -> float:
        """Extend what is due, try one bye, and return after how many seconds to look again."""
        try:
            due, unread, period = self._look()
            for start in range(0, len(due), _MAX_ITEMS):
                self._extend(due[start : start + _MAX_ITEMS])
            for take in unread:
                self._give_back(take)
            self._patience.reset()
        finally:
            # Also when the extend failed: whatever keeps one from its answer need not keep the other.
            next_bye = self._say_one_bye()
        return min(period, next_bye)

    def _look(self) -> tuple[list[_Due], list[Unread], float]:
        now = self._clock.boot()
        unread: list[Unread] = []
        found: list[tuple[Watched, Entry]] = []
        free: list[tuple[int, int]] = []
        overdue: set[bytes] = set()
        with self._lock:
            for watched in self._watched:
                entries = list(watched.table.entries())
                take = self._unread.look(watched, entries, now)
                if take is not None:
                    unread.append(take)
                overdue.update(entry.receipt for entry in entries if _is_overdue(entry, now))
                free.append(_free_slots(watched, entries))
                if not watched.stopped():
                    found += [(watched, entry) for entry in entries if now < entry.limit + watched.overtime]
            due = self._due(found, now)
            _tell_free(self._watched, free)
        self._warn(overdue)
        period = min((entry.visibility_timeout / 6 for _, entry in found), default=PERIOD)
        return due, unread, max(min(PERIOD, period), _SHORTEST_PERIOD)

    def _due(self, found: Sequence[tuple[Watched, Entry]], now: float) -> list[_Due]:
        """Return what is to be extended of what was found; with the lock, for a table may be closed without it."""
        listen = max(self._listen, len(found) / LISTEN_RATE)
        due = []
        for watched, entry in found:
            said = watched.table.unsent(entry)
            if is_due(entry, now) or _wants(watched.table, entry, said, now) or _is_silent(entry, now, listen):
                due.append(_Due(watched, entry, said))
        return due

    def _warn(self, overdue: set[bytes]) -> None:
        """Say once of each receipt that its time was over before an extend was answered."""
        for receipt in overdue - self._overdue:
            job = receipt[:32].decode()
            logger.warning("the lease of job %s could not be extended in time: another worker may run it now", job)
        self._overdue = overdue

    def _extend(self, due: Sequence[_Due]) -> None:
        asked_at = self._clock.boot()
        answers = self._keeper.extend([Extend(entry.receipt, said and said[1]) for _, entry, said in due])
        if len(answers) != len(due):
            raise RuntimeError(f"{len(answers)} answers to {len(due)} extends")
        with self._lock:
            now = self._clock.boot()
            for (watched, entry, said), answer in zip(due, answers, strict=True):
                if watched in self._watched:
                    watched.table.sent(entry, asked_at, said and said[0])
                    _apply(watched, entry, answer, now)

    def _give_back(self, take: Unread) -> None:
        """Have the broker give to others what a process was given and does not read."""
        self._keeper.untake(take.watched.session, take.number, NOT_LISTENING, take.held)
        with self._lock:
            if take.watched in self._watched:
                self._unread.given_back(take)
        logger.debug("take %d of session %s is not read; what it brought goes back", take.number, take.watched.session)

    def _say_one_bye(self) -> float:
        """Try the bye that has waited longest, once; returns the seconds until the next one is to be tried."""
        now = self._clock.boot()
        first = self._first_farewell()
        if first is not None and first.next_at <= now:
            self._say_bye(first, now)
            first = self._first_farewell()
        return PERIOD if first is None else max(0.0, first.next_at - now)

    def _first_farewell(self) -> Farewell | None:
        with self._lock:
            return min(self._farewells, key=lambda farewell: farewell.next_at, default=None)

    def _say_bye(self, farewell: Farewell, now: float) -> None:
        try:
            if farewell.wills:
                farewell.settled(self._keeper.settle(farewell.session, farewell.wills))
                farewell.wills = ()
            ended = self._keeper.bye(farewell.session, farewell.end, farewell.cause, farewell.settling)
        except Exception as error:
            farewell.tries += 1
            farewell.next_at = now + reconnect_delay(farewell.tries, self._roll())
            if not isinstance(error, ConnectionError):
                logger.error("an unexpected error while saying bye; trying again", exc_info=error)
            return
        # Counted before it stops being pending: whoever sees nothing pending may read the counts.
        farewell.answered(ended)
        with self._lock:
            self._farewells.remove(farewell)
        self._notify()


def is_due(entry: Entry, now: float) -> bool:
    """Whether a lease is to be extended: a third is over, and its deadline has not passed."""
    return entry.deadline > now and entry.deadline - now <= entry.visibility_timeout * 2 / 3


def _is_silent(entry: Entry, now: float, seconds: float) -> bool:
    """Whether nothing was heard of a lease for so long; its deadline tells when the last answer was asked for."""
    return entry.deadline > now and own_deadline(now, entry.visibility_timeout) - entry.deadline >= seconds


def _is_overdue(entry: Entry, now: float) -> bool:
    """Whether a function runs on although its time is over; where the broker has said so, that was logged then."""
    return LOST < entry.deadline <= now and entry.stage == HELD


def _wants(table: Table, entry: Entry, said: tuple[int, bytes] | None, now: float) -> bool:
    """Whether the function asks for an extend before its turn: by name, or because it has said how far it is."""
    if entry.deadline <= now:
        return False
    return table.asked(entry) or (said is not None and now - table.sent_at(entry) >= PROGRESS_PERIOD)


def _free_slots(watched: Watched, entries: Sequence[Entry]) -> tuple[int, int]:
    """Return how many slots of each kind of a process are free; none while it is stopped."""
    if watched.stopped():
        return 0, 0
    held = [entry.kind for entry in entries if entry.stage == HELD]
    if watched.alone and held:
        return 0, 0
    sync, coroutines = watched.slots
    return max(0, sync - held.count(0)), max(0, coroutines - held.count(1))


def _tell_free(watched: Sequence[Watched], free: Sequence[tuple[int, int]]) -> None:
    """Tell each process what is free in the others."""
    if not free:
        return
    # A queue with both kinds is taken from only by a process that has one of each.
    numbers = [(sync, coroutines, min(sync, coroutines)) for sync, coroutines in free]
    totals = [sum(column) for column in zip(*numbers, strict=True)]
    for one, own in zip(watched, numbers, strict=True):
        one.table.tell_free_elsewhere(*(total - mine for total, mine in zip(totals, own, strict=True)))


def _apply(watched: Watched, entry: Entry, answer: Extended, now: float) -> None:
    table = watched.table
    if answer.deadline is None:
        if entry.stage == HELD:  # of what is being settled, the answer to that tells
            logger.warning("the lease of job %s is lost", entry.receipt[:32].decode())
        table.lose(entry)
        return
    if answer.cancel is not None:
        table.cancel(entry)
    if answer.cancel == "terminate":
        table.wills.terminate(entry.place, entry.tag, now)
        watched.look()
    if now < entry.deadline:
        # Read after the own deadline, it moves nothing: the function was told already that its lease is lost.
        table.extend(entry, answer.deadline)


def leave(keeper: Keeper, session: str, clock: Clock, patience: Patience) -> None:
    """Say bye for the own session, which holds nothing any more; returns when it is answered, or soon without that."""
    never = threading.Event()
    over_at = clock.boot() + EMPTY_BYE_TIME
    while True:
        try:
            keeper.bye(session, "left", "", ())
            return
        except Exception as error:  # noqa: BLE001  (repeated until answered)
            if clock.boot() >= over_at:
                logger.warning(NO_BYE)
                return
            patience.wait(error, "leaving", never)
