"""Waits for the end of jobs as the hub keeps them, with a clock that the test moves."""

from __future__ import annotations

import pytest

from tenure.engine.core import Retention
from tenure.engine.waiting import STATES_BYTES
from tests.property.lab import WALL, Lab, Line, hexid, session_of

TAKE = "take 1 10 0 30000 q"


@pytest.fixture
def worker(lab: Lab) -> Line:
    """A worker that holds jobs 1 and 2."""
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask(lab.add(2))
    worker.ask(TAKE)
    return worker


def wait(*numbers: int, seconds: float = 10.0) -> str:
    return f"wait {int(seconds * 1000)} {' '.join(map(hexid, numbers))}"


def states(answer: str | bytes) -> list[str]:
    """The words of each state behind its id, but for the queue's."""
    text = answer.decode() if isinstance(answer, bytes) else answer
    words = [line.split(" ") for line in text.split("\n") if line.startswith("state ")]
    return [" ".join([state, *rest]) for _, _, state, _, *rest in words]


def done(n: int, result: str = "value") -> str:
    return f"done {hexid(n)}:1 {len(result)}\n{result}"


# -- when it is answered ------------------------------------------------------------------------------------------


def test_it_is_answered_in_the_turn_in_which_a_job_ends(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2, "producer")
    assert caller.ask(wait(1, 2)) == ""
    lab.pass_time(5.0)
    assert caller.read() == b""
    worker.ask(done(2))
    assert states(caller.read()) == ["running 0 0 - none 0", "done 1 0 - result 5"]
    assert caller.connection.parked is None


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (f"dead {hexid(1)}:1 bad%20luck 4\noops", "dead 1 0 bad%20luck failure 4"),
        (f"cancel {hexid(1)}:1 not%20wanted", "cancelled 1 0 not%20wanted none 0"),
        (f"bye {session_of(1)} lost SIGKILL", "dead 0 1 worker%20lost%20(SIGKILL) none 0"),
    ],
)
def test_every_end_answers(lab: Lab, line: str, state: str) -> None:
    worker, caller = lab.connect(1), lab.connect(2)
    worker.ask(lab.add(1, "ml=1"))
    worker.ask(TAKE)
    caller.ask(wait(1))
    worker.ask(line)
    assert states(caller.read()) == [state]


def test_a_job_that_is_cancelled_before_it_ran_or_expires_answers(lab: Lab) -> None:
    worker, caller, other = lab.connect(1), lab.connect(2), lab.connect(3)
    worker.ask(lab.add(1))
    worker.ask(lab.add(2, "x=+1000", queue="p"))
    caller.ask(wait(1))
    other.ask(wait(2))
    worker.ask(f"cancel-job {hexid(1)}")
    assert states(caller.read()) == ["cancelled 0 0 cancelled none 0"]
    lab.pass_time(2.0)
    worker.ask("take 1 1 0 30000 p")
    assert states(other.read()) == ["dead 0 0 expired none 0"]


def test_a_retry_answers_nobody(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1))
    worker.ask(f"retry {hexid(1)}:1 1000 oops 5\nerror")
    assert caller.read() == b""
    assert states(caller.ask(wait(1, seconds=0))) == ["scheduled 1 0 - failure 5", "scheduled 1 0 - failure 5"]


def test_a_job_that_ends_and_is_put_back_in_one_turn_answers_nobody(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1))
    worker.ask(f"dead {hexid(1)}:1 why 0\n\nrequeue {hexid(1)}")
    assert caller.read() == b""
    assert caller.connection.parked is not None


def test_it_is_answered_with_what_is_known_when_its_time_is_over(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1, seconds=0.5))
    lab.pass_time(0.4)
    assert caller.read() == b""
    lab.pass_time(0.11)
    assert states(caller.read()) == ["running 0 0 - none 0"]


def test_it_waits_at_most_thirty_seconds(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1, seconds=100))
    for _ in range(3):
        lab.pass_time(10)
        worker.ask(f"extend {hexid(1)}:1 {hexid(2)}:1")
    assert states(caller.read()) == ["running 0 0 - none 0"]


