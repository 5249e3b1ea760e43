"""The data file: who may open it, and what a person is told who may not."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine.engine import Engine
from tenure.engine.store import Store, StoreError


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
    with pytest.raises(StoreError, match=r"cannot be made.*writable place"):
        open_engine(tmp_path / "nowhere" / "tenure.db")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be used"):
        open_engine(path)


def run_as_nobody(path: Path) -> str:
    """What somebody without rights is told; a superuser may write everywhere, so it steps down first."""
    program = (
        "import os, sys\n"
        "from tenure.engine.store import Store, StoreError\n"
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
