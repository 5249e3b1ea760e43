"""Who runs next, what is stopped, and what comes too late, with real servers and workers."""

from __future__ import annotations

import random
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from tenure import JobFailed, QueueClosed
from tests.benchmarks.processes import resident_bytes
from tests.stage.apps import operated
from tests.stage.figures import recovered
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized

APP = "tests.stage.apps.operated"
MIB = 1024 * 1024


@pytest.fixture
def stage(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(operated.app)
    return bare


def started(stage: Stage) -> list[str]:
    """The jobs' ids in the order of their starts."""
    return [one.job for one in stage.executions()]


# -- order ----------------------------------------------------------------------------------------------------------


def test_the_next_starts_are_those_of_the_highest_priority_and_in_it_first_in_first_out(stage: Stage) -> None:
    """What was there before is not fetched ahead; without a priority a job has the one in the middle."""
    stage.start_worker("w", "--processes", "1", "--threads", "1", app=APP)
    first = operated.hold.delay(0)
    wait_for(stage.executions, 20, "the only slot is taken")
    low = [operated.work.options(priority=1).delay(n).id for n in range(50)]
    high = [operated.work.options(priority=9).delay(n).id for n in range(5)]
    mixed = [*(n % 10 for n in range(100)), *[None] * 20]
    random.Random(7).shuffle(mixed)
    of_mixed = []
    for n in mixed:
        task = operated.work if n is None else operated.work.options(priority=n)
        of_mixed.append((5 if n is None else n, task.delay(0).id))
    stage.let_go()
    stage.wait_done(176)
    everything = [*((1, id) for id in low), *((9, id) for id in high), *of_mixed]
    in_order = [id for _, id in sorted(everything, key=lambda one: -one[0])]  # stable: first in, first out
    assert in_order[:5] == high
    assert started(stage) == [first.id, *in_order]
    stage.check(operated.app.counts)


def test_no_more_is_handed_out_than_there_are_slots_and_no_slot_is_free_while_a_job_waits(stage: Stage) -> None:
    for n in range(6):
        operated.hold.delay(n)
    for name, running in (("a", 2), ("b", 4)):
        stage.start_worker(name, "--processes", "1", "--threads", "2", app=APP)
        wait_for(lambda: len(started(stage)) >= running, 20, "every slot runs a job")  # noqa: B023  (called here)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            totals = stage.totals()
            assert (totals["running"], totals["ready"]) == (running, 6 - running)
            time.sleep(0.1)
    stage.let_go()
    stage.wait_done(6)
    operated.app.add_many([operated.work.s(n, 0.02) for n in range(200)])
    seen = set()
    while (totals := stage.totals())["done"] < 206:
        seen.add(totals["running"])
    assert max(seen) == 4
    assert stage.check(operated.app.counts)["totals"]["handed_out"] == 206


def test_of_very_short_jobs_some_are_in_hand_and_go_back_where_the_next_ones_take_long(stage: Stage) -> None:
    short, long = 3000, 40
    operated.app.add_many([operated.work.s(n) for n in range(short)])
    operated.app.add_many([operated.work.s(n, 0.5) for n in range(long)])
    stage.start_worker("a", "--processes", "1", "--threads", "2", app=APP)
    wait_for(lambda: stage.totals()["done"] >= short, 30, "the short jobs are done")
    for _ in range(2):
        wait_for(lambda: stage.totals()["running"] <= 2, 0.3, "only what runs is leased")
        time.sleep(0.5)
    stage.start_worker("b", "--processes", "1", "--threads", "30", app=APP)
    stage.wait_done(short + long)
    stage.check(operated.app.counts)


def test_of_short_and_long_jobs_by_turns_few_go_back(stage: Stage) -> None:
    stage.start_worker("a", "--processes", "1", "--threads", "4", app=APP)
    jobs = [operated.work.s(n, 0.0 if n % 5 else 0.1) for n in range(500)]
    for begin in range(0, 500, 10):
        operated.app.add_many(jobs[begin : begin + 10])
        time.sleep(0.02)
    stage.wait_done(500)
    released = stage.check(operated.app.counts)["totals"]["handouts"]["released"]
    print(f"{released} of {500 + released} hand-outs were released")
    assert released <= 20


# -- stopped --------------------------------------------------------------------------------------------------------


def test_a_paused_queue_rests_over_a_restart_of_the_server_and_a_closed_one_is_emptied(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--queues", "default,mail", app=APP)
    running = operated.hold.delay(0)
    mail = operated.work.options(queue="mail").delay(1)
    assert mail.result(timeout=20) == 1
    wait_for(lambda: len(started(stage)) == 2, 20, "the job runs that is held")
    assert stage.told("pause", "default") == "default: paused\n"
    waiting = operated.work.delay(2)
    assert stage.server.stop() == 0
    stage.start_server(stage.url.removeprefix("tenure://"))
    stage.let_go()
    assert running.result(timeout=20) == 0
    assert operated.work.options(queue="mail").delay(3).result(timeout=20) == 3
    shown = {row["name"]: row for row in stage.ask("queues")}
    assert (shown["default"]["paused"], shown["default"]["ready"], shown["mail"]["paused"]) == (True, 1, False)
    assert "paused" in stage.told("queues")
    assert stage.told("close", "default") == "default: closed\n"
    with pytest.raises(QueueClosed, match="its queue 'default' takes no new jobs"):
        operated.work.delay(4)
    assert waiting.state() == "ready"
    stage.told("resume", "default")
    assert waiting.result(timeout=20) == 2
    stage.told("open", "default")
    assert operated.work.delay(5).result(timeout=20) == 5
    stage.check(operated.app.counts)


def test_a_purge_cancels_what_waits_and_a_dry_run_only_counts_it(stage: Stage) -> None:
    jobs = [operated.work.options(delay=3600 if n % 2 else None).delay(n) for n in range(40)]
    other = operated.work.options(queue="mail").delay(1)
    assert stage.ask("purge", "default", "--dry-run") == {"queue": "default", "jobs": 40, "dry_run": True}
    assert {job.state() for job in jobs} == {"ready", "scheduled"}
    assert stage.told("purge", "default") == "default: 40 jobs cancelled\n"
    assert {job.state() for job in jobs} == {"cancelled"}
    assert other.state() == "ready"
    assert "Did you mean 'mail'?" in stage.run("purge", "mial", "--broker", stage.url, code=1).stderr
    assert stage.check(operated.app.counts)["totals"]["cancelled"] == 40


def test_jobs_of_a_task_that_no_worker_knows_are_listed_and_run_when_one_does(stage: Stage) -> None:
    first = stage.start_worker("old", "--processes", "1", app="tests.stage.apps.jobs")
    jobs = [operated.work.delay(n) for n in range(3)]

    def unknown() -> dict[str, int]:
        found: dict[str, int] = stage.ask("queues")[0]["unknown_tasks"]
        return found

    wait_for(lambda: unknown() == {operated.work.name: 3}, 20, "all three are listed")
    assert f"{operated.work.name} (3)" in stage.told("queues")
    assert first.stop() == 0
    stage.start_worker("new", "--processes", "1", app=APP)
    assert [job.result(timeout=30) for job in jobs] == [0, 1, 2]
    assert unknown() == {}
    stage.check(operated.app.counts)


# -- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(sized(60, 300))
def test_jobs_for_later_keep_nobody_waiting_and_are_in_no_workers_memory(stage: Stage) -> None:
    worker = stage.start_worker("w", "--processes", "1", app=APP)
    assert operated.work.delay(-1).result(timeout=20) == -1
    before = {pid: resident_bytes(pid) for pid in (worker.pid, *worker.children)}
    count = sized(5_000, 200_000)
    for start in range(0, count, 1_000):
        operated.app.add_many([operated.work.options(delay=3600).s(n) for n in range(start, start + 1_000)])
    began_at = time.monotonic()
    jobs = [operated.work.delay(n) for n in range(10)]
    assert [job.result(timeout=20) for job in jobs] == list(range(10))
    recovered("ten jobs are done behind very many for later", time.monotonic() - began_at, 1.0)
    grown = {pid: (resident_bytes(pid) - size) / MIB for pid, size in before.items()}
    print(f"the worker's processes have grown by {[round(size, 2) for size in grown.values()]} MiB")
    assert max(grown.values()) < 4.0
    assert stage.check(operated.app.counts)["totals"]["scheduled"] == count


def test_due_jobs_are_shared_with_a_worker_that_came_later(stage: Stage) -> None:
    stage.start_worker("a", "--processes", "1", "--threads", "1", app=APP)
    jobs = [operated.work.options(delay=0.5).delay(n, 0.5) for n in range(10)]
    wait_for(stage.executions, 20, "the first of them runs")
    stage.start_worker("b", "--processes", "1", "--threads", "1", app=APP)
    assert [job.result(timeout=30) for job in jobs] == list(range(10))
    workers = stage.check(operated.app.counts)["workers"]
    assert min(workers[name]["handouts"]["done"] for name in "ab") >= 2


ADDS = """
from datetime import datetime, timedelta, timezone
from tenure import ConfigError
from tests.stage.apps.operated import app, work
here = timezone(timedelta(hours=5, minutes=30))
print(work.options(expires=30).delay(1).id)
print(work.options(expires=datetime.now(here) + timedelta(seconds=30)).delay(2).id)
print(work.options(expires=datetime.now(here) + timedelta(seconds=0.2)).delay(3).id)
try:
    work.options(expires=datetime.now() + timedelta(seconds=30))
except ConfigError as error:
    print(error)
app.close()
"""


def test_a_latest_start_means_the_same_in_every_time_zone(stage: Stage) -> None:
    producers = []
    for zone in ("Asia/Tokyo", "America/Los_Angeles"):
        stage.env |= {"TZ": zone, "TENURE_BROKER": stage.url}
        producers.append(stage.start([sys.executable, "-c", ADDS], stage.place / f"{zone[:4]}.log"))
    stage.env["TZ"] = "Europe/Zurich"
    for producer in producers:
        assert producer.wait() == 0, producer.output
    time.sleep(0.3)
    stage.start_worker("w", "--processes", "1", app=APP)
    for producer in producers:
        *ids, naive = producer.output.splitlines()
        seconds, aware, late = (operated.app.job(id, operated.work) for id in ids)
        assert (seconds.result(timeout=20), aware.result(timeout=20)) == (1, 2)
        with pytest.raises(JobFailed, match="expired"):
            late.result(timeout=20)
        assert "expires" in naive
        assert "zone" in naive
    totals = stage.check(operated.app.counts._replace(added=6))["totals"]
    assert (totals["done"], totals["expired"]) == (4, 2)


@pytest.mark.timeout(sized(60, 300))
def test_very_many_jobs_that_expire_at_one_moment_cost_about_a_second(stage: Stage) -> None:
    """Nobody takes from their queue; a job behind them is done soon after, and the server's memory stays flat."""
    count = sized(5_000, 100_000)
    moment = datetime.now(UTC) + timedelta(seconds=sized(5, 60))
    for start in range(0, count, 1_000):
        signatures = [operated.work.options(expires=moment).s(n) for n in range(start, start + 1_000)]
        operated.app.add_many(signatures)
    assert datetime.now(UTC) < moment, "adding took too long"
    last = operated.work.delay(-1)
    before = resident_bytes(stage.server.pid)
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
    stage.start_worker("w", "--processes", "1", app=APP, wait=False)
    wait_for(lambda: stage.totals()["expired"] == count, 20, "all of them have expired")
    recovered(f"{count} jobs expire", (datetime.now(UTC) - moment).total_seconds(), 0.5 + count / 100_000)
    assert last.result(timeout=20) == -1
    grown = (resident_bytes(stage.server.pid) - before) / MIB
    print(f"the server has grown by {grown:.1f} MiB")
    assert grown < 16.0
    totals = stage.check(operated.app.counts)["totals"]
    assert (totals["dead"], totals["handed_out"]) == (count, 1)
