"""The store fails: nothing is half done, nobody is forgotten, and the other lines of the turn succeed."""

from __future__ import annotations

import pytest

from tenure.engine.engine import Engine
from tenure.engine.store import DbError
from tenure.server.hub import REST
from tests.property.lab import Lab, Line, hexid, session_of, take


def refuse_writes_of(lab: Lab, *ids: int) -> None:
    """A commit fails while one of these jobs is among what it would make durable."""
    db = lab.engine._store.db

    def refuses() -> bool:
        found = db.execute("SELECT count(*) FROM jobs WHERE id IN (" + ",".join(f"x'{hexid(n)}'" for n in ids) + ")")
        return bool(found.get)

    lab.fail(refuses)


def refuse_all(lab: Lab) -> list[bool]:
    """Every commit fails; the list that is returned grows by one each time that the store is asked."""
    asked: list[bool] = []

    def refuses() -> bool:
        asked.append(True)
        return True

    lab.fail(refuses)
    return asked


def test_a_failing_commit_is_answered_and_changes_nothing(lab: Lab) -> None:
    line = lab.connect()
    before = lab.rows()
    lab.fail()
    assert line.ask(lab.add(1)).startswith("err storage database or disk is full")
    lab.heal()
    assert lab.rows() == before
    assert lab.counts() == {}
    assert line.ask(lab.add(1)) == f"ok {hexid(1)} created"
    assert lab.counts() == {"added": 1, "ready": 1}


def test_the_other_lines_of_the_turn_succeed(lab: Lab) -> None:
    lines = [lab.connect(n) for n in range(1, 6)]
    refuse_writes_of(lab, 3)
    for n, line in enumerate(lines, 1):
        line.write(lab.add(n).encode() + b"\n")
    lab.turn()
    answers = [line.read().decode().split()[1] for line in lines]
    assert answers == [hexid(1), hexid(2), "storage", hexid(4), hexid(5)]
    assert lab.counts() == {"added": 4, "ready": 4}


