"""How a hand-out ends, what becomes of its job, and what is counted once."""

from __future__ import annotations

import pytest

from tests.property.lab import Lab, Line, hexid, session_of

J1 = hexid(1)
BIG = "x" * 3_000


@pytest.fixture
def line(lab: Lab) -> Line:
    return lab.connect(1)


@pytest.fixture
def keeper(lab: Lab) -> Line:
    return lab.connect(2, "keeper")


def hold(lab: Lab, line: Line, options: str = "", take: int = 1, body: str = "body") -> None:
    """Add job 1 if it is new, and take it."""
    line.ask(lab.add(1, options, body=body))
    assert line.ask(f"take {take} 1 0 30000 q").startswith("jobs 1 ")


def test_done_keeps_the_result_and_lets_go_of_the_body(lab: Lab, line: Line) -> None:
    hold(lab, line, body=BIG)
    assert line.ask(f"done {J1}:1 6\nresult") == "ok done"
    assert lab.rows()["bodies"] == []
    assert lab.counts() == {"added": 1, "done": 1, "handed_out": 1, "/done": 1}
    assert lab.job(1)["attempts"] == 1


def test_a_retried_job_waits_and_counts_an_attempt(lab: Lab, line: Line) -> None:
    hold(lab, line)
    assert line.ask(f"retry {J1}:1 2000 oops 5\nerror") == "ok scheduled"
    assert lab.job(1)["attempts"] == 1
    lab.pass_time(1.9)
    assert lab.counts()["scheduled"] == 1
    lab.pass_time(0.2)
    answer = line.ask("take 2 1 0 30000 q").split("\n")[1].split()
    assert answer[1:7] == [J1, "2", "30000", "30000", "2", "0"]


def test_a_retry_is_answered_the_same_after_the_next_hand_out(lab: Lab, line: Line) -> None:
    hold(lab, line)
    line.ask(f"retry {J1}:1 0 oops 5\nerror")
    line.ask("take 2 1 0 30000 q")
    assert line.ask(f"retry {J1}:1 0 oops 5\nerror") == "ok scheduled"
    assert lab.counts() == {"added": 1, "running": 1, "handed_out": 2, "/retried": 1}


def test_the_last_attempt_is_dead_with_the_reason(lab: Lab, line: Line) -> None:
    hold(lab, line, "ma=2")
    line.ask(f"retry {J1}:1 0 oops 0\n")
    line.ask("take 2 1 0 30000 q")
    assert line.ask(f"retry {J1}:2 0 oops 5\nerror") == "ok dead"
    job = lab.job(1)
    assert job["reason"] == "gave up after 2 attempts: oops"
    assert job["handouts"][-1]["error"] == b"error".hex()
    assert lab.counts() == {"added": 1, "dead": 1, "handed_out": 2, "/retried": 1, "/dead": 1}


def test_a_release_is_neither_attempt_nor_loss_and_keeps_the_place(lab: Lab, line: Line) -> None:
    hold(lab, line, "ma=1 ml=1")
    line.ask(lab.add(2))
    for take in range(2, 6):
        assert line.ask(f"release {J1}:{take - 1} 0 unknown") == "ok released"
        assert f"job {J1} {take} " in line.ask(f"take {take} 1 0 30000 q")
    assert (lab.job(1)["attempts"], lab.job(1)["losses"]) == (0, 0)


def test_losses_lead_to_the_dead_list_with_the_reason(lab: Lab, line: Line, keeper: Line) -> None:
    line.ask(lab.add(1, "ml=2"))
    for session in (11, 12):
        child = lab.connect(session)
        child.ask("take 1 1 0 30000 q")
        keeper.ask(f"bye {session_of(session)} lost SIGKILL")
    job = lab.job(1)
    assert (job["state"], job["reason"], job["losses"]) == ("dead", "worker lost (SIGKILL)", 2)
    assert [handout["cause"] for handout in job["handouts"]] == ["SIGKILL", "SIGKILL"]
    assert lab.counts() == {"added": 1, "dead": 1, "handed_out": 2, "/lost": 2}


def test_a_lease_that_runs_out_is_a_loss_too(lab: Lab, line: Line) -> None:
    hold(lab, line, "ml=1 vt=500")
    lab.pass_time(1.0)
    job = lab.job(1)
    assert (job["state"], job["reason"]) == ("dead", "worker lost (the lease ran out)")
    assert job["handouts"][-1]["ended"] == "returned"


def test_leaving_is_no_loss(lab: Lab, line: Line, keeper: Line) -> None:
    hold(lab, line, "ml=1")
    assert keeper.ask(f"bye {session_of(1)} left drain {J1}:1") == "ok left"
    assert lab.counts() == {"added": 1, "ready": 1, "handed_out": 1, "/left": 1}
    assert lab.job(1)["losses"] == 0


