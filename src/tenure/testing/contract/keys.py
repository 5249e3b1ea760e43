"""Idempotency keys: one job a key, while the job is alive and for the key window after it is done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tenure.broker import Added
from tenure.errors import KeyConflict
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.scene import Scene, add, id_of

KEY = "order:7/ä"


class Call(NamedTuple):
    """Calls with a key, each from a process of its own."""

    scene: Scene

    def add(self, number: int = 0, key: str | None = KEY, task: str | None = None) -> Added:
        """Add one."""
        return add(self.scene.client(), [self.scene.message(number, task=task or self.scene.task, key=key)])[0]


class KeyContract(ContractPart):
    """The same key within its window is the same job, whoever adds it, and however many do at once."""

    @pytest.fixture
    def call(self, scene: Scene) -> Call:
        """Calls with a key."""
        return Call(scene)

    @needs("keys")
    def test_a_second_call_with_a_key_meets_the_first_job(self, scene: Scene, call: Call) -> None:
        first, again = call.add(), call.add()
        assert (first.created, again.created, again.id, again.error) == (True, False, first.id, None)
        worker = scene.worker()
        assert id_of(worker.one()) == first.id
        worker.nothing()

    @needs("keys")
    def test_the_duplicates_own_id_stands_for_the_first_job(self, scene: Scene, call: Call) -> None:
        first = call.add()
        double = scene.message(key=KEY)
        answers = [scene.broker.add([double])[0], scene.client().add([double])[0]]
        assert [(one.id, one.created) for one in answers] == [(first.id, False)] * 2
        worker = scene.worker()
        worker.run(worker.one())
        scene.state(double.id, "done")

    @needs("keys")
    def test_the_same_key_with_other_arguments_is_a_conflict(self, scene: Scene, call: Call) -> None:
        first = call.add(1)
        for _ in range(2):
            refused = call.add(2)
            assert not refused.created
            assert isinstance(refused.error, KeyConflict)
            assert (refused.error.first_id, refused.error.key) == (first.id, KEY)
        worker = scene.worker()
        assert id_of(worker.one()) == first.id
        worker.nothing()

    @needs("keys")
    def test_each_task_has_its_own_keys(self, scene: Scene, call: Call) -> None:
        pairs = [("a:b", "c"), ("a", "b:c"), ("a", "c"), ("A", "c")]
        made = [call.add(number, key, f"{scene.queue}{task}") for number, (task, key) in enumerate(pairs)]
        assert [one.created for one in made] == [True] * len(pairs)
        assert len(scene.worker().collect(len(pairs))) == len(pairs)

    @needs("keys")
    def test_a_key_is_one_for_all_queues_or_for_each_its_own_as_it_says(self, scene: Scene) -> None:
        first, second = (
            add(scene.client(), [scene.message(queue=queue, key=KEY)])[0]
            for queue in (scene.queue, f"{scene.queue}-other")
        )
        said = f"the capabilities say keys_across_queues={scene.can.keys_across_queues}"
        assert (first.created, second.created) == (True, not scene.can.keys_across_queues), said
        assert (first.id == second.id) == scene.can.keys_across_queues

    @needs("keys")
    def test_fifty_threads_with_one_key_make_one_job(self, scene: Scene) -> None:
        clients = [scene.client() for _ in range(5)]
        with ThreadPoolExecutor(50) as pool:
            calls = [pool.submit(add, clients[at % 5], [scene.message(key=KEY)]) for at in range(50)]
            answers = [one.result(30)[0] for one in calls]
        assert [one.created for one in answers].count(True) == 1
        assert len({one.id for one in answers}) == 1
        assert [one.error for one in answers if one.error] == []
        assert [sum(client.counts()[at] for client in clients) for at in range(3)] == [1, 49, 0]
        worker = scene.worker()
        assert id_of(worker.one()) == answers[0].id
        worker.nothing()

    @needs("keys")
    def test_one_call_with_ten_times_one_key_makes_one_job(self, scene: Scene) -> None:
        answers = scene.broker.add([scene.message(key=KEY) for _ in range(10)])
        assert [one.created for one in answers] == [True] + [False] * 9
        assert len({one.id for one in answers}) == 1
        worker = scene.worker()
        assert id_of(worker.one()) == answers[0].id
        worker.nothing()

    @needs("keys")
    def test_a_key_is_held_while_its_job_runs_and_waits_for_a_retry(self, scene: Scene, call: Call) -> None:
        first = call.add()
        worker = scene.worker()
        held = worker.one()
        assert call.add().id == first.id
        worker.run(held, "retry", delay=60.0)
        assert call.add().id == first.id

    @needs("keys")
    def test_a_key_is_held_for_its_window_after_its_job_is_done_and_then_free(self, scene: Scene, call: Call) -> None:
        first = call.add()
        worker = scene.worker()
        worker.run(worker.one())
        again = call.add()
        assert (again.created, again.id) == (False, first.id)
        scene.site.pass_time(scene.site.key_window + 0.1)
        new = call.add(2)
        assert (new.created, new.error) == (True, None)
        assert id_of(worker.one()) == new.id

    @pytest.mark.parametrize("verb", ["dead", "cancel"])
    @needs("keys")
    def test_a_dead_or_cancelled_job_frees_its_key_at_once(self, scene: Scene, call: Call, verb: str) -> None:
        first = call.add()
        worker = scene.worker()
        worker.run(worker.one(), "dead" if verb == "dead" else "cancel")
        new = call.add(2)
        assert (new.created, new.error) == (True, None)
        assert new.id != first.id

    @needs("keys")
    def test_a_line_that_is_sent_again_is_known_by_its_id_though_its_key_is_free(self, scene: Scene) -> None:
        given, double = scene.message(key=KEY), scene.message(key=KEY)
        scene.broker.add([given])
        assert not scene.broker.add([double])[0].created
        worker = scene.worker()
        worker.run(worker.one(), "dead")
        repeats = [*scene.client().add([given]), *scene.client().add([double])]
        assert [(one.id, one.created) for one in repeats] == [(given.id, True), (given.id, False)]
        worker.nothing()

    @needs("keys")
    def test_without_a_key_the_id_is_the_key(self, scene: Scene, call: Call) -> None:
        first = call.add(1, None)
        again = call.add(1, first.id)
        assert (again.created, again.id) == (False, first.id)

    @needs("keys")
    def test_a_follower_with_a_key_that_is_held_is_not_made(self, scene: Scene, call: Call) -> None:
        first = call.add(1)
        worker = scene.worker()
        held = worker.one()
        other = scene.add(2)
        settled = worker.end(worker.one(), then=(scene.message(1, key=KEY), scene.message(3)))
        assert (settled.answer, settled.added) == ("ok", (False, True))
        assert (id_of(held), other) != (other, first.id)
        worker.one()
        worker.nothing()
