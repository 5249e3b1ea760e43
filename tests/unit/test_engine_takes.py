"""Who gets which job: priority, first in first out, and the queues in turn."""

from __future__ import annotations

import re

import pytest

from tenure.engine.leases import SPENT_ENDS, Lease, LeaseBook
from tenure.engine.taking import round_robin
from tests.property.lab import Lab, Line, hexid, session_of


def ids(answer: str) -> list[int]:
    """The numbers of the jobs in the answer to a take."""
    return [int(found[12:], 16) for found in re.findall(r"^job ([0-9a-f]{32}) ", answer, re.MULTILINE)]


class Worker:
    """Takes with numbers that go up."""

    def __init__(self, line: Line) -> None:
        self.line, self.number = line, 0

    def take(self, queues: str, limit: int = 1) -> list[int]:
        self.number += 1
        return ids(self.line.ask(f"take {self.number} {limit} 0 30000 {queues}"))


def test_first_in_first_out_whatever_the_ids_are(lab: Lab) -> None:
    line = lab.connect()
    for n in (3, 1, 2):
        line.ask(lab.add(n))
    assert Worker(line).take("q", 9) == [3, 1, 2]


def test_higher_priority_first_and_in_it_first_in_first_out(lab: Lab) -> None:
    line = lab.connect()
    for n, priority in enumerate([5, 0, 9, 5, 9], 1):
        line.ask(lab.add(n, f"p={priority}"))
    assert Worker(line).take("q", 9) == [3, 5, 1, 4, 2]


def test_scheduled_jobs_line_up_when_they_fall_due_in_the_order_of_their_times(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "at=+3000"))
    line.ask(lab.add(2, "at=+2000"))
    lab.gap(4.0)
    line.ask(lab.add(3))
    lab.turn()
    assert Worker(line).take("q", 9) == [3, 2, 1]


def test_what_is_given_back_at_once_keeps_its_place_and_what_waits_for_a_time_lines_up_then(lab: Lab) -> None:
    """The same where a worker is lost or leaves, and where an operator requeues."""
    line = lab.connect()
    for n in range(1, 8):
        line.ask(lab.add(n))
    worker = Worker(line)
    assert worker.take("q", 4) == [1, 2, 3, 4]
    other = Worker(lab.connect(2))
    assert other.take("q") == [5]
    line.ask(f"release {hexid(1)}:1 0 why\nrelease {hexid(2)}:1 500 why\nretry {hexid(3)}:1 500 why 0\n")
    line.ask(f"dead {hexid(4)}:1 why 0\n\nrequeue {hexid(4)}\nbye {session_of(2)} lost SIGKILL")
    lab.pass_time(1.0)
    line.ask(lab.add(8))
    assert worker.take("q", 9) == [1, 5, 6, 7, 4, 2, 3, 8]


def test_a_moment_that_has_passed_is_no_wait(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "at=5"))
    assert Worker(line).take("q") == [1]


def test_several_queues_are_served_in_turn_within_a_take(lab: Lab) -> None:
    line = lab.connect()
    for n in range(1, 4):
        line.ask(lab.add(n, queue="a"))
        line.ask(lab.add(n + 10, queue="b"))
    assert sorted(Worker(line).take("a b", 4)) == [1, 2, 11, 12]


def test_several_queues_are_served_in_turn_from_take_to_take(lab: Lab) -> None:
    line = lab.connect()
    for n in range(1, 6):
        for base, queue in ((0, "a"), (10, "b"), (20, "c")):
            line.ask(lab.add(base + n, queue=queue))
    worker = Worker(line)
    assert [worker.take("a b c")[0] for _ in range(6)] == [1, 11, 21, 2, 12, 22]


def test_no_queue_is_left_waiting_by_what_other_workers_take(lab: Lab) -> None:
    """Two workers with other queues, whose takes alternate: each one's queues are still served in turn."""
    one, two = Worker(lab.connect(1)), Worker(lab.connect(2))
    for n in range(1, 9):
        for base, queue in ((0, "a"), (10, "b"), (20, "c"), (30, "d")):
            one.line.ask(lab.add(base + n, queue=queue))
    taken = []
    for _ in range(4):
        taken += one.take("a b")
        two.take("c d")
    assert taken == [1, 11, 2, 12]


def test_a_queue_named_twice_is_served_as_one(lab: Lab) -> None:
    line = lab.connect()
    for n in range(1, 4):
        line.ask(lab.add(n))
    assert Worker(line).take("q q nothing", 5) == [1, 2, 3]


