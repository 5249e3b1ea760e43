"""The supervisor's accounts, with worker processes that are stand-ins; and its refusals, with real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.broker import EndedAs
from tenure.worker import supervisor as module
from tenure.worker.counts import NAMES, Counts
from tenure.worker.keeper import LeaseKeeper, Watched
from tenure.worker.options import ChildOptions, WorkerOptions
from tenure.worker.restarts import Restarts
from tenure.worker.supervisor import Supervisor
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, ScriptedKeeper, receipt


class FakeChild:
    """A worker process that is dead when `how` is set."""

    def __init__(self, session: str, reports_fd: int) -> None:
        self.session = session
        self.reports_fd = reports_fd
        self.table = Table.create(4, shared=False)
        self.watched = Watched(self.table)
        self.started_at = 0.0
        self.pid = 4711
        self.how: str | None = None
        self.left = self.deaf = self.failed = self.killed_by_us = self.killed = self.drained = self.closed = False
        self.ready = self.worn = self.resting = self.overran = self.stopped = False
        self.begun = True
        self.told_of: list[bytes] = []
        self.makes_room = 0
        self.replaces: FakeChild | None = None
        self.reports: list[dict[str, Any]] = []

    def poll(self) -> str | None:
        return self.how

    def hear(self) -> list[dict[str, Any]]:
        reports, self.reports = self.reports, []
        return reports

    def kill(self) -> None:
        self.killed = True

    def tell_to_drain(self) -> None:
        self.drained = True

    def has_begun(self) -> bool:
        return self.begun

    def tell_to_make_room(self) -> None:
        self.makes_room += 1

    def tell_of(self, receipt: bytes) -> None:
        self.told_of.append(receipt)

    def close(self) -> None:
        self.closed = True
        self.table.close()


class Rig:
    """A supervisor that runs already, one turn at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, processes: int = 1, **options: Any) -> None:
        self.made: list[FakeChild] = []
        self._fds: list[int] = []
        monkeypatch.setattr(module, "Handle", self._make)
        self.clock = HandClock()
        self.broker = ScriptedKeeper()
        self.supervisor = Supervisor(WorkerOptions("shop.jobs", processes=processes, **options))
        self.supervisor._clock = self.clock  # type: ignore[assignment]
        self.keeper = LeaseKeeper(self.broker, self.clock, lambda: 1.0)
        self.supervisor._keeper = self.keeper
        self.supervisor._on_time()

    def _make(self, *args: Any) -> FakeChild:
        # Any descriptor that select can wait for will do.
        fd = os.dup(self.supervisor._wake_out.fileno())
        self._fds.append(fd)
        child = FakeChild(f"s{len(self.made)}", fd)
        self.made.append(child)
        return child

    def dies(self, child: FakeChild, how: str) -> None:
        child.how = how
        self.supervisor._reap()
        self.supervisor._on_time()

    def hears(self, child: FakeChild, **report: Any) -> None:
        child.reports = [report]
        self.supervisor._hear(child)  # type: ignore[arg-type]
        self.supervisor._on_time()

    def end(self) -> None:
        self.supervisor._selector.close()
        for fd in self._fds:
            os.close(fd)
        self.supervisor._wake_in.close()
        self.supervisor._wake_out.close()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Any:
    rig = Rig(monkeypatch)
    yield rig
    rig.end()


def busy(child: FakeChild) -> None:
    """One job counted, two whose settlements are unanswered, one that still runs."""
    places = [child.table.hold(receipt(1, job), 9e9, 30.0) for job in range(4)]
    for place in places[:3]:
        assert place is not None
        child.table.settling(place, "done")
    assert places[0] is not None
    child.table.settled(places[0], NAMES.index("done"))


def test_a_dead_process_is_said_bye_to_and_its_counts_live_on(rig: Rig) -> None:
    (child,) = rig.made
    busy(child)
    rig.dies(child, "SIGKILL")
    assert child.closed
    assert rig.supervisor.counts() == Counts(done=1)
    rig.broker.on_bye = lambda: [EndedAs("done"), EndedAs("lost")]
    rig.keeper.turn()
    assert rig.broker.byes == [("s0", "lost", "SIGKILL", [receipt(1, 1), receipt(1, 2)])]
    assert rig.supervisor.counts() == Counts(done=2)


