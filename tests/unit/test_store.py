"""The data file: who may open it, and what a person is told who may not."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine import store
from tenure.engine.engine import Engine
from tenure.engine.files import LOOK_EVERY, FileLock, Place, StoreError
from tenure.engine.store import Store
from tenure.wire.commands import Add


def open_engine(path: Path) -> Engine:
    return Engine(str(path), wall=1_700_000_000_000, mono=1.0)


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A data file that a Tenure server has made and closed."""
    path = tmp_path / "tenure.db"
    open_engine(path).close()
    return path


def test_a_second_server_on_one_file_is_refused_by_name(taken: Path) -> None:
    first = open_engine(taken)
    with pytest.raises(StoreError, match=r"in use by another tenure server.*--data"):
        open_engine(taken)
    first.close()
    open_engine(taken).close()


def test_a_second_name_of_the_file_is_refused_too(taken: Path) -> None:
    link = taken.with_name("link.db")
    link.symlink_to(taken)
    first = open_engine(taken)
    with pytest.raises(StoreError, match="in use"):
        open_engine(link)
    first.close()


def test_another_process_is_refused_and_the_system_lets_go_when_it_ends(taken: Path) -> None:
    program = (
        "import sys; from tenure.engine.store import Store; Store(sys.argv[1]); print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(taken)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match="in use"):
            Store(str(taken))
        holder.kill()
        holder.wait()
    Store(str(taken)).close()


def test_a_refused_file_is_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    make_foreign(path, version=0)
    for _ in range(2):
        with pytest.raises(StoreError, match="another program"):
            open_engine(path)


def make_foreign(path: Path, version: int) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.execute(f"PRAGMA user_version = {version}")
    db.commit()
    db.close()


@pytest.mark.parametrize("version", [0, 1, 57])
def test_the_file_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path, version: int) -> None:
    path = tmp_path / "other.db"
    make_foreign(path, version)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_engine(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("shopping list " * 1000)
    with pytest.raises(StoreError, match=r"cannot be used as a Tenure data file.*--data"):
        open_engine(path)


def test_a_newer_data_version_says_so(taken: Path) -> None:
    db = sqlite3.connect(taken)
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(StoreError, match="data version 2, this Tenure knows up to 1; start a newer Tenure"):
        open_engine(taken)


def test_a_damaged_file_is_refused_with_a_text(taken: Path) -> None:
    size = taken.stat().st_size
    with taken.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreError, match="cannot be used"):
        open_engine(taken)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"the folder \S+nowhere is not there; make it, or name another place with --data"
    ):
        open_engine(tmp_path / "nowhere" / "tenure.db")


def test_a_file_that_is_gone_or_empty_is_not_taken_for_a_new_one(taken: Path) -> None:
    known = taken.read_bytes()
    taken.unlink()
    with pytest.raises(
        StoreError, match=r"has been a Tenure data file and is gone now; put it back, or remove \S+lock"
    ):
        open_engine(taken)
    assert not taken.exists()
    taken.touch()
    with pytest.raises(StoreError, match="is empty now"):
        open_engine(taken)
    taken.write_bytes(known)
    open_engine(taken).close()
    taken.unlink()
    taken.with_name("tenure.db.lock").unlink()
    open_engine(taken).close()


def test_an_empty_file_that_never_was_one_becomes_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "fresh.db"
    path.touch()
    path.with_name("fresh.db.lock").touch()  # a server that was killed before it had made the file
    open_engine(path).close()
    assert path.stat().st_size > 0


def test_a_log_without_its_file_is_kept(tmp_path: Path) -> None:
    path = killed(tmp_path, adds=3)
    lost = path.with_name("lost.db")
    Path(f"{lost}-wal").write_bytes(Path(f"{path}-wal").read_bytes())
    for there in (False, True):
        if there:
            lost.touch()
        with pytest.raises(StoreError, match=r"(gone|empty), but its log \S+lost.db-wal is there"):
            open_engine(lost)
        assert Path(f"{lost}-wal").stat().st_size > 1000


