"""Operating: what a person sees of dead jobs and queues, and can do with them."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.broker import Extend
from tenure.errors import JobNotFound, KeyConflict, QueueClosed, QueueNotFound
from tenure.message import When
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.scene import PATIENCE, Scene, add, id_of

NOBODY = "0" * 32
"""An id that no job has."""


def bury(scene: Scene, count: int = 1, **fields: object) -> list[str]:
    """Make so many jobs dead; returns their ids in the order of the dead list."""
    ids = scene.add_all([scene.message(number, **fields) for number in range(count)])
    worker = scene.worker()
    for delivery in worker.collect(count):
        worker.run(delivery, "dead", reason="it broke", error=b"\x80")
    return sorted(ids)


class DeadListContract(ContractPart):
    """What has failed for good is on the dead list with its reason, and can be put back or taken off."""

    @needs("operated")
    def test_a_dead_job_is_listed_with_its_reason_and_its_body(self, scene: Scene) -> None:
        (id,) = bury(scene)
        (entry,) = scene.admin.dead(scene.queue, 10, None)
        assert (entry["id"], entry["queue"], entry["task"], entry["state"]) == (id, scene.queue, scene.task, "dead")
        assert entry["reason"] == "it broke"
        assert bytes.fromhex(entry["body"])
        json.dumps(entry)  # raises where it is no JSON

    @needs("operated")
    def test_the_dead_list_is_read_in_pages(self, scene: Scene) -> None:
        ids = bury(scene, 7)
        pages, after = list[list[str]](), None
        while page := [entry["id"] for entry in scene.admin.dead(scene.queue, 3, after)]:
            pages.append(page)
            after = page[-1]
        assert pages == [ids[:3], ids[3:6], ids[6:]]
        listed = {entry["id"] for entry in scene.admin.dead(None, 1_000, None)}
        assert set(ids) <= listed or len(listed) == 1_000

    @needs("operated")
    def test_a_requeued_job_begins_anew(self, scene: Scene) -> None:
        (id,) = bury(scene, max_attempts=1)
        assert scene.admin.requeue(id) == "ready"
        assert scene.admin.requeue(id) == "already ready"
        scene.state(id, "ready")
        assert scene.admin.dead(scene.queue, 10, None) == []
        worker = scene.worker()
        again = worker.one()
        assert (id_of(again), again.attempt, again.losses) == (id, 1, 0)
        assert again.fence > 1 or not scene.can.growing_fences
        worker.run(again)
        scene.state(id, "done")

    @needs("operated", "keys")
    def test_a_requeue_takes_the_key_again_or_does_nothing(self, scene: Scene) -> None:
        (id,) = bury(scene, key="k")
        assert scene.admin.requeue(id) == "ready"
        assert add(scene.broker, [scene.message(0, key="k")])[0].id == id
        worker = scene.worker()
        worker.run(worker.one(), "dead")
        (holder,) = scene.add_all([scene.message(5, key="k")])
        with pytest.raises(KeyConflict, match=holder):
            scene.admin.requeue(id)
        scene.state(id, "dead")

    @needs("operated")
    def test_a_purged_job_is_gone_for_good_and_its_id_stays_known(self, scene: Scene) -> None:
        given = scene.message()
        scene.add_all([given])
        worker = scene.worker()
        worker.run(worker.one(), "dead", reason="it broke")
        assert scene.admin.purge(given.id) == "purged"
        assert scene.admin.purge(given.id).startswith("already")
        assert scene.admin.dead(scene.queue, 10, None) == []
        assert scene.broker.add([given])[0].created  # the same line again
        worker.nothing()

    @needs("operated")
    def test_what_is_not_dead_is_neither_requeued_nor_purged(self, scene: Scene) -> None:
        id = scene.add()
        assert (scene.admin.requeue(id), scene.admin.purge(id)) == ("already ready", "already ready")
        assert id_of(scene.worker().one()) == id
        for verb in (scene.admin.requeue, scene.admin.purge):
            with pytest.raises(JobNotFound, match=NOBODY):
                verb(NOBODY)

    @needs("operated")
    def test_all_that_is_known_of_a_job_is_told(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker(name="adam")
        worker.run(worker.one(), "release")
        worker.one()
        found = scene.admin.job(id)
        assert found is not None
        assert (found["id"], found["state"], found["queue"], found["task"]) == (id, "running", scene.queue, scene.task)
        assert [(one["worker"], one["ended"]) for one in found["handouts"]] == [
            ("adam", "released"),
            ("adam", "running"),
        ]
        assert scene.admin.job(NOBODY) is None
        json.dumps(found)


class CancelContract(ContractPart):
    """A job that waits is cancelled at once; one that runs is told, and its worker's done still wins."""

    @needs("operated")
    @pytest.mark.parametrize("delay", [None, 30.0])
    def test_a_waiting_job_never_runs(self, scene: Scene, delay: float | None) -> None:
        if delay is not None and scene.can.max_delay == 0:
            delay = None
        id = scene.add(run_at=None if delay is None else When(delay, relative=True))
        assert scene.admin.cancel(id) == "cancelled"
        assert scene.admin.cancel(id) == "already cancelled"
        scene.worker().nothing()
        scene.state(id, "cancelled")

    @needs("operated")
    @pytest.mark.parametrize(("terminate", "told"), [(False, "ask"), (True, "terminate")])
    def test_a_running_job_is_told_at_its_next_extend(self, scene: Scene, terminate: bool, told: str) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        keeper = scene.keeper()
        assert keeper.extend([Extend(held.receipt)])[0].cancel is None
        assert scene.admin.cancel(id_of(held), terminate) == "asked"
        scene.state(id_of(held), "running")
        (extended,) = keeper.extend([Extend(held.receipt)])
        assert (extended.cancel, extended.deadline is not None) == (told, True)
        worker.run(held, "cancel", reason="asked")
        scene.state(id_of(held), "cancelled")

    @needs("operated")
    def test_a_done_still_wins(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        assert scene.admin.cancel(id_of(held)) == "asked"
        assert worker.end(held).detail == "done"
        assert scene.admin.cancel(id_of(held)) == "already done"
        scene.state(id_of(held), "done")

    @needs("operated")
    @pytest.mark.parametrize("end", ["retry", "release", "bye", "lease"])
    def test_any_other_end_makes_it_cancelled(self, scene: Scene, end: str) -> None:
        scene.add()
        worker = scene.worker(1.0 if end == "lease" else 30.0)
        held = worker.one()
        assert scene.admin.cancel(id_of(held)) == "asked"
        if end == "bye":
            scene.keeper().bye(worker.session, "lost", "killed", [])
        elif end != "lease":
            assert worker.end(held, "retry" if end == "retry" else "release").detail == "cancelled"
        scene.worker().nothing(1.5 if end == "lease" else 0.15)
        scene.state(id_of(held), "cancelled")

    @needs("operated")
    def test_an_unknown_job_is_not_found(self, scene: Scene) -> None:
        with pytest.raises(JobNotFound, match=NOBODY):
            scene.admin.cancel(NOBODY)

    @needs("operated", "keys")
    def test_a_duplicates_id_cancels_the_first_job(self, scene: Scene) -> None:
        first, double = scene.message(key="k"), scene.message(key="k")
        assert [one.created for one in add(scene.broker, [first, double])] == [True, False]
        assert scene.admin.cancel(double.id) == "cancelled"
        scene.worker().nothing()
        scene.state(first.id, "cancelled")


class QueueContract(ContractPart):
    """A queue is paused, closed and purged, and says how it is."""

    @needs("operated")
    def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(self, scene: Scene) -> None:
        ids = [scene.add(1)]
        worker = scene.worker()
        held = worker.one()
        assert scene.admin.switch("pause", scene.queue) == "paused"
        ids.append(scene.add(2))
        worker.nothing()
        worker.run(held)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(worker.one)
            time.sleep(0.2)
            assert scene.admin.switch("resume", scene.queue) == "resumed"
            assert id_of(waiting.result(PATIENCE)) == ids[1]

    @needs("operated")
    def test_a_closed_queue_takes_no_new_jobs_and_knows_the_old_ones(self, scene: Scene) -> None:
        given = scene.message(1)
        scene.add_all([given])
        assert scene.admin.switch("close", scene.queue) == "closed"
        (refused,) = scene.broker.add([scene.message(2)])
        assert isinstance(refused.error, QueueClosed)
        assert not refused.created
        assert scene.broker.add([given])[0].created  # the same line again
        worker = scene.worker()
        worker.run(worker.one(), "retry")
        assert scene.admin.switch("open", scene.queue) == "open"
        scene.add(3)
        assert len(worker.collect(2)) == 2

    @needs("operated")
    def test_a_purge_cancels_what_waits_and_leaves_what_runs(self, scene: Scene) -> None:
        scene.add_all([scene.message(number) for number in range(30)])
        delayed = scene.add(40, run_at=None if scene.can.max_delay == 0 else When(60.0, relative=True))
        other = scene.add(queue=f"{scene.queue}-other")
        worker = scene.worker()
        held = worker.one()
        assert scene.admin.purge_queue(scene.queue) == 30
        assert scene.admin.purge_queue(scene.queue) == 0
        worker.nothing()
        worker.run(held)
        scene.state(delayed, "cancelled")
        assert id_of(scene.worker(queues=[f"{scene.queue}-other"]).one()) == other

    @needs("operated")
    def test_a_queue_that_is_not_there_is_not_found(self, scene: Scene) -> None:
        for verb in ("pause", "resume", "close", "open"):
            with pytest.raises(QueueNotFound, match=scene.queue):
                scene.admin.switch(verb, scene.queue)
        with pytest.raises(QueueNotFound, match=scene.queue):
            scene.admin.purge_queue(scene.queue)

    @needs("operated")
    def test_each_queue_says_how_it_is(self, scene: Scene) -> None:
        scene.add_all([scene.message(number) for number in range(5)])
        worker = scene.worker()
        first, _ = worker.collect(2)
        worker.run(first, "dead")
        scene.admin.switch("pause", scene.queue)
        (row,) = (row for row in scene.admin.queues() if row["name"] == scene.queue)
        sizes = {name: row[name] for name in ("ready", "scheduled", "running", "dead", "done", "added")}
        assert sizes == {"ready": 3, "scheduled": 0, "running": 1, "dead": 1, "done": 0, "added": 5}
        assert (row["paused"], row["closed"]) == (True, False)
        scene.admin.switch("resume", scene.queue)
        assert len(scene.worker().collect(3, LATE)) == 3
