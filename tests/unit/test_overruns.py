"""What the supervisor does to a process in which a job goes on after its time limit, and what it says of its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.broker import EndedAs, Settled
from tenure.message import Settlement
from tenure.worker.counts import Counts
from tenure.worker.overruns import CAUSE, judge
from tests.unit.test_supervisor import FakeChild, Rig
from tests.unit.worker_fakes import receipt

GRACE = 10.0


class Keeping(Rig):
    """A supervisor whose broker takes settlements, and can be away; the grace time is 10 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        super().__init__(monkeypatch, grace=GRACE, **options)
        self.said: list[tuple[str, list[Settlement]]] = []
        self.answers: list[list[Settled] | Exception] = []
        self.broker.settle = self._settle  # type: ignore[method-assign]
        self.broker.on_bye = list

    def _settle(self, session: str, settlements: Any) -> list[Settled]:
        self.said.append((session, list(settlements)))
        answer = self.answers.pop(0) if self.answers else [Settled("ok", "scheduled") for _ in settlements]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ended(self) -> list[bool]:
        return [child.killed for child in self.made]

    def at(self, now: float) -> None:
        self.clock.now = now
        self.supervisor._on_time()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Any:
    rig = Keeping(monkeypatch)
    yield rig
    rig.end()


def will(job: int = 0) -> Settlement:
    return Settlement(receipt(1, job), "retry", delay=3.0, reason="timeout: it ran longer", error=b"failure")


def hold(child: FakeChild, job: int = 0, limit: float | None = None) -> int:
    place = child.table.hold(receipt(1, job), 9e9, 30.0)
    assert place is not None
    if limit is not None:
        child.table.wills.write(place, receipt(1, job), limit, will(job))
    return place


def test_a_process_is_ended_one_grace_time_after_the_limit_of_its_only_job(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.at(1069.9)
    assert rig.ended() == [False]
    rig.at(1070.0)
    assert rig.ended()[0]
    assert rig.said == []  # not before it is dead


def test_what_was_left_for_a_job_is_said_after_its_process_was_ended_and_before_the_bye(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.at(1070.0)
    rig.dies(child, "SIGKILL")
    rig.keeper.turn()
    assert rig.said == [("s0", [will()])]
    assert rig.broker.byes == [("s0", "left", CAUSE, [])]
    assert rig.supervisor.counts() == Counts(retried=1)
    assert len(rig.made) == 2, "the next one starts at once"


@pytest.mark.parametrize(("others", "said"), [(0, "it held no other job"), (1, "its other jobs are given back")])
def test_the_log_says_whether_others_are_given_back(
    rig: Keeping, others: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    for job in range(1, others + 1):
        hold(child, job)
    rig.at(1080.0)
    rig.dies(child, "SIGKILL")
    assert caplog.messages[-1] == f"process 4711 was ended because of a job in it; {said}"


def test_it_is_said_until_it_is_answered_and_counted_once(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.at(1070.0)
    rig.dies(child, "SIGKILL")
    rig.answers = [ConnectionError("cut"), [Settled("refused", "returned")]]
    for _ in range(3):
        rig.keeper.turn()
        rig.clock.now += 1.0
    assert rig.said == [("s0", [will()])] * 2
    assert len(rig.broker.byes) == 1
    assert rig.supervisor.counts() == Counts(refused=1)


def test_an_unanswered_bye_does_not_say_it_again(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.at(1070.0)
    rig.dies(child, "SIGKILL")
    rig.broker.on_bye = _away
    rig.keeper.turn()
    rig.clock.now += 1.0
    rig.broker.on_bye = list
    rig.keeper.turn()
    assert len(rig.said) == 1
    assert len(rig.broker.byes) == 2
    assert rig.supervisor.counts() == Counts(retried=1)


def _away() -> list[EndedAs]:
    raise ConnectionError("cut")


def test_other_jobs_of_the_process_may_finish_first_while_the_next_one_starts(rig: Keeping) -> None:
    (child,) = rig.made
    child.ready = True
    hold(child, 0, limit=1060.0)
    other = hold(child, 1)
    rig.at(1070.0)
    rig.at(1070.1)
    assert (child.killed, child.worn, len(rig.made)) == (False, True, 2)
    rig.made[1].ready = True
    rig.at(1070.2)
    assert child.makes_room
    child.table.settling(other, "done")
    rig.at(1070.3)
    assert rig.ended() == [False, False], "its word is not answered yet"
    child.table.settled(other, 0)
    rig.at(1070.4)
    assert rig.ended()[0]


def test_others_that_do_not_finish_within_the_grace_time_go_back(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, 0, limit=1060.0)
    hold(child, 1)
    hold(child, 2, limit=1085.0)
    rig.at(1079.9)
    assert rig.ended() == [False, False]
    rig.at(1080.0)
    assert rig.ended()[0]
    rig.dies(child, "SIGKILL")
    rig.keeper.turn()
    assert rig.said == [("s0", [will()])]  # and of the others nothing: the bye gives them back
    assert [end for _, end, *_ in rig.broker.byes] == ["left"]


def test_a_word_of_the_process_itself_that_is_on_its_way_stands(rig: Keeping) -> None:
    (child,) = rig.made
    place = hold(child, limit=1060.0)
    rig.at(1070.0)
    child.table.settling(place, "retry")
    rig.dies(child, "SIGKILL")
    rig.broker.on_bye = lambda: [EndedAs("retried")]
    rig.keeper.turn()
    assert rig.said == []
    assert rig.broker.byes == [("s0", "left", CAUSE, [receipt()])]
    assert rig.supervisor.counts() == Counts(retried=1)


def test_a_process_that_dies_by_itself_has_lost_its_jobs_whatever_their_limits(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.clock.now = 1065.0
    rig.dies(child, "SIGSEGV")
    rig.keeper.turn()
    assert rig.said == []
    assert [end for _, end, *_ in rig.broker.byes] == ["lost"]


def test_a_leaving_worker_whose_grace_is_over_counts_the_limits_that_are_over(rig: Keeping) -> None:
    (child,) = rig.made
    hold(child, 0, limit=1005.0)
    hold(child, 1, limit=1500.0)
    rig.supervisor._on_leave()
    rig.at(1010.0)
    assert rig.ended()[0]
    rig.dies(child, "SIGKILL")
    rig.keeper.turn()
    assert rig.said == [("s0", [will()])]
    assert [(end, cause) for _, end, cause, _ in rig.broker.byes] == [("left", "grace time over")]


def test_one_that_has_ended_is_no_reason(rig: Keeping) -> None:
    (child,) = rig.made
    child.table.drop(hold(child, 0, limit=1060.0))
    hold(child, 1)
    rig.at(5000.0)
    assert rig.ended() == [False]
    assert judge(child.table.entries(), 5000.0, GRACE) == "none"
