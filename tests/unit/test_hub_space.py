"""The disk runs short: new jobs are refused in time, and everything that ends a job goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.engine.space import ADD_COSTS, FULL_FOR, RESERVE
from tenure.engine.store import DbError, DbFull
from tests.property.lab import Lab, Line, hexid, session_of, take

MIB = 1024 * 1024
LOOK = 0.2


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Disk:
    """Stands for the operating system's answer; `looks` counts how often it was asked."""

    def __init__(self) -> None:
        self.free = 100 * MIB
        self.looks = 0

    def usage(self, folder: object) -> Usage:
        self.looks += 1
        return Usage(200 * MIB, 200 * MIB - self.free, self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    return disk


@pytest.fixture
def lab(tmp_path: Path, disk: Disk) -> Iterator[Lab]:
    lab = Lab(str(tmp_path / "tenure.db"))
    yield lab
    lab.close()


def leave(lab: Lab, disk: Disk, free: int) -> None:
    """Let so much be free, and the server see it."""
    disk.free = free
    lab.pass_time(LOOK)


def test_below_the_reserve_adds_are_refused_and_nothing_else(lab: Lab, disk: Disk) -> None:
    line, keeper = lab.connect(1), lab.connect(2, "keeper")
    for n in range(1, 8):
        assert line.ask(lab.add(n)).startswith("ok")
    leave(lab, disk, RESERVE - 1)
    answer = line.ask(lab.add(8))
    assert answer.startswith("err no-space 8.0 MiB are free for the data file and 9.0 MiB are wanted"), answer
    assert line.ask(take(1, limit=9)).startswith("jobs 7 ")
    assert line.ask(f"extend {hexid(1)}:1") == "ok 30000"
    assert line.ask(f"done {hexid(1)}:1") == "ok done"
    assert line.ask(f"retry {hexid(2)}:1 100 why 3\nbad") == "ok scheduled"
    assert line.ask(f"release {hexid(3)}:1 0 why") == "ok released"
    assert line.ask(f"dead {hexid(4)}:1 why 3\nbad") == "ok dead"
    assert line.ask(f"requeue {hexid(4)}") == "ok ready"
    assert line.ask(f"cancel-job {hexid(4)}") == "ok cancelled"
    assert keeper.ask(f"bye {session_of(1)} lost SIGKILL") == "ok"
    assert lab.counts()["added"] == 7


def test_a_repeated_add_is_known_on_a_full_disk(lab: Lab, disk: Disk) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    line.ask(lab.add(2, "k=order"))
    assert line.ask(lab.add(3, "k=order")) == f"ok {hexid(2)} exists"
    leave(lab, disk, 0)
    assert line.ask(lab.add(1)) == f"ok {hexid(1)} created"
    assert line.ask(lab.add(3, "k=order")) == f"ok {hexid(2)} exists"
    assert line.ask(lab.add(4, "k=order")).startswith("err no-space")
    assert lab.counts() == {"added": 2, "ready": 2, "duplicates": 1}


def test_jobs_of_a_done_are_added_whatever_is_free(lab: Lab, disk: Disk) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    line.ask(take(1))
    leave(lab, disk, MIB)
    answer = line.ask(f"done {hexid(1)}:1 0 then=1\n\n{lab.add(2)}")
    assert answer == "ok done created"
    assert lab.counts()["added"] == 2


def test_below_half_of_it_nothing_is_handed_out_until_there_is_room(lab: Lab, disk: Disk) -> None:
    line, other = lab.connect(1), lab.connect(2)
    line.ask(lab.add(1))
    line.ask(lab.add(2))
    line.ask(take(1, limit=1))
    leave(lab, disk, RESERVE // 2 - 1)
    assert other.ask(take(1)) == "jobs 0 0"
    other.ask(take(2, wait=10_000))
    assert line.ask(f"done {hexid(1)}:1") == "ok done"
    lab.pass_time(1.0)
    assert other.read() == b""
    leave(lab, disk, RESERVE // 2)
    assert other.read().startswith(b"jobs 1 "), "the parked take is served without another line"


def test_a_lost_answer_to_a_take_is_repeated_while_nothing_is_handed_out(lab: Lab, disk: Disk) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    jobs = line.ask(take(1))
    disk.free = 0
    lab.turn()
    assert line.ask(take(1)) == jobs
    assert line.ask(take(2)) == "jobs 0 0"


def test_it_recovers_by_itself_and_does_not_flicker(lab: Lab, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    line = lab.connect()
    for free in (RESERVE - 1, RESERVE + MIB // 2, RESERVE - 1, RESERVE + ADD_COSTS):
        leave(lab, disk, free)
        assert line.ask(lab.add(1)).startswith("err no-space")
    leave(lab, disk, RESERVE + RESERVE // 8 + ADD_COSTS)
    assert line.ask(lab.add(1)).startswith("ok")
    refused, taken = [record.getMessage() for record in caplog.records if "MiB are free" in record.getMessage()]
    assert refused.startswith("8.0 MiB are free for the data file: new jobs are refused until 9.0 MiB are free")
    assert taken == "9.0 MiB are free for the data file: new jobs are taken again"


def test_one_turn_cannot_eat_up_the_reserve(lab: Lab, disk: Disk) -> None:
    lines = [lab.connect(n) for n in range(1, 9)]
    leave(lab, disk, RESERVE + 10 * MIB)
    body = "x" * MIB
    for n, line in enumerate(lines, 1):
        line.write(lab.add(n, body=body).encode() + b"\n")
    lab.turn()
    answers = [line.read() for line in lines]
    assert [answer[:3] for answer in answers] == [b"ok "] * 4 + [b"err"] * 4  # each in the log, and then in the file
    assert b"9.9 MiB are free for the data file and 10.0 MiB are wanted" in answers[4]


def test_pages_that_are_free_inside_of_the_file_count(lab: Lab, disk: Disk) -> None:
    line = lab.connect()
    big = "x" * MIB
    for n in range(1, 13):
        assert line.ask(lab.add(n, body=big)).startswith("ok")
    leave(lab, disk, MIB)
    assert line.ask(lab.add(20)).startswith("err no-space")
    assert line.ask(take(1)) == "jobs 0 0"
    for n in range(1, 13):
        assert line.ask(f"cancel-job {hexid(n)}") == "ok cancelled"
    lab.pass_time(3_700.0)
    assert lab.counts()["cancelled"] == 12
    assert not lab.engine._store.rows("SELECT id FROM jobs")
    assert lab.engine.space.room > 12 * MIB
    line.cut()
    assert lab.connect(2).ask(lab.add(21)).startswith("ok"), "the disk is as full as before, the file is not"


def test_the_disk_is_not_asked_for_every_add(lab: Lab, disk: Disk) -> None:
    line: Line = lab.connect()
    before = disk.looks
    for n in range(1, 501):
        line.write(lab.add(n).encode() + b"\n")
        if n % 50 == 0:
            lab.mono += 0.01
            lab.turn()
    assert line.read().count(b"ok") == 500
    assert 1 <= disk.looks - before <= 12


def test_a_disk_that_cannot_be_asked_is_taken_as_it_was(lab: Lab, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    line = lab.connect()

    def gone(folder: object) -> Usage:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", gone)
    lab.pass_time(LOOK)
    assert line.ask(lab.add(1)).startswith("ok")


def test_a_disk_that_others_fill_between_two_looks_has_no_space_for_adds(lab: Lab, disk: Disk) -> None:
    line, other = lab.connect(1), lab.connect(2)
    line.ask(lab.add(1))
    line.ask(take(1))
    disk.free = 0
    lab.fail(error=DbFull)
    assert line.ask(lab.add(2)).startswith("err no-space 0.0 MiB are free"), "the look before did not see it"
    assert line.ask(lab.add(1)) == f"ok {hexid(1)} created", "what is stored is known"
    assert line.ask(f"done {hexid(1)}:1").startswith("err storage"), "it is to be sent again"
    lab.pass_time(5.0)
    assert line.ask(lab.add(2)).startswith("err no-space")
    lab.heal()
    leave(lab, disk, 100 * MIB)
    lab.pass_time(FULL_FOR)
    assert other.ask(lab.add(2)) == f"ok {hexid(2)} created"
    assert line.ask(f"done {hexid(1)}:1") == "ok done"


def test_a_store_that_is_full_though_its_disk_is_not_says_so_to_every_add(lab: Lab, disk: Disk) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    lab.fail(error=DbFull)
    for turn in range(5):
        for n in range(10, 20):
            line.write(lab.add(n).encode() + b"\n" + lab.add(1).encode() + b"\n")
        lab.pass_time(FULL_FOR / 3)
        answer = line.read()
        assert (answer.count(b"err no-space 0.0 MiB"), answer.count(b"created")) == (10, 10), turn
    lab.heal()
    lab.pass_time(FULL_FOR)
    assert line.ask(lab.add(10)) == f"ok {hexid(10)} created"


def test_another_fault_of_the_store_is_not_taken_for_a_full_disk(lab: Lab, disk: Disk) -> None:
    lab.fail(error=DbError)
    assert lab.connect().ask(lab.add(1)).startswith("err storage")


def test_in_memory_there_is_no_limit(disk: Disk) -> None:
    disk.free = 0
    lab = Lab()
    assert lab.connect().ask(lab.add(1)).startswith("ok")
    assert disk.looks == 0
    lab.close()
