"""A cut at every byte of every line and of every answer: repeat the line, and nothing is different.

Wire, hub and engine in memory, without sockets.  Each scenario is run once without a fault; then with the connection
lost behind every byte of the request, behind every byte of the answer, and with the old connection still open, so
that the old bytes arrive after the repeat was answered.  The store and what a counting client counts have to be equal.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.property.lab import Lab, Line, hexid, session_of

ME, KEEPER = 1, 2
Prepare = Callable[[Lab, Line], None]


@dataclass(frozen=True)
class Scenario:
    """What was before, the line, what it is answered, and what a repeat is answered where that differs."""

    prepare: Prepare
    request: str
    answer: str
    again: str = ""
    counted: tuple[tuple[str, int], ...] = ()
    session: int = ME


def nothing(lab: Lab, line: Line) -> None:
    """An empty server."""


def added(*options: str) -> Prepare:
    """Jobs 1, 2, ... with these options."""

    def prepare(lab: Lab, line: Line) -> None:
        for n, option in enumerate(options, 1):
            line.ask(lab.add(n, option))

    return prepare


def held(*options: str, then: str = "") -> Prepare:
    """Jobs that this session has taken, and a line after that."""

    def prepare(lab: Lab, line: Line) -> None:
        added(*options)(lab, line)
        line.ask("take 1 10 0 30000 q")
        if then:
            line.ask(then)

    return prepare


def ran_out(lab: Lab, line: Line) -> None:
    """A job whose lease ran out."""
    held("vt=500")(lab, line)
    lab.pass_time(1.0)


def dead_and_key_taken(lab: Lab, line: Line) -> None:
    """A dead job whose key another one holds now."""
    held("k=order", then=f"dead {hexid(1)}:1 why 0\n")(lab, line)
    line.ask(lab.add(2, "k=order"))


J1, J2, J3 = hexid(1), hexid(2), hexid(3)
FP = "f" * 32
JOB = f"job {J1} 1 30000 30000 1 0 q t {FP} 4\nbody\n"
ADD = f"add {J1} q t {FP} 4\nbody"
KEYED = f"add {J2} q t {FP} 4 k=order\nbody"
DEAD = held("", then=f"dead {J1}:1 why 3\nbad")
DONE_STATE = f"state {J1} done q 1 0 - result 6\nresult\n"
RUNNING_STATE = f"state {J2} running q 0 0 - none 0\n\nstate {J3} unknown - 0 0 - none 0\n\n"
DEAD_STATE = f"state {J1} dead q 1 0 why failure 3\nbad\n"
SCENARIOS = {
    "hello": Scenario(nothing, f"hello 1 {session_of(ME)} worker w", ""),
    "add": Scenario(nothing, ADD, f"ok {J1} created", counted=(("added", 1),)),
    "add later": Scenario(
        nothing, f"add {J1} q t {FP} 4 at=+5000 x=+9000 p=9\nbody", f"ok {J1} created", counted=(("added", 1),)
    ),
    "add with a key": Scenario(nothing, KEYED, f"ok {J2} created", counted=(("added", 1),)),
    "add, key held": Scenario(added("k=order"), KEYED, f"ok {J1} exists", counted=(("duplicates", 1),)),
    "add, key conflict": Scenario(
        added("k=order"),
        KEYED.replace(FP, "e" * 32),
        f"err key-conflict {J1} holds this key with other arguments",
    ),
    "add, id of another as key": Scenario(
        added(""), f"add {J2} q t {FP} 4 k={J1}\nbody", f"ok {J1} exists", counted=(("duplicates", 1),)
    ),
    "take": Scenario(added(""), "take 1 10 0 30000 q", f"jobs 1 {len(JOB)}\n{JOB[:-1]}"),
    "take, nothing": Scenario(nothing, "take 1 10 0 30000 q", "jobs 0 0"),
    "done": Scenario(held(""), f"done {J1}:1 6\nresult", "ok done", counted=(("done", 1),)),
    "done without a result": Scenario(held("k=order"), f"done {J1}:1", "ok done", counted=(("done", 1),)),
    "done, too late": Scenario(ran_out, f"done {J1}:1 6\nresult", "refused returned", counted=(("refused", 1),)),
    "done, unknown": Scenario(nothing, f"done {J1}:1", "gone"),
    "done with then": Scenario(
        held("", "k=order"),
        f"done {J1}:1 6 then=2\nresult\nadd {J3} q t {FP} 4\nbody\nadd {hexid(4)} q t {FP} 1 k=order\nb",
        "ok done created exists",
        counted=(("done", 1), ("added", 1), ("duplicates", 1)),
    ),
    "retry": Scenario(held(""), f"retry {J1}:1 2000 oops 5\nerror", "ok scheduled", counted=(("retried", 1),)),
    "retry, at once": Scenario(held(""), f"retry {J1}:1 0 oops 5\nerror", "ok scheduled", counted=(("retried", 1),)),
    "retry, out of attempts": Scenario(
        held("ma=1"), f"retry {J1}:1 2000 oops 5\nerror", "ok dead", counted=(("dead", 1),)
    ),
    "retry, asked to cancel": Scenario(
        held("", then=f"cancel-job {J1}"), f"retry {J1}:1 9 oops 5\nerror", "ok cancelled", counted=(("cancelled", 1),)
    ),
    "retry by a keeper": Scenario(
        held(""),
        f"retry {J1}:1 9 timeout 5 as={session_of(ME)}\nerror",
        "ok scheduled",
        counted=(("retried", 1),),
        session=KEEPER,
    ),
    "release": Scenario(held(""), f"release {J1}:1 0 unknown", "ok released", counted=(("released", 1),)),
    "release, later": Scenario(held(""), f"release {J1}:1 500 unknown", "ok released", counted=(("released", 1),)),
    "release, too late": Scenario(ran_out, f"release {J1}:1 0 unknown", "lost"),
    "dead": Scenario(held("k=order"), f"dead {J1}:1 bad%20bytes 5\nerror", "ok dead", counted=(("dead", 1),)),
    "cancel": Scenario(held("k=order"), f"cancel {J1}:1 asked", "ok cancelled", counted=(("cancelled", 1),)),
    "wait, one has ended": Scenario(
        held("", "", then=f"done {J1}:1 6\nresult"),
        f"wait 30000 {J1} {J2} {J3}",
        f"states 3 {len(DONE_STATE + RUNNING_STATE)}\n{DONE_STATE}{RUNNING_STATE}"[:-1],
    ),
    "wait 0": Scenario(DEAD, f"wait 0 {J1}", f"states 1 {len(DEAD_STATE)}\n{DEAD_STATE}"[:-1]),
    "extend": Scenario(held("", ""), f"extend {J1}:1+4 {J2}:1 {J3}:1\nhalf", "ok 30000 30000 lost"),
    "bye lost": Scenario(
        held("", "", "ml=1", then=f"done {J1}:1"),
        f"bye {session_of(ME)} lost SIGKILL {J1}:1 {J2}:1 {J3}:1 {hexid(4)}:1",
        "ok done lost lost unknown",
        counted=(("done", 1), ("lost", 2)),
        session=KEEPER,
    ),
    "bye left": Scenario(
        held("", ""), f"bye {session_of(ME)} left drain {J1}:1", "ok left", counted=(("left", 1),), session=KEEPER
    ),
    "cancel-job": Scenario(added("k=order"), f"cancel-job {J1}", "ok cancelled", again="ok already cancelled"),
    "cancel-job, running": Scenario(held(""), f"cancel-job {J1} terminate", "ok asked"),
    "requeue": Scenario(DEAD, f"requeue {J1}", "ok ready", again="ok already ready"),
    "requeue, key taken": Scenario(
        dead_and_key_taken, f"requeue {J1}", f"err key-conflict {J2} holds this job's key now"
    ),
    "purge": Scenario(DEAD, f"purge {J1}", "ok purged", again="ok already purged"),
}


def count(request: str, answer: str) -> Counter[str]:
    """What a client counts when it has read this answer to that line."""
    verb, words = request.split(" ", 1)[0], answer.split()
    counted: Counter[str] = Counter()
    ends = {"scheduled": "retried"}
    if words[0] == "refused":
        counted["refused"] += 1
    elif words[0] != "ok" or verb in ("hello", "take", "extend", "cancel-job", "requeue", "purge"):
        return counted
    elif verb == "add":
        counted["added" if words[2] == "created" else "duplicates"] += 1
    elif verb == "bye":
        counted.update(word for word in words[1:] if word != "unknown")
    else:
        counted[ends.get(words[1], words[1])] += 1
        counted.update("added" if word == "created" else "duplicates" for word in words[2:])
    return counted


@dataclass(frozen=True)
class Outcome:
    """What is left when all is over."""

    rows: dict[str, list[tuple[Any, ...]]]
    record: dict[str, Any]
    counted: Counter[str]
    answer: str


def begin(scenario: Scenario, path: str = ":memory:") -> tuple[Lab, Line]:
    """A server in the scenario's state, and a connection for the line."""
    lab = Lab(path)
    line = lab.connect(ME)
    scenario.prepare(lab, line)
    return lab, reconnect(lab, scenario)


