"""Adds: a job is stored once, whatever is repeated, and a key is held by one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenure.engine.core import ID_DIGITS, Core, moment_after
from tenure.engine.states import CANCELLED, DEAD, PURGED, READY, SCHEDULED
from tenure.wire.commands import Add

INLINE_BODY = 800
"""Bytes up to which a body stays in the job's row: every change of the row copies it, and a larger row would also begin
a page of its own."""


class Created(NamedTuple):
    """The job is stored under this id."""

    id: bytes


class Exists(NamedTuple):
    """The key is held by an earlier job, which was called with the same arguments."""

    id: bytes
    first: bytes


class Conflict(NamedTuple):
    """The key is held by an earlier job, which was called with other arguments; nothing was stored."""

    id: bytes
    first: bytes
    key: str


class Full(NamedTuple):
    """There is no room for further jobs: so many bytes are free, so many are wanted; nothing was stored."""

    id: bytes
    room: int
    wanted: int


class Closed(NamedTuple):
    """The queue takes no new jobs; nothing was stored."""

    id: bytes
    queue: str


AddAnswer = Created | Exists | Conflict | Full | Closed


def add_new(core: Core, a: Add, wall: int) -> AddAnswer:
    """Store a job unless its queue is closed, or that would eat into the reserve.

    A repeat of what is stored is answered all the same.
    """
    if a.queue in core.closed:
        return _known(core, a) or Closed(a.id, a.queue)
    space = core.space
    if space.refuses(len(a.body)):
        return _known(core, a) or Full(a.id, *space.missing(len(a.body)))
    return add(core, a, wall)


def add(core: Core, a: Add, wall: int) -> AddAnswer:
    """Store a job, or say which one there is; `wall` is milliseconds since the epoch."""
    if a.key is not None or core.aliases or core.id_like_keys:
        answered = _known(core, a) or _held(core, a, wall)
        if answered is not None:
            return answered
    if not _insert(core, a, wall):
        return Created(a.id)  # the same line again: found by its id, nothing is counted
    if a.key is not None:
        hold_key(core, a.task, a.key, a.id, a.fingerprint)
    return Created(a.id)


def _known(core: Core, a: Add) -> AddAnswer | None:
    """A repeat is found by id before its key is looked at: the first answer may have made the key's holder."""
    if core.store.row("SELECT 1 FROM jobs WHERE id = ?", (a.id,)):
        return Created(a.id)
    alias = core.store.row("SELECT first FROM aliases WHERE id = ?", (a.id,)) if core.aliases else None
    return Exists(a.id, alias[0]) if alias else None


def _held(core: Core, a: Add, wall: int) -> AddAnswer | None:
    key = a.key if a.key is not None else a.id.hex()
    holder = key_holder(core, a.task, key, wall)
    if holder is None:
        return None
    first, fingerprint = holder
    if fingerprint != a.fingerprint:
        return Conflict(a.id, first, key)
    core.store.begin()
    queue = core.store.queue_id(a.queue)
    core.store.execute("INSERT INTO aliases VALUES (?, ?, ?, ?)", (a.id, first, queue, wall))
    core.aliases += 1
    core.ledger.queue(queue)["duplicates"] += 1
    return Exists(a.id, first)


def key_holder(core: Core, task: str, key: str, wall: int) -> tuple[bytes, bytes] | None:
    """The job (and its fingerprint) that holds a key of this task, or None.

    A key that looks like an id may be the automatic key of a job: "call again with `error.key`" meets it.
    """
    row = core.store.row("SELECT job, fingerprint, free_at FROM keys WHERE task = ? AND key = ?", (task, key))
    if row is not None and (row[2] is None or row[2] > wall):
        return row[0], row[1]
    id = _id_of(key)
    if id is None:
        return None
    question = "SELECT id, fingerprint FROM jobs WHERE id = ? AND task = ? AND key IS NULL AND state NOT IN (?, ?, ?)"
    return core.store.row(question, (id, task, DEAD, CANCELLED, PURGED))


def _id_of(key: str) -> bytes | None:
    """The id that a key spells, exactly as an automatic key does: lower case, no spaces; or None."""
    if len(key) != ID_DIGITS:
        return None
    try:
        id = bytes.fromhex(key)
    except ValueError:
        return None
    return id if id.hex() == key else None


def hold_key(core: Core, task: str, key: str, id: bytes, fingerprint: bytes) -> None:
    replaced = core.store.row("SELECT 1 FROM keys WHERE task = ? AND key = ?", (task, key))
    core.store.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, NULL)", (task, key, id, fingerprint))
    core.id_like_keys += len(key) == ID_DIGITS and not replaced


