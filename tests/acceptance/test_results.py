"""Waiting for and reading outcomes, with real servers and workers."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tenure import (
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultExpired,
    ResultNotStored,
    ResultsDisabled,
    ResultTimeout,
    as_completed,
)
from tenure.context import Progress
from tests.stage.apps import mixed, results
from tests.stage.harness import ROOT, Stage, wait_for

APP = "tests.stage.apps.results"


@pytest.fixture
def stage(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(results.app)
    return bare


def sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += entry.readlink().name.startswith("socket:")
        except OSError:
            continue
    return count


def test_results_and_errors(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", app=APP)
    job = results.double.delay(21)
    assert job.result(timeout=20) == 42
    assert (job.state(), job.wait(), results.app.job(job.id).result()) == ("done", "done", 42)

    with pytest.raises(JobFailed) as failed:
        results.order.delay("bolts").result(timeout=20)
    assert isinstance(failed.value.__cause__, results.NoStock)
    assert str(failed.value.__cause__) == "bolts: 0 left"
    assert "raise NoStock(item, 0)" in str(failed.value)
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)

    asleep = results.slow.delay(1.0)
    began = time.monotonic()
    with pytest.raises(ResultTimeout):
        asleep.result(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 0.8
    assert asleep.result(timeout=20) == "slept"

    later = results.double.options(delay=60).delay(1)
    assert later.wait(timeout=0.1) == later.state() == "scheduled"
    assert later.cancel() == "cancelled"
    with pytest.raises(JobCancelled):
        later.result(timeout=20)
    with pytest.raises(JobNotFound):
        results.app.job("f" * 32).result(timeout=20)
    stage.check(results.app.counts)


def test_results_that_are_not_kept(stage: Stage) -> None:
    """Never a hang, never a second run: off for the task, too large, without a wire form."""
    worker = stage.start_worker("w", "--processes", "1", app=APP)
    silent = results.silent.delay()
    began = time.monotonic()
    with pytest.raises(ResultsDisabled):
        silent.result()
    assert time.monotonic() - began < 0.3
    assert silent.wait(timeout=20) == "done"
    with pytest.raises(ResultsDisabled):
        results.app.job(silent.id).result(timeout=20)
    fits, large = results.returns.delay(1_048_000), results.returns.delay(1_100_000)
    assert len(fits.result(timeout=20)) == 1_048_000
    with pytest.raises(ResultNotStored, match="too large"):
        large.result(timeout=20)
    with pytest.raises(ResultNotStored, match="not storable"):
        results.returns_what_cannot_be_kept.delay().result(timeout=20)
    assert stage.check(results.app.counts)["totals"]["handed_out"] == 4
    assert worker.counts["done"] == 4


def test_a_result_expires_while_it_is_kept_for_repeats(bare: Stage) -> None:
    bare.start_server("127.0.0.1:0", "--result-ttl", "2s")
    bare.use(results.app)
    bare.start_worker("w", "--processes", "1", app=APP)
    job = results.double.delay(1)
    assert job.result(timeout=20) == 2

    def expired() -> bool:
        try:
            job.result(timeout=5)
        except ResultExpired:
            return True
        return False

    wait_for(expired, 10, "the result has expired")
    with pytest.raises(ResultExpired):
        job.state()


def test_a_second_caller_with_the_same_key(stage: Stage) -> None:
    first = results.slow.options(key="once").delay(0.5)
    second = results.slow.options(key="once").delay(0.5)
    assert (second.created, second.id) == (False, first.id)
    stage.start_worker("w", "--processes", "1", app=APP)
    assert second.result(timeout=20) == first.result(timeout=20) == "slept"


def test_progress_and_json(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--visibility-timeout", "3", app=APP)
    job = results.steps.delay()
    assert wait_for(job.progress, 10, "the first step is told") == Progress(1, 4, "first step")
    assert "1 of 4, first step" in stage.told("job", job.id)
    stage.let_go()
    assert job.result(timeout=20) == 4
    assert job.progress() is None
    for number, shown in ((math.nan, "NaN"), (math.inf, "Infinity")):
        odd = results.double.delay(number)
        assert str(odd.result(timeout=20)) == str(number)
        printed = stage.told("job", odd.id, "--json")
        assert json.loads(printed, parse_constant=pytest.fail)["result"] == {"value": shown}


def test_a_job_that_waits_for_a_job_where_no_slot_is_free(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--threads", "1", app=APP)
    began = time.monotonic()
    with pytest.raises(JobFailed, match="WouldDeadlock"):
        results.waits_for_another.delay().result(timeout=20)
    assert time.monotonic() - began < 5


def test_a_job_that_waits_for_the_first_job_of_a_key_in_another_queue(stage: Stage) -> None:
    results.double.options(key="known", delay=30).delay(21)
    stage.start_worker("w", "--processes", "1", "--threads", "1", "--queues", "default", app=APP)
    began = time.monotonic()
    with pytest.raises(JobFailed, match="WouldDeadlock"):
        results.waits_for_a_known_key.delay().result(timeout=20)
    assert time.monotonic() - began < 5


def test_a_job_that_waits_for_a_job_where_a_slot_is_free(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--threads", "2", app=APP)
    assert results.waits_for_another.delay().result(timeout=20) == 42


def test_jobs_that_wait_for_jobs_of_another_kind_in_their_own_queue(stage: Stage) -> None:
    stage.use(mixed.app)
    added = [mixed.parent.delay(number) for number in range(8)]  # as many as threads: none is left for the queue
    worker = stage.start_worker("w", "--processes", "1", "--threads", "8", app="tests.stage.apps.mixed")
    assert [job.result(timeout=40) for job in added] == [number * 2 for number in range(8)]
    assert "queues with both plain functions and coroutines: default." in worker.output


@pytest.mark.skipif(sys.platform != "linux", reason="counts sockets in /proc")
def test_500_short_threads_add_and_wait(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", app=APP)
    before = sockets()
    found: list[float] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(results.double.delay(n).result(timeout=30)))
        for n in range(500)
    ]
    most = 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, sockets() - before)
        time.sleep(0.005)
    assert sorted(found) == [2 * n for n in range(500)]
    assert most <= results.app.settings.pool_size + 2
    stage.check(results.app.counts)


def test_as_completed_and_an_event_loop(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", "--threads", "8", app=APP)
    jobs = [job for job in results.app.add_many([results.double.s(n) for n in range(1200)]) if isinstance(job, Job)]
    last = results.slow.delay(1.0)
    ended: list[Job[object]] = list(as_completed([last, *jobs], timeout=30))
    assert len(ended) == 1201
    assert ended.index(last) > 0

    async def main() -> tuple[list[float], float]:
        job = results.slow.delay(2.0)
        waiting = asyncio.gather(*[job.aresult(timeout=20) for job in jobs], job.aresult(timeout=20))
        longest, before = 0.0, time.monotonic()
        while not waiting.done():
            await asyncio.sleep(0.01)
            now = time.monotonic()
            longest, before = max(longest, now - before), now
        *numbers, slept = await waiting
        assert slept == "slept"
        return [number for number in numbers if isinstance(number, float | int)], longest

    numbers, longest = asyncio.run(main())
    assert numbers == [2 * n for n in range(1200)]
    assert longest < 0.5


def test_waiters_outlive_a_server_that_is_killed(stage: Stage) -> None:
    address = stage.url.removeprefix("tenure://")
    job = results.slow.options(delay=3).delay(0.1)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(job.result(timeout=30))) for _ in range(20)]
    for thread in threads:
        thread.start()
    stage.server.signal(signal.SIGKILL)
    stage.server.wait()
    stage.start_server(address)
    stage.start_worker("w", "--processes", "1", app=APP)
    for thread in threads:
        thread.join()
    assert found == ["slept"] * 20


def test_the_page_about_results(stage: Stage) -> None:
    page = (ROOT / "docs" / "howto" / "results.md").read_text(encoding="utf-8")
    module, *uses = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (stage.place / "reports.py").write_text(module)
    (stage.place / "use.py").write_text("\n".join(uses))
    stage.env |= {"TENURE_BROKER": stage.url, "PYTHONPATH": f"{stage.place}:{ROOT}"}
    stage.start_worker("w", "--processes", "1", app="reports")
    caller = stage.start([sys.executable, "use.py"], stage.place / "caller.log")
    assert caller.wait(30) == 0, caller.output
    assert len(uses) >= 6


FORKING = """
import os, threading
from tests.stage.apps import results

first = results.slow.delay(0.5)
waiting = threading.Thread(target=first.result)
waiting.start()
child = os.fork()
assert results.double.delay(4).result(timeout=20) == 8
assert first.result(timeout=20) == "slept"
if child:
    waiting.join()
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_caller_forks_while_a_thread_waits(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1", app=APP)
    stage.env["TENURE_BROKER"] = stage.url
    caller = stage.start([sys.executable, "-c", FORKING], stage.place / "caller.log")
    assert caller.wait(20) == 0, caller.output
