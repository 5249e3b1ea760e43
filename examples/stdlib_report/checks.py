"""What has to be true in the end: each check is a function of what was seen, with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.stdlib_report import marks
from examples.stdlib_report.breakage import Killed
from tenure.broker import ProducerCounts

LOSSES = ("lost", "returned")
"""How a hand-out ends whose job another one has to do: its process died, or its lease ran out."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen, from every side.

    `files` were to be added, `twice` of them a second time; `findings` were stored.  `record` is the server's,
    `verified` says that `tenure record --verify` passed, `histories` are the hand-outs of each job that ran more
    than once, by its id.  `producer` and `worker` are their own counts, `runs` what the tasks marked.  `cut` is the
    number of connections that were cut, `killed` the process that was killed.
    """

    files: int
    twice: int
    findings: int
    record: Mapping[str, Any]
    verified: bool
    histories: Mapping[str, Sequence[Mapping[str, Any]]]
    producer: ProducerCounts
    worker: Mapping[str, int]
    runs: Sequence[marks.Run]
    cut: int
    killed: Killed

    @property
    def totals(self) -> Mapping[str, Any]:
        """The record's counts over all queues."""
        totals: Mapping[str, Any] = self.record["totals"]
        return totals

    @property
    def ways(self) -> Mapping[str, int]:
        """How many hand-outs ended in which way, by the record."""
        ways: Mapping[str, int] = self.totals["handouts"]
        return ways


@dataclass(frozen=True, slots=True)
class Result:
    """One check: whether it holds, what it says, and its numbers."""

    holds: bool
    claim: str
    numbers: str


def everything_was_done(seen: Evidence) -> Result:
    """Every file has one job, every job is done."""
    added, done = seen.totals["added"], seen.totals["done"]
    return Result(
        added == done == seen.files == seen.findings,
        "added = done",
        f"{seen.files} files, {added} jobs added, {done} done, {seen.findings} findings stored",
    )


def no_overlap_in_the_record(seen: Evidence) -> Result:
    """The server never gave a job to two workers at once."""
    overlaps, balanced = seen.record["overlaps"], seen.record["balanced"]
    verdict = "balanced" if balanced else "NOT balanced"
    return Result(
        overlaps == 0 and balanced, "no job had two workers, by the record", f"overlaps {overlaps}, {verdict}"
    )


def no_overlap_in_the_marks(seen: Evidence) -> Result:
    """By the marks that the tasks wrote, no job ran twice at the same time."""
    overlaps = marks.overlaps(seen.runs, {seen.killed.pid: seen.killed.at})
    return Result(
        overlaps == 0,
        "no job ran in two places at once, by the tasks' own marks",
        f"runs {len(seen.runs)}, overlaps {overlaps}",
    )


def every_run_is_explained(seen: Evidence) -> Result:
    """Each job has a run that ended; one without an end was in the process that was killed."""
    ended = {run.job for run in seen.runs if run.end is not None}
    open_ends = [run for run in seen.runs if run.end is None]
    strange = sum(run.pid != seen.killed.pid for run in open_ends)
    return Result(
        len(ended) == seen.totals["done"] and len(open_ends) >= 1 and strange == 0,
        "the kill hit jobs in their middle, and no other run is without an end",
        f"jobs that ran to their end {len(ended)}, runs that were killed {len(open_ends)}, unexplained {strange}",
    )


def the_record_shows_the_loss(seen: Evidence) -> Result:
    """The hand-outs of the killed process are counted as lost."""
    return Result(seen.ways["lost"] >= 1, "the record shows the loss", f"hand-outs lost: {seen.ways['lost']}")


def running_twice_has_a_reason(seen: Evidence) -> Result:
    """A job that ran more than once did so because an earlier hand-out was a loss, and its history says which."""
    again = [job for job, runs in marks.by_job(seen.runs).items() if len(runs) > 1]
    earlier = [handout for job in again for handout in seen.histories.get(job, [{"ended": "unknown"}, {}])[:-1]]
    others = [handout["ended"] for handout in earlier if handout["ended"] not in LOSSES]
    reasons = sorted({" ".join(filter(None, (handout["ended"], handout.get("cause")))) for handout in earlier})
    return Result(
        bool(again) and not others,
        "a job that ran twice shows why",
        f"jobs: {len(again)}; their earlier hand-outs: {', '.join(reasons) or 'none'}",
    )


def producer_agrees(seen: Evidence) -> Result:
    """What the producer counted from the answers is what the record says."""
    mine, totals = seen.producer, seen.totals
    return Result(
        (mine.added, mine.duplicates, mine.unconfirmed) == (totals["added"], totals["duplicates"], 0)
        and mine.duplicates == seen.twice,
        "the producer's own counts = the record",
        f"added {mine.added} = {totals['added']}, duplicates {mine.duplicates} = {totals['duplicates']}, "
        f"unconfirmed {mine.unconfirmed}",
    )


def worker_agrees(seen: Evidence) -> Result:
    """What the worker counted from the answers is what the record says."""
    theirs = {**{way: seen.ways[way] for way in _WORKERS_WAYS}, "refused": seen.totals["refused"], "unknown": 0}
    mine = {name: seen.worker.get(name) for name in theirs}
    shown = [f"{name} {mine[name]} = {n}" for name, n in theirs.items() if n or mine[name] or name == "done"]
    return Result(mine == theirs, "the worker's own counts = the record", ", ".join(shown))


_WORKERS_WAYS = ("done", "retried", "released", "dead", "cancelled")


def recount_agrees(seen: Evidence) -> Result:
    """A recount of all rows comes to the record's numbers."""
    return Result(seen.verified, "tenure record --verify", "passed" if seen.verified else "FAILED")


def connections_were_cut(seen: Evidence) -> Result:
    """There were connections of both the producer and the worker, and all were cut."""
    return Result(seen.cut >= 2, "every connection was cut once", f"{seen.cut} connections")


CHECKS: tuple[Callable[[Evidence], Result], ...] = (
    everything_was_done,
    no_overlap_in_the_record,
    no_overlap_in_the_marks,
    connections_were_cut,
    every_run_is_explained,
    the_record_shows_the_loss,
    running_twice_has_a_reason,
    producer_agrees,
    worker_agrees,
    recount_agrees,
)


def check_all(seen: Evidence) -> list[Result]:
    """Return the results of all checks."""
    return [check(seen) for check in CHECKS]