def test_a_new_process_with_a_new_session_starts_at_once(rig: Rig) -> None:
    rig.dies(rig.made[0], "exit code 3")
    assert [child.session for child in rig.made] == ["s0", "s1"]
    rig.keeper.turn()
    assert rig.broker.byes == [("s0", "lost", "exit code 3", [])]


def test_one_that_keeps_dying_is_started_later_each_time(rig: Rig) -> None:
    rig.clock.now = 1.0
    rig.dies(rig.made[-1], "SIGKILL")
    rig.made[-1].started_at = 1.0
    rig.dies(rig.made[-1], "SIGKILL")
    assert len(rig.made) == 2
    assert rig.supervisor._timeout() == pytest.approx(0.1)
    rig.clock.now = 1.2
    rig.supervisor._on_time()
    assert len(rig.made) == 3


def test_drain_is_told_and_one_that_said_bye_itself_is_not_said_bye_to(rig: Rig) -> None:
    (child,) = rig.made
    rig.supervisor._on_leave()
    assert child.drained
    child.reports = [{"left": True}]
    rig.dies(child, "exit code 0")
    assert rig.keeper.pending() == 0
    assert rig.supervisor._finished()
    assert len(rig.made) == 1


def test_when_the_grace_is_over_the_code_is_stopped_first_and_given_back_after(rig: Rig) -> None:
    (child,) = rig.made
    busy(child)
    rig.supervisor._on_leave()
    assert rig.supervisor._timeout() == pytest.approx(25.0)
    rig.clock.now += 25.0
    rig.supervisor._on_time()
    assert child.killed
    assert rig.keeper.pending() == 0  # not before it is dead
    rig.dies(child, "SIGKILL")
    assert not rig.supervisor._finished()
    rig.broker.on_bye = lambda: [EndedAs("left"), EndedAs("returned", late=True)]
    rig.keeper.turn()
    assert rig.broker.byes == [("s0", "left", "grace time over", [receipt(1, 1), receipt(1, 2)])]
    assert rig.supervisor._finished()
    assert rig.supervisor.counts() == Counts(done=1, refused=1)


def test_processes_that_have_not_begun_to_take_jobs_have_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, processes=2)
    for child in rig.made:
        child.begun = False
    rig.supervisor._on_leave()
    assert rig.supervisor._timeout() == pytest.approx(module.START_TIME)
    rig.clock.now += module.START_TIME
    rig.supervisor._on_time()
    assert all(child.killed for child in rig.made)
    rig.end()


def test_one_that_has_begun_has_all_the_grace_time_beside_one_that_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, processes=2)
    rig.made[0].begun = False
    rig.supervisor._on_leave()
    assert rig.supervisor._timeout() == pytest.approx(25.0)
    rig.end()


def test_nothing_is_given_back_while_another_process_is_still_being_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, processes=2)
    first, second = rig.made
    busy(first)
    rig.supervisor._on_leave()
    rig.clock.now += 25.0
    rig.supervisor._on_time()
    rig.dies(first, "SIGKILL")
    assert rig.keeper.pending() == 0  # the second may have asked for jobs just before
    rig.dies(second, "SIGKILL")
    rig.keeper.turn()
    rig.keeper.turn()
    assert [session for session, *_ in rig.broker.byes] == [second.session, first.session]
    rig.end()


def test_a_process_that_only_waits_for_answers_is_spared_once(rig: Rig) -> None:
    (child,) = rig.made
    place = child.table.hold(receipt(1), 2000.0, 30.0)
    assert place is not None
    child.table.settling(place, "done")
    rig.supervisor._on_leave()
    rig.clock.now += 25.0
    rig.supervisor._on_time()
    assert not child.killed
    assert rig.supervisor._timeout() == pytest.approx(module.BYE_TIME)
    rig.clock.now += module.BYE_TIME
    rig.supervisor._on_time()
    assert child.killed


