"""Whole queues: paused, closed, purged, and with tasks that nobody knows; jobs that do not start in time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenure.engine import queues, sweep, taking
from tenure.engine.store import TOGETHER
from tenure.outcome import NO_TASK
from tenure.wire.words import quote
from tests.property.lab import Lab, Line, hexid


def taken(answer: str) -> list[int]:
    """The numbers of the jobs in the answer to a take."""
    words = [line.split() for line in answer.split("\n")]
    return [int(word[1][12:], 16) for word in words if word and word[0] == "job"]


class Worker:
    """Takes with numbers that go up."""

    def __init__(self, line: Line) -> None:
        self.line, self.number = line, 0

    def take(self, queues: str = "q", limit: int = 9, wait: int = 0) -> list[int]:
        self.number += 1
        return taken(self.line.ask(f"take {self.number} {limit} {wait} 30000 {queues}"))


def shown(lab: Lab, queue: str = "q") -> dict[str, Any]:
    """What `queues` says of one."""
    rows = json.loads(lab.connect(99).ask("queues").split("\n", 1)[1])
    found: dict[str, Any] = next(row for row in rows if row["name"] == queue)
    return found


# -- paused ---------------------------------------------------------------------------------------------------------


def test_nothing_of_a_paused_queue_is_handed_out_and_what_comes_waits(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1))
    line.ask("pause q")
    line.ask(lab.add(2))
    assert worker.take() == []
    assert (shown(lab)["paused"], shown(lab)["ready"]) == (True, 2)
    assert line.ask("resume q") == "ok resumed"
    assert worker.take() == [1, 2]
    assert not shown(lab)["paused"]


def test_a_take_that_waits_is_given_nothing_until_the_queue_goes_on(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1))
    line.ask("pause q")
    worker.take(wait=20_000)
    line.ask(lab.add(2))
    lab.pass_time(3.0)
    assert worker.line.read() == b""
    line.ask("resume q")
    assert taken(worker.line.read().decode()) == [1, 2]


def test_the_other_queues_of_a_take_go_on(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    for n in range(1, 4):
        line.ask(lab.add(n, queue="a"))
        line.ask(lab.add(10 + n, queue="b"))
    line.ask("pause a")
    assert worker.take("a b") == [11, 12, 13]
    line.ask("pause b")
    assert worker.take("a b") == []
    line.ask("resume a\nresume b")
    assert worker.take("b a") == [1, 2, 3]


def test_a_job_of_a_paused_queue_that_runs_goes_on_to_its_end(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1))
    line.ask(lab.add(2))
    assert worker.take() == [1, 2]
    line.ask("pause q")
    assert worker.line.ask(f"done {hexid(1)}:1") == "ok done"
    assert worker.line.ask(f"retry {hexid(2)}:1 0 why 0\n") == "ok scheduled"
    lab.pass_time(1.0)
    assert worker.take() == []
    assert lab.counts()["ready"] == 1


# -- closed ---------------------------------------------------------------------------------------------------------


def test_a_closed_queue_refuses_new_jobs_and_hands_out_those_that_it_has(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1, "k=key"))
    line.ask("close q")
    assert line.ask(lab.add(2)).startswith("err queue-closed")
    assert line.ask(lab.add(2, "k=key")).startswith("err queue-closed")
    assert line.ask(lab.add(1, "k=key")) == f"ok {hexid(1)} created"
    assert line.ask(lab.add(3, queue="other")) == f"ok {hexid(3)} created"
    assert worker.take() == [1]
    worker.line.ask(f"retry {hexid(1)}:1 0 why 0\n")
    lab.pass_time(0.5)
    assert worker.take() == [1]
    assert shown(lab)["closed"]
    assert line.ask("open q") == "ok open"
    assert line.ask(lab.add(2)) == f"ok {hexid(2)} created"
    assert lab.counts()["added"] == 2


def test_a_duplicate_that_was_answered_before_is_answered_again(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "k=key"))
    assert line.ask(lab.add(2, "k=key")) == f"ok {hexid(1)} exists"
    line.ask("close q")
    assert line.ask(lab.add(2, "k=key")) == f"ok {hexid(1)} exists"


def test_what_a_job_adds_with_its_own_end_is_part_of_it(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1))
    worker.take()
    line.ask("close q")
    assert worker.line.ask(f"done {hexid(1)}:1 then=1\n{lab.add(2)}") == "ok done created"
    assert worker.take() == [2]


# -- both -----------------------------------------------------------------------------------------------------------


def test_a_queue_stays_as_it_is_over_a_restart(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "jobs.db"))
    line = lab.connect()
    for queue in ("a", "b", "c"):
        line.ask(lab.add(ord(queue), queue=queue))
    line.ask("pause a\nclose b\npause c\nclose c")
    lab.restart()
    assert [(shown(lab, queue)["paused"], shown(lab, queue)["closed"]) for queue in "abc"] == [
        (True, False), (False, True), (True, True),
    ]  # fmt: skip
    assert lab.connect(2).ask(lab.add(1, queue="b")).startswith("err queue-closed its queue 'b' takes no new jobs")
    assert Worker(lab.connect(3)).take("a b c") == [ord("b")]
    lab.close()


def test_a_pause_that_could_not_be_stored_was_none(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    lab.fail()
    assert line.ask("pause q").startswith("err storage")
    assert line.ask("close q").startswith("err storage")
    lab.heal()
    lab.pass_time(1.0)
    assert not shown(lab)["paused"]
    assert line.ask(lab.add(2)) == f"ok {hexid(2)} created"
    assert Worker(lab.connect(2)).take() == [1, 2]


@pytest.mark.parametrize("verb", ["pause q", "resume q", "close q", "open q", "purge-queue q -"])
def test_a_queue_that_is_not_there_is_not_made(lab: Lab, verb: str) -> None:
    assert lab.connect().ask(verb).startswith("err unknown no queue")
    assert lab.record()["queues"] == {}


# -- purged ---------------------------------------------------------------------------------------------------------


def test_what_waits_is_cancelled_and_nothing_else(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1))
    assert worker.take() == [1]
    line.ask(lab.add(2, "k=key"))
    line.ask(lab.add(3, "at=+60000"))
    line.ask(lab.add(4, queue="other"))
    assert line.ask("purge-queue q -") == "ok 2 -"
    assert line.ask("purge-queue q -") == "ok 0 -"
    assert {n: lab.job(n)["state"] for n in (1, 2, 3, 4)} == {
        1: "running", 2: "cancelled", 3: "cancelled", 4: "ready",
    }  # fmt: skip
    assert lab.job(2)["reason"] == "purged from its queue"
    assert line.ask(lab.add(5, "k=key")) == f"ok {hexid(5)} created"
    assert lab.counts() == {"added": 4, "cancelled": 2, "running": 1, "ready": 1, "handed_out": 1}


def test_a_long_queue_is_purged_in_parts(lab: Lab) -> None:
    line = lab.connect()
    count = 2 * queues.LOOK_BATCH + 10
    for start in range(0, count, 500):
        line.ask("\n".join(lab.add(n, queue="q" if n % 2 else "other") for n in range(start, min(count, start + 500))))
    counts: list[int] = []
    after = "-"
    while not counts or after != "-":
        _, gone, after = line.ask(f"purge-queue q {after}").split()
        counts.append(int(gone))
    assert counts == [queues.LOOK_BATCH // 2, queues.LOOK_BATCH // 2, 5]
    assert lab.counts() == {"added": count // 2, "cancelled": count // 2}
    assert lab.counts("other") == {"added": count // 2, "ready": count // 2}


# -- tasks that nobody knows ------------------------------------------------------------------------------------------


def test_jobs_whose_task_their_worker_does_not_know_are_shown_until_one_does(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    for n in range(1, 4):
        line.ask(lab.add(n))
    line.ask(lab.add(4, "at=+5000"))
    assert shown(lab)["unknown_tasks"] == {}
    worker.take()
    worker.line.ask("\n".join(f"release {hexid(n)}:1 1000 {quote(NO_TASK + 't')}" for n in (1, 2)))
    worker.line.ask(f"release {hexid(3)}:1 1000 {quote('it could not start in time')}")
    assert shown(lab)["unknown_tasks"] == {"t": 2}
    lab.pass_time(1.5)
    assert worker.take() == [1, 2, 3]
    worker.line.ask(f"done {hexid(1)}:2\nrelease {hexid(2)}:2 60000 {quote(NO_TASK + 't')}")
    assert shown(lab)["unknown_tasks"] == {"t": 1}


# -- too late to start ------------------------------------------------------------------------------------------------


def test_a_job_that_nobody_takes_expires_all_the_same(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "x=+2000 k=key"))
    line.ask(lab.add(2, "at=+60000 x=+2000"))
    line.ask(lab.add(3, "x=+60000"))
    lab.pass_time(1.5)
    assert lab.counts() == {"added": 3, "ready": 2, "scheduled": 1}
    lab.pass_time(1.0)
    assert lab.counts() == {"added": 3, "ready": 1, "dead": 2, "expired": 2}
    assert [(lab.job(n)["state"], lab.job(n)["reason"], lab.job(n)["run_at"]) for n in (1, 2)] == [
        ("dead", "expired", None)
    ] * 2
    assert line.ask(lab.add(4, "k=key")) == f"ok {hexid(4)} created"
    assert line.ask(f"requeue {hexid(2)}") == "ok ready"
    lab.pass_time(5.0)
    assert lab.job(2)["state"] == "ready"


def test_of_many_that_expire_together_each_frees_its_key_and_is_told_of(lab: Lab) -> None:
    line, caller = lab.connect(), lab.connect(2)
    count = 2 * TOGETHER[-1] + 3
    line.ask("\n".join(lab.add(n, f"x=+2000 k=key{n}") for n in range(count)))
    line.ask(lab.add(count, "x=+60000 k=another"))
    caller.write(f"wait 20000 {hexid(0)} {hexid(count - 1)}\n".encode())
    lab.pass_time(2.5)
    assert [words.split()[2] for words in caller.read().decode().splitlines() if "expired" in words] == ["dead"] * 2
    assert lab.counts() == {"added": count + 1, "dead": count, "expired": count, "ready": 1}
    again = line.ask("\n".join(lab.add(1_000 + n, f"k=key{n}") for n in range(count)))
    assert again.count("created") == count


def test_a_paused_queue_keeps_nothing_that_is_too_late(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "x=+2000"))
    line.ask("pause q")
    lab.pass_time(3.0)
    assert lab.job(1)["state"] == "dead"


def test_the_latest_start_holds_for_every_start(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask(lab.add(1, "x=+2000"))
    assert worker.take() == [1]
    lab.pass_time(3.0)
    assert lab.job(1)["state"] == "running"  # it has started in time
    assert worker.line.ask(f"retry {hexid(1)}:1 0 why 0\n") == "ok scheduled"
    lab.pass_time(1.0)
    assert lab.job(1)["reason"] == "expired"
    assert lab.counts() == {"added": 1, "dead": 1, "expired": 1, "handed_out": 1, "/retried": 1}


def test_a_take_finds_what_stands_behind_jobs_that_are_too_late(lab: Lab) -> None:
    line, worker = lab.connect(2), Worker(lab.connect(1))
    line.ask("\n".join(lab.add(n, "x=+100") for n in range(700)))
    line.ask("\n".join([lab.add(1_000), lab.add(1_001, "x=+60000"), lab.add(1_002)]))
    lab.gap(0.2)
    assert worker.take(limit=2) == [1_000, 1_001]
    assert lab.counts() == {"added": 703, "dead": 700, "expired": 700, "ready": 1, "running": 2, "handed_out": 2}


def test_very_many_that_are_too_late_are_cleared_away_over_several_turns(lab: Lab) -> None:
    """No turn does more than its share of it, and a take that waits is served when the way is free."""
    line, worker = lab.connect(2), Worker(lab.connect(1))
    each = taking.LATE_BATCH + taking.LATE_LOOK + sweep.EXPIRE_BATCH
    count = 3 * each
    for start in range(0, count, 500):
        line.ask("\n".join(lab.add(n, "x=+100") for n in range(start, min(count, start + 500))))
    line.ask(lab.add(count))
    lab.gap(0.2)
    worker.line.write(b"take 1 4 20000 30000 q\n")
    left = [count]
    while not worker.line.connection.out:
        lab.hub.turn(lab.wall, lab.mono)
        left.append(lab.engine.record()["queues"]["q"]["ready"] - 1)
        assert lab.hub.next_wake(lab.wall, lab.mono) == lab.mono or worker.line.connection.out
    assert taken(worker.line.read().decode()) == [count]
    assert max(before - after for before, after in pairwise(left)) <= each + taking.LATE_BATCH
    assert len(left) > 3
    assert lab.counts() == {"added": count + 1, "dead": count, "expired": count, "running": 1, "handed_out": 1}
