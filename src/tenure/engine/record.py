"""The record counted from the rows and the swept sums alone, without the engine's own books.

It serves twice: the server starts from it, and `tenure record --verify` holds the running server's counts against
it.  Nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenure.engine.states import CANCELLED, DEAD, DONE, HOW_NAMES, KEPT, PURGED, READY, RUNNING, SCHEDULED, STATE_NAMES
from tenure.engine.store import Db


@dataclass
class Recount:
    """Counts by queue and worker number; hand-outs' ends carry a leading slash."""

    queues: dict[int, dict[str, int]] = field(default_factory=dict)
    workers: dict[int, dict[str, int]] = field(default_factory=dict)
    overlaps: int = 0

    def _bump(self, owners: dict[int, dict[str, int]], owner: int, counter: str, n: int) -> None:
        tally = owners.setdefault(owner, {})
        tally[counter] = tally.get(counter, 0) + n

    def queue(self, id: int, counter: str, n: int) -> None:
        """Add `n` to a queue's counter."""
        self._bump(self.queues, id, counter, n)

    def worker(self, id: int, counter: str, n: int) -> None:
        """Add `n` to a worker's counter."""
        self._bump(self.workers, id, counter, n)


def balanced(tally: dict[str, int]) -> bool:
    """Whether a queue's counts add up, the jobs and the hand-outs each for themselves."""
    jobs = sum(tally.get(name, 0) for name in STATE_NAMES.values())
    handouts = sum(tally.get(f"/{how}", 0) for how in HOW_NAMES.values()) + tally.get("running", 0)
    return tally.get("added", 0) == jobs and tally.get("handed_out", 0) == handouts


def recount(db: Db) -> Recount:
    """Count all rows; a scan of the whole file, on whichever connection is passed."""
    counted = Recount()
    _count_jobs(db, counted)
    _count_handouts(db, counted)
    for queue, n in db.execute("SELECT queue, count(*) FROM aliases GROUP BY queue"):
        counted.queue(queue, "duplicates", n)
    for scope, owner, counter, n in db.execute("SELECT scope, owner, counter, n FROM swept"):
        if scope == "store":
            counted.overlaps += n
        else:
            (counted.queue if scope == "queue" else counted.worker)(owner, counter, n)
    counted.overlaps += _overlaps(db)
    return counted


def _count_jobs(db: Db, counted: Recount) -> None:
    question = """
        SELECT queue, state, worker, how, late, expired, number > 0, count(*)
        FROM jobs GROUP BY queue, state, worker, how, late, expired, number > 0
    """
    for queue, state, worker, how, late, expired, handed_out, n in db.execute(question):
        counted.queue(queue, "added", n)
        counted.queue(queue, STATE_NAMES.get(state, "unknown state"), n)
        if expired and state == DEAD:
            counted.queue(queue, "expired", n)
        if handed_out:
            _count_handout(counted, queue, worker, how, late, n)


def _count_handouts(db: Db, counted: Recount) -> None:
    question = """
        SELECT jobs.queue, handouts.worker, handouts.how, handouts.late, count(*)
        FROM handouts JOIN jobs ON jobs.id = handouts.job GROUP BY 1, 2, 3, 4
    """
    for queue, worker, how, late, n in db.execute(question):
        _count_handout(counted, queue, worker, how, late, n)


def _count_handout(counted: Recount, queue: int, worker: int, how: int | None, late: int, n: int) -> None:
    counted.queue(queue, "handed_out", n)
    counted.worker(worker, "handed_out", n)
    if how is None:
        counted.worker(worker, "running", n)
    else:
        end = f"/{HOW_NAMES.get(how, 'unknown end')}"
        counted.queue(queue, end, n)
        counted.worker(worker, end, n)
    if late:
        counted.queue(queue, "refused", n)
        counted.worker(worker, "refused", n)


OVERLAPS = """
    WITH spans AS (
        SELECT job, number, begin_commit, end_commit FROM handouts
        UNION ALL
        SELECT id, number, begin_commit, end_commit FROM jobs
        WHERE number > 1 AND EXISTS (SELECT 1 FROM handouts WHERE job = id)
    ), followed AS (
        SELECT begin_commit, end_commit, lead(begin_commit) OVER (PARTITION BY job ORDER BY number) AS next_begin
        FROM spans
    )
    SELECT count(*) FROM followed WHERE next_begin IS NOT NULL AND (end_commit IS NULL OR next_begin < end_commit)
"""


def _overlaps(db: Db) -> int:
    """How many hand-outs began before the one before them had ended, by commit numbers."""
    if db.execute("SELECT 1 FROM handouts LIMIT 1").fetchone() is None:
        return 0  # spares a fresh start the scan
    found: int = db.execute(OVERLAPS).get
    return found