def test_a_line_behind_it_ends_it(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1))
    answer = caller.ask(lab.add(3))
    assert states(answer) == ["running 0 0 - none 0"]
    assert answer.endswith(f"ok {hexid(3)} created")


def test_several_waits_in_one_write_park_the_last(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    assert states(caller.ask(wait(1) + "\n" + wait(2))) == ["running 0 0 - none 0"]
    worker.ask(done(2))
    assert states(caller.read()) == ["done 1 0 - result 5"]


def test_a_take_and_a_wait_of_one_session_know_nothing_of_each_other(lab: Lab, worker: Line) -> None:
    taking, waiting = lab.connect(1), lab.connect(1)
    taking.ask("take 2 1 10000 30000 q")
    waiting.ask(wait(1))
    worker.ask(done(1))
    assert states(waiting.read()) == ["done 1 0 - result 5"]
    worker.ask(lab.add(3))
    assert taking.read().startswith(b"jobs 1 ")


def test_a_state_names_the_queue_in_which_the_job_is_also_for_a_duplicate(lab: Lab) -> None:
    caller = lab.connect(2)
    caller.ask(lab.add(1, "k=key", "here"))
    assert caller.ask(lab.add(2, "k=key", "there")) == f"ok {hexid(1)} exists"
    lines = caller.ask(wait(1, 2, 3, seconds=0)).split("\n")
    assert [line.split(" ")[3] for line in lines if line.startswith("state ")] == ["here", "here", "-"]


def test_any_number_of_connections_wait_for_one_job(lab: Lab, worker: Line) -> None:
    callers = [lab.connect(2) for _ in range(20)]
    for caller in callers:
        caller.ask(wait(1))
    worker.ask(done(1))
    assert {tuple(states(caller.read())) for caller in callers} == {("done 1 0 - result 5",)}


def test_a_caller_that_is_gone_is_forgotten(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1, 2))
    assert set(lab.hub._parking.jobs) == {bytes.fromhex(hexid(1)), bytes.fromhex(hexid(2))}
    caller.cut()
    assert not lab.hub._parking.jobs
    worker.ask(done(1))
    assert caller.read() == b""
    assert lab.engine.ended() == set()


def test_a_wait_keeps_its_connection_from_being_idle(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    for _ in range(5):
        caller.ask(wait(1, seconds=29))
        lab.pass_time(15)
        worker.ask(f"extend {hexid(1)}:1 {hexid(2)}:1")
        lab.pass_time(15)
        worker.ask(f"extend {hexid(1)}:1 {hexid(2)}:1")
        assert states(caller.read()) == ["running 0 0 - none 0"]


def test_the_end_of_the_server_answers(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1))
    lab.hub.drain(lab.wall, lab.mono)
    assert states(caller.read()) == ["running 0 0 - none 0"]


# -- a turn that fails --------------------------------------------------------------------------------------------


