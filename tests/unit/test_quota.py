from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenure.message import Delivery
from tenure.worker.quota import Limits, Quota, is_nearly_spent, memory_warnings, resident_bytes
from tenure.worker.room import Room
from tenure.worker.table import Table
from tests.unit.worker_fakes import HandClock, delivery

MIB = 1024 * 1024


class Rig:
    """A quota over a process with four free slots."""

    def __init__(self, size: int = 0, **limits: int) -> None:
        self.clock = HandClock()
        self.table = Table.create(4, shared=False)
        self.size = size
        self.why: list[str] = []
        self.given: list[Delivery] = []
        started_at = self.clock.boot() - 0.5
        self.quota: Quota[Delivery] = Quota(
            Limits(**limits), self.table, lambda rest: Room(4), self._deliver, self.why.append, self.clock, started_at,
            lambda: self.size,
        )  # fmt: skip

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.given += deliveries

    def take(self, most: int = 99) -> int:
        """Be given all that may be taken, and return how many that was."""
        count = min(most, self.quota.room(0.0).limit)
        if count:
            self.quota.deliver([delivery(number) for number in range(count)])
        return count


def test_no_more_is_taken_than_a_process_may_be_given() -> None:
    rig = Rig(jobs=10)
    assert [rig.take() for _ in range(5)] == [4, 4, 2, 0, 0]
    assert len(rig.given) == 10
    assert rig.clock.waits == [0.02, 0.02]


def test_the_next_process_is_asked_for_once_and_in_time() -> None:
    rig = Rig(jobs=100)
    told_at = 0
    for number in range(100):
        rig.take(1)
        rig.clock.now += 0.1
        told_at = told_at or (number + 1 if rig.why else 0)
    assert rig.why == ["--max-jobs-per-process 100"]
    assert told_at == 90, "it took half a second to start, and the last ten jobs take a second"


@pytest.mark.parametrize(
    ("jobs", "given", "working", "starting", "expected"),
    [
        (1, 1, 0.0, 0.5, True),
        (1000, 8, 0.001, 0.5, False),
        (1000, 500, 0.1, 0.5, True),
        (1000, 500, 500.0, 0.5, False),
        (1000, 998, 499.0, 0.5, True),
        (1000, 999, 60_000.0, 0.5, False),
        (5, 7, 1.0, 0.5, True),
    ],
)
def test_when_a_process_is_nearly_spent(jobs: int, given: int, working: float, starting: float, expected: bool) -> None:
    assert is_nearly_spent(jobs, given, working, starting) is expected


def test_memory_near_the_limit_asks_for_the_next_process_and_above_it_ends_the_taking() -> None:
    rig = Rig(size=80 * MIB, memory=100 * MIB)
    assert rig.take() == 4
    assert not rig.why
    rig.size = 95 * MIB
    assert (rig.take(), rig.why) == (4, ["95MiB of memory, --max-memory-per-process 100MiB"])
    rig.size = 101 * MIB
    assert (rig.take(), len(rig.why)) == (0, 1)
    rig.size = 70 * MIB
    assert rig.take() == 4, "what was freed may be used again until the next process is there"


def test_a_process_that_is_too_large_from_the_start_is_given_something_all_the_same() -> None:
    rig = Rig(size=200 * MIB, memory=100 * MIB)
    assert (rig.take(), rig.why) == (4, [])
    assert (rig.take(), len(rig.why)) == (0, 1)


def test_slots_that_another_process_still_needs_are_left_alone() -> None:
    rig = Rig(jobs=100)
    rig.table.lend(1 << 32)
    assert rig.take() == 0
    rig.table.lend(3)
    assert rig.take() == 1
    rig.table.lend(0)
    assert rig.take() == 4


def test_which_queues_are_asked_for_is_the_slots_to_say() -> None:
    rig = Rig(jobs=100)
    rig.quota._free = lambda rest: Room(2, ("a",))
    assert rig.quota.room(0.0) == Room(2, ("a",))
    rig.quota._free = lambda rest: Room(0)
    assert rig.quota.room(0.0) == Room(0)
    assert rig.clock.waits == []


def test_a_limit_that_no_process_can_keep_is_warned_of() -> None:
    assert memory_warnings(Limits(jobs=5), 10**12) == []
    assert memory_warnings(Limits(memory=100 * MIB), 80 * MIB) == []
    (line,) = memory_warnings(Limits(memory=100 * MIB), 95 * MIB)
    assert "95MiB" in line
    assert "100MiB" in line
    assert "--max-memory-per-process 10B:" in memory_warnings(Limits(memory=10), 95 * MIB)[0]


def test_how_much_memory_this_process_has() -> None:
    before = resident_bytes()
    assert 5 * MIB < before < 4096 * MIB
    kept: Any = b"x" * (64 * MIB)
    assert resident_bytes() - before > 32 * MIB
    del kept
