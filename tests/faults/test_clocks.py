"""Wall clocks that are wrong: due times go by the server's, leases by none of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tenure.faults.clock import MovedClock
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for
from tests.stage.sizes import sized

OPTIONS = ("--processes", "1", "--threads", "4", "--visibility-timeout", "1s")
OFF = 120.0
LONG = sized(2.0, 15.0)
DELAY = 2.0

CALL = f"""
import sys
from tests.stage.apps import jobs
_, url, queue = sys.argv
jobs.app.use_broker(url)
print(jobs.work.options(delay={DELAY}, queue=queue).delay(1).id)
"""


@contextmanager
def going_by(clock: MovedClock, stage: Stage) -> Iterator[None]:
    """Have what the stage starts meanwhile go by this clock."""
    env = stage.env
    stage.env = clock.env(env)
    yield
    stage.env = env


class Wrong:
    """A worker and a producer of a queue of their own, whose clock is off, and jobs of every kind that has a time."""

    def __init__(self, stage: Stage, clock: MovedClock, name: str) -> None:
        with going_by(clock, stage):
            self.worker = stage.start_worker(name, *OPTIONS, "--queues", name)
            call = stage.start([sys.executable, "-c", CALL, stage.url, name], stage.place / f"{name}.call")
        self.held = jobs.work.options(queue=name).delay(1, LONG)
        self.fresh = jobs.work.options(queue=name, expires=30.0).delay(2)
        self.failing = jobs.broken.options(queue=name).delay("once more")
        assert call.wait() == 0
        self.due = call.output.strip()

    def check(self, stage: Stage, name: str) -> None:
        """See that their times went by the server's clock, and that the worker has said so."""
        due = stage.job(self.due)
        begun = (due["handouts"][0]["begin_at"] - due["added_at"]) / 1000
        print(f"{name}: due after {DELAY:g} s, begun after {begun:.3f} s")
        assert DELAY - 0.001 <= begun < DELAY + 5
        assert [one["ended"] for one in stage.job(self.held.id)["handouts"]] == ["done"]
        assert stage.job(self.fresh.id)["state"] == "done"
        assert [one["ended"] for one in stage.job(self.failing.id)["handouts"]] == ["retried", "dead"]
        told = [line for line in self.worker.output.splitlines() if "the clock of this machine" in line]
        assert len(told) == 1
        assert f"is {OFF:g} s {name} the server's" in told[0].replace("ahead of", "ahead")


def test_workers_and_producers_whose_clocks_are_off(stage: Stage) -> None:
    with MovedClock(OFF) as ahead, MovedClock(-OFF) as behind:
        wrong = {"ahead": Wrong(stage, ahead, "ahead"), "behind": Wrong(stage, behind, "behind")}
        wait_for(lambda: stage.totals()["done"] == 6, 15 + LONG, "what does not fail is done")
        wait_for(lambda: stage.totals()["dead"] == 2, 10, "what fails is dead")
        for name, one in wrong.items():
            one.check(stage, name)
        produced = jobs.app.counts
        stage.check(produced._replace(added=produced.added + len(wrong)))


def test_the_clock_of_the_server_is_moved_while_it_runs(bare: Stage) -> None:
    with MovedClock() as clock:
        with going_by(clock, bare):
            bare.start_server()
        bare.use(jobs.app)
        bare.start_worker("first", *OPTIONS)
        bare.start_worker("second", *OPTIONS, wait=False)
        count = 3
        for number in range(count):
            jobs.work.delay(number, LONG)
        wait_for(lambda: len(bare.executions()) == count, 10, "the long jobs have started")
        for hours in (1, 0, -1):
            clock.move(3600.0 * hours)
            for _ in range(20):
                jobs.work.delay(0)
            count += 20
            added_at = bare.job(jobs.work.delay(0).id)["added_at"] / 1000
            count += 1
            assert abs(added_at - time.time() - 3600.0 * hours) < 60.0  # the server does go by that clock
            time.sleep(LONG / 4)
        bare.wait_done(count)
    totals = bare.check(jobs.app.counts)["totals"]
    assert (totals["handed_out"], totals["handouts"]["returned"]) == (count, 0)
    assert len(bare.executions()) == count
