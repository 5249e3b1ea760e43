"""The network: a line whose answer is lost, or that comes late, is sent again and does nothing twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenure.broker import Extend
from tenure.message import Settlement
from tenure.testing.contract.base import ContractPart, needs
from tenure.testing.contract.rough import Fault, RoughScene
from tenure.testing.contract.scene import LONG, PATIENCE, SHORT, Worker, add, id_of, insist
from tenure.testing.contract.site import BrokerSite

FAULTS: tuple[Fault, ...] = ("cut", "drop", "stall", "late")
SHARP: tuple[Fault, ...] = ("cut", "drop")
"""The faults that cost no time."""


class RoughPart(ContractPart):
    """A part whose tests go through proxies."""

    @pytest.fixture
    def rough(self, site: BrokerSite) -> Iterator[RoughScene]:
        """A scene behind proxies."""
        scene = RoughScene(site)
        try:
            yield scene
        finally:
            scene.close()


class NetworkContract(RoughPart):
    """Every line may be sent again: after a cut, a silence, a lost answer or a late copy nothing has happened twice."""

    @needs("network")
    @pytest.mark.parametrize("fault", FAULTS)
    def test_an_add_that_is_struck_makes_one_job(self, rough: RoughScene, fault: Fault) -> None:
        rough.add(1)
        keys = [f"k{number // 2}" if rough.can.keys else None for number in range(2, 12)]
        messages = [rough.message(number // 2 + 2, key=key) for number, key in enumerate(keys)]
        rough.strike(fault)
        answers = add(rough.broker, messages)
        created = [one.created for one in answers]
        assert created == ([True, False] * 5 if rough.can.keys else [True] * 10)
        assert [one.error for one in answers if one.error] == []
        rough.settle_down(fault)
        made = 1 + created.count(True)
        assert rough.broker.counts() == (made, 11 - made, 0)
        worker = rough.worker()
        assert len({id_of(one) for one in worker.collect(made)}) == made
        worker.nothing()
        rough.check_counts(added=made, duplicates=11 - made)

    @needs("network")
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_take_that_is_struck_strands_no_job(self, rough: RoughScene, fault: Fault) -> None:
        worker = rough.worker(LONG if rough.can.repeats_takes else SHORT)
        worker.take()
        ids = rough.add_all([rough.message(number) for number in range(3)])
        rough.strike(fault)
        came = worker.collect(3)
        rough.settle_down(fault)
        assert sorted(map(id_of, came)) == sorted(ids)
        if rough.can.repeats_takes:
            assert {(one.attempt, one.losses) for one in came} == {(1, 0)}
            rough.worker().nothing()
        assert {one.answer for one in worker.settle(*(Settlement(one.receipt, "done") for one in came))} == {"ok"}
        rough.check_counts(added=3, done=3)

    @needs("network")
    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_settlement_that_is_struck_is_taken_once(self, rough: RoughScene, fault: Fault) -> None:
        rough.add_all([rough.message(number) for number in range(3)])
        worker = rough.worker()
        done, retried, dead = worker.collect(3)
        worker.run(dead, "dead")
        follower = rough.message(9)
        rough.strike(fault)
        lines = (
            Settlement(done.receipt, "done", then=(follower,)),
            Settlement(retried.receipt, "retry", delay=0.0),
            Settlement(dead.receipt, "dead"),
        )
        answers = worker.settle(*lines)
        rough.settle_down(fault)
        assert [(one.answer, one.detail) for one in answers] == [("ok", "done"), ("ok", "scheduled"), ("ok", "dead")]
        came = {id_of(one): one.attempt for one in worker.collect(2)}
        assert came == {follower.id: 1, id_of(retried): 2}
        worker.nothing()
        rough.check_counts(added=4, done=1, dead=1, running=2, refused=0)

    @needs("network")
    @pytest.mark.parametrize("fault", SHARP)
    def test_an_extend_and_a_bye_that_are_struck_do_what_they_say(self, rough: RoughScene, fault: Fault) -> None:
        rough.add_all([rough.message(number) for number in range(2)])
        worker, keeper = rough.worker(), rough.keeper()
        held, other = worker.collect(2)
        keeper.extend([])
        rough.strike(fault)
        (extended,) = keeper.extend([Extend(held.receipt)])
        assert extended.deadline is not None
        rough.strike(fault)
        ended = keeper.bye(worker.session, "left", "a drain", [held.receipt, other.receipt])
        assert [(one.how, one.late) for one in ended] == [("left", False)] * 2
        assert {one.losses for one in rough.worker().collect(2)} == {0}

    @needs("network", "keeps_results")
    @pytest.mark.parametrize("fault", FAULTS[:3])
    def test_a_wait_that_is_struck_goes_on(self, rough: RoughScene, fault: Fault) -> None:
        id = rough.add()
        held = rough.worker().one()
        direct = rough.site.broker()
        results = rough.client().results()
        assert results is not None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: insist(lambda: results.wait([id], PATIENCE)))
            time.sleep(0.3)
            rough.strike(fault)
            time.sleep(0.2)
            settler = Worker(direct, [rough.queue], LONG, "contract")
            settler.run(held, result=b"\x05")
            settler.consumer.close()
            direct.close()
            (state,) = waiting.result(PATIENCE)
        assert (state.state, state.result) == ("done", b"\x05")

    @needs("network")
    @pytest.mark.parametrize("fault", FAULTS[:3])
    def test_a_waiting_take_that_is_struck_brings_what_comes_later(self, rough: RoughScene, fault: Fault) -> None:
        worker = rough.worker()
        worker.take()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(worker.collect, 1)
            time.sleep(0.3)
            rough.strike(fault)
            time.sleep(0.1)
            id = rough.add()
            (came,) = waiting.result(PATIENCE)
        assert (id_of(came), came.losses) == (id, 0) or not rough.can.repeats_takes
        rough.worker().nothing()

    @needs("network", "operated")
    @pytest.mark.parametrize("fault", SHARP)
    def test_an_operators_verb_that_is_struck_does_what_it_says(self, rough: RoughScene, fault: Fault) -> None:
        id = rough.add()
        rough.admin.queues()
        rough.strike(fault)
        assert rough.admin.cancel(id) in ("cancelled", "already cancelled")
        rough.strike(fault)
        assert rough.admin.switch("pause", rough.queue) == "paused"
        rough.state(id, "cancelled")
        rough.admin.switch("resume", rough.queue)

    @needs("network")
    def test_a_producer_that_gives_up_says_so_and_the_same_line_is_still_safe(self, rough: RoughScene) -> None:
        given = rough.message(1)
        rough.add(2)
        rough.mute()
        began_at = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(add, rough.broker, [given])
            time.sleep(1.5)
            assert not adding.done(), "an add is answered though no answer has come through"
            rough.calm()
            (answer,) = adding.result(PATIENCE)
        assert time.monotonic() - began_at < PATIENCE
        assert (answer.id, answer.created) == (given.id, True)
        worker = rough.worker()
        assert len(worker.collect(2)) == 2
        worker.nothing()
