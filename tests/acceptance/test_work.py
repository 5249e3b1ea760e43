"""Jobs that go well: none runs twice, options are kept, and every producer's adds arrive."""

from __future__ import annotations

import secrets
import sqlite3
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tenure import AddError, Job, KeyConflict, MessageTooLarge
from tests.stage.apps import jobs
from tests.stage.harness import Stage


def test_5000_jobs_run_once_each(stage: Stage) -> None:
    db = sqlite3.connect(stage.place / "unique.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY)")
    added = jobs.app.add_many([jobs.insert_once.s(number) for number in range(5000)])
    assert all(isinstance(job, Job) and job.created for job in added)
    stage.start_worker("w", "--processes", "2")
    stage.wait_done(5000, 40)
    totals = stage.check(jobs.app.counts)["totals"]
    given_back = totals["handouts"]["released"]  # what a process had in hand while its slots were slower than expected
    assert (totals["done"], totals["handed_out"] - given_back) == (5000, 5000)
    assert len(stage.executions()) == 5000
    assert db.execute("SELECT count(*), min(number), max(number) FROM seen").fetchone() == (5000, 0, 4999)
    db.close()


def test_options_of_calls(stage: Stage) -> None:
    now = datetime.now(UTC)
    waiting = [jobs.work.options(priority=priority).delay(priority) for priority in (1, 5, 9)]
    # Behind all others also where the worker starts after they are due.
    delayed = jobs.work.options(delay=1.5, priority=0).delay(10)
    at = jobs.work.options(run_at=now + timedelta(seconds=1.5), priority=0).delay(11)
    expired = jobs.work.options(expires=0.05, queue="late").delay(12)
    for job in (delayed, at):
        found = stage.job(job.id)
        assert (found["state"], found["run_at"] >= int(now.timestamp() * 1000) + 1500) == ("scheduled", True)
    stage.start_worker("w", "--processes", "1", "--threads", "1", "--queues", "default,late")
    stage.wait_done(5)
    assert stage.job(expired.id)["state"] == "dead"
    assert "expired" in stage.job(expired.id)["reason"]
    order = [one.job for one in stage.executions()]
    assert order[:3] == [job.id for job in reversed(waiting)]
    assert set(order[3:]) == {delayed.id, at.id}
    for job in (delayed, at):
        assert stage.job(job.id)["handouts"][0]["begin_at"] >= int(now.timestamp() * 1000) + 1500
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["dead"], totals["expired"]) == (1, 1)


def test_keys_and_batches(stage: Stage) -> None:
    first = jobs.invoice.delay(1, 100)
    again = jobs.invoice.delay(1, 100)
    assert (first.created, again.created, again.id) == (True, False, first.id)
    with pytest.raises(KeyConflict) as conflict:
        jobs.invoice.delay(1, 200)
    assert conflict.value.first_id == first.id
    assert first.id in str(conflict.value)
    assert conflict.value.id in str(conflict.value)
    batch = jobs.app.add_many(
        [jobs.invoice.s(2, 1), jobs.invoice.s(1, 300), jobs.invoice.s(3, 1), jobs.invoice.s(2, 1)]
    )
    assert [type(one).__name__ for one in batch] == ["Job", "KeyConflict", "Job", "Job"]
    unfit = jobs.broken.s("\ud800")  # fits its hint, and has no wire form
    big = jobs.app.add_many([jobs.work.s(1), jobs.broken.s(secrets.token_hex(3_000_000)), unfit])
    assert isinstance(big[0], Job)
    assert isinstance(big[1], MessageTooLarge)
    assert isinstance(big[2], AddError)
    stage.start_worker("w", "--processes", "1")
    stage.wait_done(4)
    assert jobs.invoice.delay(1, 100).id == first.id  # the key means the job for a while after it is done
    record = stage.check(jobs.app.counts)
    assert record["queues"]["invoices"]["duplicates"] == 3
    assert jobs.app.counts.added == 4


FORKING = """
import os
from tests.stage.apps import jobs

jobs.work.delay(-1)
child = os.fork()
for number in range(100):
    jobs.work.delay(number)
print("counts", *jobs.app.counts[:2], flush=True)
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_producer_forks(stage: Stage) -> None:
    stage.env["TENURE_BROKER"] = stage.url
    producer = stage.start([sys.executable, "-c", FORKING], stage.place / "producer.log")
    assert producer.wait(20) == 0, producer.output
    assert sorted(producer.output.splitlines()) == ["counts 100 0", "counts 101 0"]
    stage.start_worker("w", "--processes", "2")
    stage.wait_done(201)
    produced = jobs.app.counts._replace(added=201)
    assert stage.check(produced)["totals"]["done"] == 201


def test_the_broker_is_found(stage: Stage) -> None:
    jobs.work.delay(1)
    assert "default" in stage.run("queues", TENURE_BROKER=stage.url).stdout
    (stage.place / "pyproject.toml").write_text(f'[tool.tenure]\nbroker = "{stage.url}"\n')
    assert "default" in stage.run("queues").stdout
    away = stage.run("queues", code=1, TENURE_BROKER="tenure://127.0.0.1:1")
    assert away.stderr.startswith("tenure: ")
    assert away.stderr.count("\n") == 1
    assert "127.0.0.1:1" in away.stderr
    assert "default" in stage.run("queues", "--broker", stage.url, TENURE_BROKER="tenure://127.0.0.1:1").stdout
