"""A job that is given back over and over: its history stays short, and every count stays exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine.core import Retention
from tenure.engine.states import KEPT
from tests.property.lab import Lab, Line, hexid

FLOOR = 600.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(retention=Retention(result_ttl=0, key_window=0))
    yield lab
    lab.close()


def give_back(lab: Lab, line: Line, rounds: int, pause: float, jobs: int = 1) -> None:
    """Take all jobs and release them, so many times; `pause` is the seconds between two rounds."""
    hello = line.connection.hello
    assert hello is not None
    for _ in range(rounds):
        lab.gap(pause)
        number = lab.engine.answered(hello.session) + 1
        assert line.ask(f"take {number} {jobs} 0 30000 q").startswith(f"jobs {jobs} ")
        for n in range(1, jobs + 1):
            handout = lab.engine._store.rows("SELECT number FROM jobs WHERE id = ?", (bytes.fromhex(hexid(n)),))[0][0]
            line.write(f"release {hexid(n)}:{handout} 0 later\n".encode())
        lab.turn()
        assert line.read() == b"ok released\n" * jobs


def earlier(lab: Lab) -> list[int]:
    return [number for (number,) in lab.engine._store.rows("SELECT number FROM handouts ORDER BY number")]


def test_old_hand_outs_of_a_job_that_lives_on_are_left_out(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    give_back(lab, line, 350, 20.0)
    assert earlier(lab) == list(range(350 - KEPT, 350))
    assert lab.counts() == {"added": 1, "ready": 1, "handed_out": 350, "/released": 350}
    shown = lab.job(1)
    assert shown["number"] == 350
    assert [one["number"] for one in shown["handouts"]] == list(range(350 - KEPT, 351))


def test_nothing_that_a_line_may_still_be_about_is_left_out(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    give_back(lab, line, 300, 1.0)
    assert earlier(lab) == list(range(1, 300))
    assert line.ask(f"release {hexid(1)}:1 0 later") == "ok released"
    give_back(lab, line, 1_000, 1.0)
    assert len(earlier(lab)) <= FLOOR + 2
    assert line.ask(f"done {hexid(1)}:900") == "refused released"
    assert line.ask(f"done {hexid(1)}:2") == "gone"
    assert lab.counts()["refused"] == 1


def test_a_history_that_has_grown_long_becomes_short(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    give_back(lab, line, 400, 0.5)
    assert len(earlier(lab)) == 399
    lab.gap(FLOOR)
    give_back(lab, line, 200, 0.5)
    assert len(earlier(lab)) == 399 - 200, "two go for each that comes"


def test_the_counts_outlive_the_job(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    give_back(lab, line, 150, 20.0)
    line.ask("take 151 1 0 30000 q")
    assert line.ask(f"done {hexid(1)}:151") == "ok done"
    before = lab.record()
    lab.gap(FLOOR + 1)
    lab.pass_time(62.0)
    assert lab.engine.show(bytes.fromhex(hexid(1))) is None
    assert lab.record() == before
    assert (before["totals"]["handed_out"], before["totals"]["handouts"]["released"]) == (151, 150)


@pytest.mark.parametrize("number", [119, 60, 20])
def test_a_missing_hand_out_is_noticed(lab: Lab, number: int) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    give_back(lab, line, 120, 20.0)
    assert earlier(lab)[0] == 20
    lab.engine._store.db.execute("DELETE FROM handouts WHERE number = ?", (number,))
    verified = lab.engine.verify()
    assert any("earlier hand-outs are kept" in text for text in verified["differences"])


def test_the_file_does_not_grow_while_jobs_are_given_back_over_and_over(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"))
    line = lab.connect()
    for n in range(1, 6):
        line.ask(lab.add(n))
    sizes = []
    for _ in range(3):
        give_back(lab, line, 150, 30.0, jobs=5)
        sizes.append(lab.engine._store.db.pragma("page_count"))
    assert sizes[2] <= sizes[1] * 1.1
    assert lab.record()["totals"]["handed_out"] == 3 * 150 * 5
    lab.close()
