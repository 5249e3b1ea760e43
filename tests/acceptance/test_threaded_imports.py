"""Apps whose import leaves threads, held locks and open connections: nothing of it may reach a worker process."""

from __future__ import annotations

from tenure.faults import process
from tests.stage.apps import threaded
from tests.stage.harness import Stage, wait_for

APP = "tests.stage.apps.threaded"
STARTS = 8


def test_a_thread_that_holds_a_lock_at_import_stops_no_process(bare: Stage) -> None:
    bare.start_server()
    bare.use(threaded.app)
    worker = bare.start_worker("w", "--processes", "2", app=APP)
    for started in range(STARTS):
        done = started * 10
        threaded.app.add_many([threaded.quick.s(n) for n in range(10)])
        bare.wait_done(done + 10)
        victim = worker.children[0]
        process.kill(victim)
        wait_for(lambda gone=victim: gone not in worker.children and len(worker.children) == 2, 10, "it is replaced")  # type: ignore[misc]
    assert worker.stop() == 0
    bare.check(threaded.app.counts)


def test_processes_of_one_worker_share_no_connection(bare: Stage) -> None:
    bare.start_server()
    bare.use(threaded.app)
    threaded.app.add_many([threaded.adds.s(n) for n in range(300)])
    worker = bare.start_worker("w", "--processes", "4", "--threads", "4", app=APP)
    bare.wait_done(600)
    assert worker.stop() == 0
    totals = bare.totals()
    assert (totals["added"], totals["done"], totals["duplicates"]) == (600, 600, 0)
    assert totals["handed_out"] == 600  # no answer went to another process, so nothing had to come twice
