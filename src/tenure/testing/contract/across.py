"""Several queues at once: a call that touches more than one keeps every promise for each of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tenure.broker import Extend
from tenure.message import Delivery, Settlement, Verb
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.scene import LONG, PATIENCE, Scene, Worker, id_of
from tenure.testing.contract.taking import SOON

LETTERS = "abcd"


def queues_of(scene: Scene) -> list[str]:
    """Return the names of this test's queues, which a broker may keep in several places."""
    return [f"{scene.queue}-{letter}" for letter in LETTERS]


def held_in_each(scene: Scene, visibility_timeout: float = LONG) -> tuple[Worker, list[Delivery]]:
    """Return a worker that holds a job of each queue, and its deliveries in the order of the queues."""
    names = queues_of(scene)
    ids = scene.add_all([scene.message(number, queue=name) for number, name in enumerate(names)])
    worker = scene.worker(visibility_timeout, queues=names)
    came = {id_of(delivery): delivery for delivery in worker.collect(len(names))}
    return worker, [came[id] for id in ids]


class AcrossQueuesContract(ContractPart):
    """A call that touches several queues does for each of them what it does for one."""

    def test_one_call_adds_to_several_queues_and_is_answered_in_order(self, scene: Scene) -> None:
        names = queues_of(scene)
        messages = [scene.message(number, queue=names[number % 4]) for number in range(40)]
        ids = scene.add_all(messages)
        for at, name in enumerate(names):
            came = scene.worker(queues=[name]).collect(10)
            assert sorted(map(id_of, came)) == sorted(ids[at::4])

    def test_a_worker_of_several_queues_is_woken_by_each(self, scene: Scene) -> None:
        names, times = queues_of(scene), dict[str, float]()
        worker = scene.worker(queues=names)
        worker.take()
        with ThreadPoolExecutor(1) as pool:
            for number, name in enumerate(names):
                waiting = pool.submit(worker.one)
                time.sleep(0.1)  # so that the take waits, most likely
                began_at = time.monotonic()
                id = scene.add(number, queue=name)
                assert id_of(waiting.result(PATIENCE)) == id
                times[name] = time.monotonic() - began_at
        assert sorted(times.values())[1] < SOON, f"waiting takes were answered after {times}"

    def test_one_call_settles_and_extends_jobs_of_several_queues(self, scene: Scene) -> None:
        worker, held = held_in_each(scene)
        extended = scene.keeper().extend([Extend(one.receipt) for one in held])
        assert all(one.deadline is not None for one in extended)
        kinds: tuple[Verb, ...] = ("done", "retry", "dead", "release")
        lines = [Settlement(one.receipt, kind, delay=60.0) for one, kind in zip(held, kinds, strict=True)]
        answers = worker.settle(*lines)
        assert [one.detail for one in answers] == ["done", "scheduled", "dead", "released"]
        assert worker.settle(*reversed(lines)) == answers[::-1]

    def test_a_bye_gives_back_what_is_held_of_all_queues(self, scene: Scene) -> None:
        worker, held = held_in_each(scene)
        ended = scene.keeper().bye(worker.session, "lost", "killed", [one.receipt for one in held])
        assert [one.how for one in ended] == ["lost"] * len(held)
        again = scene.worker(queues=queues_of(scene)).collect(len(held), LATE)
        assert sorted(map(id_of, again)) == sorted(map(id_of, held))

    def test_what_a_take_of_several_queues_was_given_unread_goes_back(self, scene: Scene) -> None:
        names = queues_of(scene)
        scene.add_all([scene.message(number, queue=name) for number, name in enumerate(names)])
        worker = scene.worker(queues=names)
        number = worker.consumer.number
        came = worker.take(len(names), PATIENCE)
        scene.keeper().untake(worker.session, number, "it does not listen", [])
        again = scene.worker(queues=names).collect(len(names), LATE)
        assert {id_of(one) for one in came} <= {id_of(one) for one in again}
        assert {one.losses for one in again} == {0}

    def test_leases_of_all_queues_run_out(self, scene: Scene) -> None:
        _, held = held_in_each(scene, 0.4)
        again = scene.worker(queues=queues_of(scene)).collect(len(held), LATE)
        assert sorted(map(id_of, again)) == sorted(map(id_of, held))

    def test_what_follows_may_go_to_other_queues_and_is_added_once(self, scene: Scene) -> None:
        names = queues_of(scene)
        scene.add()
        worker = scene.worker()
        held = worker.one()
        followers = tuple(scene.message(number, queue=name) for number, name in enumerate(names))
        line = Settlement(held.receipt, "done", then=followers)
        first = worker.settle(line)[0]
        assert (first.answer, first.added) == ("ok", (True,) * len(names))
        assert worker.settle(line)[0].answer == "ok"
        other = scene.worker(queues=names)
        assert sorted(map(id_of, other.collect(len(names)))) == sorted(one.id for one in followers)
        other.nothing()

    @needs("keeps_results")
    def test_states_and_waits_reach_over_queues(self, scene: Scene) -> None:
        worker, held = held_in_each(scene)
        ids = [id_of(one) for one in held]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scene.results.wait, ids, PATIENCE)
            time.sleep(0.1)
            worker.run(held[2])
            states = waiting.result(PATIENCE)
        assert [(one.id, one.state) for one in states] == [(id, "done" if id == ids[2] else "running") for id in ids]

    @needs("operated", "keeps_record")
    def test_the_record_is_kept_by_queue_and_sums_up(self, scene: Scene) -> None:
        worker, held = held_in_each(scene)
        worker.run(held[0])
        worker.run(held[1], "dead")
        rows = scene.admin.record()["queues"]
        found = [
            tuple(rows[queue][name] for name in ("added", "done", "dead", "running")) for queue in queues_of(scene)
        ]
        assert found == [(1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1), (1, 0, 0, 1)]
        listed = scene.admin.dead(None, 1_000, None)
        assert id_of(held[1]) in {entry["id"] for entry in listed}
