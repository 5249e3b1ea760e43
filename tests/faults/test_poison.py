"""Jobs that kill what runs them, and bytes that are no job: each is dead after a while, and nothing else waits."""

from __future__ import annotations

import random
import signal
import time

from tenure.faults import process
from tests.stage.apps import jobs, poisonous
from tests.stage.by_hand import add_by_hand
from tests.stage.harness import TENURE, Stage, wait_for

KILLS = {"signal": "SIGKILL", "exit": "exit code 3", "fault": "SIGSEGV"}
GOOD = 100


def test_jobs_that_kill_their_process_while_the_server_is_restarted(bare: Stage) -> None:
    bare.start_server()
    address = bare.url.removeprefix("tenure://")
    bare.use(poisonous.app)
    poison = {how: poisonous.die.delay(how) for how in KILLS}
    for number in range(GOOD):
        poisonous.good.delay(number)
    worker = bare.start_worker("w", "--processes", "2", "--threads", "2", app=poisonous.__name__)
    for losses in (1, 4):
        wait_for(lambda losses=losses: bare.totals()["handouts"]["lost"] >= losses, 20, "a process died")  # type: ignore[misc]
        process.kill(bare.server.pid)
        bare.server.wait()
        bare.start_server(address)
    wait_for(lambda: bare.totals()["done"] == GOOD, 20, "all good jobs are done")
    wait_for(lambda: bare.totals()["dead"] == len(KILLS), 30, "all poison jobs are dead")
    for how, cause in KILLS.items():
        found = bare.job(poison[how].id)
        assert (found["state"], found["attempts"], found["losses"]) == ("dead", 0, 3)
        assert found["reason"].startswith("worker lost (")
        ended = [(one["ended"], one["cause"]) for one in found["handouts"] if one["cause"] == cause]
        assert ended.count(("lost", cause)) >= 1, found["handouts"]
    wait_for(lambda: len(worker.children) == 2, 10, "the worker is whole again")
    assert "worker lost (" in bare.told("dead", "ls")
    totals = bare.check(poisonous.app.counts)["totals"]
    assert (totals["done"], totals["dead"]) == (GOOD, len(KILLS))


def test_a_job_that_kills_the_whole_worker_each_time(bare: Stage) -> None:
    bare.start_server()
    bare.use(poisonous.app)
    poison = poisonous.die_with_all.delay()
    args = [str(TENURE), "worker", "-A", poisonous.__name__, "--broker", bare.url, "--processes", "1", "--name", "w"]
    for n in range(2):
        assert bare.start(args, bare.place / f"w{n}.log").wait() == -signal.SIGKILL
    wait_for(lambda: bare.totals()["dead"] == 1, 6, "its leases have run out")
    found = bare.job(poison.id)
    assert (found["reason"], found["losses"]) == ("worker lost (the lease ran out)", 2)
    assert [one["ended"] for one in found["handouts"]] == ["returned", "returned"]
    bare.check(poisonous.app.counts)


def test_the_last_attempt_is_not_used_up_by_a_killed_process(stage: Stage) -> None:
    job = jobs.hold.options(max_attempts=1).delay(1)
    stage.start_worker("w", "--processes", "1", "--threads", "1")
    (first,) = wait_for(stage.executions, 10, "the job runs")
    process.kill(first.pid)
    stage.wait_done(1)
    found = stage.job(job.id)
    assert (found["state"], found["attempts"], found["losses"]) == ("done", 1, 1)
    assert [one["ended"] for one in found["handouts"]] == ["lost", "done"]
    stage.check(jobs.app.counts)


def test_bytes_that_are_no_message(stage: Stage) -> None:
    dice = random.Random(7)
    bodies = [b"garbage", b"", b"\x00\xff" * 300, b"\n\nadd 1 2 3\n", b"\xc1" * 5, b'{"task": "work", "args": [1]}']
    bodies += [dice.randbytes(dice.randint(1, 2_000)) for _ in range(20)]
    ids = add_by_hand(stage.url, bodies)
    worker = stage.start_worker("w", "--processes", "1")
    jobs.work.delay(1)
    stage.wait_done(1)
    wait_for(lambda: stage.totals()["dead"] == len(bodies), 5, "all of them are dead")
    time.sleep(0.5)
    assert stage.totals()["handed_out"] == len(bodies) + 1, "each was looked at once"
    for id, body in zip(ids, bodies, strict=True):
        found = stage.job(id)
        assert (found["state"], found["body"], found["losses"]) == ("dead", body.hex(), 0)
        assert found["reason"]
    shown = stage.ask("job", ids[0])
    assert (shown["state"], shown["body"]) == ("dead", bodies[0].hex())
    assert stage.told("job", ids[0]).startswith(f"job {ids[0]}: dead (")
    assert {row["id"] for row in stage.ask("dead", "ls")} == set(ids)
    assert len(worker.children) == 1
    assert "Traceback" not in worker.output
    produced = jobs.app.counts
    stage.check(produced._replace(added=produced.added + len(bodies)))


def test_an_error_whose_text_is_hard_to_store(bare: Stage) -> None:
    bare.start_server()
    bare.use(poisonous.app)
    job = poisonous.unreadable.delay("emoji \N{PILE OF POO} and \0")
    poisonous.good.delay(1)
    bare.start_worker("w", "--processes", "1", app=poisonous.__name__)
    bare.wait_done(1)
    wait_for(lambda: bare.job(job.id)["state"] == "dead", 5, "the job is dead")
    shown = bare.told("job", job.id)
    for text in ("\N{PILE OF POO}", "\\x00", "\\udc80", "\\x1b[31m", "\\udcff"):
        assert text in shown, shown
    totals = bare.check(poisonous.app.counts)["totals"]
    assert (totals["done"], totals["dead"]) == (1, 1)
