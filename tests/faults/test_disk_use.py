"""How large the data file gets while jobs go by in millions.

Rows are kept for ten minutes and more, so clocks that are set stand in for the hours of a server that is not so busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine.core import Retention
from tests.property.lab import Lab, hexid
from tests.stage.sizes import sized

MOST = 2.0
"""The size of the data file at most, as a multiple of what its rows fill in a file of their own."""
BATCH = 500
DAY = 86_400_000
DELAYED, DEAD = 10**9, 10**9 + 1


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(str(tmp_path / "jobs.db"), Retention(result_ttl=0, key_window=0))
    yield lab
    lab.close()


def hold_size(lab: Lab, when: str) -> None:
    """Hold the size of the data file, all of its log folded into it, against a compact copy."""
    copy = Path(lab.path).with_name("copy.db")
    db = lab.engine._store.db
    db.execute("VACUUM INTO ?", (str(copy),))
    live, size = copy.stat().st_size, db.pragma("page_count") * db.pragma("page_size")
    copy.unlink()
    print(f"{when}: {size / 1e6:.1f} MB for {live / 1e6:.1f} MB, {size / live:.2f} times as much")
    assert size <= MOST * live


class Worker:
    """Takes jobs, and ends each of their hand-outs by the same line."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._line = lab.connect()
        self._takes = 0

    def take(self, count: int) -> None:
        """Take so many jobs."""
        self._takes += 1
        assert self._line.ask(f"take {self._takes} {count} 0 30000 q").startswith(f"jobs {count} ")

    def end(self, ids: list[str], handout: int, verb: str, rest: str = "") -> None:
        """End this hand-out of these jobs by `verb RECEIPT REST`."""
        self._line.write("".join(f"{verb} {id}:{handout}{rest}\n" for id in ids).encode())
        self._lab.turn()
        answers = set(self._line.read().splitlines())
        assert len(answers) == 1
        assert answers.pop().startswith(b"ok ")


def add(lab: Lab, ids: list[str]) -> None:
    """Add these jobs."""
    line = lab.connect(2, "producer", "p")
    line.write("".join(f"add {id} q t {'f' * 32} 20\n{'x' * 20}\n" for id in ids).encode())
    lab.turn()
    assert line.read().count(b" created\n") == len(ids)
    line.cut()


def test_an_old_job_keeps_nothing_of_the_many_that_come_after_it(lab: Lab) -> None:
    jobs = sized(15_000, 2_000_000)
    pause = sized(50.0, 1.0)  # an hour and more goes by, so most of the rows are old long before the end
    worker = Worker(lab)
    assert lab.connect(2).ask(lab.add(DELAYED, f"at=+{DAY}")) == f"ok {hexid(DELAYED)} created"
    add(lab, [hexid(DEAD)])
    worker.take(1)
    worker.end([hexid(DEAD)], 1, "dead", " bad 0\n")
    for first in range(0, jobs, BATCH):
        ids = [hexid(n, lab.wall) for n in range(first, first + BATCH)]
        add(lab, ids)
        worker.take(BATCH)
        worker.end(ids, 1, "done")
        lab.pass_time(pause)
        if (first + BATCH) % (jobs // 10) == 0:
            hold_size(lab, f"after {first + BATCH:,} jobs")
    expected = {"added": jobs + 2, "done": jobs, "scheduled": 1, "dead": 1, "handed_out": jobs + 1}
    assert lab.counts() == expected | {"/done": jobs, "/dead": 1}


def test_jobs_that_are_given_back_over_and_over_fill_no_more_than_their_kept_history(lab: Lab) -> None:
    jobs, batch = sized((50, 25), (10_000, BATCH))
    rounds = 250
    ids = [hexid(n, lab.wall) for n in range(jobs)]
    batches = [ids[first : first + batch] for first in range(0, jobs, batch)]
    worker = Worker(lab)
    for some in batches:
        add(lab, some)
    for handout in range(1, rounds + 1):
        for some in batches:
            worker.take(len(some))
        for some in batches:
            worker.end(some, handout, "release", " 0 later")
        lab.gap(30.0)
        if handout % 50 == 0:
            hold_size(lab, f"after {handout} rounds")
    assert lab.counts() == {"added": jobs, "ready": jobs, "handed_out": rounds * jobs, "/released": rounds * jobs}
