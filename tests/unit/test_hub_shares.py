"""What one connection may cost the others: a share of each turn, and answers that are read."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine.sweep import PROMOTE_BATCH
from tenure.server.parking import FEW
from tenure.wire.commands import IDLE_TIMEOUT, LINE_AGE, MAX_BATCH_LINES
from tests.property.lab import Lab, Line, hexid, session_of


def behind(line: Line) -> bool:
    return line.connection.behind


def closing(line: Line) -> bool:
    return line.connection.closing


def one_turn(lab: Lab, line: Line) -> list[bytes]:
    """Have exactly one turn and return the answers of `line` to it."""
    lab.hub.turn(lab.wall, lab.mono)
    return line.read().splitlines()


def test_a_turn_carries_out_a_batch_of_each_connection(lab: Lab) -> None:
    greedy, other = lab.connect(1), lab.connect(2)
    greedy.write(b"nonsense\n" * (2 * MAX_BATCH_LINES + 1))
    other.write(b"nonsense\n")
    assert greedy.connection.full
    assert len(one_turn(lab, greedy)) == MAX_BATCH_LINES
    assert len(other.read().splitlines()) == 1
    assert behind(greedy)
    assert lab.hub.next_wake(lab.wall, lab.mono) == lab.mono
    assert len(one_turn(lab, greedy)) == MAX_BATCH_LINES
    assert len(one_turn(lab, greedy)) == 1
    assert not behind(greedy)
    assert lab.hub.next_wake(lab.wall, lab.mono) > lab.mono


@pytest.mark.parametrize("asked", ["record", "queues", f"show {hexid(1)}", "browse dead - 10 -", f"wait 0 {hexid(1)}"])
def test_a_turn_answers_one_question_of_a_connection(lab: Lab, asked: str) -> None:
    line = lab.connect()
    line.write(f"nonsense\n{asked}\nnonsense\n{asked}\n".encode())
    assert [answer.split()[0] for answer in one_turn(lab, line)[:1]] == [b"err"]
    assert len(line.connection.lines) == 2
    one_turn(lab, line)
    assert not line.connection.lines


def test_lines_behind_a_parked_take_end_it_in_the_next_turn(lab: Lab) -> None:
    line = lab.connect()
    line.write(b"take 1 1 30000 1000 q\nnonsense\n")
    assert one_turn(lab, line) == []
    assert one_turn(lab, line)[0] == b"jobs 0 0"


def test_jobs_that_fall_due_together_cost_a_turn_a_bounded_number_and_none_waits_for_the_clock(lab: Lab) -> None:
    line = lab.connect()
    count = 2 * PROMOTE_BATCH + 1
    line.ask("\n".join(lab.add(n, "at=+500") for n in range(count)))
    lab.gap(0.6)
    for ready in (PROMOTE_BATCH, 2 * PROMOTE_BATCH, count):
        assert lab.hub.next_wake(lab.wall, lab.mono) == lab.mono
        lab.hub.turn(lab.wall, lab.mono)
        assert lab.counts()["ready"] == ready
    assert lab.hub.next_wake(lab.wall, lab.mono) > lab.mono


def test_who_does_not_read_is_not_answered(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    lab.hub.unread(line.connection, lab.mono)
    line.write(b"record\n" * 3)
    other.write(b"nonsense\n")
    assert one_turn(lab, line) == []
    assert other.read()
    assert lab.hub.next_wake(lab.wall, lab.mono) > lab.mono, "nothing is to be done before it reads"
    lab.hub.read_on(line.connection)
    assert one_turn(lab, line)[0].startswith(b"json")


def test_who_never_reads_is_closed(lab: Lab) -> None:
    line = lab.connect()
    lab.hub.unread(line.connection, lab.mono)
    for _ in range(int(IDLE_TIMEOUT) // 10):
        lab.pass_time(10.0)
        line.write(b"nonsense\n")
    assert not closing(line)
    lab.pass_time(2.0)
    assert closing(line)
    assert b"answers were not read for 60 s" in line.read()


def test_lines_of_an_unread_connection_that_goes_are_carried_out(lab: Lab) -> None:
    line = lab.connect()
    lab.hub.unread(line.connection, lab.mono)
    line.write(lab.add(1).encode() + b"\n")
    line.cut()
    lab.turn()
    assert lab.counts()["added"] == 1
    assert not lab.hub.behind


def test_takes_that_are_answered_early_leave_nothing_behind(lab: Lab) -> None:
    line = lab.connect()
    for number in range(1, 4 * FEW):
        line.write(f"take {number} 1 30000 1000 q\n".encode())
        lab.hub.turn(lab.wall, lab.mono)
    assert len(lab.hub._parking._deadlines) <= FEW + 3


def test_sessions_are_forgotten_in_the_order_of_their_age(lab: Lab) -> None:
    line = lab.connect()
    random = Random(1)
    for _ in range(50):
        for session in random.sample(range(100, 130), 5):
            line.ask(f"bye {session_of(session)} left over")
        lab.pass_time(3.0)
    lab.pass_time(1.0)
    known = lab.hub._crowd._left
    assert list(known.values()) == sorted(known.values())
    for _ in range(int(LINE_AGE) // 30 + 1):
        lab.pass_time(30.0)
        line.write(b"nonsense\n")
    assert not known


def working(lab: Lab, count: int) -> Line:
    """A worker that holds so many jobs: every other one with a key, every third with a large body."""
    line = lab.connect(1)
    for n in range(count):
        line.ask(lab.add(n, "" if n % 2 else f"k={'ab'[n % 4 // 2]}", body="x" * (10 + 3_000 * (n % 3))))
    line.ask(f"take 1 {count} 0 30000 q")
    return line


def test_settlements_of_one_write_come_to_what_each_for_itself_comes_to() -> None:
    jobs = [hexid(n) for n in range(8)]
    written = [
        *(f"done {id}:1" for id in jobs[:3]),
        f"done {jobs[1]}:1",
        f"done {jobs[3]}:1 2\nok",
        f"retry {jobs[1]}:1 0 oops 0\n",
        f"retry {jobs[4]}:1 0 oops 0\n",
        f"done {jobs[4]}:1",
        f"done {hexid(99)}:1",
        f"done {jobs[5]}:1 then=1\nadd {hexid(100)} q t {'f' * 32} 0 k=b\n",
        f"done {jobs[6]}:1 as={session_of(1)}",
        f"done {jobs[7]}:1",
    ]
    at_once, singly = Lab(), Lab()
    try:
        answers = working(at_once, 8).ask("\n".join(written))
        line = working(singly, 8)
        assert answers.split("\n") == [line.ask(one) for one in written]
        assert at_once.rows() == singly.rows()
        assert at_once.record() == singly.record()
    finally:
        at_once.close()
        singly.close()


def test_settlements_before_hello_are_refused_each() -> None:
    lab = Lab()
    stranger = Line(lab)
    answers = stranger.ask(f"done {hexid(1)}:1\ndone {hexid(2)}:1")
    lab.close()
    assert [answer.split()[:2] for answer in answers.split("\n")] == [["err", "hello-first"]] * 2
