"""Retention: what is old goes in small steps, nothing young does, and the counts stay for ever."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tenure.engine import sweep
from tenure.engine.core import Retention
from tests.property.lab import WALL, Lab, Line, hexid

FLOOR = 600.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(retention=Retention(result_ttl=0, key_window=3_600_000))
    yield lab
    lab.close()


def do(lab: Lab, *numbers: int, options: str = "") -> None:
    """Add jobs, and do them."""
    line = lab.connect()
    hello = line.connection.hello
    assert hello is not None
    for n in numbers:
        line.ask(lab.add(n, options))
    line.ask(f"take {lab.engine.answered(hello.session) + 1} 1000 0 30000 q")
    for n in numbers:
        assert line.ask(f"done {hexid(n)}:{lab.job(n)['number']}") == "ok done"
    line.cut()


def passes(lab: Lab, count: int = 2) -> None:
    """So many whole passes of the sweep."""
    for _ in range(count):
        lab.pass_time(31.0)


def kept(lab: Lab) -> set[int]:
    return {int.from_bytes(id[6:], "big") for (id,) in lab.engine._store.rows("SELECT id FROM jobs")}


def age(lab: Lab, seconds: float) -> None:
    """Both clocks go on, without the steps in between."""
    lab.gap(seconds)
    lab.turn()


def test_old_jobs_go_and_their_counts_stay(lab: Lab) -> None:
    do(lab, 1, 2, 3)
    before = lab.record()
    age(lab, FLOOR + 1)
    passes(lab)
    assert kept(lab) == set()
    assert lab.record() == before
    sums = dict(lab.engine._store.rows("SELECT counter, n FROM swept WHERE scope = 'queue'"))
    assert sums == {"added": 3, "done": 3, "handed_out": 3, "/done": 3}


def test_all_of_a_job_goes_hand_outs_body_and_late_marks(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "vt=500", body="x" * 5_000))
    line.ask("take 1 1 0 30000 q")
    lab.pass_time(1.0)
    line.ask(f"done {hexid(1)}:1\ntake 2 1 0 30000 q\nrelease {hexid(1)}:2 0 why\ncancel-job {hexid(1)}")
    before = lab.record()
    age(lab, FLOOR + 1)
    passes(lab)
    rows = lab.rows()
    assert rows["jobs"] == rows["handouts"] == rows["bodies"] == []
    assert lab.record() == before


def test_one_old_job_that_is_alive_does_not_keep_the_rest(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    line.ask("take 1 1 0 99000000 q")
    do(lab, *range(2, 30))
    age(lab, FLOOR + 1)
    passes(lab)
    assert kept(lab) == {1}


def test_waiting_running_and_dead_jobs_stay(lab: Lab) -> None:
    line = lab.connect()
    for n in (1, 2):
        line.ask(lab.add(n))
    line.ask(lab.add(3, "at=+999999999"))
    line.ask(f"take 1 1 0 999999999 q\ndead {hexid(1)}:1 why 0\n\ntake 2 1 0 999999999 q")
    line.ask(lab.add(4))
    age(lab, 100 * FLOOR)
    passes(lab)
    assert kept(lab) == {1, 2, 3, 4}


def test_nothing_young_goes(lab: Lab) -> None:
    age(lab, 10 * FLOOR)  # the server has run for long
    do(lab, 1, options="k=a")
    line = lab.connect()
    line.ask(lab.add(2, "k=a"))
    lab.pass_time(FLOOR - 5)
    assert kept(lab) == {1}
    assert len(lab.rows()["aliases"]) == 1
    passes(lab)
    assert kept(lab) == set()
    assert lab.rows()["aliases"] == []
    assert lab.counts()["duplicates"] == 1


def test_nothing_goes_in_the_first_ten_minutes_after_a_start(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"), Retention(result_ttl=0, key_window=0))
    do(lab, 1)
    lab.restart(away=10 * FLOOR)
    lab.pass_time(FLOOR - 5)
    assert kept(lab) == {1}
    passes(lab)
    assert kept(lab) == set()
    lab.close()


@pytest.mark.parametrize("step", [2 * FLOOR, -2 * FLOOR])
def test_nothing_goes_in_the_first_ten_minutes_after_the_clock_was_set(lab: Lab, step: float) -> None:
    age(lab, FLOOR)
    do(lab, 1)
    lab.pass_time(1.0)
    lab.wall += int(step * 1000)  # the wall clock alone
    lab.pass_time(FLOOR - 5)
    assert kept(lab) == {1}


def test_a_job_that_was_done_before_the_clock_was_set_goes_in_the_end(lab: Lab) -> None:
    do(lab, 1)
    lab.wall += 2_000_000
    lab.pass_time(FLOOR + 40)
    assert kept(lab) == set()


def test_ids_of_clients_with_wrong_clocks_go_in_the_end(lab: Lab) -> None:
    line = lab.connect()
    tomorrow = hexid(1, WALL + 86_400_000)
    line.ask(lab.add(1).replace(hexid(1), tomorrow))
    line.ask(f"cancel-job {tomorrow}")
    age(lab, FLOOR + 1)
    passes(lab, sweep.WHOLE_PASS + 1)
    assert kept(lab) == set()


def test_spent_keys_go_and_held_ones_stay(lab: Lab) -> None:
    do(lab, 1, options="k=a")
    do(lab, 2, options=f"k={hexid(77)}")
    line = lab.connect()
    line.ask(lab.add(3, "k=b"))
    assert lab.engine._core.id_like_keys == 1
    age(lab, 3_500)
    passes(lab)
    assert {row[1] for row in lab.rows()["keys"]} == {"a", "b", hexid(77)}
    age(lab, 200)
    passes(lab)
    assert {row[1] for row in lab.rows()["keys"]} == {"b"}
    assert lab.engine._core.id_like_keys == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_a_pass_in_small_steps_misses_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(sweep, "LOOK_BATCH", batch)
    monkeypatch.setattr(sweep, "REMOVE_BATCH", max(1, batch - 1))
    line = lab.connect()
    for n in range(1, 8):
        line.ask(lab.add(n, f"k=key{n % 3}"))
    for n in range(10, 14):
        line.ask(lab.add(n))
    line.ask("take 1 1000 0 999999999 q")
    for n in (2, 3, 10, 12):
        line.ask(f"done {hexid(n)}:1")
    age(lab, FLOOR + 3_700)
    for _ in range(100):
        lab.pass_time(1.0)
    assert kept(lab) == {1, 11, 13}
    assert lab.rows()["aliases"] == []
    assert {row[1] for row in lab.rows()["keys"]} == {"key1"}
    assert lab.counts()["duplicates"] == 4


def test_a_step_does_a_bounded_amount_of_work(lab: Lab) -> None:
    line: Line = lab.connect()
    for n in range(1, 1_801):
        line.write(lab.add(n).encode() + b"\n")
    lab.turn()
    line.read()
    for n in range(1, 1_801):
        line.write(f"cancel-job {hexid(n)}\n".encode())
    lab.turn()
    lab.gap(FLOOR + 1)
    lab.turn()
    sizes = []
    for _ in range(40):
        lab.pass_time(0.03)
        sizes.append(len(kept(lab)))
    assert sizes[-1] == 0
    assert max(a - b for a, b in pairwise(sizes)) <= 2 * sweep.REMOVE_BATCH


def test_the_file_does_not_grow_under_steady_load(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"), Retention(result_ttl=0, key_window=0))
    sizes = []
    body = "x" * 1_500
    for round in range(12):
        line = lab.connect()
        line.write(b"".join(lab.add(round * 1_000 + n, f"k=key{n}", body=body).encode() + b"\n" for n in range(100)))
        lab.turn()
        line.ask(f"take {round + 1} 100 0 30000 q")
        line.write(b"".join(f"done {hexid(round * 1_000 + n)}:1\n".encode() for n in range(100)))
        lab.turn()
        line.cut()
        age(lab, 300)
        lab.pass_time(5.0)
        age(lab, 31)
        lab.pass_time(2.0)
        sizes.append(lab.engine._store.rows("PRAGMA page_count")[0][0])
    assert lab.counts()["done"] == 1_200
    assert max(sizes[6:]) <= max(sizes[:6]) * 1.1
    lab.close()


def sweep_once(lab: Lab) -> None:
    """One whole pass at this very moment."""
    lab.mono += sweep.PASS_PAUSE / 1000  # a pass is due, and by the wall clock nothing is older
    lab.engine.sweep(lab.wall, lab.mono)
    while lab.engine.sweeping:
        lab.engine.sweep(lab.wall, lab.mono)
    lab.engine.commit()


def test_the_moment_at_which_a_job_an_alias_and_a_key_are_old_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CLOCK_STEP", 10**9)  # the wall clock is moved alone here
    lab = Lab(retention=Retention(result_ttl=700_000, key_window=800_000))
    line = lab.connect()
    line.ask("\n".join([lab.add(1, "k=a"), lab.add(2, "k=a"), lab.add(3)]))
    line.ask(f"take 1 5 0 30000 q\ndone {hexid(1)}:1\ndead {hexid(3)}:1 why 0\n\npurge {hexid(3)}")

    def left() -> tuple[set[int], int, int]:
        sweep_once(lab)
        rows = lab.rows()
        return kept(lab), len(rows["aliases"]), len(rows["keys"])

    moments = [(599_999, ({1, 3}, 1, 1)), (600_000, ({1}, 0, 1)), (699_999, ({1}, 0, 1)), (700_000, (set(), 0, 1))]
    moments += [(799_999, (set(), 0, 1)), (800_000, (set(), 0, 0))]
    lab.mono += FLOOR  # the server has run for long
    for age_ms, expected in moments:
        lab.wall = WALL + age_ms
        assert left() == expected, age_ms
    lab.close()


def under_way(lab: Lab) -> bool:
    return lab.engine.sweeping


def test_a_clock_that_is_set_in_mid_pass_ends_the_pass(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LOOK_BATCH", 1)
    do(lab, 1, 2, 3, 4)
    lab.gap(FLOOR + 1)
    lab.engine.sweep(lab.wall, lab.mono)
    assert under_way(lab)
    lab.wall += 900_000
    lab.engine.sweep(lab.wall, lab.mono)
    assert not under_way(lab)  # or the server would look for work fifty times a second
    assert kept(lab) == {1, 2, 3, 4}
