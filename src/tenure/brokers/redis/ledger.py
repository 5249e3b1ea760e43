"""The record as users read it, from what each queue answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenure.engine.states import HOW_NAMES

JOBS = ("added", "done", "dead", "cancelled", "purged", "scheduled", "ready", "running")
"""Counts of jobs; the first is the sum of all others, at every moment."""
OTHERS = ("duplicates", "refused", "expired", "handed_out")
HOWS = tuple(f"/{how}" for how in HOW_NAMES.values())
QUEUE_COUNTERS = (*JOBS, *OTHERS, *HOWS)
WORKER_COUNTERS = ("handed_out", "running", "refused", *HOWS)
_SIZES = ("ready", "scheduled", "running", "dead")

Tally = dict[str, int]


def _pairs(flat: Sequence[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def has_jobs(answer: Sequence[Any]) -> bool:
    """Whether a queue has had a job: one that is only waited for is in no record."""
    return b"added" in answer[0][::2]


def tallies(answer: Sequence[Any]) -> tuple[Tally, dict[str, Tally]]:
    """Return a queue's counts, and those of each worker in it; an end of a hand-out has a leading slash."""
    fields, workers, sizes, _ = answer
    known = _pairs(fields)
    queue = {name: int(known.get(name, 0)) for name in QUEUE_COUNTERS}
    queue |= dict(zip(_SIZES, sizes, strict=True))
    by_worker = _by_worker({name: int(n) for name, n in _pairs(workers).items()})
    for tally in by_worker.values():
        tally["handed_out"] = tally["running"] + sum(tally[how] for how in HOWS)
    for name in ("handed_out", *HOWS):
        queue[name] = sum(tally[name] for tally in by_worker.values())
    return queue, by_worker


def _by_worker(counts: Mapping[str, int]) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    for field, n in counts.items():
        counter, _, worker = field.partition(":")
        found.setdefault(worker, dict.fromkeys(WORKER_COUNTERS, 0))[counter] = n
    return found


def totals(queues: Mapping[str, tuple[Tally, dict[str, Tally]]]) -> dict[str, Any]:
    """Return the record of all queues together."""
    total = dict.fromkeys(QUEUE_COUNTERS, 0)
    workers: dict[str, Tally] = {}
    for tally, by_worker in queues.values():
        _add(total, tally)
        for worker, theirs in by_worker.items():
            _add(workers.setdefault(worker, dict.fromkeys(WORKER_COUNTERS, 0)), theirs)
    return {
        "queues": {name: nested(tally) for name, (tally, _) in sorted(queues.items())},
        "workers": {name: nested(tally) for name, tally in sorted(workers.items())},
        "totals": nested(total),
        "overlaps": 0,
        "balanced": all(balanced(tally) for tally, _ in queues.values()),
    }


def _add(sum: Tally, more: Tally) -> None:
    for name, n in more.items():
        sum[name] += n


def balanced(tally: Tally) -> bool:
    """Whether a queue's counts add up, the jobs and the hand-outs each for themselves."""
    jobs = sum(tally[name] for name in JOBS[1:])
    return tally["added"] == jobs and tally["handed_out"] == sum(tally[how] for how in HOWS) + tally["running"]


def nested(tally: Tally) -> dict[str, Any]:
    """Return counts with the hand-outs' ends in a group of their own."""
    flat: dict[str, Any] = {name: n for name, n in tally.items() if name[0] != "/"}
    flat["handouts"] = {name[1:]: n for name, n in tally.items() if name[0] == "/"}
    return flat


def recounted(counts: Mapping[str, int]) -> Tally:
    """Return what a recount of a queue's jobs came to, without the single workers."""
    return {name: n for name, n in counts.items() if ":" not in name}


def differences(queue: str, answer: Sequence[Any], counts: Mapping[str, int]) -> list[str]:
    """Return in words how a recount of a queue differs from its record."""
    tally, workers = tallies(answer)
    skipped = "duplicates"  # they are known for ten minutes only, so there is nothing to count them by
    wrong = [
        f"queue {queue!r}: {name}: the jobs say {counts.get(name, 0)}, the record says {n}"
        for name, n in tally.items()
        if name != skipped and counts.get(name, 0) != n
    ]
    by_worker = _by_worker({name: n for name, n in counts.items() if ":" in name})
    nothing = dict.fromkeys(WORKER_COUNTERS, 0)
    for worker in sorted(workers.keys() | by_worker.keys()):
        claimed, found = workers.get(worker, nothing), by_worker.get(worker, nothing)
        wrong += [
            f"worker {worker!r} in queue {queue!r}: {name}: the jobs say {found[name]}, the record says {claimed[name]}"
            for name in WORKER_COUNTERS
            if found[name] != claimed[name]
        ]
    if not balanced(tally):
        wrong.append(f"queue {queue!r}: the record does not add up: {tally}")
    return wrong


def sizes(queue: str, answer: Sequence[Any]) -> dict[str, Any]:
    """Return a queue's entry in the list of queues."""
    ready, scheduled, running, dead, done, added, waiting, paused, closed, *unknown = answer
    return {
        "name": queue,
        "ready": ready,
        "scheduled": scheduled,
        "running": running,
        "dead": dead,
        "done": done,
        "added": added,
        "waiting": waiting,
        "paused": bool(paused),
        "closed": bool(closed),
        "unknown_tasks": _pairs(unknown),
    }
