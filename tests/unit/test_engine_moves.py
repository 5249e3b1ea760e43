"""The table of moves between states is the engine's: it makes each of them, and the page shows them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import make_lifecycle
from tenure.engine.engine import Engine
from tenure.engine.states import ANSWERS, DONE, HOW_NAMES, MOVES, RUNNING, STATE_NAMES
from tenure.engine.store import DbError
from tenure.wire.commands import FLOOR, Add, Bye, Settle, SettleVerb, Take
from tests.property import moves

WALL, MONO = 1_700_000_000_000, 5_000.0
HOUR = 3_600_000
WORKER = b"w" * 16


class Driver:
    """Adds and takes one job after the other, and ends each in its own way."""

    def __init__(self) -> None:
        self.engine = Engine(":memory:", wall=WALL, mono=MONO)
        self.count = 0
        self.takes = 0

    def new(self, later: bool = False, expires: int | None = None, losses: int = 5) -> Add:
        self.count += 1
        id = WALL.to_bytes(6, "big") + self.count.to_bytes(10, "big")
        run_at = (1_000, True) if later else None
        ends = None if expires is None else (expires, True)
        return Add(id, "q", "t", b"f" * 16, b"", None, 5, run_at, ends, None, 20, losses)

    def add(self, later: bool = False, expires: int | None = None, losses: int = 5) -> bytes:
        job = self.new(later, expires, losses)
        self.engine.add(job, WALL)
        return job.id

    def take(self, id: bytes, session: bytes = WORKER) -> bytes:
        """Take the only job that is ready."""
        self.takes += 1
        take = Take(self.takes, 1, 0, 30_000, ("q",))
        jobs = self.engine.take(session, "w", take, arrived=MONO, wall=WALL, mono=MONO, final=True)
        assert isinstance(jobs, list)
        assert [job.id for job in jobs] == [id]
        return id

    def settle(self, id: bytes, verb: SettleVerb, delay: int = 0) -> None:
        self.engine.settle(WORKER, [Settle(verb, id, 1, delay)], WALL)

    def call_off(self, id: bytes) -> bytes:
        self.engine.cancel_job(id, False, WALL)
        return id

    def bye(self, session: bytes, end: str) -> None:
        self.engine.bye(Bye(session, "left" if end == "left" else "lost", "SIGKILL", ()), WALL)

    def clear(self) -> None:
        """Call off what waits, so that the next take finds its own job alone."""
        for n in range(1, self.count + 1):
            self.call_off(WALL.to_bytes(6, "big") + n.to_bytes(10, "big"))


def settled(drive: Driver) -> None:
    """Everything that a worker says."""
    for verb, delay in (("done", 0), ("retry", 5_000), ("release", 5_000), ("release", 0), ("dead", 0), ("cancel", 0)):
        drive.settle(drive.take(drive.add()), verb, delay)  # type: ignore[arg-type]
        drive.clear()
    drive.settle(drive.call_off(drive.take(drive.add())), "retry")


def cut_off(drive: Driver) -> None:
    """Everything that ends a hand-out without the worker's word."""
    for n, end in enumerate(("left", "lost", "lost", "left", "lost")):
        session = bytes([n + 1]) * 16
        id = drive.take(drive.add(losses=1 if n == 2 else 5), session)
        if n > 2:
            drive.call_off(id)
        drive.bye(session, end)
        drive.clear()
    for losses, wanted in ((5, True), (1, True), (5, False)):
        id = drive.take(drive.add(losses=losses), b"z" * 16)
        if not wanted:
            drive.call_off(id)
        drive.engine.run_out(MONO + 60.0, WALL)
        drive.clear()


