"""Time passing: scheduled jobs fall due, and what has been kept long enough is removed in small batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tenure.engine.core import ID_DIGITS, Core, Waiting
from tenure.engine.history import Sums, add_sums, count_handouts, count_overlaps
from tenure.engine.states import CANCELLED, DEAD, DONE, EXPIRED, PURGED, STATE_NAMES
from tenure.wire.commands import FLOOR

PROMOTE_BATCH = 500
"""Jobs that one turn makes ready at most.

Those that fall due together may stand anywhere in the table, so each may cost a page of its own, and with four times
as many the others wait four times as long for what is written and folded at once.
"""
EXPIRE_BATCH = 2_000
LOOK_BATCH = 2_000
"""Rows that one step of a sweep looks at."""
REMOVE_BATCH = 500
"""Rows that one step of a sweep removes."""
PASS_PAUSE = 30_000
"""Milliseconds between two passes over the rows."""
WHOLE_PASS = 16
"""Every so many passes look at all rows, not only at old ids: ids are made by clients, whose clocks may be wrong."""
CLOCK_STEP = 60_000
"""Milliseconds by which the wall clock may move against the monotonic one before it counts as set."""


def promote(core: Core, wall: int) -> int:
    """Make scheduled jobs that are due ready, in the order of their times; returns how many."""
    if core.next_due is None or core.next_due > wall:
        return 0
    rows = core.store.rows(DUE_HEAD, (wall, PROMOTE_BATCH))
    if rows:
        core.store.begin()
        updates = []
        for id, queue, priority in rows:
            core.place += 1
            core.lines.enlist(queue, priority, core.place)
            updates.append((core.place, id))
            tally = core.ledger.queues[queue]
            tally["scheduled"] -= 1
            tally["ready"] += 1
            core.woken.add(core.store.queue_names[queue])
        core.store.many("UPDATE jobs SET state = 2, place = ?, listed = 1, run_at = NULL WHERE id = ?", updates)
    row = core.store.row("SELECT min(run_at) FROM jobs INDEXED BY due WHERE state = 1")
    core.next_due = row[0] if row else None
    return len(rows)


def expire(core: Core, wall: int) -> int:
    """End jobs that wait past their latest start, a bounded number a call; returns how many.

    A take does so too with those that it meets.  This is for queues that nobody takes from, and for whatever stands
    where no take comes to.  `core.late` tells whether there may be more.
    """
    rows = core.store.rows(LATE_HEAD, (wall, EXPIRE_BATCH))
    core.late = len(rows) == EXPIRE_BATCH
    core.end_waiting([Waiting(*row) for row in rows], DEAD, EXPIRED, wall)
    core.woken.update(core.store.queue_names[queue] for queue in {row[1] for row in rows})
    return len(rows)


@dataclass(slots=True)
class _Pass:
    """One walk over spent keys, old aliases and old jobs, in this order: where it is, and which ids it looks at."""

    cutoff: bytes
    after_key: tuple[str, str] | None = ("", "")
    after_alias: bytes | None = b""
    after: bytes = b""


class Sweeper:
    """Removes ended jobs, spent keys and old aliases; what it removes it adds to the `swept` sums.

    Nothing goes in the first ten minutes after a start, nor after the wall clock was set: workers that waited for
    the server repeat their lines first, and those have to find their rows.
    """

    def __init__(self, core: Core, wall: int, mono: float) -> None:
        self._core = core
        self._passes = 0
        self._next_pass = 0.0
        self._hold_off(wall, mono)

    def _hold_off(self, wall: int, mono: float) -> None:
        self._pass: _Pass | None = None
        self._offset = wall - mono * 1000
        self._not_before = mono + FLOOR

    def step(self, wall: int, mono: float) -> int:
        """Do one small step if one is due; returns how many jobs it removed."""
        if abs(wall - mono * 1000 - self._offset) > CLOCK_STEP:
            self._hold_off(wall, mono)
        self._offset = wall - mono * 1000
        if mono < self._not_before:
            return 0
        if self._pass is None:
            if mono < self._next_pass:
                return 0
            self._begin_pass(wall)
        assert self._pass is not None  # begun just now, if it was not under way
        if self._pass.after_key is not None:
            self._pass.after_key = self._sweep_keys(self._pass.after_key, wall)
            return 0
        if self._pass.after_alias is not None:
            self._pass.after_alias = self._sweep_aliases(self._pass.after_alias, wall)
            return 0
        return self._sweep_jobs(wall, mono)

    @property
    def busy(self) -> bool:
        """Whether a pass is under way, so that the next step is wanted soon."""
        return self._pass is not None

    def forget(self) -> None:
        """Begin anew after a turn that was undone."""
        self._pass = None

    def _begin_pass(self, wall: int) -> None:
        whole = self._passes % WHOLE_PASS == 0
        self._passes += 1
        oldest = max(0, wall - int(FLOOR * 1000))
        self._pass = _Pass(b"\xff" * 16 if whole else oldest.to_bytes(6, "big") + b"\xff" * 10)

    def _sweep_jobs(self, wall: int, mono: float) -> int:
        assert self._pass is not None  # step() has begun one
        core = self._core
        rows = core.store.rows(LOOK, (self._pass.after, self._pass.cutoff, LOOK_BATCH))
        old = [row for row in rows if self._is_old(row[1], row[2], wall)]
        gone = old[:REMOVE_BATCH]
        if gone:
            self._remove(gone)
        if len(old) > REMOVE_BATCH:
            self._pass.after = gone[-1][0]
        elif len(rows) == LOOK_BATCH:
            self._pass.after = rows[-1][0]
        else:
            self._pass = None
            self._next_pass = mono + PASS_PAUSE / 1000
        return len(gone)

    def _is_old(self, state: int, ended_at: int | None, wall: int) -> bool:
        if ended_at is None:
            return False
        if state in (DONE, CANCELLED):
            return ended_at <= wall - self._core.retention.rows
        return state == PURGED and ended_at <= wall - int(FLOOR * 1000)

    def _remove(self, rows: list[tuple[Any, ...]]) -> None:
        """Delete jobs with all that belongs to them, and add what they counted to the sums."""
        store = self._core.store
        sums: Sums = Counter()
        store.begin()
        for id, state, _, queue, number, _, *last in rows:
            sums["queue", queue, "added"] += 1
            sums["queue", queue, STATE_NAMES[state]] += 1
            handouts = [tuple(last)] if number else []
            if number > 1:
                handouts = store.rows(HANDOUTS_OF, (id,)) + handouts
                store.execute("DELETE FROM handouts WHERE job = ?", (id,))
            count_overlaps(sums, handouts)
            count_handouts(sums, queue, handouts)
        store.many("DELETE FROM jobs WHERE id = ?", [(row[0],) for row in rows])
        store.many("DELETE FROM bodies WHERE id = ?", [(row[5],) for row in rows if row[5]])
        add_sums(store, sums)

    def _sweep_keys(self, after: tuple[str, str], wall: int) -> tuple[str, str] | None:
        """Remove spent keys from one batch of all keys; returns where the next one begins, None behind the last."""
        core = self._core
        rows = core.store.rows(LOOK_AT_KEYS, (*after, LOOK_BATCH))
        spent = [(task, key) for task, key, free_at in rows if free_at is not None and free_at <= wall]
        if spent:
            core.store.begin()
            core.store.many("DELETE FROM keys WHERE task = ? AND key = ?", spent)
            core.id_like_keys -= sum(len(key) == ID_DIGITS for _, key in spent)
        return (rows[-1][0], rows[-1][1]) if len(rows) == LOOK_BATCH else None

    def _sweep_aliases(self, after: bytes, wall: int) -> bytes | None:
        """Remove old aliases from one batch of all; returns where the next one begins, None behind the last."""
        core = self._core
        rows = core.store.rows(LOOK_AT_ALIASES, (after, LOOK_BATCH))
        old = [(id, queue) for id, queue, at in rows if at <= wall - int(FLOOR * 1000)]
        if old:
            core.store.begin()
            core.store.many("DELETE FROM aliases WHERE id = ?", [(id,) for id, _ in old])
            core.aliases -= len(old)
            add_sums(core.store, Counter(("queue", queue, "duplicates") for _, queue in old))
        return rows[-1][0] if len(rows) == LOOK_BATCH else None


DUE_HEAD = "SELECT id, queue, priority FROM jobs INDEXED BY due WHERE state = 1 AND run_at <= ? ORDER BY run_at LIMIT ?"

LATE_HEAD = """
    SELECT id, queue, state, task, key FROM jobs INDEXED BY expiring
    WHERE expires IS NOT NULL AND state IN (1, 2) AND expires <= ? ORDER BY expires LIMIT ?
"""

LOOK_AT_KEYS = "SELECT task, key, free_at FROM keys WHERE (task, key) > (?, ?) ORDER BY task, key LIMIT ?"
LOOK_AT_ALIASES = "SELECT id, queue, at FROM aliases WHERE id > ? ORDER BY id LIMIT ?"

LOOK = """
    SELECT id, state, ended_at, queue, number, big, worker, how, late, begin_commit, end_commit
    FROM jobs WHERE id > ? AND id <= ? ORDER BY id LIMIT ?
"""

HANDOUTS_OF = """
    SELECT worker, how, late, begin_commit, end_commit FROM handouts WHERE job = ? ORDER BY number
"""