# A row's state has to fit how its last hand-out ended.  Each pair: what is wrong, and the rows for which it is so.
CONTRADICTIONS = (
    ("running, but its hand-out has ended or never was", f"state = {RUNNING} AND (how IS NOT NULL OR number = 0)"),
    ("its hand-out runs, but the state is not running", f"state <> {RUNNING} AND number > 0 AND how IS NULL"),
    ("done, but its last hand-out did not end so", f"state = {DONE} AND how IS NOT 1"),
    ("its last hand-out ended done, but the job is not done", f"state <> {DONE} AND how = 1"),
    (
        "waiting or running, but it has an end time",
        f"state IN ({SCHEDULED}, {READY}, {RUNNING}) AND ended_at IS NOT NULL",
    ),
    ("ended, but it has no end time", f"state IN ({DONE}, {DEAD}, {CANCELLED}, {PURGED}) AND ended_at IS NULL"),
    ("unknown state", f"state NOT BETWEEN {SCHEDULED} AND {PURGED}"),
)


# The job's own row is its last hand-out; those before it are in the other table, but for the oldest of very many.
MISSING_HANDOUTS = f"""
    SELECT hex(id), number, ifnull(kept, 0)
    FROM jobs LEFT JOIN (
        SELECT job, count(*) AS kept, min(number) AS first, max(number) AS last FROM handouts GROUP BY job
    ) ON job = id
    WHERE number <= 1 AND kept IS NOT NULL
       OR number > 1 AND (kept IS NULL OR last <> number - 1 OR kept <= last - first OR first > 1 AND kept < {KEPT})
"""


def contradictions(db: Db, limit: int = 20) -> list[str]:
    """Rows that contradict themselves, at most `limit` a kind, in words."""
    found = []
    for what, where in CONTRADICTIONS:
        for (id,) in db.execute(f"SELECT hex(id) FROM jobs WHERE {where} LIMIT {limit}"):
            found.append(f"job {id.lower()}: {what}")
    for (id,) in db.execute(
        f"SELECT hex(handouts.job) FROM handouts LEFT JOIN jobs ON jobs.id = handouts.job "
        f"WHERE jobs.id IS NULL LIMIT {limit}"
    ):
        found.append(f"job {id.lower()}: hand-outs without a job")
    for id, number, kept in db.execute(f"{MISSING_HANDOUTS} LIMIT {limit}"):
        found.append(f"job {id.lower()}: handed out {number} times, but {kept} earlier hand-outs are kept")
    return found


def verify(db: Db, claimed: dict[str, Any]) -> dict[str, Any]:
    """Recount everything and compare with the record that the engine claims for the same commit.

    Returns {"verified": bool, "differences": [text, ...], "recounted": {...}}.
    """
    counted = recount(db)
    differences = contradictions(db)
    names = dict(db.execute("SELECT id, name FROM queues")), dict(db.execute("SELECT id, name FROM workers"))
    recounted: dict[str, Any] = {"queues": {}, "workers": {}, "overlaps": counted.overlaps}
    for kind, owners, titles in (
        ("queues", counted.queues, names[0]),
        ("workers", counted.workers, names[1]),
    ):
        for id, title in titles.items():
            tally = owners.get(id, {})
            recounted[kind][title] = tally
            differences += _compare(f"{kind[:-1]} {title!r}", tally, claimed[kind].get(title))
            if kind == "queues" and not balanced(tally):
                differences.append(f"queue {title!r}: the rows do not add up: {tally}")
        known = set(titles.values())
        differences += [
            f"{kind[:-1]} {name!r}: in the record, not in the file" for name in claimed[kind] if name not in known
        ]
        differences += [
            f"{kind[:-1]} number {id}: rows name it, but it has no name" for id in owners if id not in titles
        ]
    if counted.overlaps != claimed["overlaps"] or counted.overlaps:
        differences.append(f"overlaps: the hand-outs say {counted.overlaps}, the record {claimed['overlaps']}")
    return {"verified": not differences, "differences": differences, "recounted": recounted}


def _compare(owner: str, tally: dict[str, int], claimed: dict[str, Any] | None) -> list[str]:
    if claimed is None:
        return [f"{owner}: in the file, but not in the record"]
    flat = {name: n for name, n in claimed.items() if name != "handouts"}
    flat |= {f"/{how}": n for how, n in claimed["handouts"].items()}
    return [
        f"{owner}: {name.lstrip('/')} {'hand-outs' if name[0] == '/' else ''}: the rows say {tally.get(name, 0)}, "
        f"the record says {n}"
        for name, n in flat.items()
        if tally.get(name, 0) != n
    ] + [f"{owner}: the rows count {name}, the record does not" for name in tally if name not in flat]
