"""Taking: each job goes to one worker, soon, and a take can be interrupted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure import clock
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.scene import LONG, PATIENCE, Scene, Worker, id_of

SOON = 1.0
"""Seconds within which a job that is added reaches a worker that waits; a broker that is polled takes longer."""


class TakingContract(ContractPart):
    """Each job goes to one worker, as soon as it is there, and no more of them than were asked for."""

    def test_a_take_brings_no_more_than_was_asked_for(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(7)])
        worker = scene.worker()
        parts = [worker.take(3, 2.0) for _ in range(3)]
        assert max(map(len, parts)) <= 3
        came = [delivery for part in parts for delivery in part]
        came += worker.collect(len(ids) - len(came))
        assert sorted(map(id_of, came)) == sorted(ids)

    def test_a_take_of_an_empty_queue_is_empty_after_its_time(self, scene: Scene) -> None:
        worker = scene.worker()
        worker.take()  # opens the connection
        began_at = time.monotonic()
        assert worker.take(1, 0.4) == []
        assert 0.3 <= time.monotonic() - began_at <= 0.4 + SOON
        assert worker.take(1, 0.0) == []

    def test_a_job_reaches_a_waiting_worker_soon(self, scene: Scene) -> None:
        worker, times = scene.worker(), list[float]()
        worker.take()
        with ThreadPoolExecutor(1) as pool:
            for number in range(3):
                waiting = pool.submit(worker.one)
                time.sleep(0.1)  # so that the take waits, most likely
                began_at = time.monotonic()
                id = scene.add(number)
                assert id_of(waiting.result(PATIENCE)) == id
                times.append(time.monotonic() - began_at)
        assert min(times) < SOON, f"a waiting take was answered after {min(times):.2f} s at best"

    def test_a_job_wakes_one_of_many_waiting_workers(self, scene: Scene) -> None:
        workers = [scene.worker() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(worker.take, 1, 0.8) for worker in workers]
            time.sleep(0.2)
            id = scene.add()
            came = [id_of(delivery) for one in waiting for delivery in one.result(PATIENCE)]
        assert came == [id]

    def test_many_workers_share_the_jobs_and_none_comes_twice(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(200)])
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(_drain, [scene.worker() for _ in range(4)]))
        assert sorted(id for part in parts for id in part) == sorted(ids)

    def test_a_worker_takes_from_all_its_queues_and_from_no_other(self, scene: Scene) -> None:
        names = [f"{scene.queue}-{letter}" for letter in "abc"]
        ids = [scene.add(queue=name) for name in names]
        worker = scene.worker(queues=names[:2])
        assert sorted(map(id_of, worker.collect(2))) == sorted(ids[:2])
        worker.nothing()
        assert id_of(scene.worker(queues=names[2:]).one()) == ids[2]

    def test_a_take_may_ask_for_some_of_the_queues(self, scene: Scene) -> None:
        names = [f"{scene.queue}-{letter}" for letter in "ab"]
        ids = [scene.add(queue=name) for name in names]
        worker = scene.worker(queues=names)
        assert [id_of(delivery) for delivery in worker.take(5, 2.0, names[1:])] == ids[1:]
        assert worker.take(5, 0.1, names[1:]) == []
        assert id_of(worker.one()) == ids[0]

    @needs("queues_in_turn")
    def test_a_queue_with_many_jobs_does_not_keep_another_waiting(self, scene: Scene) -> None:
        busy, other = f"{scene.queue}-busy", f"{scene.queue}-other"
        scene.add_all([scene.message(number, queue=busy) for number in range(50)])
        id = scene.add(queue=other)
        worker = scene.worker(queues=[busy, other])
        assert id in map(id_of, worker.collect(10))

    def test_an_interrupted_take_ends_soon_and_loses_nothing(self, scene: Scene) -> None:
        worker = scene.worker()
        worker.take()
        ended = threading.Event()

        def wait() -> None:
            try:
                worker.consumer.take(1, 20.0)
            except ConnectionError:
                ended.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.3)
        worker.consumer.interrupt()
        thread.join(5.0)
        assert not thread.is_alive(), "the take waits on, 5 s after it was interrupted"
        id = scene.add()
        assert id_of(worker.one()) == id

    def test_a_closed_consumer_ends_its_take(self, scene: Scene) -> None:
        worker = scene.worker()
        worker.take()
        ended = threading.Event()

        def wait() -> None:
            with pytest.raises(ConnectionError):
                worker.consumer.take(1, 20.0)
            ended.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.3)
        worker.consumer.close()
        thread.join(5.0)
        assert ended.is_set(), "5 s after its consumer was closed the take has not raised ConnectionError"

    def test_takes_are_numbered_from_one_and_an_answer_counts_on(self, scene: Scene) -> None:
        worker = scene.worker()
        assert worker.consumer.number == 1
        worker.take()
        assert worker.consumer.number == 2
        scene.add()
        worker.one()
        assert worker.consumer.number >= 3

    def test_the_own_deadline_lies_before_the_end_of_the_lease(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker(LONG)
        before = clock.boot()
        taken = worker.one()
        assert before + LONG * 0.9 - 1.0 <= taken.deadline < clock.boot() + LONG


def _drain(worker: Worker) -> list[str]:
    """Take and settle until nothing comes any more; returns the ids."""
    ids: list[str] = []
    while deliveries := worker.take(7, 0.5):
        for delivery in deliveries:
            worker.run(delivery)
            ids.append(id_of(delivery))
    return ids
