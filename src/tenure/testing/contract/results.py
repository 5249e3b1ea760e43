"""Results: what became of a job is told to whoever asks, and at once to whoever waits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.message import Settlement
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.scene import LONG, PATIENCE, Scene, id_of

SOON = 1.0
"""Seconds within which a caller that waits is told; a broker that is polled takes longer."""


KNOWN_FOR = 500.0
"""Seconds for which a line that is sent again is surely known, whatever the windows of keys and results are."""
RESULTS = {"none": None, "empty": b"", "odd": b"\x00\r\n\xff", "large": b"r" * 200_000}


class ResultContract(ContractPart):
    """The state of each job is known, its result for a while, and a caller that waits is told by the broker."""

    @needs("keeps_results")
    def test_states_come_in_the_order_of_the_question(self, scene: Scene) -> None:
        done, dead, running, ready = scene.add_all([scene.message(number) for number in range(4)])
        worker = scene.worker()
        by_id = {id_of(delivery): delivery for delivery in worker.collect(4)}
        worker.run(by_id[done], result=b"\xc0")
        worker.run(by_id[dead], "dead", reason="broke", error=b"why")
        worker.run(by_id[ready], "release")
        unknown = scene.message().id
        states = scene.results.states([ready, unknown, dead, running, done, done])
        assert [one.id for one in states] == [ready, unknown, dead, running, done, done]
        assert [one.state for one in states] == ["ready", "unknown", "dead", "running", "done", "done"]
        assert [one.queue for one in states] == [scene.queue, "", *[scene.queue] * 4]
        assert (states[2].reason, states[2].failure, states[2].attempts) == ("broke", b"why", 1)
        assert scene.results.states([]) == []

    @needs("keeps_results")
    @pytest.mark.parametrize(
        "result", [None, b"", b"\x00\r\n\xff", b"r" * 200_000], ids=["none", "empty", "odd", "large"]
    )
    def test_a_result_comes_as_it_was_settled(self, scene: Scene, result: bytes | None) -> None:
        id = scene.add()
        worker = scene.worker()
        worker.run(worker.one(), result=result)
        (state,) = scene.client().results().states([id])  # type: ignore[union-attr]  # `needs` has looked
        assert (state.state, state.result) == ("done", result)

    @needs("keeps_results")
    def test_a_wait_ends_when_the_job_does(self, scene: Scene) -> None:
        worker, times = scene.worker(), list[float]()
        results = scene.client().results()
        assert results is not None
        with ThreadPoolExecutor(1) as pool:
            for number in range(3):
                id = scene.add(number)
                held = worker.one()
                waiting = pool.submit(results.wait, [id], 20.0)
                time.sleep(0.3)  # so that it waits, most likely
                assert not waiting.done()
                began_at = time.monotonic()
                worker.run(held, result=b"\x01")
                (state,) = waiting.result(PATIENCE)
                times.append(time.monotonic() - began_at)
                assert (state.state, state.result) == ("done", b"\x01")
        assert min(times) < SOON, f"a waiting caller is told {min(times):.2f} s after the end at best"

    @needs("keeps_results")
    @pytest.mark.parametrize("end", ["dead", "cancel"])
    def test_a_wait_ends_with_any_end(self, scene: Scene, end: str) -> None:
        id = scene.add()
        worker = scene.worker()
        held = worker.one()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scene.results.wait, [id], 20.0)
            time.sleep(0.1)
            worker.run(held, "dead" if end == "dead" else "cancel")
            assert waiting.result(PATIENCE)[0].state == ("dead" if end == "dead" else "cancelled")

    @needs("keeps_results")
    def test_a_wait_for_many_ends_with_the_first(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(5)])
        worker = scene.worker()
        held = {id_of(delivery): delivery for delivery in worker.collect(5)}
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(scene.results.wait, ids, 20.0)
            time.sleep(0.1)
            worker.run(held[ids[3]])
            states = waiting.result(PATIENCE)
        assert [one.state for one in states] == ["running", "running", "running", "done", "running"]
        assert [one.id for one in states] == ids

    @needs("keeps_results")
    def test_a_wait_is_over_after_its_time(self, scene: Scene) -> None:
        id = scene.add()
        scene.results.states([id])
        began_at = time.monotonic()
        (state,) = scene.results.wait([id], 0.5)
        assert state.state == "ready"
        assert 0.4 <= time.monotonic() - began_at < 0.5 + SOON

    @needs("keeps_results")
    def test_a_wait_for_what_has_ended_or_is_unknown_is_over_at_once(self, scene: Scene) -> None:
        id = scene.add()
        worker = scene.worker()
        worker.run(worker.one())
        for known in (id, scene.message().id):
            began_at = time.monotonic()
            assert scene.results.wait([known], 20.0)[0].state in ("done", "unknown")
            assert time.monotonic() - began_at < 5.0

    @needs("keeps_results")
    def test_twenty_threads_wait_at_once_each_for_its_own_job(self, scene: Scene) -> None:
        ids = scene.add_all([scene.message(number) for number in range(20)])
        worker = scene.worker(LONG)
        held = worker.collect(20)
        results = scene.results
        with ThreadPoolExecutor(20) as pool:
            waiting = {id: pool.submit(results.wait, [id], 20.0) for id in ids}
            time.sleep(0.2)
            for delivery in held:
                worker.run(delivery, result=id_of(delivery).encode())
            told = {id: one.result(PATIENCE)[0] for id, one in waiting.items()}
        assert {id: (one.id, one.state, one.result) for id, one in told.items()} == {
            id: (id, "done", id.encode()) for id in ids
        }

    @needs("keeps_results")
    def test_a_result_can_be_had_for_its_time_and_its_lines_are_known_for_longer(self, scene: Scene) -> None:
        given = scene.message()
        scene.add_all([given])
        worker = scene.worker()
        line = Settlement(worker.one().receipt, "done", result=b"\x01")
        first = worker.settle(line)
        scene.state(given.id, "done")
        scene.site.pass_time(scene.site.result_ttl + 0.2)
        (state,) = scene.results.states([given.id])
        assert (state.state, state.result) == ("expired", None)
        if scene.site.result_ttl < KNOWN_FOR:
            assert worker.settle(line) == first
            assert scene.client().add([given])[0].created  # the same line again
        worker.nothing()
