"""A worker with one slot a process: one job at a time, of whichever kind."""

from __future__ import annotations

import pytest

from tenure import App
from tenure.worker.executor import Executor
from tenure.worker.interrupts import OVERRUN_AFTER
from tenure.worker.keeper import LeaseKeeper, Watched
from tenure.worker.options import WorkerOptions
from tenure.worker.overruns import patience
from tenure.worker.room import ASYNC, SYNC, FreeSlots, Room
from tenure.worker.slots import Slots
from tenure.worker.table import Table
from tests.unit.test_overruns import Keeping, hold
from tests.unit.worker_fakes import HandClock, ScriptedKeeper, receipt, worker_command

QUEUES = {"plain": frozenset({SYNC}), "web": frozenset({ASYNC}), "mixed": frozenset({SYNC, ASYNC})}


@pytest.mark.parametrize("kind", [SYNC, ASYNC])
def test_nothing_is_taken_while_a_job_of_either_kind_runs(kind: int) -> None:
    free = FreeSlots((1, 1), QUEUES, alone=True)
    assert free.room() == Room(1)
    free.took(kind)
    assert free.room() == Room(0)
    free.gave_back(kind)
    assert free.room() == Room(1)


@pytest.mark.parametrize("kind", [SYNC, ASYNC])
def test_no_other_job_would_find_room_in_it(kind: int) -> None:
    app = App("shop")
    app.task(name="plain")(len)
    table = Table.create(2, shared=False)
    executor = Executor(app.tasks, HandClock().boot, 1000)
    Slots(1, table, executor, lambda finished: None, HandClock(), coroutines=1, queues=QUEUES, alone=True)
    idle = table.surroundings.idle
    assert idle("plain", "plain")
    assert table.hold(receipt(), 2000.0, 30.0, kind) is not None
    assert not idle("plain", "plain")
    table.tell_free_elsewhere(1, 1, 1)
    assert idle("plain", "plain")


def test_the_other_processes_are_told_that_it_has_none_free() -> None:
    tables = [Table.create(2, shared=False) for _ in range(3)]
    keeper = LeaseKeeper(ScriptedKeeper(), HandClock(), lambda: 1.0)
    for table in tables:
        keeper.watch(Watched(table, slots=(1, 1), alone=True))
    assert tables[0].hold(receipt(), 2000.0, 30.0, ASYNC) is not None
    keeper.turn()
    assert [table.free_elsewhere(SYNC) for table in tables] == [2, 1, 1]


def test_its_slot_goes_to_nobody_when_a_function_overruns() -> None:
    """The supervisor ends the process in the same moment, and a job that had just begun there would go with it."""
    table = Table.create(2, shared=False)
    slots = Slots(1, table, Executor({}, HandClock().boot, 1000), lambda finished: None, HandClock(), alone=True)
    assert slots._replace(0, receipt()) is False


def test_a_process_is_ended_half_a_second_after_the_limit_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Keeping(monkeypatch, isolate=True)
    (child,) = rig.made
    hold(child, limit=1060.0)
    rig.at(1060.0 + OVERRUN_AFTER - 0.01)
    assert rig.ended() == [False]
    assert rig.supervisor._until_next_look() == pytest.approx(0.1)
    rig.at(1060.0 + OVERRUN_AFTER)
    assert rig.ended() == [True]
    rig.end()


def test_the_option_means_one_slot_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, (options,) = worker_command(monkeypatch, "--isolate", "--processes", "3")
    assert (code, options.isolate, options.processes) == (0, True, 3)
    assert (options.threads, options.async_slots) == (1, 1)


@pytest.mark.parametrize("option", ["--threads", "--async-slots"])
def test_several_slots_are_refused_beside_it(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    code, output, asked = worker_command(monkeypatch, "--isolate", option, "4")
    assert (code, asked) == (2, [])
    assert f"--isolate means one slot a process: leave out {option}" in " ".join(output.split())


def test_without_it_a_job_has_the_grace_time_and_half_a_second_at_least() -> None:
    assert patience(WorkerOptions("shop", grace=25.0)) == 25.0
    assert patience(WorkerOptions("shop", grace=0.0)) == OVERRUN_AFTER
    assert patience(WorkerOptions("shop", grace=25.0, isolate=True)) == OVERRUN_AFTER