@pytest.mark.parametrize("pages", [1, 2, 5, -1])
def test_a_file_that_is_cut_short_is_refused(taken: Path, pages: int) -> None:
    whole = taken.stat().st_size
    size = pages * 4096 if pages > 0 else whole - 1
    with taken.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(StoreError, match=rf"is cut short: {size} bytes of {whole} are there; put a whole copy"):
        open_engine(taken)
    assert taken.stat().st_size == size


def test_a_log_makes_up_for_what_its_file_lacks(tmp_path: Path) -> None:
    path = killed(tmp_path, adds=3, before=200)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3 * 4096)
    engine = open_engine(path)  # all three are in the log
    assert jobs_in(engine) == 203
    engine.close()


def test_a_file_that_lacks_more_than_its_log_has_is_refused(tmp_path: Path) -> None:
    path = killed(tmp_path, adds=3, before=200)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 15 * 4096)
    with pytest.raises(StoreError, match="is cut short"):
        open_engine(path)


def add(engine: Engine, n: int) -> None:
    """Add job number `n`, in a transaction of its own."""
    engine.add(Add(n.to_bytes(16, "big"), "q", "t", bytes(16), bytes(300), None, 5, None, None, None, 20, 5), 1)
    engine.commit()


def killed(folder: Path, adds: int, before: int = 0) -> Path:
    """The files of a server that was killed after so many adds; `before` as many were folded into the file."""
    made, path = folder / "made" / "tenure.db", folder / "tenure.db"
    made.parent.mkdir()
    if before:
        engine = open_engine(made)
        for n in range(before):
            add(engine, n)
        engine.close()
    engine = open_engine(made)
    for n in range(before, before + adds):
        add(engine, n)
    for suffix in ("", "-wal"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    engine.close()
    return path


def jobs_in(engine: Engine) -> int:
    assert engine.verify()["verified"]
    return int(engine.record()["totals"]["added"])


def copied(path: Path, to: Path) -> Path:
    """What a kill at this moment would leave, in a folder of its own; the lock's file is a part of it."""
    to.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, to)
    return to / path.name


@pytest.fixture
def struck(tmp_path: Path) -> Path:
    """The files of a new server that was killed after 20 adds."""
    engine = open_engine(tmp_path / "tenure.db")
    for n in range(20):
        add(engine, n)
    path = copied(tmp_path / "tenure.db", tmp_path / "struck")
    engine.close()
    return path


@pytest.mark.parametrize(
    ("left", "what"), [(None, "gone"), (b"", "empty"), (b"7", "no log"), (bytes(70_000), "no log")]
)
def test_a_killed_servers_log_that_was_lost_is_not_passed_over(struck: Path, left: bytes | None, what: str) -> None:
    log = Path(f"{struck}-wal")
    known = log.read_bytes()
    if left is None:
        log.unlink()
    else:
        log.write_bytes(left)
    for _ in range(2):
        with pytest.raises(
            StoreError, match=rf"-wal is {what}, and the last server .* put the log back, or remove \S+lock"
        ):
            open_engine(struck)
    assert (log.read_bytes() if log.exists() else None) == left, "it is left as it was"
    log.write_bytes(known)
    engine = open_engine(struck)
    assert (engine.notices, jobs_in(engine)) == ([], 20)
    engine.close()


def test_without_its_lock_a_killed_servers_file_is_taken_as_it_is(struck: Path) -> None:
    Path(f"{struck}-wal").unlink()
    Path(f"{struck}.lock").unlink()
    engine = open_engine(struck)
    assert jobs_in(engine) == 0
    engine.close()


def test_files_that_were_all_emptied_are_not_taken_for_new_ones(struck: Path) -> None:
    for suffix in ("", "-wal", ".lock"):
        Path(f"{struck}{suffix}").write_bytes(b"")
    with pytest.raises(StoreError, match=r"is empty and its log \S+-wal is empty, .* or remove the log to begin"):
        open_engine(struck)
    Path(f"{struck}-wal").unlink()
    open_engine(struck).close()


