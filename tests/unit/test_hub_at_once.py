"""A plain add of a client that is alone is carried out before a turn, to the same answers, rows and faults."""

from __future__ import annotations

import pytest

from tenure.engine.store import DbError
from tenure.server.hub import AT_ONCE
from tests.property.lab import Lab, Line, hexid, take


def at_once(lab: Lab, line: Line, text: str) -> bytes | None:
    """Carry out a line before a turn; None: the hub leaves it to one."""
    return lab.hub.add_at_once(line.connection, text.encode() + b"\n", lab.wall, lab.mono)


def test_it_is_stored_counted_and_answered_as_in_a_turn(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    assert at_once(lab, line, lab.add(1)) == f"ok {hexid(1)} created\n".encode()
    other.write(lab.add(2).encode() + b"\n")
    lab.turn()
    assert other.read() == f"ok {hexid(2)} created\n".encode()
    assert at_once(lab, line, lab.add(1)) == f"ok {hexid(1)} created\n".encode()
    assert lab.counts() == {"added": 2, "ready": 2}
    first, second = ({**lab.job(n), "id": "", "key": ""} for n in (1, 2))
    assert first == second
    assert other.ask(take(1)).startswith("jobs 2 ")


def test_a_job_stored_so_outlives_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    lab = Lab(str(tmp_path_factory.mktemp("data") / "queue.db"))
    try:
        assert at_once(lab, lab.connect(), lab.add(1)) is not None
        assert not lab.engine._store.db.in_transaction
        lab.restart()
        assert lab.counts() == {"added": 1, "ready": 1}
    finally:
        lab.close()


def test_a_closed_queue_refuses_it(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    line.ask("close q")
    answer = at_once(lab, line, lab.add(2))
    assert answer is not None
    assert answer.startswith(b"err queue-closed ")
    assert lab.counts() == {"added": 1, "ready": 1}


@pytest.mark.parametrize("text", ["add", "record", "nonsense", take(1)])
def test_everything_else_is_left_to_a_turn(lab: Lab, text: str) -> None:
    assert at_once(lab, lab.connect(), text) is None


def test_an_add_with_options_and_several_adds_are_left_to_a_turn(lab: Lab) -> None:
    line = lab.connect()
    assert at_once(lab, line, lab.add(1, "k=order")) is None
    assert at_once(lab, line, f"{lab.add(1)}\n{lab.add(2)}") is None
    assert lab.counts() == {}


def test_before_hello_it_is_left_to_a_turn(lab: Lab) -> None:
    assert at_once(lab, Line(lab), lab.add(1)) is None


def test_a_line_that_is_not_complete_keeps_its_place(lab: Lab) -> None:
    line = lab.connect()
    line.write(lab.add(1).encode())
    assert at_once(lab, line, lab.add(2)) is None
    line.write(b"\n")
    lab.turn()
    assert at_once(lab, line, lab.add(2)) is not None


def test_lines_of_others_come_first(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    other.write(b"record\n")
    assert at_once(lab, line, lab.add(1)) is None
    lab.turn()
    assert at_once(lab, line, lab.add(1)) is not None


def test_where_a_take_waits_for_it_a_turn_hands_it_out(lab: Lab) -> None:
    line, worker = lab.connect(1), lab.connect(2)
    assert worker.ask(take(1, wait=30_000)) == ""
    assert at_once(lab, line, lab.add(1)) is None
    line.ask(lab.add(1))
    assert worker.read().startswith(b"jobs 1 ")


def test_a_turn_comes_after_so_many(lab: Lab) -> None:
    line = lab.connect()
    done = [n for n in range(2 * AT_ONCE) if at_once(lab, line, lab.add(n)) is not None]
    assert len(done) == AT_ONCE
    line.ask(lab.add(AT_ONCE))
    assert at_once(lab, line, lab.add(AT_ONCE + 1)) is not None
    assert lab.counts() == {"added": AT_ONCE + 2, "ready": AT_ONCE + 2}


def test_what_cannot_be_committed_is_undone_and_left_to_a_turn(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    before = lab.rows()
    lab.fail()
    assert at_once(lab, line, lab.add(2)) is None
    assert lab.rows() == before
    assert line.ask(lab.add(2)).startswith("err storage ")
    assert at_once(lab, line, lab.add(2)) is None  # and not even tried while the store fails
    lab.heal()
    lab.turn()
    assert line.ask(lab.add(2)) == f"ok {hexid(2)} created"
    assert lab.counts() == {"added": 2, "ready": 2}


def test_where_it_cannot_even_be_undone_the_next_turn_tries_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    lab.fail()
    with monkeypatch.context() as broken:
        broken.setattr(lab.engine, "rollback", _unreadable)
        assert at_once(lab, line, lab.add(2)) is None
        assert line.ask(lab.add(2)).startswith("err storage ")
    lab.heal()
    assert line.ask(lab.add(2)) == f"ok {hexid(2)} created"
    assert lab.counts() == {"added": 2, "ready": 2}


def _unreadable(mono: float) -> None:
    raise DbError("disk I/O error")