def test_bye_ends_what_the_session_holds_and_nothing_else(lab: Lab, line: Line, keeper: Line) -> None:
    line.ask(lab.add(1))
    line.ask(lab.add(2))
    other = lab.connect(3)
    other.ask("take 1 1 0 30000 q")
    line.ask("take 1 1 0 30000 q")
    assert keeper.ask(f"bye {session_of(1)} lost SIGSEGV {J1}:1 {hexid(2)}:1") == "ok unknown lost"
    assert other.ask(f"done {J1}:1") == "ok done"


def test_bye_tells_how_each_receipt_had_ended_and_whether_late(lab: Lab, line: Line, keeper: Line) -> None:
    hold(lab, line, "vt=500")
    lab.pass_time(1.0)
    line.ask(f"done {J1}:1")
    bye = f"bye {session_of(1)} lost SIGKILL {J1}:1 {J1}:7 {hexid(9)}:1"
    assert keeper.ask(bye) == "ok returned/late unknown unknown"
    assert keeper.ask(bye) == "ok returned/late unknown unknown"


def test_a_late_done_is_refused_and_counted_once_while_another_works(lab: Lab, line: Line) -> None:
    hold(lab, line, "vt=500")
    lab.pass_time(1.0)
    other = lab.connect(3, name="other")
    other.ask("take 1 1 0 30000 q")
    for _ in range(3):
        assert line.ask(f"done {J1}:1") == "refused returned"
    assert line.ask(f"dead {J1}:1 why 0\n") == "refused returned"
    assert line.ask(f"release {J1}:1 0 why") == "lost"
    assert other.ask(f"done {J1}:2") == "ok done"
    assert lab.counts() == {
        "added": 1, "done": 1, "handed_out": 2, "/returned": 1, "/done": 1, "refused": 1,
    }  # fmt: skip
    workers = lab.record()["workers"]
    assert (workers["w"]["refused"], workers["other"]["refused"]) == (1, 0)


def test_a_done_after_the_leases_end_is_accepted_while_the_row_still_runs(lab: Lab, line: Line) -> None:
    hold(lab, line, "vt=500")
    lab.gap(0.9)
    assert line.ask(f"done {J1}:1") == "ok done"


def test_a_settlement_of_a_closed_session_is_not_counted(lab: Lab, line: Line, keeper: Line) -> None:
    hold(lab, line)
    keeper.ask(f"bye {session_of(1)} lost SIGKILL")
    before = lab.rows()
    assert line.ask(f"done {J1}:1").startswith("err closed")
    assert keeper.ask(f"retry {J1}:1 0 timeout 0 as={session_of(1)}\n").startswith("err closed")
    assert line.ask(f"extend {J1}:1").startswith("err closed")
    assert lab.rows() == before


def test_a_keeper_settles_only_what_that_session_holds(lab: Lab, line: Line, keeper: Line) -> None:
    hold(lab, line)
    assert keeper.ask(f"cancel {J1}:1 stopped as={session_of(3)}") == "gone"
    assert keeper.ask(f"cancel {J1}:1 stopped as={session_of(1)}") == "ok cancelled"


def test_an_expired_job_is_dead_and_frees_its_key(lab: Lab, line: Line) -> None:
    line.ask(lab.add(1, "x=+1000 k=order"))
    line.ask(lab.add(2))
    lab.pass_time(1.1)
    assert f"job {hexid(2)} 1 " in line.ask("take 1 1 0 30000 q")
    assert (lab.job(1)["state"], lab.job(1)["reason"], lab.job(1)["expired"]) == ("dead", "expired", True)
    assert lab.counts() == {"added": 2, "dead": 1, "running": 1, "handed_out": 1, "expired": 1}
    assert line.ask(lab.add(3, "k=order")) == f"ok {hexid(3)} created"


def test_expired_is_a_part_of_dead_and_leaves_with_it(lab: Lab, line: Line) -> None:
    for n in (1, 2):
        line.ask(lab.add(n, "x=+1000"))
    lab.pass_time(1.1)
    line.ask("take 1 5 0 30000 q")
    assert line.ask(f"requeue {J1}") == "ok ready"
    assert line.ask(f"purge {hexid(2)}") == "ok purged"
    assert lab.counts() == {"added": 2, "ready": 1, "purged": 1}
    assert f"job {J1} 1 " in line.ask("take 2 1 0 30000 q")


def test_the_expiry_of_a_job_that_only_expired_ones_wait_before_is_not_an_endless_take(lab: Lab, line: Line) -> None:
    for n in range(1, 8):
        line.ask(lab.add(n, "x=+1000"))
    lab.pass_time(1.1)
    assert line.ask("take 1 2 0 30000 q") == "jobs 0 0"
    assert lab.counts()["expired"] == 7


