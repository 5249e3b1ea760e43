"""Who is next: jobs that wait in memory and jobs that the index lists are one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.engine.engine import Engine
from tenure.engine.line import FEW, Lines
from tenure.wire.commands import Add, Settle, Take

WALL, MONO = 1_700_000_000_000, 5_000.0
SESSION = b"s" * 16


class Bench:
    """An engine with room for `most` jobs in memory."""

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.takes = 0
        self.most = most
        self.open()

    def open(self) -> None:
        self.engine = Engine(str(self.path), wall=WALL, mono=MONO)
        self.lines.most = self.most

    @property
    def lines(self) -> Lines:
        return self.engine._core.lines

    def add(self, n: int, priority: int = 5, queue: str = "q", body: bytes = b"body") -> bytes:
        id = n.to_bytes(16, "big")
        self.engine.add(Add(id, queue, "t", b"f" * 16, body, None, priority), WALL)
        self.engine.commit()
        return id

    def take(self, limit: int = 1, queue: str = "q") -> list[int]:
        """Take, and return the numbers that the jobs were added with."""
        self.takes += 1
        given: Any = self.engine.take(
            SESSION, "w", Take(self.takes, limit, 0, 30_000, (queue,)), arrived=MONO, wall=WALL, mono=MONO, final=True
        )
        self.engine.commit()
        return [int.from_bytes(job.id, "big") for job in given]

    def release(self, n: int, number: int = 1) -> None:
        self.engine.settle(SESSION, [Settle("release", n.to_bytes(16, "big"), number)], WALL)
        self.engine.commit()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "jobs.db", 3)
    yield bench
    bench.engine.close()


def test_what_is_beyond_the_room_is_listed_and_comes_after_what_waits_in_memory(bench: Bench) -> None:
    for n in range(8):
        bench.add(n)
    assert [id[-1] for id in bench.lines.unlisted()] == [0, 1, 2]
    assert bench.lines.listed == {1: 5}
    assert bench.take(5) == [0, 1, 2, 3, 4]
    bench.add(8)
    assert [id[-1] for id in bench.lines.unlisted()] == [8]
    assert bench.take(9) == [5, 6, 7, 8], "a later one in memory waits for the listed ones"
    assert (len(bench.lines.unlisted()), bench.lines.listed[1]) == (0, 0)


def test_a_higher_priority_goes_first_wherever_it_waits(bench: Bench) -> None:
    for n in range(4):
        bench.add(n)
    bench.add(4, priority=9)  # listed: there is no more room
    assert bench.take() == [4]
    bench.take()
    bench.add(5, priority=9)  # in memory
    assert bench.take(9) == [5, 1, 2, 3]


def test_a_job_that_comes_back_has_its_old_place(bench: Bench) -> None:
    for n in range(6):
        bench.add(n)
    assert bench.take(2) == [0, 1]
    bench.release(0)
    bench.release(1)
    assert bench.take(9) == [0, 1, 2, 3, 4, 5]


def test_both_kinds_are_found_again_at_a_start(bench: Bench) -> None:
    for n in range(6):
        bench.add(n, priority=n % 2)
    bench.engine.close()
    bench.open()
    assert [id[-1] for id in bench.lines.unlisted()] == [0, 1, 2]
    assert bench.take(9) == [1, 3, 5, 0, 2, 4]


def test_a_turn_that_is_undone_leaves_the_line_as_it_was(bench: Bench) -> None:
    for n in range(4):
        bench.add(n)
    for n in (4, 5):
        bench.engine.add(Add(n.to_bytes(16, "big"), "q", "t", b"f" * 16, b""), WALL)
    bench.engine.take(SESSION, "w", Take(1, 2, 0, 1_000, ("q",)), arrived=MONO, wall=WALL, mono=MONO, final=True)
    bench.engine.rollback(MONO)
    bench.lines.most = 3
    assert bench.take(9) == [0, 1, 2, 3]


def test_nothing_is_read_for_a_take_that_memory_can_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        bench.add(n)
    bench.take()
    assert bench.lines.first(1, 9)[0][16] == 2, "and from here on it is known where the listed ones begin"
    monkeypatch.setattr(bench.lines, "_store", None)
    assert len(bench.lines.first(1, 2)) == 2


def test_large_bodies_fill_the_room_too(bench: Bench) -> None:
    bench.lines.most = 1_000_000
    for n in range(40):
        bench.add(n, body=bytes(1_000))
    bench.lines._bytes += 16 * 1024 * 1024
    bench.add(99)
    assert bench.lines.listed == {1: 1}


def test_cancelled_jobs_of_a_queue_that_nobody_takes_from_are_let_go(bench: Bench) -> None:
    bench.lines.most = 1_000_000
    for n in range(3 * FEW):
        id = bench.add(n)
        bench.engine.cancel_job(id, False, WALL)
    bench.engine.commit()
    kept = sum(len(rows) for by in bench.lines._waiting.values() for rows in by.values())
    assert kept <= FEW + 1
    bench.add(9_999)
    assert bench.take(5) == [9_999]