def test_a_second_signal_ends_it_at_once(rig: Rig) -> None:
    rig.supervisor._on_leave()
    rig.clock.now += 0.05
    rig.supervisor._on_leave()
    rig.supervisor._on_time()
    assert rig.made[0].killed


def test_two_signals_in_the_same_moment_are_one(rig: Rig) -> None:
    rig.supervisor._on_leave()
    rig.clock.now += 0.02
    rig.supervisor._on_leave()
    rig.supervisor._on_time()
    assert not rig.made[0].killed
    assert rig.supervisor._timeout() == pytest.approx(25.0 - 0.02)


def test_byes_that_give_back_nothing_are_tried_for_a_moment_only(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.supervisor._on_leave()
    rig.clock.now += 2.0
    rig.dies(rig.made[0], "SIGKILL")
    assert not rig.supervisor._finished()
    assert rig.supervisor._timeout() == pytest.approx(3.0)
    rig.clock.now += 3.0
    assert rig.supervisor._finished()
    assert "it held no job" in caplog.text
    assert "given back" not in caplog.text


def test_byes_that_nobody_answers_do_not_keep_it_for_ever(rig: Rig) -> None:
    busy(rig.made[0])
    rig.supervisor._on_leave()
    rig.dies(rig.made[0], "SIGKILL")
    assert not rig.supervisor._finished()
    rig.clock.now += 30.0
    assert rig.supervisor._finished()


def test_a_process_that_dies_while_draining_has_lost_its_jobs(rig: Rig) -> None:
    rig.supervisor._on_leave()
    rig.dies(rig.made[0], "exit code 0")
    rig.keeper.turn()
    assert rig.broker.byes == [("s0", "lost", "exit code 0", [])]


def test_no_process_can_be_started_just_now(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any) -> FakeChild:
        raise OSError("no more processes")

    monkeypatch.setattr(module, "Handle", full)
    for _ in range(2):
        rig.supervisor._restarts.ended(0.0, 1.0)
    rig.clock.now = 2000.0
    rig.dies(rig.made[0], "SIGKILL")
    assert "no more processes" in capsys.readouterr().err
    assert not rig.supervisor._finished()


def test_a_worn_process_is_followed_without_a_gap_and_without_more_slots(rig: Rig) -> None:
    (worn,) = rig.made
    for job in range(3):
        worn.table.hold(receipt(1, job), 9e9, 30.0)
    rig.hears(worn, ready={"broker": ""})
    rig.hears(worn, worn="5 jobs")
    new = rig.made[1]
    assert worn.makes_room == 0, "it works until the next one can"
    assert new.table.lent() > 100
    rig.hears(new, ready={"broker": ""})
    assert worn.makes_room > 0
    assert not worn.drained
    assert new.table.lent() > 100, "it may still be given something"
    rig.hears(worn, resting=True)
    assert new.table.lent() == 3
    assert rig.supervisor._timeout() == pytest.approx(0.05)
    worn.table.drop(0)
    rig.supervisor._on_time()
    assert new.table.lent() == 2
    worn.reports = [{"left": True}]
    rig.dies(worn, "exit code 0")
    assert new.table.lent() == 0
    assert rig.supervisor._timeout() is None
    assert (len(rig.made), rig.keeper.pending()) == (2, 0)
    assert rig.supervisor._restarts.next_at == 0.0, "a process that was replaced has not failed"


def test_slots_are_left_to_all_that_came_before(rig: Rig) -> None:
    first = rig.made[0]
    first.table.hold(receipt(1, 1), 9e9, 30.0)
    rig.hears(first, ready={"broker": ""})
    for number in range(2):
        worn = rig.made[number]
        rig.hears(worn, worn="5 jobs")
        rig.hears(rig.made[number + 1], ready={"broker": ""})
        rig.hears(worn, resting=True)
    second, third = rig.made[1:]
    second.table.hold(receipt(1, 2), 9e9, 30.0)
    rig.supervisor._on_time()
    assert (second.table.lent(), third.table.lent()) == (1, 2)
    second.reports = [{"left": True}]
    rig.dies(second, "exit code 0")
    assert third.table.lent() == 1, "the first one still runs"
    assert len(rig.made) == 3


def test_a_successor_that_dies_has_a_successor(rig: Rig) -> None:
    (worn,) = rig.made
    rig.hears(worn, ready={"broker": ""})
    rig.hears(worn, worn="5 jobs")
    rig.dies(rig.made[1], "SIGKILL")
    assert len(rig.made) == 3
    assert worn.makes_room == 0
    rig.hears(rig.made[2], ready={"broker": ""})
    assert worn.makes_room > 0


def test_restarts_wait_longer_and_forget_after_a_long_life() -> None:
    restarts = Restarts()
    delays = []
    for _ in range(8):
        restarts.ended(100.0, 101.0)
        delays.append(restarts.next_at - 101.0)
    assert delays == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    restarts.ended(100.0, 200.0)
    assert restarts.due(200.0)


def test_options_survive_the_command_line() -> None:
    broker = "redis://:secret@localhost"
    worker = WorkerOptions("a:b", broker, queues=("x", "ü z"), name="n", max_memory=5, isolate=True)
    options = ChildOptions(worker, "0" * 32, 1, 2, 3, 4, 5.5)
    environment = options.to_environment({"PATH": "/bin"})
    assert "secret" not in options.to_json(), "others may read what a process was started with"
    assert ChildOptions.read(options.to_json(), environment) == options
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import module_that_is_not_there", "ModuleNotFoundError"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        ("import os; os._exit(7)", "exit code 7"),
        ("from tenure import App; app = App('shop')", "no tasks"),
        ("from tenure import App; a = App('shop'); b = App('shop')", "several Apps (a, b)"),
        ("x = 1", "has no App"),
        (
            "from tenure import App\n@(app := App('shop', broker=object())).task\ndef f(): ...",
            "was given a broker",
        ),
    ],
)
def test_an_app_that_cannot_run_ends_the_worker_with_its_reason(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "shop_jobs.py").write_text(source)
    program = (
        "import sys; from tenure.worker.supervisor import run_supervisor; from tenure.worker.options import "
        "WorkerOptions; sys.exit(run_supervisor(WorkerOptions('shop_jobs', processes=2)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "counts:" not in ended.stdout


def test_a_first_process_that_is_killed_from_outside_is_started_again_a_few_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(monkeypatch)
    rig.supervisor._keeper = None
    assert rig.supervisor._timeout() is None
    for made in range(1, 5):
        rig.dies(rig.made[-1], "SIGKILL")
        assert len(rig.made) == 1 + made
        assert not rig.supervisor._finished()
    rig.dies(rig.made[-1], "SIGKILL")
    assert rig.supervisor._finished()
    assert "before it had imported shop.jobs" in capsys.readouterr().err
    rig.end()


def test_a_process_that_works_is_told_of_the_jobs_of_one_that_is_gone(rig: Rig) -> None:
    """Not before the bye is answered: until then nobody can know what became of them."""
    (child,) = rig.made
    busy(child)
    rig.dies(child, "SIGKILL")
    (_, worn, starting, working) = (child, *(rig._make() for _ in range(3)))
    worn.ready = worn.worn = working.ready = True
    rig.supervisor._children = [worn, starting, working]  # type: ignore[list-item]
    rig.supervisor._on_time()
    assert working.told_of == []
    rig.broker.on_bye = lambda: [EndedAs("done"), EndedAs("lost")]
    rig.keeper.turn()
    rig.supervisor._on_time()
    rig.supervisor._on_time()
    assert (worn.told_of, starting.told_of) == ([], [])
    assert working.told_of == [receipt(1, job) for job in (1, 2, 3)]


def test_without_one_that_works_they_wait_for_the_next(rig: Rig) -> None:
    (child,) = rig.made
    busy(child)
    rig.dies(child, "SIGKILL")
    rig.keeper.turn()
    rig.supervisor._on_time()
    (_, following) = rig.made
    assert following.told_of == []
    rig.hears(following, ready={"broker": "", "queues": [], "tasks": [], "warnings": []})
    assert following.told_of == [receipt(1, job) for job in (1, 2, 3)]
