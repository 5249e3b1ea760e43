"""The data file under a server that is killed: what was answered holds, whatever was left half written."""

from __future__ import annotations

import random
import re
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.broker import Broker
from tenure.brokers.server import from_url
from tenure.faults import process
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import TENURE, Stage, wait_for
from tests.stage.producer import Producer
from tests.stage.sizes import sized

LOG_HEAD = 32
FRAME = 4096 + 24
TORN = "is no whole transaction"


def tear(log: Path, dice: random.Random) -> None:
    """Let the log go on with random bytes, or with a part of what would have been its next frame.

    What stands there may be zeros, as room for later frames, and is kept behind them or cut off.
    """
    log_bytes = log.read_bytes()
    frames = (len(log_bytes.rstrip(b"\0")) - LOG_HEAD + FRAME - 1) // FRAME
    used, room = log_bytes[: LOG_HEAD + frames * FRAME], log_bytes[LOG_HEAD + frames * FRAME :]
    torn = dice.choice([dice.randbytes(dice.randint(1, 64)), used[-FRAME:][: dice.randint(1, FRAME - 1)]])
    log.write_bytes(used + (torn or b"\0") + dice.choice([b"", room[len(torn) :]]))


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_the_server_is_killed_again_and_again_and_its_log_is_torn(bare: Stage, durability: str) -> None:
    rounds = sized(20, 200)
    dice = random.Random(rounds)
    bare.start_server("127.0.0.1:0", "--durability", durability)
    address = bare.url.removeprefix("tenure://")
    bare.use(jobs.app)
    bare.start_worker("w", "--processes", "1", "--threads", "4")
    producer = Producer(0.01, 0.0, threads=2)
    try:
        for n in range(rounds):
            before = len(producer.ids)
            began = time.monotonic()
            wait_for(lambda before=before: len(producer.ids) > before, 6, "jobs are taken")  # type: ignore[misc]
            recovered("adds are answered again after the server was started", time.monotonic() - began, 2.0)
            time.sleep(dice.uniform(0.0, 0.2))
            process.kill(bare.server.pid)
            bare.server.wait()
            tear(bare.place / "jobs.db-wal", dice)
            bare.start_server(address, "--durability", durability)
            assert bare.server.output.count(TORN) == n + 1
    finally:
        ids = producer.stop()
    assert len(set(ids)) == len(ids)
    bare.wait_done(len(ids), 30)
    totals = bare.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["done"]) == (len(ids), len(ids))
    assert {one.job for one in bare.executions()} == set(ids)


def test_a_delayed_job_comes_due_though_the_server_was_killed(stage: Stage) -> None:
    delay = sized(3.0, 10.0)
    began = time.time()
    job = jobs.work.options(delay=delay).delay(1)
    stage.start_worker()
    time.sleep(1.0)
    process.kill(stage.server.pid)
    stage.server.wait()
    stage.start_server(stage.url.removeprefix("tenure://"))
    wait_for(lambda: stage.job(job.id)["state"] == "done", delay + 10, "the delayed job is done")
    (handout,) = stage.job(job.id)["handouts"]
    assert handout["begin_at"] / 1000 - began >= delay - 0.002
    recovered("a delayed job starts after its time", handout["begin_at"] / 1000 - began - delay, 1.0)
    stage.check(jobs.app.counts)


def fill(broker: Broker, count: int) -> None:
    """Add so many jobs."""
    for first in range(0, count, 1_000):
        jobs.app.add_many([jobs.work.s(n) for n in range(first, min(count, first + 1_000))])


def take_all(broker: Broker, count: int, visibility_timeout: float) -> tuple[str, int]:
    """Take until there is no more; returns the session and how many came."""
    session = secrets.token_hex(16)
    consumer = broker.consumer(["default"], session=session, name="greedy", visibility_timeout=visibility_timeout)
    taken = 0
    while taken < count and (deliveries := consumer.take(1_000, 0.0)):
        taken += len(deliveries)
    consumer.close()
    return session, taken


class Knocking:
    """Asks for the record over and over, and knows the longest time that an answer took."""

    def __init__(self, stage: Stage) -> None:
        self.longest = 0.0
        self._stage = stage
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            began = time.monotonic()
            self._stage.totals()
            self.longest = max(self.longest, time.monotonic() - began)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_many_leases_run_out_at_once(stage: Stage) -> None:
    count, timeout = sized((10_000, 5.0), (50_000, 20.0))
    broker = from_url(stage.url, read_limit=30.0)
    fill(broker, count)
    assert take_all(broker, count, timeout)[1] == count
    process.freeze(stage.server.pid)
    time.sleep(1.1)  # after a gap all leases have their full time again, so they end together
    process.thaw(stage.server.pid)
    over = time.monotonic() + timeout
    wait_for(lambda: stage.totals()["running"] == count, 5, "the server goes on")
    knocking = Knocking(stage)
    time.sleep(max(0.0, over - time.monotonic() - 0.5))
    assert stage.totals()["running"] == count
    wait_for(lambda: stage.totals()["running"] == 0, 60, "all leases have run out")
    recovered(f"{count} leases that ran out at once are claimable", time.monotonic() - over, 20.0)
    knocking.stop()
    recovered(f"the longest answer while {count} leases run out", knocking.longest, 1.0)
    session, again = take_all(broker, count, 60.0)
    assert again == count
    keeper = broker.keeper()
    keeper.bye(session, "left", "", [])
    keeper.close()
    broker.close()
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["ready"], totals["handouts"]["returned"], totals["handouts"]["left"]) == (count, count, count)


