"""A planted wrong row is found by the recount, which does not trust the engine's own books."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.engine.store import connect
from tests.property.lab import Lab, hexid


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Jobs in every state, with some history: 1 done on the third try, 2 dead, 3 running, 4 ready, 5 scheduled."""
    lab = Lab(str(tmp_path / "tenure.db"))
    line = lab.connect(1)
    line.ask("\n".join([lab.add(1), lab.add(2), lab.add(3), lab.add(4, "p=1"), lab.add(5, "at=+900000")]))
    line.ask("take 1 3 0 30000 q")
    line.ask(f"release {hexid(1)}:1 0 why\ndead {hexid(2)}:1 why 0\n\ntake 2 1 0 30000 q")
    line.ask(f"release {hexid(1)}:2 0 why\ntake 3 1 0 30000 q\ndone {hexid(1)}:3")
    line.ask(f"done {hexid(1)}:1")  # late: refused
    yield lab
    lab.close()


def plant(lab: Lab, sql: str) -> int:
    """Change the file behind the server's back; returns how many rows were changed."""
    db = connect(lab.path)
    db.execute(sql)
    changed = db.changes()
    db.close()
    return changed


def test_nothing_is_found_where_nothing_is_wrong(lab: Lab) -> None:
    assert lab.engine.verify()["differences"] == []
    counts = lab.counts()
    assert {name: counts[name] for name in ("added", "done", "dead", "running", "ready", "scheduled")} == {
        "added": 5,
        "done": 1,
        "dead": 1,
        "running": 1,
        "ready": 1,
        "scheduled": 1,
    }


ONE, TWO, THREE, FOUR = (f"x'{hexid(n)}'" for n in (1, 2, 3, 4))
NEW_JOB = (
    "INSERT INTO jobs (id, state, queue, priority, place, listed, max_attempts, max_losses, task, fingerprint, body, "
    "big, added_at) VALUES (x'77', 2, 1, 5, 99, 1, 20, 5, 't', x'', x'', 0, 0)"
)
PLANTED = {
    "a state changed": (f"UPDATE jobs SET state = 2 WHERE id = {ONE}", "done"),
    "a waiting job made done": (f"UPDATE jobs SET state = 4 WHERE id = {FOUR}", "done, but its last hand-out"),
    "a running job made ready": (f"UPDATE jobs SET state = 2 WHERE id = {THREE}", "its hand-out runs, but the state"),
    "a job deleted": (f"DELETE FROM jobs WHERE id = {FOUR}", "added"),
    "a job with history deleted": (f"DELETE FROM jobs WHERE id = {ONE}", "hand-outs without a job"),
    "a job added": (
        NEW_JOB,
        "added",
    ),
    "a hand-out deleted": (f"DELETE FROM handouts WHERE job = {ONE} AND number = 2", "earlier hand-outs are kept"),
    "a hand-out ended otherwise": (f"UPDATE handouts SET how = 6 WHERE job = {ONE} AND number = 2", "lost"),
    "a hand-out of another worker": (f"UPDATE handouts SET worker = 9 WHERE job = {ONE}", "it has no name"),
    "a late mark removed": (f"UPDATE handouts SET late = 0 WHERE job = {ONE} AND number = 1", "refused"),
    "two holders at once": (f"UPDATE handouts SET end_commit = 999 WHERE job = {ONE} AND number = 1", "overlaps"),
    "the last hand-out began too early": (f"UPDATE jobs SET begin_commit = 0 WHERE id = {ONE}", "overlaps"),
    "an end without a time": (f"UPDATE jobs SET ended_at = NULL WHERE id = {TWO}", "no end time"),
    "an unknown end": (f"UPDATE handouts SET how = 11 WHERE job = {ONE} AND number = 2", "unknown end"),
    "an unknown state": (f"UPDATE jobs SET state = 0 WHERE id = {FOUR}", "unknown state"),
    "an expired mark": (f"UPDATE jobs SET expired = 1 WHERE id = {TWO}", "expired"),
    "a sum": ("INSERT INTO swept VALUES ('queue', 1, 'added', 1)", "added"),
    "a duplicate": ("INSERT INTO aliases VALUES (x'01', x'02', 1, 0)", "duplicates"),
    "a queue's name": ("DELETE FROM queues", "in the record, not in the file"),
    "a worker's name": ("UPDATE workers SET name = 'somebody else'", "somebody else"),
    "another queue": (f"UPDATE jobs SET queue = 7 WHERE id = {FOUR}", "number 7"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_wrong_row_is_found(lab: Lab, kind: str) -> None:
    sql, text = PLANTED[kind]
    assert plant(lab, sql) >= 1
    verified = lab.engine.verify()
    assert not verified["verified"]
    assert any(text in difference for difference in verified["differences"]), verified["differences"]


CONTRADICTIONS = [
    "a waiting job made done",
    "a running job made ready",
    "a job with history deleted",
    "a hand-out deleted",
    "two holders at once",
    "an end without a time",
]


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_some_are_found_after_a_restart_too(lab: Lab, kind: str) -> None:
    """The record itself is made from the rows then; what contradicts itself is still seen."""
    plant(lab, PLANTED[kind][0])
    lab.restart()
    assert not lab.engine.verify()["verified"]


def test_an_overlap_stays_in_the_record_when_its_rows_are_swept(lab: Lab) -> None:
    plant(lab, PLANTED["two holders at once"][0])
    lab.restart()
    assert lab.engine.record()["overlaps"] == 1
    assert not lab.engine.record()["balanced"]
    lab.gap(4_000)
    lab.turn()
    lab.pass_time(1.0)
    lab.gap(700)
    for _ in range(10):
        lab.pass_time(1.0)
    assert lab.engine.show(bytes.fromhex(hexid(1))) is None
    lab.restart()
    assert lab.engine.record()["overlaps"] == 1


def test_a_recount_over_the_wire_says_what_is_wrong_and_keeps_the_order_of_answers(lab: Lab) -> None:
    line = lab.connect(2, "admin")
    answer = line.ask(f"verify\ncancel-job {hexid(4)}\nverify")
    parts = answer.split("\n")
    assert [part.split()[0] for part in parts] == ["json", '{"record":', "ok", "json", '{"record":']
    assert '"verified": true' in parts[1]
    assert '"verified": true' in parts[4]
    plant(lab, PLANTED["a state changed"][0])
    assert '"verified": false' in line.ask("verify")


def test_a_busy_connection_that_is_cut_leaves_nothing_behind(lab: Lab) -> None:
    line = lab.connect(2, "admin")
    line.write(b"verify\n" + lab.add(9).encode() + b"\n")
    lab.hub.turn(lab.wall, lab.mono)
    assert line.connection.busy
    line.write(b"record\n")
    line.cut()
    work, lab.hub.background = lab.hub.background, []
    for connection, question in work:
        lab.hub.finish(connection, question(), lab.mono)
    lab.turn()
    assert lab.counts()["added"] == 6  # the line had arrived, so it is carried out
    assert line.read() == b""
    assert line.connection not in lab.hub.connections()