def test_a_file_of_ours_that_has_no_tables_any_more_is_refused(taken: Path) -> None:
    taken.unlink()
    db = sqlite3.connect(taken)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    assert taken.stat().st_size == 4096
    with pytest.raises(StoreError, match=r"has nothing in it now; put a whole copy .* or remove \S+ and \S+lock"):
        open_engine(taken)


def test_a_new_file_names_itself_without_its_log(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "tenure.db")
    shutil.copy(tmp_path / "tenure.db", tmp_path / "alone.db")
    alone = open_engine(tmp_path / "alone.db")
    assert alone.store_id == engine.store_id
    alone.close()
    engine.close()


def test_a_kill_around_the_folding_of_the_log_is_no_loss_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, copies, adds = tmp_path / "made" / "tenure.db", list[tuple[Path, int]](), 0
    path.parent.mkdir()

    def copy() -> None:
        copies.append((copied(path, tmp_path / f"kill{len(copies)}"), adds))

    class Watched(FileLock):
        def note(self, *, log_in_use: bool) -> None:
            copy()
            super().note(log_in_use=log_in_use)
            copy()

    monkeypatch.setattr(store, "FileLock", Watched)
    for _ in range(3):
        engine = open_engine(path)
        log = engine.own_log()
        assert log is not None
        for _ in range(5):
            add(engine, adds)
            adds += 1
        copy()
        log.fold_rest()
        copy()
        engine.close()
        copy()
    # A killed server's files, once more: its log is folded at the start.
    open_engine(copied(copies[-3][0], tmp_path / "again")).close()
    monkeypatch.undo()
    assert len(copies) > 20
    for left, jobs in copies:
        engine = open_engine(left)
        assert (engine.notices, jobs_in(engine)) == ([], jobs), left
        engine.close()


FRAME = 4096 + 24


def half_a_transaction(log: bytes) -> bytes:
    """The last frame once more, as one that no commit follows."""
    frame = bytearray(log[-FRAME:])
    frame[4:8] = bytes(4)
    return bytes(frame)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_torn_behind_the_last_commit_is_ignored_and_told(tmp_path: Path, seed: int) -> None:
    path = killed(tmp_path, adds=20)
    dice = random.Random(seed)
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    half = half_a_transaction(whole)
    tail = [
        dice.randbytes(dice.randint(1, 64)),
        half[: dice.randint(1, FRAME - 1)],
        half,
        half * 3 + dice.randbytes(5),
        dice.randbytes(FRAME),
        dice.randbytes(3 * FRAME + 7),
    ][seed % 6]
    log.write_bytes(whole + tail)
    engine = open_engine(path)
    (told,) = engine.notices
    assert told.startswith(f"{path}-wal: what stands behind the last commit, from byte {len(whole)} on, is no whole")
    assert jobs_in(engine) == 20
    add(engine, 20)
    engine.close()
    again = open_engine(path)
    assert (again.notices, jobs_in(again)) == ([], 21)
    again.close()


def test_a_log_that_ends_with_its_last_commit_is_not_remarked_on(tmp_path: Path) -> None:
    engine = open_engine(killed(tmp_path, adds=20))
    assert (engine.notices, jobs_in(engine)) == ([], 20)
    engine.close()


