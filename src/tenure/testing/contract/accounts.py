"""Accounts: the broker's record is balanced at every moment, and is what its clients have counted."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenure.broker import Settled
from tenure.message import Verb
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.leasing import LATE
from tenure.testing.contract.scene import Scene, Worker, add, eventually

STATES = ("done", "dead", "cancelled", "purged", "scheduled", "ready", "running")
ENDS = ("done", "retried", "released", "left", "returned", "lost", "dead", "cancelled")
SETTLED = {"done": "done", "scheduled": "retried", "released": "released", "dead": "dead", "cancelled": "cancelled"}
"""What a client counts a settlement as, by the state that it was answered with."""


def imbalance(row: Mapping[str, Any]) -> list[str]:
    """Say where the counts of a queue do not add up."""
    jobs, ends = sum(row[state] for state in STATES), sum(row["handouts"][end] for end in ENDS)
    found = []
    if row["added"] != jobs:
        found.append(f"{row['added']} jobs were added, and {jobs} are in a state: {row}")
    if row["handed_out"] != ends + row["running"]:
        found.append(f"{row['handed_out']} hand-outs, {ends} ended and {row['running']} running: {row}")
    return found


def check_record(scene: Scene) -> dict[str, Any]:
    """Hold the record of this test's queue against itself and against a recount; returns the queue's row."""
    __tracebackhide__ = True
    answer = scene.admin.record(verify=True)
    assert answer["differences"] == []
    assert answer["record"]["overlaps"] == 0
    row: dict[str, Any] = answer["record"]["queues"][scene.queue]
    assert imbalance(row) == []
    return row


class Tally:
    """What the workers of a test have counted from the broker's answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ends: Counter[str] = Counter()
        self.refused = 0
        self.followed = 0

    def note(self, settled: Settled) -> None:
        """Count one answer."""
        with self._lock:
            if settled.answer == "ok":
                self.ends[SETTLED[settled.detail]] += 1
                self.followed += sum(settled.added)
            self.refused += settled.answer == "refused"

    def agrees_with(self, row: Mapping[str, Any]) -> None:
        """Fail where a queue's or a worker's row of the record says something else."""
        __tracebackhide__ = True
        recorded = {end: row["handouts"][end] for end in set(SETTLED.values())}
        assert recorded == {end: self.ends[end] for end in recorded}
        assert row["refused"] == self.refused


def work(worker: Worker, scene: Scene, tally: Tally, jobs: int) -> None:
    """Settle deliveries in all ways until so many jobs have ended or wait for long."""
    kinds: tuple[Verb, ...] = ("done", "done", "retry", "done", "release", "dead", "cancel")
    turn = 0
    while sum(tally.ends[end] for end in ("done", "dead", "cancelled")) < jobs:
        for delivery in worker.take(3, 0.1):
            turn += 1
            kind = kinds[turn % len(kinds)] if delivery.fence < 4 else "done"
            follower = (scene.message(turn),) if kind == "done" and turn % 40 == 0 and turn < 100 else ()
            tally.note(worker.end(delivery, kind, then=follower))


class RecordContract(ContractPart):
    """The record is balanced at every moment, and sums to what producers and workers have counted."""

    @needs("operated", "keeps_record")
    def test_it_is_balanced_while_everybody_works_and_agrees_in_the_end(self, scene: Scene) -> None:
        tally, name = Tally(), f"contract-{secrets.token_hex(4)}"
        clients = [scene.client() for _ in range(2)]
        workers = [scene.worker(name=name) for _ in range(3)]
        over, wrong = threading.Event(), list[str]()

        def produce(lane: int) -> None:
            for number in range(40):
                key = f"{lane}:{number // 2}" if number % 4 < 2 and scene.can.keys else None
                add(clients[lane], [scene.message(number // 2, key=key)])

        def watch() -> None:
            while not over.is_set():
                row = scene.admin.record()["queues"].get(scene.queue)
                wrong.extend([] if row is None else imbalance(row))
                over.wait(0.005)

        with ThreadPoolExecutor(8) as pool:
            watching = pool.submit(watch)
            try:
                for one in [pool.submit(produce, lane) for lane in range(2)]:
                    one.result(30)
                expected = sum(client.counts().added for client in clients)
                for one in [pool.submit(work, worker, scene, tally, expected) for worker in workers]:
                    one.result(30)
            finally:
                over.set()
            watching.result(10)
        assert wrong == []
        drain(scene, workers[0], tally)
        row = check_record(scene)
        produced = [client.counts() for client in clients]
        assert row["added"] == sum(one.added for one in produced) + tally.followed
        assert row["duplicates"] == sum(one.duplicates for one in produced)
        tally.agrees_with(row)
        tally.agrees_with(scene.admin.record()["workers"][name])

    @needs("operated", "keeps_record")
    def test_each_end_of_a_hand_out_is_counted_once_in_its_own_place(self, scene: Scene) -> None:
        scene.add_all([scene.message(number) for number in range(3)])
        short, leaver, dier = scene.worker(0.3), scene.worker(), scene.worker()
        left, lost, late = leaver.one(), dier.one(), short.one()  # in this order, for the last one's lease is short
        keeper = scene.keeper()
        for _ in range(2):  # each line is sent again
            keeper.bye(leaver.session, "left", "a drain", [left.receipt])
            keeper.bye(dier.session, "lost", "killed", [lost.receipt])
        eventually(lambda: scene.counts()["/returned"] == 1, "the lease ran out", LATE)
        assert [short.end(late).answer for _ in range(2)] == ["refused", "refused"]
        row = check_record(scene)
        ends = {end: n for end, n in row["handouts"].items() if n}
        assert (ends, row["refused"], row["handed_out"]) == ({"left": 1, "returned": 1, "lost": 1}, 1, 3)
        assert (row["ready"], row["running"]) == (3, 0)

    @needs("operated", "keeps_record")
    def test_what_an_operator_does_is_counted_too(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(4)])
        worker = scene.worker()
        for delivery in worker.collect(3):
            worker.run(delivery, "dead")
        dead = [entry["id"] for entry in scene.admin.dead(scene.queue, 10, None)]
        (waiting,) = set(ids) - set(dead)
        scene.admin.requeue(dead[0])
        scene.admin.purge(dead[1])
        scene.admin.cancel(waiting)
        row = check_record(scene)
        counts = {name: row[name] for name in ("added", *STATES) if row[name]}
        assert counts == {"added": 4, "ready": 1, "dead": 1, "purged": 1, "cancelled": 1}
        assert row["handouts"]["dead"] == 3

    @needs("operated", "keeps_record")
    def test_a_duplicate_is_counted_once_however_often_it_is_sent(self, scene: Scene) -> None:
        key = "k" if scene.can.keys else None
        first = scene.message(1, key=key)
        double = scene.message(1, key=key) if scene.can.keys else first
        for one in (first, double, first, double, double):
            add(scene.client(), [one])
        row = check_record(scene)
        assert (row["added"], row["duplicates"]) == (1, 1 if scene.can.keys else 0)


def drain(scene: Scene, worker: Worker, tally: Tally) -> None:
    """Settle what is left until nothing runs and nothing is ready or due."""

    def rests() -> bool:
        for delivery in worker.take(20, 0.1):
            tally.note(worker.end(delivery))
        counts = scene.counts()
        return not counts["ready"] + counts["running"] + counts["scheduled"]

    eventually(rests, "all jobs have ended")