def test_an_answer_is_bounded_in_bytes_and_the_rest_stays_ready(lab: Lab) -> None:
    line = lab.connect()
    for n in range(6):
        line.ask(lab.add(n, body="x" * 1_000_000))
    worker = Worker(line)
    assert worker.take("q", 10) == [0, 1, 2, 3, 4]  # the one with which 4 MiB are reached is the last
    assert lab.counts()["ready"] == 1
    assert worker.take("q", 10) == [5]


def test_a_jobs_own_visibility_timeout_goes_before_the_takes(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "vt=5000"))
    assert line.ask("take 1 1 0 30000 q").split("\n")[1].split()[3:5] == ["5000", "5000"]


def test_a_delivery_carries_all_that_was_added(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1, "k=a%20b p=9 x=+900000 ma=3 ml=2"))
    words = line.ask("take 1 1 0 30000 q").split("\n")[1].split()
    assert words[:3] == ["job", hexid(1), "1"]
    assert words[5:11] == ["1", "0", "q", "t", "f" * 32, "4"]
    assert set(words[11:]) == {"k=a%20b", "p=9", f"x={lab.wall + 900_000}", "ma=3", "ml=2"}


@pytest.mark.parametrize("ready", [[], [(1, 0)], [(1, 3)], [(1, 3), (2, 1), (3, 9)], [(1, 1)] * 1])
@pytest.mark.parametrize("limit", [0, 1, 2, 5, 100])
def test_a_share_is_never_more_than_there_is_nor_than_was_asked_for(ready: list[tuple[int, int]], limit: int) -> None:
    ready = [(queue, n) for queue, n in ready if n]
    shares = dict(round_robin(ready, limit))
    assert sum(shares.values()) == min(limit, sum(n for _, n in ready))
    assert all(shares.get(queue, 0) <= n for queue, n in ready)


def test_a_count_that_is_wrong_does_not_keep_the_server_busy_for_ever(lab: Lab) -> None:
    """The file was changed behind the server's back: the count says ready, the rows do not."""
    line = lab.connect()
    lab.engine._core.lines.most = 0
    line.ask(lab.add(1))
    lab.engine._store.execute("UPDATE jobs SET state = 6")
    assert line.ask("take 1 1 0 30000 q") == "jobs 0 0"
    assert line.ask("take 2 1 0 30000 q other") == "jobs 0 0"


# -- the book of leases --------------------------------------------------------------------------------------------


def lease(n: int, end: float, number: int = 1) -> Lease:
    return Lease(n.to_bytes(16, "big"), number, b"s", 1, 1, 1_000, end, 1, "t", None, b"", 0, 0, 20, 5, 0, 5, n)


def test_the_next_end_is_never_too_late() -> None:
    book = LeaseBook()
    for n, end in enumerate([5.0, 3.0, 9.0]):
        book.add(lease(n, end))
    assert book.next_end() == 3.0
    second = book.of_job((1).to_bytes(16, "big"))
    assert second is not None
    second.end = 7.0
    assert book.next_end() == 3.0  # too early is harmless
    assert book.run_out(4.0, 10) == []
    assert book.next_end() == 5.0
    assert [found.end for found in book.run_out(8.0, 10)] == [5.0, 7.0]


def test_only_so_many_leases_are_ended_at_once_and_none_is_forgotten() -> None:
    book = LeaseBook()
    for n in range(10):
        book.add(lease(n, float(n)))
    ended = []
    while found := book.run_out(100.0, 3):
        assert len(found) <= 3
        for one in found:
            book.remove(one)
            ended.append(one.end)
    assert ended == [float(n) for n in range(10)]
    assert book.next_end() is None


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_ends_of_leases_that_ended_do_not_pile_up(apart: float) -> None:
    book = LeaseBook()
    for n in range(10 * SPENT_ENDS):
        one = lease(n, 3_600.0 + n * apart)
        book.add(one)
        if n % 100:
            book.remove(one)
    assert sum(len(leases) for leases in book._by_end.values()) <= 2 * len(book) + SPENT_ENDS
    assert book.next_end() == 3_600.0


def test_of_leases_that_were_to_end_together_each_ends_at_its_own_time() -> None:
    book = LeaseBook()
    leases = [lease(n, 5.0) for n in range(4)]
    for one in leases:
        book.add(one)
    book.remove(leases[0])
    leases[1].end = 8.0
    leases[2].end = 6.0
    assert book.run_out(5.0, 10) == [leases[3]]
    book.remove(leases[3])
    assert book.next_end() == 6.0
    assert book.run_out(9.0, 10) == [leases[2], leases[1]]


def test_a_job_that_is_handed_out_again_is_not_ended_by_its_old_lease() -> None:
    book = LeaseBook()
    old = lease(1, 5.0)
    book.add(old)
    book.remove(old)
    book.add(lease(1, 50.0, number=2))
    assert book.run_out(10.0, 10) == []
    assert book.get(old.id, 1) is None
