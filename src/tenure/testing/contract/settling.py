"""Settling: a hand-out ends once, by its receipt, and whoever comes too late changes nothing."""

from __future__ import annotations

import time

import pytest

from tenure.message import Delivery, Settlement, Verb
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.scene import Scene, Worker, eventually, id_of

VERBS: tuple[Verb, ...] = ("done", "retry", "release", "dead", "cancel")
SETTLED = {"done": "done", "retry": "scheduled", "release": "released", "dead": "dead", "cancel": "cancelled"}
"""What the broker answers to each verb, of a job that goes on by it."""


def lost_to_another(scene: Scene) -> tuple[Worker, Delivery, Worker, Delivery]:
    """Let a worker lose its lease to another one; returns both, with their deliveries of the same job."""
    late, holder = scene.worker(0.4), scene.worker()
    scene.add()
    stale = late.one()
    return late, stale, holder, holder.one(LATE)


class SettlingContract(ContractPart):
    """A hand-out ends once: a repeat gets the first answer, and a late word is refused and changes nothing."""

    def test_done_ends_the_job(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker(0.5)
        settled = worker.end(worker.one(), result=b"\xc3")
        assert (settled.answer, settled.detail, settled.added) == ("ok", "done", ())
        scene.state(id, "done")
        worker.nothing(0.8)

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_settlement_that_is_sent_again_gets_the_first_answer(self, scene: Scene, verb: Verb) -> None:
        id = scene.add()
        worker = scene.worker()
        held = worker.one()
        line = Settlement(held.receipt, verb, delay=30.0 if verb in ("retry", "release") else 0.0, reason="why")
        first = worker.settle(line)[0]
        assert (first.answer, first.detail) == ("ok", SETTLED[verb])
        assert worker.settle(line, line) == [first, first]
        if scene.can.operated and scene.can.keeps_record:
            counts = scene.counts()
            assert [counts[f"/{how}"] for how in ("done", "retried", "released", "dead", "cancelled")].count(1) == 1
            assert counts["refused"] == 0
        scene.state(id, {"retry": "scheduled", "release": "scheduled"}.get(verb, SETTLED[verb]))

    def test_a_retry_that_is_sent_again_hits_no_later_hand_out(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        line = Settlement(worker.one().receipt, "retry", delay=0.0)
        first = worker.settle(line)
        again = scene.worker().one(LATE)
        assert worker.settle(line) == first
        scene.worker().nothing()
        assert again.attempt == 2
        scene.state(id_of(again), "running")

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_late_settlement_is_refused_and_changes_nothing(self, scene: Scene, verb: Verb) -> None:
        late, stale, holder, held = lost_to_another(scene)
        follower = (scene.message(9),) if verb in ("done", "retry") else ()
        settled = late.end(stale, verb, then=follower)
        if verb == "release":
            assert settled.answer == "lost"
        else:
            assert (settled.answer, settled.detail) == ("refused", "returned")
        assert late.end(stale, verb, then=follower).answer == settled.answer
        scene.worker().nothing()  # neither the job nor what was to follow it
        scene.state(id_of(held), "running")
        assert (held.attempt, held.fence > stale.fence or not scene.can.growing_fences) == (1, True)
        holder.run(held)
        scene.state(id_of(held), "done")

    def test_a_done_that_comes_while_the_lease_runs_is_taken_over_any_connection(self, scene: Scene) -> None:
        id = scene.add()
        taker = scene.worker()
        held = taker.one()
        settler = scene.client().consumer([scene.queue], session=taker.session, name="w", visibility_timeout=30.0)
        assert settler.settle([Settlement(held.receipt, "done")])[0].answer == "ok"
        settler.close()
        scene.state(id, "done")

    def test_a_second_verb_for_one_hand_out_is_refused(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker()
        held = worker.one()
        worker.run(held)
        refused = worker.end(held, "retry")
        assert (refused.answer, refused.detail) == ("refused", "done")
        scene.state(id, "done")
        worker.nothing()

    def test_a_receipt_that_was_never_given_is_gone(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        unknown = held.receipt.replace(id_of(held).encode(), scene.message().id.encode())
        assert [one.answer for one in worker.settle(Settlement(unknown, "done"))] == ["gone"]
        worker.run(held)

    def test_many_are_settled_in_one_call_and_answered_in_order(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(120)])
        worker = scene.worker()
        held = worker.collect(len(ids))
        lines = [Settlement(one.receipt, VERBS[at % 5], delay=60.0) for at, one in enumerate(held)]
        answers = [(one.answer, one.detail) for one in worker.settle(*lines)]
        assert answers == [("ok", SETTLED[line.kind]) for line in lines]
        assert worker.settle() == []


class AgainContract(ContractPart):
    """A job is run again by a retry or a release, at its time, with its attempts counted, and what follows it is added
    with the settlement or not at all."""

    def test_a_retry_is_run_again_after_its_delay_and_counts_an_attempt(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker()
        held, since = worker.one(), time.monotonic()
        assert worker.end(held, "retry", delay=1.0, reason="busy").detail == "scheduled"
        scene.state(id, "scheduled")
        again = worker.one(1.0 + LATE)
        assert time.monotonic() - since >= 0.95
        assert (id_of(again), again.attempt, again.losses) == (id, 2, 0)
        assert again.fence > held.fence or not scene.can.growing_fences
        assert again.message == held.message or scene.can.max_delay == 0

    @needs("atomic")
    def test_a_retry_is_one_transaction_with_what_follows_it(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        follower = scene.message(1)
        settled = worker.end(held, "retry", delay=60.0, then=(follower,))
        assert (settled.answer, settled.detail, settled.added) == ("ok", "scheduled", (True,))
        assert id_of(worker.one()) == follower.id
        worker.nothing()

    def test_out_of_attempts_a_retry_makes_the_job_dead(self, scene: Scene) -> None:
        id = scene.add(max_attempts=2)
        worker = scene.worker()
        assert worker.end(worker.one(), "retry", delay=0.0).detail == "scheduled"
        last = worker.one(LATE)
        assert last.attempt == 2
        assert worker.end(last, "retry", delay=0.0, reason="broke", error=b"why").detail == "dead"
        scene.state(id, "dead")
        worker.nothing()
        if scene.can.keeps_results:
            found = scene.results.states([id])[0]
            assert "broke" in found.reason
            assert (found.attempts, found.failure) == (2, b"why")

    @pytest.mark.parametrize("delay", [0.0, 1.0])
    def test_a_release_is_given_out_again_and_counts_nothing(self, scene: Scene, delay: float) -> None:
        id = scene.add(max_attempts=1)
        worker = scene.worker()
        held, since = worker.one(), time.monotonic()
        assert worker.end(held, "release", delay=delay).detail == "released"
        scene.state(id, "scheduled" if delay else "ready")
        again = scene.worker().one(delay + LATE)
        assert time.monotonic() - since >= delay - 0.05
        assert (id_of(again), again.attempt, again.losses) == (id, 1, 0)

    @pytest.mark.parametrize(("verb", "state"), [("dead", "dead"), ("cancel", "cancelled")])
    def test_dead_and_cancelled_jobs_say_why_and_never_run_again(self, scene: Scene, verb: Verb, state: str) -> None:
        id = scene.add()
        worker = scene.worker()
        worker.run(worker.one(), verb, reason="not: wanted ✗")
        scene.state(id, state)
        worker.nothing()
        if scene.can.keeps_results:
            assert "not: wanted ✗" in scene.results.states([id])[0].reason

    def test_what_follows_is_added_with_the_settlement_and_once(self, scene: Scene) -> None:
        scene.add()
        worker = scene.worker()
        held = worker.one()
        followers = (scene.message(1), scene.message(2))
        line = Settlement(held.receipt, "done", then=followers)
        first = worker.settle(line)[0]
        assert (first.answer, first.added) == ("ok", (True, True))
        assert worker.settle(line)[0].answer == "ok"
        came = worker.collect(2)
        assert sorted(map(id_of, came)) == sorted(one.id for one in followers)
        worker.nothing()

    def test_a_failure_is_kept_while_the_job_waits_for_its_retry(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker()
        worker.run(worker.one(), "retry", delay=0.0, error=b"\x81why\x00")
        eventually(lambda: worker.take(1, 0.2), "it is given out again")
        worker_state = scene.results.states([id])[0] if scene.can.keeps_results else None
        assert worker_state is None or worker_state.attempts == 1