def test_left_overs_of_an_earlier_round_of_the_log_are_not_remarked_on(tmp_path: Path) -> None:
    made, path = tmp_path / "made.db", tmp_path / "tenure.db"
    engine = open_engine(made)
    log = engine.own_log()
    assert log is not None
    for n in range(50):
        add(engine, n)
    log.fold_rest()
    for n in range(50, 53):
        add(engine, n)  # the log begins anew, and most of it is old
    for suffix in ("", "-wal"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    engine.close()
    again = open_engine(path)
    assert (again.notices, jobs_in(again)) == ([], 53)
    again.close()


def test_a_log_whose_head_was_torn_is_told(tmp_path: Path) -> None:
    path = killed(tmp_path, adds=0, before=5)
    Path(f"{path}-wal").write_bytes(b"\x37\x7f\x06")
    engine = open_engine(path)
    assert len(engine.notices) == 1
    assert jobs_in(engine) == 5
    engine.close()


OLDER = "ALTER TABLE jobs ADD COLUMN shade TEXT; CREATE TABLE shades (name TEXT);"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a later day, whose data has version 3."""
    monkeypatch.setattr(store, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(store, "STEPS", {1: OLDER, 2: "INSERT INTO shades VALUES ('grey');"})


def test_an_older_data_version_is_brought_to_date_at_the_start(taken: Path, newer: None) -> None:
    engine = open_engine(taken)
    assert engine.notices == [f"{taken} was brought from data version 1 to 3"]
    assert engine._store.rows("SELECT name FROM shades") == [("grey",)]
    assert engine._store.db.pragma("user_version") == 3
    add(engine, 1)
    engine.close()
    again = open_engine(taken)
    assert (again.notices, jobs_in(again)) == ([], 1)
    again.close()


def test_a_change_of_version_that_fails_changes_nothing(
    taken: Path, newer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(store.STEPS, 2, "INSERT INTO nowhere VALUES (1);")
        with pytest.raises(StoreError, match=r"from data version 1 to 3 \(.*nowhere.*\); nothing was changed"):
            open_engine(taken)
    engine = open_engine(taken)
    assert engine.notices == [f"{taken} was brought from data version 1 to 3"], "it was version 1 still"
    engine.close()


def test_every_older_version_has_its_step() -> None:
    assert set(store.STEPS) == set(range(1, store.SCHEMA_VERSION))


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be used"):
        open_engine(path)


def run_as_nobody(path: Path) -> str:
    """What somebody without rights is told; a superuser may write everywhere, so it steps down first."""
    program = (
        "import os, sys\n"
        "from tenure.engine.files import StoreError\n"
        "from tenure.engine.store import Store\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: Store(sys.argv[1])\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter (pytest's own belongs to one user alone)."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-store-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    assert "cannot be made (Permission denied); name a writable place with --data" in run_as_nobody(
        open_folder / "tenure.db"
    )


def test_a_read_only_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "tenure.db"
    open_engine(path).close()
    lock = Path(f"{path}.lock")
    path.chmod(0o444)
    lock.chmod(0o666)
    assert "readonly database" in run_as_nobody(path)


def test_an_odd_file_name_can_be_verified(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "what?# 100%.db")
    assert engine.verify()["verified"]
    engine.close()


def test_the_store_keeps_its_identity(taken: Path) -> None:
    first = open_engine(taken)
    known = first.store_id
    first.close()
    again = open_engine(taken)
    assert again.store_id == known
    again.close()


def test_a_place_tells_when_its_file_or_its_log_is_another_one_or_gone(tmp_path: Path) -> None:
    data, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    for file in (data, log):
        file.touch()
    place = Place(str(data))
    assert place.look(0.0) is None
    log.rename(tmp_path / "kept")
    assert place.look(LOOK_EVERY / 2) is None, "it looks now and then"
    assert place.look(LOOK_EVERY) == f"{log} was removed"
    (tmp_path / "kept").rename(log)
    assert place.look(2 * LOOK_EVERY) is None
    (tmp_path / "new").touch()
    (tmp_path / "new").replace(data)
    assert place.look(3 * LOOK_EVERY) == f"{data} was replaced by another file"


def test_a_place_that_cannot_be_looked_at_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "a.db"
    data.touch()
    place = Place(str(data))

    def refuse(path: str) -> None:
        raise PermissionError(13, "not now", path)

    monkeypatch.setattr("tenure.engine.files.os.stat", refuse)
    assert place.look(0.0) is None


def test_a_log_saves_all_that_is_committed_though_the_file_is_gone(taken: Path) -> None:
    engine = open_engine(taken)
    engine.add(Add(bytes(16), "default", "t", b"f" * 32, b"body"), 1_700_000_000_000)
    engine.commit()
    log = engine.own_log()
    assert log is not None
    taken.unlink()
    log.save(f"{taken}.saved")
    engine.close()
    again = open_engine(Path(f"{taken}.saved"))
    assert again.record()["totals"]["ready"] == 1
    assert again.verify()["verified"]
    again.close()
