"""Ids of jobs: version 7 UUIDs that only grow inside a process."""

from __future__ import annotations

import os
import re
import threading
import uuid

from tenure.ids import Ids, new_id


def test_it_is_a_version_7_uuid_with_the_time() -> None:
    one = uuid.UUID(Ids(wall=lambda: 1_700_000_000.123).make())
    assert (one.version, one.variant) == (7, uuid.RFC_4122)
    assert one.int >> 80 == 1_700_000_000_123
    assert re.fullmatch("[0-9a-f]{32}", new_id())


def test_ids_grow_while_the_clock_stands_or_goes_back() -> None:
    times = iter([5.0] * 1000 + [4.0] * 1000 + [5.001] * 10)
    ids = Ids(wall=lambda: next(times))
    made = [ids.make() for _ in range(2010)]
    assert made == sorted(set(made))
    assert all(uuid.UUID(one).version == 7 and uuid.UUID(one).variant == uuid.RFC_4122 for one in made)


def test_a_full_millisecond_borrows_from_the_next() -> None:
    ids = Ids(wall=lambda: 5.0, seed=lambda: lambda n: (1 << n) - 1)
    ids.make()
    ids._last |= (1 << 62) - 1
    late = ids.make()
    assert uuid.UUID(late).int >> 80 == 5001
    assert ids.make() > late


def test_threads_make_different_ids() -> None:
    ids = Ids()
    made: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        mine.extend(ids.make() for _ in range(2000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({one for mine in made for one in mine}) == 16_000


def test_a_forked_child_begins_anew() -> None:
    reading, writing = os.pipe()
    new_id()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    mine = {new_id() for _ in range(100)}
    os.waitpid(child, 0)
    data = os.read(reading, 3200).decode()
    theirs = {data[n : n + 32] for n in range(0, 3200, 32)}
    assert len(mine | theirs) == 200
    os.close(reading)
    os.close(writing)
