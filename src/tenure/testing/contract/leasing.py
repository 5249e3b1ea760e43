"""Leases: one holder at a time, for the visibility timeout, longer where it is extended, and back where it is not."""

from __future__ import annotations

import time

from tenure import clock
from tenure.broker import Extend
from tenure.errors import ServerError
from tenure.message import Delivery, Settlement
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.scene import LONG, PATIENCE, SHORT, Scene, Worker, id_of

EARLY = 0.1
"""Seconds by which a lease may seem to end early: what a take needed on its way to the test's own clock."""
LATE = 5.0
"""Seconds after its lease's end within which a job is given to the next worker, on a busy machine."""


def given_again(worker: Worker, first: Delivery, since: float, lease: float) -> Delivery:
    """Return the next hand-out of a job, whose lease of `lease` seconds began at `since`; fails for a wrong time."""
    __tracebackhide__ = True
    again = worker.one(lease + LATE)
    lasted = time.monotonic() - since
    assert id_of(again) == id_of(first)
    assert lasted >= lease - EARLY, f"a lease of {lease} s was over after {lasted:.2f} s"
    return again


class LeasingContract(ContractPart):
    """One holder at a time: what is not extended comes back after its visibility timeout, and no earlier."""

    def test_a_job_of_a_worker_that_is_killed_comes_back(self, scene: Scene) -> None:
        scene.add()
        worker, since = scene.worker(SHORT), time.monotonic()
        first = worker.one()
        worker.consumer.close()  # all that a broker sees of a process that is killed
        next_worker = scene.worker()
        if scene.can.lease_tied_to_connection:
            again = next_worker.one(LATE)
        else:
            again = given_again(next_worker, first, since, SHORT)
        assert (id_of(again), again.attempt) == (id_of(first), 1)
        assert again.losses == (1 if scene.can.counts_losses else 0)
        next_worker.run(again)
        next_worker.nothing()

    def test_while_a_worker_holds_a_job_no_other_is_given_it(self, scene: Scene) -> None:
        scene.add()
        holder, other = scene.worker(), scene.worker()
        held = holder.one()
        scene.state(id_of(held), "running")
        other.nothing(0.5)
        holder.run(held)
        other.nothing()

    @needs("job_visibility_timeout")
    def test_a_jobs_own_visibility_timeout_goes_before_the_workers(self, scene: Scene) -> None:
        scene.add(visibility_timeout=SHORT)
        worker, since = scene.worker(LONG), time.monotonic()
        first = worker.one()
        assert first.visibility_timeout == SHORT
        assert first.deadline <= clock.boot() + SHORT
        given_again(scene.worker(LONG), first, since, SHORT)

    @needs("job_visibility_timeout")
    def test_a_long_visibility_timeout_of_a_job_outlasts_the_workers(self, scene: Scene) -> None:
        scene.add(visibility_timeout=LONG)
        holder = scene.worker(0.3)
        held = holder.one()
        assert held.visibility_timeout == LONG
        scene.worker().nothing(0.6)
        holder.run(held)

    def test_an_extend_from_another_process_holds_the_job(self, scene: Scene) -> None:
        scene.add()
        holder, other, keeper = scene.worker(SHORT), scene.worker(), scene.keeper()
        held = holder.one()
        for _ in range(5):
            (extended,) = keeper.extend([Extend(held.receipt)])
            assert extended.deadline is not None, "the lease was lost while it was extended in time"
            assert clock.boot() < extended.deadline <= clock.boot() + SHORT
            other.nothing(SHORT / 4)
        holder.run(held)
        other.nothing()

    def test_an_extend_never_makes_a_lease_shorter(self, scene: Scene) -> None:
        scene.add()
        held = scene.worker(LONG).one()
        (extended,) = scene.keeper().extend([Extend(held.receipt)])
        assert extended.deadline is not None
        assert extended.deadline >= held.deadline - 0.1

    def test_an_extend_of_what_is_over_says_lost_and_holds_nothing(self, scene: Scene) -> None:
        scene.add()
        worker, keeper = scene.worker(SHORT), scene.keeper()
        first, since = worker.one(), time.monotonic()
        again = given_again(scene.worker(LONG), first, since, SHORT)
        lost, held = keeper.extend([Extend(first.receipt), Extend(again.receipt)])
        assert lost.deadline is None
        assert held.deadline is not None

    def test_an_extend_of_a_job_that_is_done_or_was_never_there_says_lost(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        ended = worker.one()
        worker.run(ended)
        unknown = ended.receipt.replace(id_of(ended).encode(), scene.message().id.encode())
        assert [one.deadline for one in scene.keeper().extend([Extend(ended.receipt), Extend(unknown)])] == [None, None]
        assert scene.keeper().extend([]) == []

    def test_many_leases_are_extended_in_one_call(self, scene: Scene) -> None:
        scene.add_all([scene.message(number) for number in range(300)])
        held = scene.worker(LONG).collect(300)
        extended = scene.keeper().extend([Extend(delivery.receipt) for delivery in held])
        assert len(extended) == 300
        assert all(one.deadline is not None for one in extended)

    def test_fences_grow_and_so_do_losses(self, scene: Scene) -> None:
        scene.add()
        fences, losses = list[int](), list[int]()
        for _ in range(3):
            worker = scene.worker(0.4)
            delivery = worker.one(LATE)
            fences.append(delivery.fence)
            losses.append(delivery.losses)
        if scene.can.growing_fences:
            assert fences == sorted(set(fences))
        assert losses == ([0, 1, 2] if scene.can.counts_losses else [0, 0, 0])

    @needs("counts_losses")
    def test_a_job_that_is_lost_too_often_is_dead_and_says_why(self, scene: Scene) -> None:
        poison, other = scene.add(max_losses=2), scene.add(1)
        worker = scene.worker(0.4)
        for _ in range(2):
            assert sorted(map(id_of, worker.collect(2, LATE))) == sorted([poison, other])
        survivor = scene.worker(LONG)
        assert id_of(survivor.one(LATE)) == other
        survivor.nothing(0.6)
        scene.state(poison, "dead")
        if scene.can.keeps_results:
            (found,) = scene.results.states([poison])
            assert found.losses == 2
            assert found.reason, "a dead job says why"

    def test_progress_is_told_while_the_job_runs(self, scene: Scene) -> None:
        scene.add()
        held = scene.worker().one()
        (extended,) = scene.keeper().extend([Extend(held.receipt, b"\x93half\xff")])
        assert extended.deadline is not None
        if scene.can.keeps_results:
            assert scene.results.states([id_of(held)])[0].progress == b"\x93half\xff"


class LeavingContract(ContractPart):
    """A session that says goodbye gives back all that it holds, at once; what it says later counts no more."""

    def test_a_bye_gives_everything_back_at_once(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(4)])
        worker = scene.worker()
        done, *held = worker.collect(4)
        worker.run(done)
        ended = scene.keeper().bye(worker.session, "left", "a drain", [done.receipt, held[0].receipt])
        assert [(one.how, one.late) for one in ended] == [("done", False), ("left", False)]
        again = scene.worker().collect(3, LATE)
        assert sorted(map(id_of, again)) == sorted(id for id in ids if id != id_of(done))
        assert {(one.attempt, one.losses) for one in again} == {(1, 0)}

    def test_a_bye_for_a_dead_process_counts_a_loss(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        (ended,) = scene.keeper().bye(worker.session, "lost", "killed by SIGKILL", [held.receipt])
        assert (ended.how, ended.late) == ("lost", False)
        again = scene.worker().one(LATE)
        assert (again.attempt, again.losses) == (1, 1 if scene.can.counts_losses else 0)

    def test_a_bye_that_is_sent_again_says_the_same_and_hits_nobody_else(self, scene: Scene) -> None:
        scene.add()
        worker, keeper = scene.worker(), scene.keeper()
        held = worker.one()
        first = keeper.bye(worker.session, "lost", "killed", [held.receipt])
        next_worker = scene.worker()
        again = next_worker.one(LATE)
        assert keeper.bye(worker.session, "lost", "killed", [held.receipt]) == first
        scene.worker().nothing()
        next_worker.run(again)

    def test_a_closed_session_is_given_nothing_and_settles_nothing(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        scene.keeper().bye(worker.session, "left", "a drain", [])
        # A session that is closed may be told so by an answer, or when it opens a connection.
        try:
            assert worker.end(held).answer == "closed"
        except ServerError as error:
            assert error.code == "closed"  # noqa: PT017  (one of two ways)
        try:
            assert worker.take(5, 0.2) == []
        except ServerError as error:
            assert error.code == "closed"  # noqa: PT017  (one of two ways)
        assert id_of(scene.worker().one(LATE)) == id_of(held)

    def test_what_a_take_was_given_unread_goes_back_without_a_loss(self, scene: Scene) -> None:
        scene.add_all([scene.message(number) for number in range(3)])
        worker = scene.worker()
        number = worker.consumer.number
        read, *unread = worker.take(3, PATIENCE)
        assert len(unread) == 2
        scene.keeper().untake(worker.session, number, "it does not listen", [read.receipt])
        again = scene.worker().collect(2, LATE)
        assert sorted(map(id_of, again)) == sorted(map(id_of, unread))
        assert {one.losses for one in again} == {0}
        worker.run(read)

    def test_a_keeper_settles_for_a_child_before_its_bye(self, scene: Scene) -> None:
        scene.add()
        worker, keeper = scene.worker(), scene.keeper()
        held = worker.one()
        (settled,) = keeper.settle(worker.session, [Settlement(held.receipt, "retry", delay=0.0, reason="timeout")])
        assert (settled.answer, settled.detail) == ("ok", "scheduled")
        (ended,) = keeper.bye(worker.session, "lost", "killed", [held.receipt])
        assert ended.how == "retried"
        again = scene.worker().one(LATE)
        assert (again.attempt, again.losses) == (2, 0)
