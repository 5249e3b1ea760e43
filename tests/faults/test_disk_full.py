"""A real disk runs full: new jobs are refused in time, everything that ends a job goes on, and it recovers alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tenure import BrokerUnavailable, NoSpace
from tenure.faults import process
from tenure.faults.disk import SmallDisk, small_disk
from tests.stage.apps import heavy
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for

MIB = 1024 * 1024
DISK = 64 * MIB
RESERVE = 8 * MIB
LOAD = 60_000
HELD = 4


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(DISK) as disk:
        print(f"a disk of {DISK // MIB} MiB: {disk.how}")
        yield disk


def start(stage: Stage, disk: SmallDisk, listen: str = "127.0.0.1:0") -> None:
    """Start the server on the small disk; where there is none, let it have as much of the big one."""
    reserve = RESERVE if disk.how != "file limit" else max(RESERVE, disk.free_bytes() - DISK + RESERVE)
    options = ("--data", str(disk.folder / "jobs.db"), "--reserve", str(reserve))
    stage.start_server(listen, *options, under=tuple(disk.command([])))


def fill_up() -> int:
    """Add jobs until the first of a batch is refused; returns how many were taken, and sees that none waits."""
    number = 0
    while True:
        asked = time.monotonic()
        answers = heavy.app.add_many([heavy.carry.s(number + n, os.urandom(LOAD)) for n in range(20)])
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        assert all(isinstance(error, NoSpace) for error in refused), refused
        number += len(answers) - len(refused)
        if refused:
            assert "MiB are free for the data file" in str(refused[0])
        if isinstance(answers[0], Exception):
            assert time.monotonic() - asked < 3.0, "a refusal is an answer, not a wait"
            return number


def fill_up_singly() -> int:
    """See one call refused; returns how many were taken before, for the log may have been folded just now."""
    for number in range(100):
        try:
            heavy.carry.delay(number, os.urandom(LOAD))
        except NoSpace:
            return number
    raise AssertionError("a hundred more jobs were taken")


def add_again(number: int) -> None:
    """Add one job as soon as there is room."""

    def added() -> bool:
        try:
            heavy.carry.delay(number, b"")
        except NoSpace:
            return False
        return True

    began = time.monotonic()
    wait_for(added, 10, "new jobs are taken again")
    recovered("new jobs are taken again once there is room", time.monotonic() - began, 1.0)


def test_a_full_disk_refuses_new_jobs_and_ends_those_that_are_there(bare: Stage, disk: SmallDisk) -> None:
    start(bare, disk)
    bare.use(heavy.app)
    holder = bare.start_worker(
        "holder", "--queues", "held", "--processes", "1", "--threads", str(HELD), app=heavy.__name__
    )
    for number in range(HELD):
        heavy.hold.delay(number)
    wait_for(lambda: len(bare.executions()) == HELD, 10, "all held jobs run")

    added = fill_up()
    assert added * LOAD > DISK // 4
    added += fill_up_singly()
    disk.fill(leave=RESERVE // 4)
    time.sleep(2.0)  # two leases of the held jobs
    bare.let_go()
    wait_for(lambda: bare.totals()["done"] == HELD, 10, "the held jobs are done on the full disk")
    assert bare.totals()["handouts"]["returned"] == 0, "they were extended all the while"
    assert holder.stop() == 0

    worker = bare.start_worker("w", "--processes", "1", app=heavy.__name__)
    if disk.how != "file limit":
        time.sleep(1.0)
        assert bare.totals()["done"] == HELD, "nothing more is handed out"
        assert "no job is handed out until there is more" in bare.server.output
    disk.free()
    bare.wait_done(HELD + added, 30)
    add_again(added)
    bare.wait_done(HELD + added + 1)
    assert worker.stop() == 0
    totals = bare.check(heavy.app.counts)["totals"]
    assert (totals["added"], totals["done"], totals["handed_out"]) == (added + HELD + 1,) * 3
    assert bare.server.output.count("new jobs are refused until") <= 3
    assert "Traceback" not in bare.server.output


def test_not_a_byte_is_free_and_the_server_is_killed(bare: Stage, disk: SmallDisk) -> None:
    start(bare, disk)
    bare.use(heavy.app)
    added = fill_up()
    stop = threading.Event()
    producer = threading.Thread(target=_knock, args=(stop,))
    producer.start()
    bare.start_worker("w", "--processes", "2", app=heavy.__name__)
    bare.wait_done(20)
    disk.fill()
    time.sleep(1.0)
    process.kill(bare.server.pid)
    bare.server.wait()
    disk.free()
    start(bare, disk, bare.url.removeprefix("tenure://"))
    bare.wait_done(added, 30)
    stop.set()
    producer.join()
    wait_for(lambda: not _waiting(bare), 20, "all that was added is done")
    totals = bare.check(heavy.app.counts)["totals"]
    assert totals["done"] == totals["added"] >= added


def _waiting(stage: Stage) -> int:
    totals = stage.totals()
    return int(totals["ready"] + totals["scheduled"] + totals["running"])


def _knock(stop: threading.Event) -> None:
    """Go on adding, whether there is room or not."""
    while not stop.wait(0.02):
        try:
            heavy.carry.delay(0, bytes(LOAD))
        except NoSpace:
            continue
        except BrokerUnavailable as error:
            with suppress(NoSpace):
                error.resend()


def test_others_take_the_last_byte_while_there_is_room_inside_of_the_file(bare: Stage, disk: SmallDisk) -> None:
    disk.fill(leave=DISK // 2)  # so little that the log is kept short
    start(bare, disk)
    bare.use(heavy.app)
    done = 300
    heavy.app.add_many([heavy.carry.s(number, os.urandom(LOAD)) for number in range(done)])
    worker = bare.start_worker("w", "--processes", "1", app=heavy.__name__)
    bare.wait_done(done)
    assert worker.stop() == 0
    disk.fill()
    # More than the log has room for, and less than what is free inside of the file.
    answers = heavy.app.add_many([heavy.carry.s(done + n, os.urandom(LOAD * 10)) for n in range(5)])
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert all(isinstance(error, NoSpace) for error in refused), refused
    assert refused or disk.how == "file limit"
    with suppress(NoSpace):
        heavy.carry.delay(done, b"")
    disk.free()
    add_again(done)
    assert bare.check(heavy.app.counts)["totals"]["added"] == heavy.app.counts.added


def test_a_reserve_that_is_too_small_is_refused(bare: Stage, tmp_path: Path) -> None:
    refused = bare.run("server", "--data", str(tmp_path / "x.db"), "--reserve", "1000", code=2)
    assert "1000 bytes are too few to end a job in; give 64KiB or more" in refused.stderr
    assert not (tmp_path / "x.db").exists()