# -- cancel --------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_at_once(lab: Lab, line: Line) -> None:
    line.ask(lab.add(1, "at=+5000"))
    line.ask(lab.add(2))
    assert line.ask(f"cancel-job {J1}") == "ok cancelled"
    assert line.ask(f"cancel-job {hexid(2)}") == "ok cancelled"
    assert line.ask(f"cancel-job {hexid(2)}") == "ok already cancelled"
    assert line.ask(f"cancel-job {hexid(3)}").startswith("err unknown")
    assert lab.counts() == {"added": 2, "cancelled": 2}


@pytest.mark.parametrize(("options", "told"), [("", "ask"), (" terminate", "terminate")])
def test_a_running_job_is_asked_by_the_next_extend(lab: Lab, line: Line, options: str, told: str) -> None:
    hold(lab, line)
    assert line.ask(f"cancel-job {J1}{options}") == "ok asked"
    assert line.ask(f"extend {J1}:1") == f"ok 30000/{told}"


def test_terminate_is_not_taken_back_by_a_later_ask(lab: Lab, line: Line) -> None:
    hold(lab, line)
    line.ask(f"cancel-job {J1} terminate")
    line.ask(f"cancel-job {J1}")
    assert line.ask(f"extend {J1}:1") == "ok 30000/terminate"


@pytest.mark.parametrize(
    ("end", "answer", "state", "how"),
    [
        (f"done {J1}:1", "ok done", "done", "done"),
        (f"dead {J1}:1 why 0\n", "ok dead", "dead", "dead"),
        (f"retry {J1}:1 0 why 0\n", "ok cancelled", "cancelled", "cancelled"),
        (f"release {J1}:1 0 why", "ok cancelled", "cancelled", "cancelled"),
        (f"cancel {J1}:1 why", "ok cancelled", "cancelled", "cancelled"),
        (f"bye {session_of(1)} lost SIGKILL", "ok", "cancelled", "lost"),
        (f"bye {session_of(1)} left drain", "ok", "cancelled", "left"),
    ],
)
def test_done_and_dead_win_over_the_mark_and_any_other_end_cancels(
    lab: Lab, line: Line, end: str, answer: str, state: str, how: str
) -> None:
    hold(lab, line, "k=order ml=1")
    line.ask(f"cancel-job {J1}")
    assert line.ask(end) == answer
    job = lab.job(1)
    assert (job["state"], job["handouts"][-1]["ended"]) == (state, how)
    assert lab.counts()["/" + how] == 1


def test_a_mark_survives_a_lease_that_runs_out(lab: Lab, line: Line) -> None:
    hold(lab, line, "vt=500")
    line.ask(f"cancel-job {J1}")
    lab.pass_time(1.0)
    assert lab.counts() == {"added": 1, "cancelled": 1, "handed_out": 1, "/returned": 1}


# -- what belongs to a settlement ----------------------------------------------------------------------------------


def test_adds_of_a_refused_settlement_are_not_done(lab: Lab, line: Line) -> None:
    hold(lab, line, "vt=500")
    lab.pass_time(1.0)
    assert line.ask(f"done {J1}:1 then=1\n{lab.add(5)}") == "refused returned"
    assert lab.counts()["added"] == 1


def test_adds_of_a_settlement_are_answered_with_it_each_time(lab: Lab, line: Line) -> None:
    hold(lab, line, "k=a")
    done = f"done {J1}:1 then=3\n{lab.add(5)}\n{lab.add(6, 'k=b')}\n{lab.add(7, 'k=b')}"
    assert line.ask(done) == "ok done created created exists"
    assert line.ask(done) == "ok done created created exists"
    assert lab.counts() == {"added": 3, "done": 1, "ready": 2, "duplicates": 1, "handed_out": 1, "/done": 1}


# -- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1_024, 1_025, 100_000])
def test_a_body_comes_back_whole_in_each_hand_out(lab: Lab, line: Line, size: int) -> None:
    body = "b" * size
    hold(lab, line, body=body)
    line.ask(f"retry {J1}:1 0 why 0\n")
    answer = line.ask("take 2 1 0 30000 q")
    assert answer.split("\n")[2] == body
    assert line.ask("take 2 1 0 30000 q") == answer
    line.ask(f"dead {J1}:2 why 0\n")
    assert lab.job(1)["body"] == body.encode().hex()
    assert line.ask(f"requeue {J1}") == "ok ready"
    assert line.ask("take 3 1 0 30000 q").split("\n")[2] == body
    line.ask(f"dead {J1}:3 why 0\n")
    line.ask(f"purge {J1}")
    assert lab.rows()["bodies"] == []