def waiting(drive: Driver) -> None:
    """Everything that becomes of a job before it is handed out."""
    drive.call_off(drive.add(later=True))
    drive.call_off(drive.add())
    drive.add(later=True)
    drive.engine.promote(WALL + 5_000)
    drive.clear()
    drive.add(later=True, expires=500)
    drive.engine.expire(WALL + 5_000)
    drive.add(expires=0)
    take = Take(drive.takes + 1, 1, 0, 30_000, ("q",))
    drive.engine.take(b"e" * 16, "w", take, arrived=MONO, wall=WALL + 5_000, mono=MONO, final=True)


def handed_over(drive: Driver) -> None:
    """An add that a take waits for."""
    drive.takes += 1
    take = Take(drive.takes, 1, 500, 30_000, ("q",))
    job = drive.engine.hand_over(drive.new(), WORKER, "w", take, arrived=MONO, wall=WALL, mono=MONO)
    assert job is not None
    drive.settle(job.id, "done")


def operated(drive: Driver) -> None:
    """Everything that an operator and time do to a job that has ended."""
    id = drive.take(drive.add())
    drive.settle(id, "dead")
    drive.engine.requeue(id, WALL)
    drive.clear()
    id = drive.take(drive.add())
    drive.settle(id, "dead")
    drive.engine.purge(id, WALL)
    for _ in range(10):
        drive.engine.sweep(WALL + HOUR, MONO + HOUR / 1000)


@pytest.fixture
def drive() -> Iterator[Driver]:
    drive = Driver()
    yield drive
    drive.engine.close()


def test_the_engine_makes_every_move_of_the_table_and_no_other(drive: Driver) -> None:
    moves.watch(drive.engine)
    for part in (settled, cut_off, waiting, handed_over, operated):
        part(drive)
    found = moves.seen(drive.engine)
    assert moves.ALLOWED - found == set(), "the table has moves that the engine does not make"
    assert found - moves.ALLOWED == set(), "the engine makes moves that the table does not have"


def test_an_engine_that_is_held_to_the_table_can_make_no_other_move(drive: Driver) -> None:
    moves.hold_to_the_table(drive.engine)
    for part in (settled, cut_off, waiting, handed_over, operated):
        part(drive)
    id = drive.add()
    for change in (f"UPDATE jobs SET state = {DONE} WHERE id = ?", "DELETE FROM jobs WHERE id = ?"):
        with pytest.raises(DbError, match="no such move between states"):
            drive.engine._store.execute(change, (id,))


def test_the_table_is_whole() -> None:
    assert len(moves.ALLOWED) == len(MOVES)
    ends = {move.how for move in MOVES} - {None}
    assert ends == HOW_NAMES.keys()
    assert [move for move in MOVES if (move.before == RUNNING) != (move.how is not None)] == []
    assert {move.before for move in MOVES} == {move.after for move in MOVES} == {None, *STATE_NAMES}
    assert {how for answers in ANSWERS.values() for how in answers} < ends
    assert FLOOR * 1000 < HOUR


def test_the_page_is_up_to_date() -> None:
    written = make_lifecycle.PAGE.read_text(encoding="utf-8")
    assert written == make_lifecycle.page(written), "docs/explanation/lifecycle.md: run `make reference`"


def test_the_page_shows_every_move() -> None:
    written = make_lifecycle.PAGE.read_text(encoding="utf-8")
    for move in MOVES:
        before, after = (STATE_NAMES.get(state or 0, "[*]") for state in (move.before, move.after))
        assert f"{before} --> {after}: " in written
        assert f"| {move.why} |" in written


def test_making_it_puts_both_parts_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = "words\n<!-- made: picture -->\nold\n<!-- end -->\nmore\n<!-- made: table -->\n<!-- end -->\n"
    monkeypatch.setattr(make_lifecycle, "PAGE", tmp_path / "page.md")
    make_lifecycle.PAGE.write_text(bare, encoding="utf-8")
    make_lifecycle.write()
    made = make_lifecycle.PAGE.read_text(encoding="utf-8")
    assert "stateDiagram-v2" in made
    assert "old" not in made
    assert made.startswith("words\n")
    assert "\nmore\n" in made
