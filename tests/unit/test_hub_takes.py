"""Parked takes, sessions and leases as the hub keeps them, with a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.server.answers import Answers
from tenure.server.hub import Hub
from tenure.wire.commands import LINE_AGE
from tests.property.lab import Lab, Line, hexid, session_of, take


def receipts(answer: str | bytes) -> list[str]:
    """The receipts in the answer to a take."""
    text = answer.decode() if isinstance(answer, bytes) else answer
    words = [line.split() for line in text.split("\n")]
    return [f"{word[1]}:{word[2]}" for word in words if word and word[0] == "job"]


def holds(answer: str | bytes) -> list[int]:
    text = answer.decode() if isinstance(answer, bytes) else answer
    words = [line.split() for line in text.split("\n")]
    return [int(word[3]) for word in words if word and word[0] == "job"]


# -- parked takes -------------------------------------------------------------------------------------------------


def test_a_parked_take_is_answered_by_the_first_job(lab: Lab) -> None:
    worker = lab.connect(1)
    assert worker.ask(take(1, wait=500)) == ""
    lab.connect(2).ask(lab.add(1))
    assert receipts(worker.read()) == [f"{hexid(1)}:1"]


def test_a_parked_take_is_answered_empty_when_its_wait_is_over(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=500))
    lab.pass_time(0.4)
    assert worker.read() == b""
    lab.pass_time(0.11)
    assert worker.read() == b"jobs 0 0\n"


def test_an_empty_answer_counts_as_answered(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=500))
    lab.pass_time(1.0)
    worker.read()
    worker.ask(lab.add(1))
    assert worker.ask(take(1, wait=500)) == "jobs 0 0"
    assert receipts(worker.ask(take(2, wait=500))) == [f"{hexid(1)}:1"]


def test_hold_contains_the_time_that_the_take_was_parked(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=10_000, vt=30_000))
    lab.pass_time(5.0)
    lab.connect(2).ask(lab.add(1))
    assert holds(worker.read()) == [35_000]
    lab.pass_time(29.0)
    assert lab.counts()["running"] == 1
    lab.pass_time(1.5)
    assert lab.counts()["ready"] == 1


def test_a_line_behind_a_parked_take_ends_its_wait(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=10_000))
    assert worker.ask(lab.add(1)) == f"jobs 0 0\nok {hexid(1)} created"
    assert receipts(worker.ask(take(2, wait=10_000))) == [f"{hexid(1)}:1"]


def test_a_bad_line_behind_a_parked_take_ends_its_wait_too(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=10_000))
    assert worker.ask("nonsense").split("\n")[0] == "jobs 0 0"


def test_the_newest_copy_of_a_parked_take_has_its_place(lab: Lab) -> None:
    old, new = lab.connect(1), lab.connect(1)
    old.ask(take(1, wait=10_000))
    lab.pass_time(1.0)
    assert new.ask(take(1, wait=10_000)) == ""
    assert old.read().startswith(b"err stale a newer copy")
    lab.pass_time(1.0)
    lab.connect(2).ask(lab.add(1))
    answer = new.read()
    assert receipts(answer) == [f"{hexid(1)}:1"]
    assert holds(answer) == [31_000]  # from the arrival of the copy that is answered
    assert old.read() == b""


def test_an_old_copy_that_arrives_late_is_given_nothing_more(lab: Lab) -> None:
    old, new = lab.connect(1), lab.connect(1)
    new.ask(lab.add(1))
    given = new.ask(take(1, limit=1))
    new.ask(lab.add(2))
    assert receipts(old.ask(take(1, limit=1))) == receipts(given)
    new.ask(take(2, limit=1))
    assert old.ask(take(1, limit=1)).startswith("err stale a later take of this session was answered")
    assert lab.counts()["handed_out"] == 2


def test_a_lower_number_than_the_parked_one_is_stale(lab: Lab) -> None:
    old, new = lab.connect(1), lab.connect(1)
    new.ask(take(2, wait=10_000))
    assert old.ask(take(1, wait=10_000)).startswith("err stale a later take of this session is waiting")
    lab.connect(2).ask(lab.add(1))
    assert receipts(new.read()) == [f"{hexid(1)}:1"]


def test_a_gone_clients_parked_take_is_dropped(lab: Lab) -> None:
    gone, other = lab.connect(1), lab.connect(2)
    gone.ask(take(1, wait=10_000))
    gone.cut()
    other.ask(lab.add(1))
    assert lab.counts() == {"added": 1, "ready": 1}


def test_a_take_of_a_client_that_went_before_the_turn_is_not_carried_out(lab: Lab) -> None:
    gone, other = lab.connect(1), lab.connect(2)
    other.ask(lab.add(1))
    gone.write(take(1).encode() + b"\n")
    gone.cut()
    lab.turn()
    assert lab.counts() == {"added": 1, "ready": 1}
    assert receipts(lab.connect(1).ask(take(1))) == [f"{hexid(1)}:1"]


def test_jobs_go_to_the_longest_waiting_take_of_any_of_its_queues(lab: Lab) -> None:
    workers = [lab.connect(n) for n in (1, 2, 3)]
    for worker, queues in zip(workers, ("a b", "b", "a"), strict=True):
        worker.ask(take(1, wait=10_000, limit=1, queues=queues))
        lab.pass_time(0.1)
    producer = lab.connect(9)
    producer.ask(lab.add(1, queue="b"))
    assert receipts(workers[0].read())
    producer.ask(lab.add(2, queue="b"))
    assert receipts(workers[1].read())
    producer.ask(lab.add(3, queue="a"))
    assert receipts(workers[2].read())


def test_one_turn_serves_several_parked_takes(lab: Lab) -> None:
    workers = [lab.connect(n) for n in (1, 2, 3)]
    for worker in workers:
        worker.ask(take(1, wait=10_000, limit=2))
    lab.connect(9).ask("\n".join(lab.add(n) for n in range(1, 6)))
    assert [len(receipts(worker.read())) for worker in workers] == [2, 2, 1]


def test_a_scheduled_job_is_given_to_a_parked_take_when_it_falls_due(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=10_000))
    lab.connect(2).ask(lab.add(1, "at=+2000"))
    assert lab.hub.next_wake(lab.wall, lab.mono) <= lab.mono + 2.0
    lab.pass_time(1.9)
    assert worker.read() == b""
    lab.pass_time(0.2)
    assert receipts(worker.read()) == [f"{hexid(1)}:1"]


def test_a_parked_take_is_closed_by_a_bye_from_elsewhere(lab: Lab) -> None:
    worker, keeper = lab.connect(1), lab.connect(2)
    worker.ask(take(1, wait=10_000))
    assert keeper.ask(f"bye {session_of(1)} lost SIGKILL") == "ok"
    assert worker.read().startswith(b"err closed")
    assert worker.ask(take(2)).startswith("err closed")
    assert Line(lab).ask(f"hello 1 {session_of(1)} worker w").startswith("err closed")


# -- takes that are not read --------------------------------------------------------------------------------------


def test_what_a_take_was_given_and_nobody_reads_goes_back_without_a_loss(lab: Lab) -> None:
    worker, keeper, other = lab.connect(1), lab.connect(2), lab.connect(3)
    for n in (1, 2, 3):
        keeper.ask(lab.add(n))
    assert len(receipts(worker.ask(take(1, limit=1)))) == 1
    assert len(receipts(worker.ask(take(2)))) == 2
    assert keeper.ask(f"untake {session_of(1)} 2 unread {hexid(2)}:1") == "ok"
    given = other.ask(take(1))
    assert receipts(given) == [f"{hexid(3)}:2"], "not what an older take was given, nor what is held of this one"
    assert f"{hexid(3)} 2 30000 30000 1 0 q " in given, "neither an attempt nor a loss"
    assert receipts(worker.ask(take(2))) == [f"{hexid(2)}:1"], "a repeat is given what is left"
    assert worker.ask(f"done {hexid(3)}:1") == "refused left"


def test_a_parked_take_that_is_not_read_is_answered_empty_and_never_again(lab: Lab) -> None:
    worker, keeper = lab.connect(1), lab.connect(2)
    worker.ask(take(1, wait=10_000))
    assert keeper.ask(f"untake {session_of(1)} 1 unread") == "ok"
    assert worker.read() == b"jobs 0 0\n"
    keeper.ask(lab.add(1))
    assert worker.ask(take(1)) == "jobs 0 0", "a late copy of it is given nothing"
    assert receipts(worker.ask(take(2))) == [f"{hexid(1)}:1"]


def test_a_take_that_comes_after_it_was_said_to_be_unread_is_given_nothing(lab: Lab) -> None:
    keeper = lab.connect(2)
    keeper.ask(lab.add(1))
    assert keeper.ask(f"untake {session_of(1)} 1 unread") == "ok"
    worker = lab.connect(1)
    assert worker.ask(take(1)) == "jobs 0 0"
    assert receipts(worker.ask(take(2))) == [f"{hexid(1)}:1"]


def test_a_late_copy_of_it_ends_nothing_that_a_later_take_was_given(lab: Lab) -> None:
    worker, keeper = lab.connect(1), lab.connect(2)
    keeper.ask(lab.add(1))
    worker.ask(take(1))
    keeper.ask(f"untake {session_of(1)} 1 unread")
    assert receipts(worker.ask(take(2))) == [f"{hexid(1)}:2"]
    worker.ask(take(3, wait=10_000))
    assert keeper.ask(f"untake {session_of(1)} 1 unread") == "ok"
    assert worker.read() == b"", "the take that waits now goes on waiting"
    assert lab.connect(1).ask(f"done {hexid(1)}:2") == "ok done"


def test_a_session_that_has_said_bye_is_past_it(lab: Lab) -> None:
    keeper = lab.connect(2)
    keeper.ask(f"bye {session_of(1)} left why")
    assert keeper.ask(f"untake {session_of(1)} 1 unread") == "ok"
    assert Line(lab).ask(f"hello 1 {session_of(1)} worker w").startswith("err closed")


def test_a_draining_server_answers_parked_takes_empty(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=10_000))
    assert worker.connection in lab.hub.drain(lab.wall, lab.mono)
    assert worker.read() == b"jobs 0 0\n"


def test_a_wait_is_cut_and_does_not_count_as_silence_when_it_is_over(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1, wait=90_000))
    lab.pass_time(29.0)
    assert worker.read() == b""
    lab.pass_time(2.0)
    assert worker.read() == b"jobs 0 0\n"
    lab.pass_time(40.0)
    assert worker.ask(take(2)) == "jobs 0 0"


# -- leases -------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(lab: Lab) -> Line:
    """A worker that holds job 1 for two seconds."""
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, vt=2_000))
    return worker


def test_a_lease_ends_by_itself(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.9)
    assert lab.counts()["running"] == 1
    lab.pass_time(0.4)
    assert lab.counts() == {"added": 1, "ready": 1, "handed_out": 1, "/returned": 1}


def test_an_extend_that_came_in_the_same_turn_wins(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.9)
    lab.gap(0.2)
    lab.turn()  # the lease is over; the sockets are read once more
    assert lab.counts()["running"] == 1
    assert lab.hub.next_wake(lab.wall, lab.mono) <= lab.mono + 0.01
    assert holder.ask(f"extend {hexid(1)}:1") == "ok 2000"
    lab.pass_time(1.9)
    assert lab.counts()["running"] == 1


def test_a_done_that_came_in_the_same_turn_wins(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.9)
    lab.gap(0.2)
    lab.turn()
    assert holder.ask(f"done {hexid(1)}:1") == "ok done"
    lab.pass_time(1.0)
    assert lab.counts() == {"added": 1, "done": 1, "handed_out": 1, "/done": 1}


def test_leases_have_their_full_time_again_after_the_server_stood_still(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.5)
    lab.gap(20.0)
    lab.turn()
    lab.turn()
    lab.pass_time(1.9)
    assert lab.counts()["running"] == 1
    assert holder.ask(f"done {hexid(1)}:1") == "ok done"


def test_a_lease_that_was_about_to_end_is_renewed_after_a_gap_too(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.9)
    lab.gap(0.2)
    lab.turn()  # it would end in the next turn
    lab.gap(5.0)
    lab.turn()
    lab.turn()
    assert lab.counts()["running"] == 1


def test_a_gap_of_less_than_a_second_renews_nothing(lab: Lab, holder: Line) -> None:
    lab.pass_time(1.5)
    lab.gap(0.9)
    lab.turn()
    lab.turn()
    assert lab.counts()["ready"] == 1


def test_leases_have_their_full_time_again_after_a_restart(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"))
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, vt=2_000))
    lab.pass_time(1.5)
    lab.restart(away=100.0)
    lab.pass_time(1.9)
    assert lab.counts()["running"] == 1
    again = lab.connect(1)
    answer = again.ask(take(1, vt=2_000))
    assert receipts(answer) == [f"{hexid(1)}:1"]
    assert holds(answer)[0] == pytest.approx(100, abs=2)
    lab.pass_time(0.5)
    assert lab.counts()["ready"] == 1
    lab.close()


def test_leases_have_their_full_time_though_the_start_took_long(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"))
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, vt=2_000))
    lab.restart()
    lab.mono += 60.0  # reading a large file, before the hub exists
    lab.hub = Hub(lab.engine, answers=Answers("0", "start", "normal"), mono=lab.mono)
    lab.pass_time(1.9)
    assert lab.counts()["running"] == 1
    lab.close()


def test_a_repeated_take_after_a_restart_grants_nothing_new(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"))
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, limit=1))
    worker.ask(lab.add(2))
    lab.restart()
    assert receipts(lab.connect(1).ask(take(1, limit=1))) == [f"{hexid(1)}:1"]
    lab.pass_time(40.0)  # the lease is over
    assert lab.connect(1).ask(take(1, limit=1)) == "jobs 0 0"
    lab.close()


# -- sessions -----------------------------------------------------------------------------------------------------


def test_a_session_that_holds_jobs_is_remembered_without_connections(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, limit=1, vt=3_600_000))
    worker.ask(lab.add(2))
    worker.cut()
    lab.pass_time(LINE_AGE + 5)
    assert receipts(lab.connect(1).ask(take(1, limit=1, vt=3_600_000))) == [f"{hexid(1)}:1"]
    assert lab.counts()["ready"] == 1


def test_a_session_is_forgotten_when_its_lines_are_too_old_to_come(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1))
    worker.cut()
    lab.pass_time(LINE_AGE - 2)
    assert session_of(1) in {session.hex() for session in lab.engine.sessions()}
    lab.pass_time(4)
    assert lab.engine.sessions() == []


def test_the_age_of_a_session_counts_from_its_last_connection(lab: Lab) -> None:
    worker = lab.connect(1)
    worker.ask(take(1))
    worker.cut()
    lab.pass_time(100)
    lab.connect(1).cut()
    lab.pass_time(30)
    assert lab.engine.answered(bytes.fromhex(session_of(1))) == 1


def test_sessions_of_jobs_from_before_a_start_are_forgotten_in_the_end(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "tenure.db"))
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(take(1, vt=1_000))
    lab.restart()
    assert len(lab.engine.sessions()) == 1
    lab.pass_time(LINE_AGE + 3)
    assert lab.engine.sessions() == []
    lab.close()


def test_one_connection_is_one_session(lab: Lab) -> None:
    worker = lab.connect(1)
    assert worker.ask(f"hello 1 {session_of(2)} worker w").startswith("err bad-line")
    assert worker.ask(f"hello 1 {session_of(1)} worker w").startswith("ok tenure/1")


def test_nothing_is_done_before_hello(lab: Lab) -> None:
    assert Line(lab).ask(lab.add(1)).startswith("err hello-first")
    assert lab.counts() == {}


def test_too_many_connections_are_told_so() -> None:
    lab = Lab(max_connections=1)
    lab.connect(1)
    second = Line(lab)
    assert second.read().startswith(b"err limit")
    assert second.connection.closing
    lab.close()


def test_a_silent_and_a_half_written_connection_are_closed(lab: Lab) -> None:
    silent, half = lab.connect(1), lab.connect(2)
    half.write(b"add half of a li")
    lab.pass_time(12.0)
    assert half.read().startswith(b"err timeout a line was not complete")
    assert half.connection.closing
    lab.pass_time(50.0)
    assert silent.read().startswith(b"err timeout no complete line")
    assert silent.connection.closing


def test_a_moment_beyond_all_calendars_is_no_error_of_the_store(lab: Lab) -> None:
    line = lab.connect(1)
    top = 2**63 - 1
    assert line.ask(lab.add(1, f"at=+{top} x=+{top}")) == f"ok {hexid(1)} created"
    line.ask(lab.add(2))
    line.ask(take(1, vt=top))
    assert line.ask(f"retry {hexid(2)}:1 {top} why 0\n") == "ok scheduled"
    assert lab.counts()["scheduled"] == 2
