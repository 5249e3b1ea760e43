"""Restarts: a kill of the broker's server loses nothing that it has answered, and nothing happens twice."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.message import Settlement, Verb, When
from tenure.testing.contract.accounts import Tally, check_record, drain, work
from tenure.testing.contract.base import needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.network import RoughPart
from tenure.testing.contract.rough import RoughScene
from tenure.testing.contract.scene import LONG, PATIENCE, Scene, add, eventually, id_of


def restart(scene: Scene) -> None:
    """Kill the broker's server and start it again."""
    if not scene.site.kill():
        pytest.skip("this site's kill() is False: its broker's server cannot be killed here")
    scene.site.restart()


class RestartContract(RoughPart):
    """A kill -9 of the broker's server loses nothing that was answered, and every line may be sent again over it."""

    @needs("survives_restart")
    def test_every_job_is_there_again_in_its_state(self, scene: Scene) -> None:
        states = {"ready": scene.add(0)}
        if scene.can.max_delay is None or scene.can.max_delay >= LONG:
            states["scheduled"] = scene.add(1, run_at=When(LONG, relative=True))
        worker = scene.worker(queues=[f"{scene.queue}-other"])
        ends: tuple[Verb | None, ...] = ("done", "dead", "cancel", None)
        ids = [scene.add(number, queue=f"{scene.queue}-other") for number in range(len(ends))]
        held = {id_of(delivery): delivery for delivery in worker.collect(len(ids))}
        for id, end in zip(ids, ends, strict=True):
            if end is not None:
                worker.run(held[id], end, reason="why", result=b"\x07" if end == "done" else None)
        states |= {"done": ids[0], "dead": ids[1], "cancelled": ids[2], "running": ids[3]}
        before = scene.counts() if scene.can.operated and scene.can.keeps_record else {}
        restart(scene)
        later = scene.client()
        if scene.can.keeps_results:
            found = later.results().states(list(states.values()))  # type: ignore[union-attr]  # the line above
            assert [one.state for one in found] == list(states)
            assert found[list(states).index("done")].result == b"\x07"
            assert "why" in found[list(states).index("dead")].reason
        if before:
            assert scene.counts() == before
            check_record(scene)
        assert worker.end(held[ids[3]]).answer == "ok"
        again = scene.worker()
        assert id_of(again.one()) == states["ready"]
        again.nothing(0.1)

    @needs("survives_restart")
    def test_attempts_losses_fences_keys_and_switches_are_kept(self, scene: Scene) -> None:
        key = "k" if scene.can.keys else None
        id = scene.add(1, key=key)
        first, second = scene.worker(), scene.worker()
        first.run(first.one(), "retry", delay=0.0, error=b"why")
        held = second.one(LATE)
        scene.keeper().bye(second.session, "lost", "killed", [held.receipt])
        if scene.can.operated:
            scene.admin.switch("pause", scene.queue)
        restart(scene)
        if scene.can.keys:
            (double,) = add(scene.client(), [scene.message(1, key=key)])
            assert (double.id, double.created) == (id, False)
        if scene.can.operated:
            scene.worker().nothing()
            scene.admin.switch("resume", scene.queue)
        again = scene.worker().one(LATE)
        assert (id_of(again), again.attempt, again.losses) == (id, 2, 1 if scene.can.counts_losses else 0)
        assert again.fence > held.fence or not scene.can.growing_fences

    @needs("survives_restart")
    def test_a_running_lease_has_its_full_time_again(self, scene: Scene) -> None:
        lease = 2.0
        id, holder = scene.add(), scene.worker(lease)
        held = holder.one()
        time.sleep(lease * 0.7)
        restart(scene)
        up_since = time.monotonic()
        other = scene.worker()
        if not scene.can.renews_leases:
            assert id_of(other.one(lease + LATE)) == id
            return
        other.nothing(lease * 0.5)
        again = other.one(lease + LATE)
        lasted = time.monotonic() - up_since
        # It was up a little before it said so; from then on the whole lease counts.
        assert lasted > lease * 0.6, f"after a restart a lease of {lease} s was over in {lasted:.2f} s"
        assert (id_of(again), again.attempt) == (id, 1)
        late = holder.end(held)
        assert (late.answer, late.detail) == ("refused", "returned")

    @needs("survives_restart", "network")
    def test_lines_whose_answers_were_lost_by_the_kill_are_sent_again(self, rough: RoughScene) -> None:
        settler, taker = rough.worker(), rough.worker(queues=[f"{rough.queue}-taken"])
        rough.add(1)
        held, given, follower = settler.one(), rough.message(2), rough.message(3)
        settler.settle()
        taker.take()
        taken = rough.add(queue=f"{rough.queue}-taken")
        rough.mute()
        with ThreadPoolExecutor(3) as pool:
            added = pool.submit(add, rough.broker, [given])
            settled = pool.submit(settler.settle, Settlement(held.receipt, "done", then=(follower,)))
            came = pool.submit(taker.one)
            time.sleep(0.5)  # so that the server has done all three
            if not rough.site.kill():
                pytest.skip("this site's kill() is False: its broker's server cannot be killed here")
            rough.calm()
            rough.site.restart()
            (answer,), (end,), delivery = added.result(PATIENCE), settled.result(PATIENCE), came.result(PATIENCE)
        assert (answer.id, answer.created) == (given.id, True)
        assert (end.answer, end.detail) == ("ok", "done")
        assert (id_of(delivery), delivery.losses) == (taken, 0) or not rough.can.repeats_takes
        rough.worker(queues=[f"{rough.queue}-taken"]).nothing()
        others = rough.worker()
        assert sorted(map(id_of, others.collect(2))) == sorted([given.id, follower.id])
        others.nothing()
        rough.check_counts(added=3, done=1, running=2, duplicates=0, refused=0)

    @needs("survives_restart", "operated", "keeps_record")
    def test_the_accounts_agree_when_the_server_is_killed_at_work(self, scene: Scene) -> None:
        tally, name = Tally(), f"contract-{secrets.token_hex(4)}"
        workers = [scene.worker(name=name) for _ in range(2)]
        clients = [scene.client() for _ in range(2)]

        def produce(lane: int) -> None:
            for number in range(200):
                add(clients[lane], [scene.message(lane * 1_000 + number)])

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, worker, scene, tally, 400) for worker in workers]
            producing = [pool.submit(produce, lane) for lane in range(2)]
            eventually(lambda: tally.ends.total() >= 50, "the work has begun")
            restart(scene)
            for one in [*producing, *working]:
                one.result(PATIENCE * 2)
        drain(scene, workers[0], tally)
        row = check_record(scene)
        assert [client.counts() for client in clients] == [(200, 0, 0)] * 2
        assert row["added"] == 400 + tally.followed
        tally.agrees_with(row)
        tally.agrees_with(scene.admin.record()["workers"][name])
