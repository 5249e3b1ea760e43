"""Wall clocks that are wrong: due times go by the server's, leases by none of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tenure.faults.clock import MovedClock
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized

OPTIONS = ("--processes", "1", "--threads", "4", "--visibility-timeout", "1s")
OFF = 120.0
HOUR = 3600.0
LONG = sized(3.0, 15.0)
DELAY = 2.0

CALL = f"""
import sys
from tests.stage.apps import jobs
jobs.app.use_broker(sys.argv[1])
jobs.work.options(delay={DELAY}, queue="due").delay(1)
"""


@contextmanager
def going_by(clock: MovedClock, stage: Stage) -> Iterator[None]:
    """Have what the stage starts meanwhile go by this clock."""
    env = stage.env
    stage.env = clock.env(env)
    yield
    stage.env = env


@pytest.mark.parametrize("off", [OFF, -OFF], ids=["ahead", "behind"])
def test_a_worker_and_a_producer_whose_clock_is_off(stage: Stage, off: float) -> None:
    with MovedClock(off) as clock, going_by(clock, stage):
        worker = stage.start_worker("w", *OPTIONS, "--queues", "default,due")
        held = jobs.work.delay(1, LONG)
        fresh = jobs.work.options(expires=30.0).delay(2)
        failing = jobs.broken.delay("once more")
        called_at = time.time()
        assert stage.start([sys.executable, "-c", CALL, stage.url], stage.place / "call.log").wait() == 0
        wait_for(lambda: stage.totals()["done"] == 3, 15 + LONG, "all but the failing one are done")
        wait_for(lambda: stage.job(failing.id)["state"] == "dead", 10, "the failing one is dead")
        (due,) = [one for one in stage.executions() if one.job not in (held.id, fresh.id, failing.id)]
        begun = stage.job(due.job)["handouts"][0]["begin_at"] / 1000 - called_at
        print(f"due after {DELAY:g} s, begun after {begun:.2f} s")
        assert DELAY - 0.01 <= begun < DELAY + 8
        assert [one["ended"] for one in stage.job(held.id)["handouts"]] == ["done"]
        assert stage.job(fresh.id)["state"] == "done"
        produced = jobs.app.counts
        stage.check(produced._replace(added=produced.added + 1))
    told = [line for line in worker.output.splitlines() if "the clock of this machine" in line]
    assert len(told) == 1
    assert f"is 120 s {'ahead of' if off > 0 else 'behind'} the server's" in told[0]


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["on", "back"])
def test_the_clock_of_the_server_is_moved_while_it_runs(bare: Stage, step: float) -> None:
    with MovedClock() as clock:
        with going_by(clock, bare):
            bare.start_server()
        bare.use(jobs.app)
        bare.start_worker("first", *OPTIONS)
        bare.start_worker("second", *OPTIONS)
        held = [jobs.work.delay(number, LONG) for number in range(3)]
        wait_for(lambda: len(bare.executions()) == 3, 10, "the long jobs have started")
        before = bare.ask("job", held[0].id)["handouts"][0]["begin_at"]
        count = len(held)
        for offset in (step, 0.0, step):
            clock.move(offset)
            for _ in range(20):
                jobs.work.delay(0)
                count += 1
            time.sleep(LONG / 4)
        bare.wait_done(count)
        last = bare.ask("job", jobs.work.delay(1).id)["added_at"]
        assert abs((last - before) / 1000 - step) < 60.0  # the server does go by that clock
        bare.wait_done(count + 1)
    totals = bare.check(jobs.app.counts)["totals"]
    assert (totals["handed_out"], totals["handouts"]["returned"]) == (count + 1, 0)
    assert len(bare.executions()) == count + 1
