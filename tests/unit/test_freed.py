"""Slots that have become free: the thread that waits for several is woken once."""

from __future__ import annotations

import threading

from tenure.worker.freed import Freed


def waiting(freed: Freed, count: int) -> tuple[threading.Thread, list[list[int]]]:
    """Start a thread that waits for so many, and return once it does."""
    got: list[list[int]] = []
    thread = threading.Thread(target=lambda: got.append(freed.get(count, 10.0)))
    thread.start()
    while not freed._wanted:
        pass
    return thread, got


def test_what_is_there_is_returned_in_order() -> None:
    freed = Freed()
    for kind in (0, 1, 0):
        freed.put(kind)
    assert freed.get() == [0, 1, 0]
    assert freed.get() == []


def test_a_wait_ends_with_the_last_one_that_it_is_for() -> None:
    freed = Freed()
    freed.put(0)
    thread, got = waiting(freed, 3)
    freed.put(0)
    assert freed._bell.empty()
    freed.put(1)
    thread.join(5)
    assert got == [[0, 0, 1]]


def test_enough_is_not_waited_for() -> None:
    freed = Freed()
    freed.put(0)
    assert freed.get(1, None) == [0]


def test_a_wait_is_over_when_its_time_is() -> None:
    freed = Freed()
    freed.put(0)
    assert freed.get(2, 0.001) == [0]
    freed.put(1)
    assert freed._bell.empty(), "nobody waits any more"


def test_a_wake_ends_the_wait_or_the_next_one() -> None:
    freed = Freed()
    thread, got = waiting(freed, 1)
    freed.wake()
    thread.join(5)
    assert got == [[]]
    freed.wake()
    assert freed.get(1, 10.0) == []


def test_many_that_put_at_once_lose_none() -> None:
    freed = Freed()

    def put() -> None:
        for _ in range(1000):
            freed.put(0)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    count = 0
    while count < 4000:
        came = len(freed.get(min(64, 4000 - count), 5.0))
        assert came, "a thread that waits was not woken"
        count += came
    for thread in threads:
        thread.join(5)
    assert freed.get() == []
