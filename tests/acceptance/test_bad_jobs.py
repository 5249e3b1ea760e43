"""Jobs that cannot be run as they are: each has a state, a reason, and a place where an operator finds it."""

from __future__ import annotations

from itertools import pairwise

from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for


def test_a_task_that_the_worker_does_not_know(stage: Stage) -> None:
    other = stage.start_worker("other", "--processes", "1", app="tests.stage.apps.elsewhere")
    job = jobs.work.delay(7)
    wait_for(lambda: stage.totals()["handouts"]["released"] == 2, 10, "it was released twice")
    assert other.stop() == 0
    found = stage.job(job.id)
    assert (found["state"], found["attempts"], found["losses"]) == ("scheduled", 0, 0)
    assert [one["ended"] for one in found["handouts"]] == ["released", "released"]
    assert f"no task {jobs.work.name}" in other.output
    stage.start_worker("knows")
    stage.wait_done(1)
    found = stage.job(job.id)
    pauses = [later["begin_at"] - earlier["end_at"] for earlier, later in pairwise(found["handouts"])]
    assert pauses[0] >= 1000
    assert pauses[1] >= 2 * 1000
    assert (found["state"], found["attempts"]) == ("done", 1)
    stage.check(jobs.app.counts)


def test_a_task_that_raises_and_what_an_operator_does(stage: Stage) -> None:
    stage.start_worker("w", "--processes", "1")
    failing = [jobs.broken.options(key=f"k{number}").delay(f"no luck {number}") for number in range(3)]
    first, second, third = (job.id for job in failing)
    wait_for(lambda: stage.totals()["dead"] == 3, 10, "all of them are dead")
    broker = ("--broker", stage.url)

    shown = stage.told("job", first)
    for text in ("gave up after 2 attempts", "ValueError: no luck 0", "Traceback", "raise ValueError(text)", "k0"):
        assert text in shown
    assert stage.told("dead", "show", first) == shown
    found = stage.ask("dead", "show", first)
    assert [one["ended"] for one in found["handouts"]] == ["retried", "dead"]
    assert (found["attempts"], found["arguments"]) == (2, "'no luck 0'")
    for error in (one["error"] for one in found["handouts"]):
        assert (error["kind"], error["text"]) == ("ValueError", "no luck 0")
        assert "broken" in error["traceback"]

    listed = stage.told("dead", "ls")
    assert all(id in listed for id in (first, second, third))
    rows = stage.ask("dead", "ls", "--limit", "2")
    assert [row["id"] for row in rows] == [first, second]

    assert stage.ask("dead", "purge", second) == {second: "purged"}
    assert stage.run("dead", "purge", second, *broker, code=1).stdout
    assert stage.told("dead", "requeue", first) == f"{first}  ready\n"
    wait_for(lambda: len(stage.job(first)["handouts"]) == 4, 10, "it was tried twice again")
    wait_for(lambda: stage.job(first)["state"] == "dead", 5, "and is dead again")
    again = stage.job(first)
    assert (again["id"], again["key"], again["attempts"]) == (first, "k0", 2)
    assert [one["number"] for one in again["handouts"]] == [1, 2, 3, 4]

    assert set(stage.ask("dead", "requeue", "--all")) == {first, third}
    wait_for(lambda: stage.totals()["dead"] == 2, 10, "both are dead again")
    assert stage.ask("dead", "purge", "--all", "--queue", "default") == {first: "purged", third: "purged"}
    assert stage.told("dead", "ls") == "no dead jobs\n"
    unknown = stage.run("job", "0" * 32, *broker, code=1)
    assert unknown.stderr.count("\n") == 1
    totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["purged"], totals["dead"]) == (3, 3, 0)
