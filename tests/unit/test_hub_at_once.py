"""A plain add of a client that is alone is carried out before a turn, to the same answers, rows and faults."""

from __future__ import annotations

from contextlib import closing

import pytest

from tenure.engine import handing
from tenure.engine.store import DbError
from tenure.server.hub import AT_ONCE
from tests.property.lab import Lab, Line, hexid, take


def at_once(lab: Lab, line: Line, text: str) -> bytes | None:
    """Carry out a line before a turn; None: the hub leaves it to one."""
    return line.read() if lab.hub.add_at_once(line.connection, text.encode() + b"\n", lab.wall, lab.mono) else None


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


def waits(lab: Lab) -> tuple[Line, Line]:
    """A client, and a worker whose take waits in a queue that is known."""
    client, worker = lab.connect(1), lab.connect(2)
    client.ask(lab.add(99))
    assert worker.ask(take(1)).startswith("jobs 1 ")
    assert worker.ask(take(2, wait=30_000)) == ""
    return client, worker


def test_it_goes_straight_to_a_take_that_waits_for_it(lab: Lab) -> None:
    client, worker = waits(lab)
    assert at_once(lab, client, lab.add(1)) == f"ok {hexid(1)} created\n".encode()
    assert worker.read().startswith(b"jobs 1 ")
    assert lab.counts() == {"added": 2, "handed_out": 2, "running": 2}
    assert worker.ask(f"done {hexid(1)}:1") == "ok done"
    assert at_once(lab, client, lab.add(2)) is not None
    assert lab.job(2)["state"] == "ready", "the take has been answered, and no other one waits"


def test_what_it_leaves_is_what_a_turn_leaves(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for handed_over in (True, False):
        if not handed_over:
            monkeypatch.setattr(handing, "_is_plain", lambda core, a: False)
        with closing(Lab()) as lab:
            client, worker = waits(lab)
            lab.pass_time(0.7)
            answers = [client.ask(lab.add(1)), worker.read(), client.ask(lab.add(1)), worker.read()]
            answers += [worker.ask(take(2)), worker.ask(take(3, wait=500)), client.ask(lab.add(1, body="again"))]
            lab.pass_time(31.0)
            core = lab.engine._core
            seen.append((answers, lab.rows(), lab.record(), core.place, core.space._spent, lab.job(1)))
    assert seen[0] == seen[1]


def test_takes_are_answered_in_the_order_in_which_they_began_to_wait(lab: Lab) -> None:
    client, worker = waits(lab)
    other = lab.connect(3)
    assert other.ask(take(1, wait=30_000)) == ""
    for n, (first, second) in enumerate(((worker, other), (other, worker)), 1):
        client.ask(lab.add(n))
        assert first.read().startswith(b"jobs 1 ")
        assert second.read() == b""


def test_a_repeated_add_leaves_nothing_behind_where_a_worker_waits_that_has_had_no_job(lab: Lab) -> None:
    client, worker = lab.connect(1), lab.connect(2)
    client.ask(lab.add(1))
    worker.ask(take(1))
    assert lab.connect(3, name="new").ask(take(1, wait=30_000)) == ""
    assert client.ask(lab.add(1)) == f"ok {hexid(1)} created"
    assert lab.record()["workers"].keys() == {"w"}


def test_who_has_said_all_is_given_nothing(lab: Lab) -> None:
    client, worker = waits(lab)
    other = lab.connect(3)
    assert other.ask(take(1, wait=30_000)) == ""
    lab.hub.ends(worker.connection)
    assert at_once(lab, client, lab.add(1)) is not None
    assert other.read().startswith(b"jobs 1 ")
    worker.cut()
    lab.turn()
    assert worker.read() == b""


def test_the_queues_of_a_take_are_served_in_turn_after_it(lab: Lab) -> None:
    client, worker = lab.connect(1), lab.connect(2)
    client.ask("\n".join(lab.add(n, queue=queue) for n, queue in enumerate("ab", 90)))
    assert worker.ask(take(1, queues="a b")).startswith("jobs 2 ")
    for number, queue in ((2, "b"), (4, "a")):
        assert worker.ask(take(number, wait=30_000, queues="a b")) == ""
        assert at_once(lab, client, lab.add(number, queue=queue)) is not None
        assert worker.read().startswith(b"jobs 1 ")
        client.ask("\n".join(lab.add(10 * number + n, queue=name) for n, name in enumerate("ab")))
        (other,) = {"a", "b"} - {queue}
        assert f" {other} t " in worker.ask(take(number + 1, limit=1, queues="a b"))
        lab.connect(5).ask(take(number + 1, limit=5, queues="a b"))


def test_what_waits_already_comes_first(lab: Lab) -> None:
    client, worker = waits(lab)
    lab.engine.space.holding = True
    client.ask(lab.add(1))
    assert worker.read() == b""
    lab.engine.space.holding = False
    assert at_once(lab, client, lab.add(2)) is None
    client.ask(lab.add(2))
    assert worker.read().startswith(f"jobs 2 198\njob {hexid(1)} ".encode())


@pytest.mark.parametrize("text", ["pause q", "close q"])
def test_a_queue_that_is_stopped_hands_nothing_over(lab: Lab, text: str) -> None:
    client, worker = waits(lab)
    lab.connect(4).ask(text)
    assert at_once(lab, client, lab.add(1)) is None
    client.ask(lab.add(1))
    assert worker.read() == b""


def test_without_a_known_queue_a_turn_hands_it_out(lab: Lab) -> None:
    client, worker = lab.connect(1), lab.connect(2)
    assert worker.ask(take(1, wait=30_000)) == ""
    assert at_once(lab, client, lab.add(1)) is None
    client.ask(lab.add(1))
    assert worker.read().startswith(b"jobs 1 ")


def test_a_large_body_and_a_key_are_handed_out_in_a_turn(lab: Lab) -> None:
    client, worker = waits(lab)
    assert at_once(lab, client, lab.add(1, body="b" * 801)) is None
    client.ask(lab.add(1, body="b" * 801))
    assert b"b" * 801 in worker.read()
    assert worker.ask(take(3, wait=30_000)) == ""
    client.ask(lab.add(2, "k=order"))
    assert worker.read().startswith(b"jobs 1 ")


def test_where_a_hand_over_cannot_be_committed_the_take_goes_on_waiting(lab: Lab) -> None:
    client, worker = waits(lab)
    before = lab.rows()
    lab.fail()
    assert at_once(lab, client, lab.add(1)) is None
    assert lab.rows() == before
    assert worker.read() == b""
    assert client.ask(lab.add(1)).startswith("err storage ")
    lab.heal()
    lab.turn()
    assert client.ask(lab.add(1)) == f"ok {hexid(1)} created"
    assert worker.read().startswith(b"jobs 1 ")


def test_of_several_adds_in_a_turn_a_take_gets_as_many_as_it_asked_for(lab: Lab) -> None:
    client, worker = waits(lab)
    other = lab.connect(4)
    other.write(lab.add(1).encode() + b"\n")
    client.ask(lab.add(2))
    assert worker.read().startswith(b"jobs 2 ")


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
