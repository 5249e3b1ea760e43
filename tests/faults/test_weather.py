"""Faults of all kinds under load: whatever comes together, jobs flow again, and every account agrees in the end.

Every seed is printed; `TENURE_FAULT_SEED=7 pytest -s tests/faults/test_weather.py -k random` looks at one again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from tenure import App, Task
from tenure.broker import ProducerCounts
from tenure.faults import Fault, Proxy, Schedule, process, run_schedule
from tenure.faults.schedule import DECK, Card
from tests.stage import marks
from tests.stage.apps import jobs
from tests.stage.figures import recovered
from tests.stage.harness import JOBS, Stage, wait_for
from tests.stage.producer import Producer
from tests.stage.sizes import seeds, sized


def test_all_connections_are_cut_again_and_again(stage: Stage) -> None:
    with Proxy(stage.url) as proxy:
        stage.use(jobs.app, proxy.url)
        stage.start_worker("w", "--processes", "2", "--threads", "4", broker=proxy.url)
        count = 0
        for _ in range(8):
            for _ in range(25):
                jobs.work.delay(count, 0.01)
                count += 1
            assert proxy.cut() > 0
            cut_at = time.monotonic()
            last = jobs.work.delay(count)
            count += 1
            wait_for(partial(stage.executions, last.id), 5, "jobs flow again")
            recovered("all connections cut", time.monotonic() - cut_at, 0.3)
        stage.wait_done(count)
        totals = stage.check(jobs.app.counts)["totals"]
    assert totals["done"] == totals["handed_out"] == len(stage.executions()) == count


def test_new_connections_are_cut_ten_times(stage: Stage) -> None:
    """All ten meet the one connection over which jobs are taken, and then the one over which they are added."""
    with Proxy(stage.url) as at_worker, Proxy(stage.url) as at_producer:
        stage.use(jobs.app, at_producer.url)
        stage.start_worker("w", "--processes", "1", broker=at_worker.url)
        jobs.work.delay(0)
        stage.wait_done(1)
        for number, proxy in enumerate((at_worker, at_producer), 1):
            proxy.cut_on_accept(10)
            proxy.cut()
            cut_at = time.monotonic()
            job = jobs.work.delay(number)
            wait_for(partial(stage.executions, job.id), 6, "the job runs")
            recovered("ten cuts right after accept", time.monotonic() - cut_at, 2.0)
        stage.wait_done(3)
        stage.check(jobs.app.counts)


def test_the_server_is_killed_twenty_times_under_load(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "2", "--threads", "4")
    producers = [Producer(0.005, 0.0), Producer(0.005, 0.02)]
    try:
        for _ in range(20):
            wait_for(_more(stage, 20), 10, "jobs flow")
            _restart(stage)
            restarted_at = time.monotonic()
            wait_for(_more(stage, 1), 10, "jobs flow again")
            recovered("server killed and started again", time.monotonic() - restarted_at, 2.0)
    finally:
        ids = [id for producer in producers for id in producer.stop()]
    stage.wait_done(len(ids))
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["done"]) == (len(ids), len(set(ids)))
    assert {one.job for one in stage.executions()} == set(ids)


def _more(stage: Stage, count: int) -> Callable[[], bool]:
    """Return what tells whether so many more jobs have been started than now."""
    enough = marks.started(stage.place) + count
    return lambda: marks.started(stage.place) >= enough


def _restart(stage: Stage) -> None:
    address = stage.url.removeprefix("tenure://")
    process.kill(stage.server.pid)
    stage.server.wait()
    stage.start_server(address)


PROCESSES: tuple[Card, ...] = (
    lambda roll: Fault("kill-process", (roll.randrange(6),)),
    lambda roll: Fault("kill-server"),
    lambda roll: Fault("freeze-server", (round(roll.uniform(0.2, 1.6), 3),)),
)
"""What strikes processes, beside all that a proxy can do."""


class Processes:
    """Carries out the faults of processes; those of the server one after the other, while the weather goes on."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._hand = ThreadPoolExecutor(1)
        self._tasks: list[Future[None]] = []
        self.verbs: dict[str, Callable[..., object]] = {
            "kill-process": self._kill_process,
            "kill-server": lambda: self._tasks.append(self._hand.submit(_restart, stage)),
            "freeze-server": lambda seconds: self._tasks.append(self._hand.submit(self._freeze, seconds)),
        }

    def _kill_process(self, number: float) -> None:
        workers = self._stage.workers
        children = workers[int(number) % len(workers)].children
        if children:
            with suppress(ProcessLookupError):
                process.kill(children[int(number) // len(workers) % len(children)])

    def _freeze(self, seconds: float) -> None:
        process.freeze(self._stage.server.pid)
        try:
            time.sleep(seconds)
        finally:
            process.thaw(self._stage.server.pid)

    def end(self) -> None:
        """Wait until the server runs as it should; what went wrong is raised."""
        self._hand.shutdown()
        for task in self._tasks:
            task.result()


WORK = (("work", 0.0), ("work", 0.1), ("second_try", 0.02))
"""What the three programs add: the task, and the seconds that one job takes."""


@contextmanager
def _producers(url: str, count: int, pause: float) -> Iterator[tuple[list[App], list[Producer]]]:
    """Three programs of four threads that add `count` jobs together, each with its own connections and counts."""
    apps = [App(f"producer-{number}", broker=url) for number in range(3)]
    try:
        yield (
            apps,
            [
                Producer(pause, seconds, task=_task(app, name), limit=(count + number) // 3, threads=4)
                for number, (app, (name, seconds)) in enumerate(zip(apps, WORK, strict=True))
            ],
        )
    finally:
        for app in apps:
            app.close()


def _task(app: App, name: str) -> Task[[int, float], int]:
    """A task that the workers know, in an app of its own."""

    @app.task(name=f"{JOBS}.{name}")
    def task(number: int, seconds: float) -> int:
        return number

    return task


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_random_weather(stage: Stage, seed: int) -> None:
    seconds, count = sized((10.0, 2000), (30.0, 10_000))
    schedule = Schedule(seed, seconds, deck=DECK + PROCESSES)
    print(f"seed {seed}:", *schedule, sep="\n")
    with Proxy(stage.url) as proxy:
        options = ("--processes", "2", "--threads", "4", "--visibility-timeout")
        workers = [
            stage.start_worker(f"w{timeout}", *options, timeout, broker=proxy.url, wait=False)
            for timeout in ("1s", "2s", "5s")
        ]
        wait_for(lambda: all(f"worker {one.name}: " in one.output for one in workers), 20, "the workers have started")
        processes = Processes(stage)
        with _producers(proxy.url, count, 6.0 * seconds / count) as (apps, producers):
            try:
                done = run_schedule(schedule, proxy, processes.verbs)
            finally:
                processes.end()
            calm_at = time.monotonic()
            ids = [id for producer in producers for id in producer.stop()]
            counts = ProducerCounts(*map(sum, zip(*(app.counts for app in apps), strict=True)))
        stage.wait_done(count, sized(30, 90))
        print(f"seed {seed}: all done {time.monotonic() - calm_at:.2f} s into the calm; {dict(done)}")
        wait_for(lambda: stage.totals()["running"] == 0, 10, "nothing runs any more")
        totals = stage.check(counts)["totals"]
    killed = sum(worker.output.count("ended (SIGKILL)") for worker in workers)
    print(f"seed {seed}: {killed} processes killed; {totals}")
    for running in (*workers, stage.server):
        assert "Traceback" not in running.output, f"seed {seed}: a fault of ours in {running.log}"
    assert totals["added"] == totals["done"] == len(ids) == len(set(ids)) == count
    assert totals["handouts"]["retried"] >= count // 3
    assert {one.job for one in stage.executions() if one.ended} == set(ids)
    assert len(done) >= 10, "nearly every kind of fault: there are twelve"