def test_lines_that_write_nothing_succeed_on_a_full_disk(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    line.ask(lab.add(1))
    line.ask(take(1))
    lab.fail()
    for n in range(10, 20):
        other.write(lab.add(n).encode() + b"\n")
    line.write(f"extend {hexid(1)}:1\n".encode())
    lab.turn()
    assert line.read() == b"ok 30000\n"
    assert other.read().count(b"err storage") == 10


def test_a_full_disk_is_not_asked_for_every_line(lab: Lab) -> None:
    line = lab.connect()
    asked = refuse_all(lab)
    for n in range(100):
        line.write(lab.add(n).encode() + b"\n")
    lab.turn()
    assert line.read().count(b"err storage") == 100
    assert len(asked) < 10


def test_lines_that_write_nothing_do_not_have_a_full_disk_asked_anew(lab: Lab) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    line.ask(take(1, limit=1))
    asked = refuse_all(lab)
    for n in range(10, 60):
        line.write(f"{lab.add(n)}\nextend {hexid(1)}:1\n".encode())
    lab.turn()
    answer = line.read()
    assert (answer.count(b"err storage"), answer.count(b"ok 30000")) == (50, 50)
    assert len(asked) < 10


def test_a_store_that_takes_nothing_has_a_rest_while_leases_are_extended(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    line.ask(lab.add(1))
    line.ask(take(1, limit=1))
    asked = refuse_all(lab)
    for _ in range(100):
        for n in range(10, 15):
            other.write(lab.add(n).encode() + b"\n")
        lab.pass_time(0.05)
        assert line.ask(f"extend {hexid(1)}:1") == "ok 30000"
        assert other.read().count(b"err storage") == 5
        assert lab.hub.next_wake(lab.wall, lab.mono) > lab.mono
    assert len(asked) <= 100 * 0.05 / REST + 6
    lab.heal()
    lab.pass_time(REST)
    assert other.ask(lab.add(10)).startswith("ok")
    lab.pass_time(0.3)
    assert lab.counts() == {"added": 2, "running": 1, "ready": 1, "handed_out": 1}


def test_a_parked_take_survives_a_failing_turn_and_is_served_later(lab: Lab) -> None:
    worker, producer = lab.connect(1), lab.connect(2)
    worker.ask(take(1, wait=10_000))
    lab.fail()
    assert producer.ask(lab.add(1)).startswith("err storage")
    assert worker.read() == b""
    lab.heal()
    producer.ask(lab.add(1))
    assert worker.read().startswith(b"jobs 1 ")
    assert lab.counts() == {"added": 1, "running": 1, "handed_out": 1}


def test_parked_takes_keep_their_order_through_a_failing_turn(lab: Lab) -> None:
    workers = [lab.connect(n) for n in range(1, 5)]
    for worker in workers:
        worker.ask(take(1, wait=10_000, limit=1))
        lab.pass_time(0.01)
    producer = lab.connect(9)
    lab.fail()
    producer.ask(lab.add(1))
    lab.heal()
    for n, worker in enumerate(workers, 1):
        producer.ask(lab.add(n))
        assert worker.read().startswith(b"jobs 1 "), n


def test_a_parked_take_whose_wait_ends_in_a_failing_turn_is_answered_once(lab: Lab) -> None:
    worker, producer = lab.connect(1), lab.connect(2)
    worker.ask(take(1, wait=1_000))
    lab.mono += 0.9
    lab.fail()
    producer.ask(lab.add(1))  # unparks and parks again: the deadline is noted twice
    producer.ask(lab.add(1))
    lab.mono += 0.2
    producer.ask(lab.add(1))
    lab.turn()
    lab.heal()
    lab.pass_time(REST)
    assert worker.read() == b"jobs 0 0\n"
    assert not lab.hub._failing
    assert worker.ask(take(2)) == "jobs 0 0"


def test_a_wait_that_ends_while_taking_fails_is_answered_when_it_works_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [lab.connect(n) for n in (1, 2)]
    for worker in workers:
        worker.ask(take(1, wait=500))
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "take", broken)
        lab.pass_time(1.0)
    lab.pass_time(REST)
    assert [worker.read() for worker in workers] == [b"jobs 0 0\n"] * 2


def broken(*_: object, **__: object) -> None:
    raise DbError("disk I/O error")


def test_a_bye_that_failed_has_not_closed_the_session(lab: Lab) -> None:
    worker, keeper = lab.connect(1), lab.connect(2, "keeper")
    worker.ask(lab.add(1))
    worker.ask(take(1))
    lab.fail()
    assert keeper.ask(f"bye {session_of(1)} lost SIGKILL {hexid(1)}:1").startswith("err storage")
    lab.heal()
    assert worker.ask(f"done {hexid(1)}:1") == "ok done"
    assert keeper.ask(f"bye {session_of(1)} lost SIGKILL {hexid(1)}:1") == "ok done"
    assert worker.ask(take(2)).startswith("err closed")


def test_lines_behind_a_recount_are_answered_once_though_the_turn_failed(lab: Lab) -> None:
    line, other = lab.connect(1), lab.connect(2)
    line.write(b"verify\n" + lab.add(1).encode() + b"\nrecord\n")
    refuse_writes_of(lab, 2)
    other.write(lab.add(2).encode() + b"\n")
    lab.turn()
    lab.turn()
    answer = line.read()
    assert [part[:4] for part in answer.split(b"\n")] == [b"json", b'{"re', b"ok 0", b"json", b'{"qu', b""]
    assert other.read().startswith(b"err storage")
    assert lab.counts()["added"] == 1


def test_a_recount_asked_for_before_a_failing_line_is_answered(lab: Lab) -> None:
    line, other, third = lab.connect(1), lab.connect(2), lab.connect(3)
    line.write(b"verify\n")
    refuse_writes_of(lab, 2)
    other.write(lab.add(2).encode() + b"\n")
    third.write(lab.add(3).encode() + b"\n")
    lab.turn()
    assert line.read().startswith(b"json")
    assert not line.connection.busy
    assert third.read().startswith(b"ok")


def test_a_recount_without_a_snapshot_is_an_error_of_that_line_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    line, other = lab.connect(1), lab.connect(2)
    monkeypatch.setattr(Engine, "snapshot", broken)
    other.write(lab.add(1).encode() + b"\n")
    answer = line.ask("verify\nrecord")
    assert answer.startswith("err storage")
    assert "\njson" in answer
    assert other.read().startswith(b"ok")


def test_a_silent_connection_is_closed_though_the_store_fails(lab: Lab) -> None:
    silent, other = lab.connect(1), lab.connect(2)
    lab.pass_time(59.0)
    other.ask("record")
    lab.fail()
    touched = []
    for _ in range(3):
        lab.gap(0.9)
        other.write(lab.add(1).encode() + b"\n")
        touched += lab.hub.turn(lab.wall, lab.mono)
    assert silent.connection in touched
    assert silent.read().startswith(b"err timeout")
    assert silent.connection.closing


def test_a_sweep_that_fails_does_not_take_the_lines_with_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    line = lab.connect()
    monkeypatch.setattr(Engine, "sweep", broken)
    lab.pass_time(1.5)
    assert line.ask(lab.add(1)).startswith("ok")
    lab.pass_time(1.5)
    assert line.ask(lab.add(2)).startswith("ok")


def test_a_store_that_cannot_be_read_is_tried_again_with_its_books_made_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = lab.connect()
    line.ask(lab.add(1))
    lab.fail()
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "rollback", broken)
        assert line.ask(take(1)).startswith("err storage")
        assert line.ask(take(1)).startswith("err storage")
    lab.heal()
    lab.pass_time(REST)
    assert line.ask(take(1)).startswith("jobs 1 ")
    assert lab.counts() == {"added": 1, "running": 1, "handed_out": 1}


def test_a_failing_store_is_not_asked_all_the_time(lab: Lab) -> None:
    line: Line = lab.connect()
    line.ask(lab.add(1, "at=+100"))
    lab.fail()
    lab.gap(0.2)
    lab.turn()
    assert lab.hub.next_wake(lab.wall, lab.mono) > lab.mono + 0.2
    lab.heal()
    lab.turn()
    assert lab.counts() == {"added": 1, "ready": 1}


def test_undone_turns_are_logged_about_once_a_second_with_their_number(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    line = lab.connect()
    asked = refuse_all(lab)
    for n in range(1, 51):
        line.write(lab.add(n).encode() + b"\n")
        lab.turn()
        lab.mono += 0.05
    texts = [record.getMessage() for record in caplog.records if "undone" in record.getMessage()]
    assert texts[0] == "a turn of 1 lines was undone: database or disk is full"
    assert 3 <= len(texts) <= 5
    assert "turns of" in texts[1]
    lab.heal()
    lab.pass_time(2.0)
    texts = [record.getMessage() for record in caplog.records if "undone" in record.getMessage()]
    assert sum(1 if text.startswith("a turn") else int(text.split()[0]) for text in texts) == len(asked)
