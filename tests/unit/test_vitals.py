from __future__ import annotations

from dataclasses import replace

import pytest

from tenure.worker.table import Table
from tenure.worker.vitals import ProcessVitals, Vitals, answer, look_at, why_not_live, why_not_ready
from tests.unit.worker_fakes import receipt

NOW = 1000.0
WORKS = ProcessVitals(7, since=900.0, ready=True, frozen=False, busy=False, answered_at=NOW - 0.4)
STARTS = ProcessVitals(8, since=980.0, ready=False, frozen=False, busy=False, answered_at=0.0)
WELL = Vitals(NOW, 1, (WORKS,), answered_at=NOW - 0.9)


def test_a_worker_that_takes_jobs_is_ready() -> None:
    assert why_not_ready(WELL, NOW) == []
    assert answer("/ready", WELL, NOW) == (
        200,
        {
            "ready": True,
            "why": [],
            "seconds_since_answer": 0.9,
            "wanted": 1,
            "processes": [{"pid": 7, "state": "working"}],
        },
    )
    assert answer("/live?x=1", WELL, NOW) == (200, {"live": True, "why": []})
    assert answer("/", WELL, NOW)[0] == 404


@pytest.mark.parametrize(
    ("vitals", "says"),
    [
        (replace(WELL, leaving=True), "the worker is leaving"),
        (replace(WELL, answered_at=NOW - 2.5), "the broker has not answered for 2.5 s"),
        (replace(WELL, answered_at=NOW - 2.5, error="refused"), "the broker has not answered for 2.5 s: refused"),
        (replace(WELL, answered_at=0.0), "the broker has not answered yet"),
        (replace(WELL, processes=()), "no worker process works: none is there"),
        (
            replace(WELL, processes=(STARTS, replace(WORKS, frozen=True))),
            "no worker process works: process 8 has been starting for 20.0 s; process 7 is frozen",
        ),
        (
            replace(WELL, processes=(replace(WORKS, answered_at=NOW - 3.0),)),
            "no worker process works: process 7 has a free slot and was not answered a take for 3.0 s",
        ),
    ],
)
def test_why_a_worker_is_not_ready(vitals: Vitals, says: str) -> None:
    assert why_not_ready(vitals, NOW) == [says]
    assert why_not_live(vitals, NOW) == [], "none of this is helped by a new start"
    status, body = answer("/ready", vitals, NOW)
    assert (status, body["ready"], body["why"]) == (503, False, [says])


@pytest.mark.parametrize(
    ("vitals", "says"),
    [
        (replace(WELL, keeping=False), "the thread that keeps the leases has ended"),
        (replace(WELL, seen_at=NOW - 11.0), "the supervisor has not looked after its processes for 11.0 s"),
    ],
)
def test_why_a_worker_is_not_live(vitals: Vitals, says: str) -> None:
    assert answer("/live", vitals, NOW) == (503, {"live": False, "why": [says]})
    assert says in why_not_ready(vitals, NOW)


def test_one_process_that_works_is_enough() -> None:
    assert why_not_ready(replace(WELL, wanted=2, processes=(STARTS, WORKS)), NOW) == []


def test_one_that_was_never_answered_has_a_moment_after_its_start() -> None:
    fresh = replace(WORKS, answered_at=0.0, since=NOW - 1.9)
    assert fresh.state(NOW) == "working"
    assert fresh.state(NOW + 0.2) == "silent"


def test_a_process_whose_slots_are_all_at_work_is_busy_however_long() -> None:
    table = Table.create(3, shared=False)
    table.answered(5.0)
    assert not look_at(1, table, (2, 1), 0.0).busy
    for job in range(2):
        table.hold(receipt(1, job), 9e9, 30.0)
    seen = look_at(1, table, (2, 1), 0.0)
    assert (seen.busy, seen.answered_at, seen.state(NOW)) == (True, 5.0, "busy")
    table.drop(0)
    assert look_at(1, table, (2, 1), 0.0).state(NOW) == "silent"
    worn = look_at(1, table, (2, 1), 0.0, worn=True)
    assert (worn.state(NOW), worn.words(NOW)) == (
        "spent",
        "process 1 takes nothing new, and the one that replaces it is not there yet",
    )
    table.lend(1)
    assert look_at(1, table, (2, 1), 0.0).busy, "the other slot is still used by the process that it replaces"
