"""Finds the takes whose answers a worker process does not read; see `open_take`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tenure.worker.table import Entry
from tenure.worker.taker import WAIT

if TYPE_CHECKING:
    from tenure.worker.keeper import Watched

SILENCE = WAIT + 1.25
"""Seconds after which an open take counts as unread: a process that runs would itself have given up on the answer, a
second after it was due, and have written the take again."""

NOT_LISTENING = "its worker process did not listen"


class Unread(NamedTuple):
    """A take that is not read; `held` are the receipts of it that the process has entered all the same."""

    watched: Watched
    number: int
    held: list[bytes]


class UnreadTakes:
    """Revokes takes that stay open, and names them at the look after that; asked by one thread."""

    def __init__(self) -> None:
        self._revoked: dict[Watched, int] = {}
        self._given_back: dict[Watched, int] = {}

    def look(self, watched: Watched, entries: Iterable[Entry], now: float) -> Unread | None:
        """Return the take of this process that is to be given back now; `entries` were read just before."""
        take = watched.table.take
        number = take.number()
        if not number or not watched.session or self._given_back.get(watched) == number:
            return None
        if not (take.is_forbidden() or watched.stopped() or now - take.written_at() > SILENCE):
            return None
        if self._revoked.get(watched) != number:
            self._revoked[watched] = number
            take.revoke(number)
            return None  # what it enters from here on it gives back itself; what it had entered is seen the next time
        return Unread(watched, number, [entry.receipt for entry in entries if entry.take == number])

    def given_back(self, unread: Unread) -> None:
        """The broker has answered: that number grants nothing any more."""
        self._given_back[unread.watched] = unread.number

    def forget(self, watched: Watched) -> None:
        """The process is gone."""
        self._revoked.pop(watched, None)
        self._given_back.pop(watched, None)
