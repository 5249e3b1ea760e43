"""Times and ranks: earliest starts, latest starts, priorities, and who is first among equals."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure import clock
from tenure.message import When
from tenure.testing.contract.base import ContractPart, assert_refused, needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.scene import LONG, PATIENCE, Scene, add, eventually, id_of


def soon(seconds: float) -> When:
    """So many seconds after the broker has stored the job, by its own clock."""
    return When(seconds, relative=True)


class TimeContract(ContractPart):
    """A job starts no earlier than its time, which the broker keeps without a lease, and no later than it may."""

    @needs("max_delay")
    @pytest.mark.parametrize("relative", [True, False])
    def test_a_delayed_job_is_not_given_out_before_its_time(self, scene: Scene, relative: bool) -> None:
        began_at = time.monotonic()
        at = When(1.2, True) if relative else When(time.time() + 1.2)
        id = scene.add(run_at=at)
        scene.state(id, "scheduled")
        # A visibility timeout below the delay: a job that were leased meanwhile would come back as lost.
        worker = scene.worker(0.3)
        taken = worker.one(1.2 + LATE)
        assert time.monotonic() - began_at >= 1.15
        assert (id_of(taken), taken.attempt, taken.losses) == (id, 1, 0)

    @needs("max_delay")
    def test_a_delayed_job_is_under_no_lease(self, scene: Scene) -> None:
        id = scene.add(run_at=soon(LONG))
        assert scene.worker().take(5, 0.2) == []
        scene.state(id, "scheduled")
        if scene.can.operated and scene.can.keeps_record:
            counts = scene.counts()
            assert (counts["scheduled"], counts["running"], counts["handed_out"]) == (1, 0, 0)

    @needs("max_delay")
    def test_a_job_reaches_a_waiting_worker_soon_after_its_time(self, scene: Scene) -> None:
        worker = scene.worker()
        worker.take()
        late = list[float]()
        for _ in range(2):
            due = time.monotonic() + 0.6
            scene.add(run_at=soon(0.6))
            worker.run(worker.one())
            late.append(time.monotonic() - due)
        assert min(late) < 1.0, f"a job is given out {min(late):.2f} s after its time at best"

    def test_a_time_that_is_over_delays_nothing(self, scene: Scene) -> None:
        id = scene.add(run_at=When(time.time() - 3600.0))
        assert id_of(scene.worker().one(LATE)) == id

    @needs("max_delay", "first_in_first_out")
    def test_jobs_fall_due_in_the_order_of_their_times(self, scene: Scene) -> None:
        delays = (0.7, 0.4, 1.0)
        messages = [scene.message(number, run_at=soon(seconds)) for number, seconds in enumerate(delays)]
        later, first, last = scene.add_all(messages)  # in one call, so that no pause comes in between
        worker = scene.worker()
        assert [id_of(worker.one()) for _ in range(3)] == [first, later, last]

    @needs("max_delay")
    def test_a_job_that_is_due_does_not_wait_for_one_that_is_not(self, scene: Scene) -> None:
        scene.add(1, run_at=soon(LONG))
        id = scene.add(2)
        worker = scene.worker()
        assert id_of(worker.one(LATE)) == id
        worker.nothing()

    def test_a_delay_beyond_the_brokers_limit_is_refused(self, scene: Scene) -> None:
        if scene.can.max_delay is None:
            id = scene.add(run_at=soon(300 * 86_400.0))
            scene.state(id, "scheduled")
        else:
            beyond = scene.message(run_at=soon(scene.can.max_delay + 10.0))
            assert_refused(add(scene.broker, [beyond])[0], "run_at")

    def test_a_job_that_is_too_late_is_never_given_out_and_dead(self, scene: Scene) -> None:
        late, ids = scene.add(0, expires=soon(0.4)), [scene.add(number) for number in (1, 2)]
        gone = scene.add(3, expires=When(time.time() - 1.0))
        scene.site.pass_time(0.6)
        worker = scene.worker()
        assert sorted(map(id_of, worker.collect(2))) == sorted(ids)
        worker.nothing()
        if scene.can.keeps_results:
            states = scene.results.states([late, gone])
            assert [(one.state, "expired" in one.reason) for one in states] == [("dead", True)] * 2

    def test_a_job_that_nobody_takes_expires_all_the_same(self, scene: Scene) -> None:
        id = scene.add(expires=soon(0.3))
        if scene.can.keeps_results:
            eventually(lambda: scene.results.states([id])[0].state == "dead", "a job that is too late is dead", LATE)
        else:
            scene.site.pass_time(0.5)
            scene.worker().nothing()

    def test_a_delivery_says_its_latest_start(self, scene: Scene) -> None:
        scene.add(1, expires=soon(20.0))
        scene.add(2)
        first, second = sorted(scene.worker().collect(2), key=lambda one: one.start_by is None)
        assert second.start_by is None
        assert first.start_by is not None
        assert 15.0 < first.start_by - clock.boot() < 21.0


class OrderContract(ContractPart):
    """Ten priorities with one meaning, 9 first; inside of one, who was added first is first."""

    @needs("priorities", "first_in_first_out")
    def test_the_highest_priority_is_first_and_inside_of_it_the_oldest(self, scene: Scene) -> None:
        priorities = [*range(10), *range(10), *range(10)]
        random.Random(7).shuffle(priorities)  # noqa: S311  (the same each time)
        ids = [scene.add(number, priority=priority) for number, priority in enumerate(priorities)]
        wanted = [id for _, id in sorted(zip(priorities, ids, strict=True), key=lambda pair: -pair[0])]
        worker = scene.worker()
        came = [id_of(delivery) for _ in range(15) for delivery in worker.collect(2)]
        assert came == wanted

    @needs("priorities")
    def test_a_higher_priority_overtakes_what_waits(self, scene: Scene) -> None:
        scene.add_all([scene.message(number, priority=0) for number in range(20)])
        worker = scene.worker()
        worker.collect(2)
        urgent = scene.add(99, priority=9)
        assert id_of(worker.one()) == urgent

    @needs("priorities", "max_delay")
    def test_a_job_that_falls_due_has_its_priority(self, scene: Scene) -> None:
        urgent = scene.add(1, priority=9, run_at=soon(0.4))
        scene.add_all([scene.message(number) for number in range(2, 12)])
        scene.site.pass_time(0.6)
        worker = scene.worker()
        eventually(lambda: not scene.can.keeps_results or scene.results.states([urgent])[0].state != "scheduled", "due")
        came = [id_of(delivery) for delivery in worker.collect(3)]
        assert urgent in came

    @needs("first_in_first_out")
    def test_one_by_one_or_in_one_call_the_first_is_first(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(30)])
        ids += [scene.add(number) for number in range(30, 40)]
        ids += scene.add_all([scene.message(number) for number in range(40, 60)])
        worker = scene.worker()
        came = [id_of(delivery) for _ in range(20) for delivery in worker.collect(3)]
        assert came == ids

    @needs("first_in_first_out")
    def test_a_job_that_comes_back_is_given_out_again_before_long(self, scene: Scene) -> None:
        first = scene.add()
        scene.add_all([scene.message(number) for number in range(1, 30)])
        worker = scene.worker()
        worker.run(worker.one(), "release")
        assert first in [id_of(delivery) for delivery in worker.collect(30, PATIENCE)]

    @needs("first_in_first_out")
    def test_producers_at_once_have_each_their_own_order(self, scene: Scene) -> None:
        def produce(lane: int) -> list[str]:
            client = scene.client()
            return [add(client, [scene.message(lane * 100 + number)])[0].id for number in range(20)]

        with ThreadPoolExecutor(3) as pool:
            lanes = list(pool.map(produce, range(3)))
        worker = scene.worker()
        came = [id_of(worker.one()) for _ in range(60)]
        assert [[id for id in came if id in lane] for lane in lanes] == lanes