def reconnect(lab: Lab, scenario: Scenario) -> Line:
    return Line(lab) if scenario.request.startswith("hello") else lab.connect(scenario.session)


def end(lab: Lab, scenario: Scenario, answer: str) -> Outcome:
    answer = answer.replace(lab.engine.store_id, "SERVER")  # made anew with each file
    outcome = Outcome(lab.rows(), lab.record(), count(scenario.request, answer), answer)
    lab.close()
    return outcome


def check(scenario: Scenario, plain: Outcome, faulty: Outcome, *, done_before: bool | None) -> None:
    """A run with a fault has to end like the one without; `done_before`: whether the repeat found the line done."""
    assert faulty.rows == plain.rows
    assert faulty.record == plain.record
    assert faulty.counted == plain.counted
    if done_before is not None and scenario.again:
        assert faulty.answer == (scenario.again if done_before else plain.answer)
    elif not scenario.again:
        assert faulty.answer == plain.answer


@pytest.fixture(params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


@pytest.fixture
def plain(scenario: Scenario) -> Outcome:
    """The run without a fault."""
    lab, line = begin(scenario)
    answer = line.ask(scenario.request)
    if scenario.answer:
        assert answer == scenario.answer
    outcome = end(lab, scenario, answer)
    assert outcome.counted == dict(scenario.counted)
    return outcome


def cuts(data: str) -> Iterator[bytes]:
    """All beginnings of a line or an answer, from nothing to all of it."""
    whole = data.encode() + b"\n"
    for size in range(len(whole) + 1):
        yield whole[:size]


def test_the_request_is_cut_at_every_byte(scenario: Scenario, plain: Outcome) -> None:
    for part in cuts(scenario.request):
        lab, line = begin(scenario)
        line.write(part)
        lab.turn()
        line.cut()
        answer = reconnect(lab, scenario).ask(scenario.request)
        whole = len(part) == len(scenario.request) + 1
        check(scenario, plain, end(lab, scenario, answer), done_before=whole)


def test_the_request_is_cut_before_its_turn(scenario: Scenario, plain: Outcome) -> None:
    """The bytes had arrived, but the connection is gone before they are carried out."""
    for part in (scenario.request.encode()[:-1], scenario.request.encode() + b"\n"):
        lab, line = begin(scenario)
        line.write(part)
        line.cut()
        answer = reconnect(lab, scenario).ask(scenario.request)
        check(scenario, plain, end(lab, scenario, answer), done_before=None)


def test_the_answer_is_cut_at_every_byte(scenario: Scenario, plain: Outcome) -> None:
    """However much of the answer was read: it was not all of it, so the line is repeated and the rest forgotten."""
    for part in cuts(plain.answer):
        lab, line = begin(scenario)
        first = line.ask(scenario.request).encode() + b"\n"
        assert len(part) <= len(first)
        line.cut()
        answer = reconnect(lab, scenario).ask(scenario.request)
        check(scenario, plain, end(lab, scenario, answer), done_before=True)


def test_the_old_bytes_arrive_after_the_repeat_was_answered(scenario: Scenario, plain: Outcome) -> None:
    """The old connection stays open a while: its bytes are split at every place around the repeat."""
    whole = scenario.request.encode() + b"\n"
    for part in cuts(scenario.request):
        lab, line = begin(scenario)
        line.write(part)
        lab.turn()
        answer = reconnect(lab, scenario).ask(scenario.request)
        line.write(whole[len(part) :])
        lab.turn()
        line.cut()
        check(scenario, plain, end(lab, scenario, answer), done_before=len(part) == len(whole))


def test_both_copies_arrive_in_one_turn(scenario: Scenario, plain: Outcome) -> None:
    whole = scenario.request.encode() + b"\n"
    lab, line = begin(scenario)
    repeat = reconnect(lab, scenario)
    line.write(whole)
    repeat.write(whole)
    lab.turn()
    check(scenario, plain, end(lab, scenario, repeat.read().decode()[:-1]), done_before=True)


@pytest.mark.parametrize("kill", [False, True])
def test_the_server_ends_between_a_line_and_its_repeat(
    scenario: Scenario, plain: Outcome, tmp_path: Path, kill: bool
) -> None:
    lab, line = begin(scenario, str(tmp_path / "tenure.db"))
    line.ask(scenario.request)
    if kill:
        for ending in ("", "-wal"):
            shutil.copy(f"{lab.path}{ending}", tmp_path / f"killed.db{ending}")
        lab.close()
        lab.path = str(tmp_path / "killed.db")
        lab.start()
    else:
        lab.restart()
    answer = reconnect(lab, scenario).ask(scenario.request)
    if scenario.request == "take 1 10 0 30000 q" and scenario.answer == "jobs 0 0":
        assert lab.counts() == {}
    check(scenario, plain, end(lab, scenario, answer), done_before=True)


def test_a_take_that_was_lost_is_given_again_with_what_is_left() -> None:
    lab, line = begin(SCENARIOS["take"])
    line.ask("take 1 10 0 30000 q")
    line.cut()
    lab.pass_time(10.0)
    answer = lab.connect(ME).ask("take 1 10 0 30000 q")
    assert answer.split("\n")[1].split()[:4] == ["job", J1, "1", "20000"]
    lab.close()


def test_a_parked_wait_that_was_cut_is_asked_again_and_hears_of_the_end() -> None:
    lab, line = begin(SCENARIOS["done"])
    for part in cuts(f"wait 30000 {J1}"):
        caller = lab.connect(KEEPER)
        caller.write(part)
        lab.turn()
        caller.cut()
    assert not lab.hub._parking.jobs
    caller = lab.connect(KEEPER)
    assert caller.ask(f"wait 30000 {J1}") == ""
    line.ask(SCENARIOS["done"].request)
    assert caller.read().decode() == f"states 1 {len(DONE_STATE)}\n{DONE_STATE}"
    lab.close()