def refusal(stage: Stage, data: Path) -> str:
    """What a server says that does not start on this file: one line, and no stack trace."""
    refused = stage.run("server", "--listen", "127.0.0.1:0", "--data", str(data), code=1)
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert not refused.stdout
    return refused.stderr


def test_a_data_file_that_cannot_be_used_is_refused_with_what_to_do(stage: Stage) -> None:
    jobs.work.delay(1)
    assert stage.server.stop() == 0
    data = stage.place / "jobs.db"
    whole = data.read_bytes()
    data.write_bytes(whole[:-5000])
    assert "is cut short" in refusal(stage, data)
    data.unlink()
    assert "is gone now; put it back" in refusal(stage, data)
    data.write_bytes(b"shopping list\n" * 1000)
    assert "cannot be used as a Tenure data file" in refusal(stage, data)
    newer = bytearray(whole)
    newer[60:64] = (99).to_bytes(4, "big")
    data.write_bytes(newer)
    assert "data version 99, this Tenure knows up to 1; start a newer Tenure" in refusal(stage, data)
    data.write_bytes(whole)
    stage.start_server()
    assert stage.totals()["ready"] == 1
    second = stage.run("server", "--listen", "127.0.0.1:0", "--data", str(data), code=1)
    assert "in use by another tenure server" in second.stderr
    stage.server.signal(signal.SIGTERM)
    assert stage.server.wait() == 0


def test_a_killed_servers_log_that_is_lost_is_refused_with_what_to_do(stage: Stage) -> None:
    for number in range(20):
        jobs.work.delay(number)
    process.kill(stage.server.pid)
    stage.server.wait()
    data, log = stage.place / "jobs.db", stage.place / "jobs.db-wal"
    known = log.read_bytes()
    log.write_bytes(b"")
    assert "jobs.db-wal is empty, and the last server" in refusal(stage, data)
    log.unlink()
    assert "jobs.db-wal is gone, and the last server" in refusal(stage, data)
    data.rename(stage.place / "kept.db")
    assert "has been a Tenure data file and is gone now" in refusal(stage, data)
    (stage.place / "kept.db").rename(data)
    log.write_bytes(known)
    stage.start_server()
    assert stage.totals()["ready"] == 20
    assert stage.server.stop() == 0
    assert not log.exists()
    stage.start_server()
    assert stage.totals()["ready"] == 20


def move(data: Path) -> None:
    data.rename(data.with_name("elsewhere.db"))


def replace(data: Path) -> None:
    shutil.copy(data, data.with_name("copy.db"))
    data.with_name("copy.db").replace(data)


def remove_log(data: Path) -> None:
    Path(f"{data}-wal").unlink()


@pytest.mark.parametrize("take_away", [Path.unlink, move, replace, remove_log])
def test_a_data_file_that_is_taken_away_ends_the_server_and_loses_no_job(
    stage: Stage, take_away: Callable[[Path], None]
) -> None:
    ids = {jobs.work.delay(number).id for number in range(5)}
    data = stage.place / "jobs.db"
    take_away(data)
    began = time.monotonic()
    assert stage.server.wait(5) == 1
    recovered("a server notices that its data file is gone", time.monotonic() - began, 2.0)
    (told,) = (line for line in stage.server.output.splitlines() if "while this server was using it" in line)
    saved = re.findall(r"All that it had stored is in (\S+): move that to (\S+) and start the server again", told)
    assert [(Path(copy).parent, Path(place)) for copy, place in saved] == [(data.parent, data)]
    Path(saved[0][0]).replace(data)
    stage.start_server(stage.url.removeprefix("tenure://"))
    stage.start_worker("w", "--processes", "1")
    stage.wait_done(5)
    assert {one.job for one in stage.executions()} == ids
    assert stage.ask("record", "--verify")["verified"]


def test_jobs_that_cannot_be_saved_are_not_said_to_be(bare: Stage) -> None:
    folder = bare.place / "data"
    folder.mkdir()
    server = bare.start(
        [str(TENURE), "server", "--listen", "127.0.0.1:0", "--data", "data/jobs.db"], bare.place / "log"
    )
    wait_for(lambda: "tenure server on" in server.output, 10, "the server's announcement")
    shutil.rmtree(folder)
    assert server.wait(5) == 1
    assert f"{folder}/jobs.db was removed while this server was using it" in server.output
    assert "could not be copied" in server.output
