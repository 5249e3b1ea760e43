"""Whether a worker lives and can work, from what it really does: the broker's last answer, and each process's takes.

A snapshot of the facts, and what follows from it at a given time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tenure.worker.heartbeat import HEARTBEAT
from tenure.worker.room import ASYNC, SYNC
from tenure.worker.table import Table

LATE = 2 * HEARTBEAT
"""Seconds without an answer of the broker after which a worker is not ready: a process asks every half second."""

STUCK = 10.0
"""Seconds without a look at its processes after which a supervisor does not live."""

ProcessState = Literal["starting", "working", "busy", "silent", "spent", "frozen"]
_WORKS: tuple[ProcessState, ...] = ("working", "busy")


@dataclass(frozen=True, slots=True)
class ProcessVitals:
    """What is known of one worker process; times are seconds of the boot clock.

    `busy`: no slot is free.  `worn`: it is to be replaced, and may be spent already.
    """

    pid: int
    since: float
    ready: bool
    frozen: bool
    busy: bool
    answered_at: float
    worn: bool = False

    def state(self, now: float) -> ProcessState:
        """Return what it does."""
        if self.frozen:
            return "frozen"
        if not self.ready:
            return "starting"
        if self.busy:
            return "busy"
        if now - max(self.answered_at, self.since) <= LATE:
            return "working"
        return "spent" if self.worn else "silent"

    def words(self, now: float) -> str:
        """Return what it does, for people."""
        match self.state(now):
            case "starting":
                return f"process {self.pid} has been starting for {now - self.since:.1f} s"
            case "silent":
                silent = now - max(self.answered_at, self.since)
                return f"process {self.pid} has a free slot and was not answered a take for {silent:.1f} s"
            case "spent":
                return f"process {self.pid} takes nothing new, and the one that replaces it is not there yet"
            case state:
                return f"process {self.pid} is {state}"


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is known of a worker, as it was seen at `seen_at`; `answered_at` is the broker's last answer (0.0: none)."""

    seen_at: float
    wanted: int
    processes: tuple[ProcessVitals, ...]
    answered_at: float = 0.0
    error: str = ""
    keeping: bool = True
    leaving: bool = False


def why_not_live(vitals: Vitals, now: float) -> list[str]:
    """Return what is so wrong with a worker that only a new start helps; empty: nothing."""
    why = []
    if now - vitals.seen_at > STUCK:
        why.append(f"the supervisor has not looked after its processes for {now - vitals.seen_at:.1f} s")
    if not vitals.keeping:
        why.append("the thread that keeps the leases has ended")
    return why


def why_not_ready(vitals: Vitals, now: float) -> list[str]:
    """Return why a worker cannot take jobs now; empty: it can, or all its slots are at work."""
    why = why_not_live(vitals, now)
    if vitals.leaving:
        why.append("the worker is leaving")
    if not vitals.answered_at:
        why.append("the broker has not answered yet" + _because(vitals.error))
    elif now - vitals.answered_at > LATE:
        why.append(f"the broker has not answered for {now - vitals.answered_at:.1f} s" + _because(vitals.error))
    if not any(process.state(now) in _WORKS for process in vitals.processes):
        states = "; ".join(process.words(now) for process in vitals.processes) or "none is there"
        why.append(f"no worker process works: {states}")
    return why


def _because(error: str) -> str:
    return f": {error}" if error else ""


def look_at(
    pid: int,
    table: Table,
    slots: tuple[int, int],
    since: float,
    *,
    ready: bool = True,
    frozen: bool = False,
    worn: bool = False,
) -> ProcessVitals:
    """Return what the table of a process tells; `slots` are those for plain functions and for coroutines."""
    lent = table.lent()
    busy = any(table.held(kind) + lent >= slots[kind] > 0 for kind in (SYNC, ASYNC))
    return ProcessVitals(pid, since, ready, frozen, busy, table.answered_at(), worn)


def answer(path: str, vitals: Vitals, now: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the body for a request: 200, 503 when it is not so, 404 for another path."""
    match path.partition("?")[0]:
        case "/live":
            why = why_not_live(vitals, now)
            return (503 if why else 200), {"live": not why, "why": why}
        case "/ready":
            why = why_not_ready(vitals, now)
            return (503 if why else 200), {"ready": not why, "why": why, **_facts(vitals, now)}
    return 404, {"why": ["there are /live and /ready"]}


def _facts(vitals: Vitals, now: float) -> dict[str, Any]:
    since_answer = round(now - vitals.answered_at, 3) if vitals.answered_at else None
    processes = [{"pid": process.pid, "state": process.state(now)} for process in vitals.processes]
    return {"seconds_since_answer": since_answer, "wanted": vitals.wanted, "processes": processes}