def test_a_wait_that_an_undone_turn_had_answered_goes_on(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    caller.ask(wait(1))
    lab.fail()
    assert worker.ask(done(1)).startswith("err storage")
    assert caller.read() == b""
    assert caller.connection.parked is not None
    lab.heal()
    assert worker.ask(done(1)) == "ok done"
    assert states(caller.read()) == ["done 1 0 - result 5"]


def test_a_wait_that_an_undone_turn_had_parked_is_parked_once(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    lab.fail(refuses=lambda: lab.engine._store.begun)
    caller.write(wait(1).encode() + b"\n")
    assert worker.ask(lab.add(3)).startswith("err storage")
    lab.heal()
    assert caller.connection.parked is not None
    worker.ask(done(1))
    assert states(caller.read()) == ["done 1 0 - result 5"]
    assert not lab.hub._parking.jobs


# -- what is said of a job ----------------------------------------------------------------------------------------


def test_unknown_and_forgotten_ids_are_answered_at_once(lab: Lab) -> None:
    caller = lab.connect(2)
    fresh, old = hexid(9), hexid(9, WALL - 4_000_000)
    fresh = fresh[:12] + "7" + fresh[13:]
    old = old[:12] + "7" + old[13:]
    none = "0" * 32
    answer = caller.ask(f"wait 10000 {fresh} {old} {none}")
    assert states(answer) == ["unknown 0 0 - none 0", "expired 0 0 - none 0", "unknown 0 0 - none 0"]


def test_a_result_that_is_too_old_is_expired_while_its_row_stays() -> None:
    lab = Lab(retention=Retention(result_ttl=2_000))
    worker, caller = lab.connect(1), lab.connect(2)
    worker.ask(lab.add(1))
    worker.ask(TAKE)
    worker.ask(done(1))
    lab.pass_time(1.9)
    assert states(caller.ask(wait(1))) == ["done 1 0 - result 5"]
    lab.pass_time(0.2)
    assert states(caller.ask(wait(1))) == ["expired 1 0 - none 0"]
    assert worker.ask(done(1)) == "ok done"
    lab.close()


def test_a_duplicates_id_is_answered_as_the_first_job(lab: Lab) -> None:
    worker, caller = lab.connect(1), lab.connect(2)
    worker.ask(lab.add(1, "k=order"))
    worker.ask(lab.add(2, "k=order"))
    worker.ask(TAKE)
    assert caller.ask(wait(2)) == ""
    worker.ask(f"extend {hexid(1)}:1+4\nhalf")
    assert f"state {hexid(2)} running q 0 0 - progress 4\nhalf" in caller.ask(wait(2))
    worker.ask(done(1))
    assert caller.read().decode() == f"states 1 69\nstate {hexid(2)} done q 1 0 - result 5\nvalue\n".replace(
        "69", str(len(f"state {hexid(2)} done q 1 0 - result 5\nvalue\n"))
    )


def test_the_last_failure_is_an_earlier_hand_outs_where_the_last_was_given_back(lab: Lab) -> None:
    worker, caller = lab.connect(1), lab.connect(2)
    worker.ask(lab.add(1))
    worker.ask(TAKE)
    worker.ask(f"retry {hexid(1)}:1 0 oops 5\nerror")
    lab.pass_time(0.1)
    worker.ask("take 2 10 0 30000 q")
    worker.ask(f"release {hexid(1)}:2 5000 busy")
    assert "failure 5\nerror" in caller.ask(wait(1, seconds=0))


def test_a_purged_job_is_dead_and_says_so(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    worker.ask(f"dead {hexid(1)}:1 why 4\noops")
    worker.ask(f"purge {hexid(1)}")
    assert states(caller.ask(wait(1))) == ["dead 1 0 purged%20from%20the%20dead%20list:%20why none 0"]


def test_bodies_that_have_no_room_come_later(lab: Lab) -> None:
    worker, caller = lab.connect(1), lab.connect(2)
    size = 1_000_000
    count = STATES_BYTES // size + 3
    for n in range(1, count + 1):
        worker.ask(lab.add(n))
    worker.ask(TAKE)
    for n in range(1, count + 1):
        worker.ask(done(n, "x" * size))
    kinds = [line.split(" ")[4] for line in states(caller.ask(wait(*range(1, count + 1))))]
    assert kinds == ["result"] * 5 + ["later"] * (count - 5)
    assert states(caller.ask(wait(count))) == [f"done 1 0 - result {size}"]


def test_a_thousand_ids_are_answered_and_one_more_is_not(lab: Lab, worker: Line) -> None:
    caller = lab.connect(2)
    numbers = range(1, 1001)
    answer = states(caller.ask(wait(*numbers)))
    assert (len(answer), answer[1], answer[999]) == (1000, "running 0 0 - none 0", "unknown 0 0 - none 0")
    assert caller.ask(wait(*numbers, 1001)).startswith("err limit ")
    assert caller.ask("wait 0").startswith("err bad-line ")
    assert caller.ask("wait x " + hexid(1)).startswith("err bad-line ")


def test_a_full_disk_stops_no_question(lab: Lab, worker: Line) -> None:
    lab.fail()
    caller = lab.connect(2)
    for n in range(3, 9):
        worker.write(f"{lab.add(n)}\n".encode())
    worker.ask(lab.add(9))
    assert states(caller.ask(wait(1, seconds=0))) == ["running 0 0 - none 0"]
    lab.heal()
