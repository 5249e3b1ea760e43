"""What a worker's processes have counted, and the last words for those that are gone."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from tenure.broker import EndedAs, Settled
from tenure.worker import overruns
from tenure.worker.counts import Counts, counts_of_bye, counts_of_settled
from tenure.worker.handle import Handle
from tenure.worker.keeper import Farewell

logger = logging.getLogger("tenure.worker")


class Accounts:
    """The counts of the whole tree, and the byes that are still to be said; used from two threads."""

    def __init__(self) -> None:
        self._totals = Counts()
        self._lock = threading.Lock()
        self._words: list[Farewell] = []
        self._untold: deque[bytes] = deque()

    def counts(self, living: Iterable[Handle]) -> Counts:
        """Return the whole tree's counts: of those that are gone, and of those that live."""
        with self._lock:
            counts = self._totals
        for child in living:
            counts = counts + child.table.counts()
        return counts

    def bury(self, child: Handle, how: str, now: float) -> None:
        """Count what a process that is gone had counted, and note what is to be said for it; `now` by the boot clock.

        Of a process that was ended on purpose, jobs whose time limit is over have used up an attempt; the others are
        given back.
        """
        settling = child.table.unanswered()
        entries = list(child.table.entries())
        held = bool(entries)
        told = partial(self._told, [entry.receipt for entry in entries])
        wills = overruns.wills(child.table, now) if child.killed_by_us else []
        self._add(child.table.recover())
        if child.left:
            return
        other = "other " if wills else ""
        then = f"its {other}jobs are given back" if len(entries) > len(wills) else f"it held no {other}job"
        if child.killed_by_us:
            why = "was ended because of a job in it" if child.overran else "did not finish in time and was stopped"
            logger.warning("process %d %s; %s", child.pid, why, then)
            cause = overruns.CAUSE if child.overran else "grace time over"
            farewell = Farewell(child.session, "left", cause, settling, told, held, wills, self._settled)
            self._words.append(farewell)
        else:
            logger.error("process %d ended (%s); %s", child.pid, how, then)
            self._words.append(Farewell(child.session, "lost", how, settling, told, held))

    def last_words(self) -> list[Farewell]:
        """Return what is to be said now, and forget it.

        Those that hold nothing come first, for they may still have asked for jobs.
        """
        words, self._words = sorted(self._words, key=lambda farewell: farewell.held), []
        return words

    def pass_on(self, children: Iterable[Handle]) -> None:
        """Let a process that works tell whom it concerns what became of the jobs of those that are gone."""
        working = next((child for child in children if child.ready and not (child.worn or child.stopped)), None)
        while working is not None and self._untold:
            working.tell_of(self._untold.popleft())

    def _told(self, receipts: Sequence[bytes], ended: Sequence[EndedAs]) -> None:
        """Count what the answer to a bye tells (in the keeper's thread); no process was told how its jobs ended."""
        self._add(counts_of_bye(ended))
        self._untold.extend(receipts)

    def _settled(self, answers: Sequence[Settled]) -> None:
        """Count the answers to the settlements that were sent in the place of a process (in the keeper's thread)."""
        self._add(counts_of_settled(answers))

    def _add(self, counts: Counts) -> None:
        with self._lock:
            self._totals = self._totals + counts