def add_all(core: Core, adds: Sequence[Add], wall: int) -> list[AddAnswer]:
    """Store jobs as `add_new` does one after the other; those that are new, plain and of one queue share statements."""
    size = sum([len(a.body) for a in adds])
    if len(adds) > 1 and _are_plain(core, adds, size) and _insert_all(core, adds, size, wall):
        return [Created(a.id) for a in adds]
    return [add_new(core, a, wall) for a in adds]


def _are_plain(core: Core, adds: Sequence[Add], size: int) -> bool:
    """Whether these are ready jobs of one queue that takes them, with small bodies, and no key has to be looked at.

    `size` is that of their bodies in all (bytes).
    """
    queue = adds[0].queue
    if core.aliases or core.id_like_keys or queue in core.closed or queue not in core.store.queue_ids:
        return False
    if core.space.refuses(size, len(adds)):
        return False
    for _, its_queue, _, _, body, key, _, starts, ends, _, _, _ in adds:
        if its_queue != queue or key is not None or starts is not None or ends is not None or len(body) > INLINE_BODY:
            return False
    return True


def _insert_all(core: Core, adds: Sequence[Add], size: int, wall: int) -> bool:
    """Insert the rows of plain jobs; False, with nothing changed, when one of the ids is known already."""
    store, place = core.store, core.place
    queue = store.queue_ids[adds[0].queue]
    listed = not core.lines.has_room_for(len(adds), size)
    rows = [_rows(a, READY, queue, n, listed, None, None, a.body, 0, wall) for n, a in enumerate(adds, place + 1)]
    store.begin()
    store.execute("SAVEPOINT adds")
    if store.insert(INSERT_JOB, [row for row, _ in rows]) < len(rows):
        store.execute("ROLLBACK TO adds")
        store.execute("RELEASE adds")
        return False
    store.execute("RELEASE adds")
    tally = core.ledger.queue(queue)
    tally["added"] += len(rows)
    tally["ready"] += len(rows)
    core.place += len(rows)
    core.space.spend(size, len(rows))
    for _, waiting in rows:
        core.lines.join(waiting, listed)
    core.woken.add(adds[0].queue)
    return True


def _insert(core: Core, a: Add, wall: int) -> bool:
    """Insert the row; False when the id is known already."""
    store = core.store
    store.begin()
    if a.queue not in store.queue_ids and store.row("SELECT 1 FROM jobs WHERE id = ?", (a.id,)):
        return False  # a known id makes no queue, which would be in the file and in no count
    queue = store.queue_id(a.queue)
    run_at = None if a.run_at is None else _moment(a.run_at, wall)
    expires = None if a.expires is None else _moment(a.expires, wall)
    state = SCHEDULED if run_at is not None and run_at > wall else READY
    body = a.body
    big = core.next_body if len(body) > INLINE_BODY else 0
    core.place += 1
    stored = b"" if big else body
    listed = state != READY or not core.lines.has_room
    row, waiting = _rows(a, state, queue, core.place, listed, run_at, expires, stored, big, wall)
    store.execute(INSERT_ONE, row)
    if not store.changes():
        return False
    core.space.spend(len(body))
    if big:
        store.execute("INSERT INTO bodies VALUES (?, ?)", (big, body))
        core.next_body += 1
    tally = core.ledger.queue(queue)
    tally["added"] += 1
    if state == READY:
        tally["ready"] += 1
        core.lines.join(waiting, listed)
        core.woken.add(a.queue)
    else:
        tally["scheduled"] += 1
        assert run_at is not None  # a scheduled job has its time
        core.due_at(run_at)
    return True


def _rows(
    a: Add, state: int, queue: int, place: int, listed: bool, run_at: int | None, expires: int | None, body: bytes,
    big: int, wall: int,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """A new job as `INSERT_JOB` takes it, and as it waits in memory, in the order of `line.WAITING`."""
    id, _, task, fingerprint, _, key, priority, _, _, vt, attempts, losses = a
    return (
        id, state, queue, priority, place, listed, run_at, expires, vt, attempts, losses, task, key, fingerprint, body,
        big, wall,
    ), (
        id, queue, expires, 0, vt, task, key, fingerprint, 0, 0, attempts, losses, big, body, priority, run_at, place,
    )  # fmt: skip


def _moment(when: tuple[int, bool], wall: int) -> int:
    return moment_after(wall, when[0]) if when[1] else when[0]


INSERT_JOB = (
    """
    INSERT INTO jobs (id, state, queue, priority, place, listed, run_at, expires, vt, max_attempts, max_losses, task,
                      key, fingerprint, body, big, added_at) VALUES
    """,
    f"({', '.join('?' * 17)})",
    "ON CONFLICT (id) DO NOTHING",
)
"""The statement that inserts jobs: what begins it, the places of a row, what ends it."""

INSERT_ONE = " ".join(INSERT_JOB)
