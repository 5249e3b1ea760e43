"""The write-ahead log: it stays short whatever is written, and nothing depends on when it is folded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine.engine import Engine
from tenure.engine.log import Log
from tenure.engine.store import DbError
from tenure.server.checkpoints import Checkpoints
from tenure.wire.commands import Add

PAGE = 4096 + 24
STEP, LIMIT = 40, 120
WALL = 1_700_000_000_000


def open_engine(folder: Path) -> Engine:
    return Engine(str(folder / "tenure.db"), wall=WALL, mono=1.0, durability="normal")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(tmp_path)
    yield engine
    engine.close()


def add(engine: Engine, first: int, count: int, checkpoints: Checkpoints) -> None:
    """Add jobs one a turn."""
    for n in range(first, first + count):
        engine.add(Add(n.to_bytes(16, "big"), "q", "t", bytes(16), bytes(200), None, 5, None, None, None, 20, 5), WALL)
        engine.commit()
        checkpoints.look()


def log_size(tmp_path: Path) -> int:
    return (tmp_path / "tenure.db-wal").stat().st_size


def test_the_log_stays_short_under_constant_load_and_is_gone_at_the_end(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    for first in range(0, 2_000, 100):
        add(engine, first, 100, checkpoints)
        assert log_size(tmp_path) <= (LIMIT + 20) * PAGE
    checkpoints.close()
    engine.close()
    assert not (tmp_path / "tenure.db-wal").exists()
    again = open_engine(tmp_path)
    assert again.record()["totals"]["ready"] == 2_000
    assert again.verify()["verified"]
    again.close()


def test_nothing_is_folded_before_enough_is_written(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.own_log()
    assert log is not None
    passes: list[int] = []
    monkeypatch.setattr(log, "fold_most", lambda: passes.append(log.unfolded))
    checkpoints = Checkpoints(log, step=10_000, limit=20_000)
    add(engine, 0, 100, checkpoints)
    checkpoints.close()
    assert 100 < log.unfolded < 10_000
    assert passes == []


def test_a_long_recount_holds_the_log_and_lets_go_of_it(engine: Engine, tmp_path: Path) -> None:
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    add(engine, 0, 100, checkpoints)
    reader, _ = engine.snapshot()
    add(engine, 100, 500, checkpoints)
    held = log_size(tmp_path)
    assert held > (LIMIT + 20) * PAGE  # what the reader sees must not be written over
    assert reader.execute("SELECT count(*) FROM jobs").get == 100
    reader.close()
    add(engine, 600, 1_000, checkpoints)
    assert log_size(tmp_path) < held + (LIMIT + 20) * PAGE
    checkpoints.close()


def test_a_pass_that_fails_is_tried_again_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = engine.own_log()
    assert log is not None
    whole = Log.fold_rest
    failures: list[int] = []

    def fold_rest(self: Log) -> None:
        if len(failures) < 2:
            failures.append(self.unfolded)
            raise DbError("disk I/O error")
        whole(self)

    monkeypatch.setattr(Log, "fold_rest", fold_rest)
    checkpoints = Checkpoints(log, STEP, LIMIT)
    add(engine, 0, 1_000, checkpoints)
    checkpoints.close()
    assert len(failures) == 2
    assert caplog.text.count("disk I/O error") == 2
    assert log.unfolded <= LIMIT + 20


def test_an_engine_in_memory_has_no_log() -> None:
    engine = Engine(":memory:", wall=WALL, mono=1.0)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    add(engine, 0, 100, checkpoints)
    checkpoints.close()
    engine.close()


def test_room_that_is_made_ahead_is_used_and_gone_at_the_end(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    checkpoints.make_room()
    size = log_size(tmp_path)
    assert size == 32 + (STEP + STEP // 2) * PAGE
    for first in range(0, 2_000, 100):
        add(engine, first, 100, checkpoints)
    assert log_size(tmp_path) <= max(size, (LIMIT + 20) * PAGE)
    checkpoints.close()
    engine.close()
    assert not (tmp_path / "tenure.db-wal").exists()
    again = open_engine(tmp_path)
    assert again.record()["totals"]["ready"] == 2_000
    again.close()


def test_no_commit_lengthens_a_log_with_room(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    checkpoints.make_room()
    size = log_size(tmp_path)
    add(engine, 0, 10, checkpoints)
    assert log_size(tmp_path) == size
    engine.close()


def test_a_disk_without_room_for_it_is_told_of_and_changes_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(log: Log, pages: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Log, "lengthen", full)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    checkpoints.make_room()
    assert "No space left on device" in caplog.text
    add(engine, 0, 10, checkpoints)
    assert engine.record()["totals"]["ready"] == 10


@pytest.mark.parametrize("torn", [b"", b"\x07" * 30, b"\x00" * 9])
def test_a_server_that_was_killed_with_room_in_its_log_loses_nothing(tmp_path: Path, torn: bytes) -> None:
    """Zeros behind the last commit are no transaction that was cut off; other bytes are, and are told of."""
    engine = open_engine(tmp_path)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    checkpoints.make_room()
    add(engine, 0, 10, checkpoints)
    killed = tmp_path / "killed"
    killed.mkdir()
    data, log = (tmp_path / "tenure.db").read_bytes(), (tmp_path / "tenure.db-wal").read_bytes()
    engine.close()
    used = 32 + -(-(len(log.rstrip(b"\0")) - 32) // PAGE) * PAGE
    (killed / "tenure.db").write_bytes(data)
    (killed / "tenure.db-wal").write_bytes(log[:used] + torn + log[used + len(torn) :])
    again = open_engine(killed)
    assert bool(again.notices) == any(torn)
    assert again.record()["totals"]["ready"] == 10
    assert again.verify()["verified"]
    again.close()


def test_what_the_thread_could_not_fold_is_folded_between_two_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def locked(log: Log) -> None:
        raise DbError("database is locked")

    monkeypatch.setattr(Log, "fold_most", locked)
    engine = open_engine(tmp_path)
    checkpoints = Checkpoints(engine.own_log(), STEP, LIMIT)
    for first in range(0, 1_000, 100):
        add(engine, first, 100, checkpoints)
        assert log_size(tmp_path) <= (LIMIT + 20) * PAGE
    assert not caplog.records
    checkpoints.close()
    engine.close()
