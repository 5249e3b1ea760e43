"""Keys and ids: one job for one key, whatever is repeated and in whichever order lines arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tenure.engine.core import Retention
from tests.property.lab import Lab, Line, hexid

DAY, HOUR, FLOOR = 86_400.0, 3_600.0, 600.0
MakeLab = Callable[..., tuple[Lab, Line]]


@pytest.fixture
def make() -> Iterator[MakeLab]:
    """Makes a server with the given retention (milliseconds), and a connection to it."""
    labs: list[Lab] = []

    def make(**retention: int) -> tuple[Lab, Line]:
        lab = Lab(retention=Retention(**retention))
        labs.append(lab)
        return lab, lab.connect()

    yield make
    for lab in labs:
        lab.close()


def finish(lab: Lab, line: Line, n: int, verb: str = "done") -> None:
    """Take every job there is and end job `n`."""
    session = line.connection.hello
    assert session is not None
    number = lab.engine.answered(session.session) + 1
    line.ask(f"take {number} 10 0 30000 q")
    handout = lab.job(n)["number"]
    tail = {"done": "", "dead": " why 0\n", "cancel": " why"}[verb]
    assert line.ask(f"{verb} {hexid(n)}:{handout}{tail}").startswith("ok")


def later(lab: Lab, seconds: float) -> Line:
    """A long time passes in one step; then there is a new connection, for the old one has been silent."""
    lab.gap(seconds)
    lab.turn()
    return lab.connect()


def created(n: int) -> str:
    return f"ok {hexid(n)} created"


def exists(n: int) -> str:
    return f"ok {hexid(n)} exists"


def conflict(n: int) -> str:
    return f"err key-conflict {hexid(n)} holds this key with other arguments"


def test_a_key_meets_the_first_job_while_that_is_alive(make: MakeLab) -> None:
    lab, line = make()
    assert line.ask(lab.add(1, "k=order")) == created(1)
    assert line.ask(lab.add(2, "k=order")) == exists(1)
    assert line.ask(lab.add(2, "k=order")) == exists(1)
    assert lab.counts() == {"added": 1, "ready": 1, "duplicates": 1}


def test_the_same_key_with_other_arguments_is_a_conflict_and_leaves_nothing(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1, "k=order"))
    before = lab.rows()
    assert line.ask(lab.add(2, "k=order").replace("f" * 32, "e" * 32)) == conflict(1)
    assert lab.rows() == before


def test_another_tasks_key_is_another_key(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1, "k=order"))
    assert line.ask(lab.add(2, "k=order").replace(" t ", " u ")) == created(2)


def test_a_key_is_held_for_its_window_after_done_even_when_the_row_has_gone(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1, "k=order"))
    finish(lab, line, 1)
    lab.gap(2 * HOUR)
    for _ in range(3):
        lab.pass_time(31)
        lab.gap(FLOOR)
        lab.turn()
    assert lab.engine.show(bytes.fromhex(hexid(1))) is None
    line = lab.connect()
    assert line.ask(lab.add(2, "k=order")) == exists(1)
    assert line.ask(lab.add(3, "k=order").replace("f" * 32, "e" * 32)) == conflict(1)
    line = later(lab, DAY)
    assert line.ask(lab.add(4, "k=order")) == created(4)


def test_without_a_window_the_key_is_free_at_once_but_the_id_stays_known(make: MakeLab) -> None:
    lab, line = make(key_window=0, result_ttl=0)
    line.ask(lab.add(1, "k=order"))
    finish(lab, line, 1)
    line = later(lab, FLOOR - 5)
    assert line.ask(lab.add(1, "k=order")) == created(1)
    assert line.ask(lab.add(2, "k=order")) == created(2)
    assert lab.counts()["added"] == 2


@pytest.mark.parametrize("verb", ["dead", "cancel"])
def test_a_dead_or_cancelled_job_frees_its_key_at_once_but_not_its_id(make: MakeLab, verb: str) -> None:
    lab, line = make()
    line.ask(lab.add(1, "k=order"))
    finish(lab, line, 1, verb)
    assert line.ask(lab.add(2, "k=order")) == created(2)
    assert line.ask(lab.add(1, "k=order")) == created(1)
    assert lab.counts()["added"] == 2


def test_a_purged_jobs_id_stays_known_for_ten_minutes(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))
    finish(lab, line, 1, "dead")
    line.ask(f"purge {hexid(1)}")
    line = later(lab, FLOOR - 5)
    assert line.ask(lab.add(1)) == created(1)
    assert lab.counts() == {"added": 1, "purged": 1, "handed_out": 1, "/dead": 1}


def test_an_alias_is_known_for_ten_minutes_also_when_the_first_job_is_gone(make: MakeLab) -> None:
    lab, line = make(key_window=0, result_ttl=0)
    line.ask(lab.add(1, "k=order"))
    line.ask(lab.add(2, "k=order"))
    finish(lab, line, 1)
    assert line.ask(lab.add(2, "k=order")) == exists(1)
    line = later(lab, FLOOR - 5)
    assert line.ask(lab.add(2, "k=order")) == exists(1)
    assert lab.counts()["duplicates"] == 1


# -- "call again with error.key": the first add was not confirmed, its id is the key of the second -----------------


def test_the_second_call_meets_the_first_add_when_that_was_stored(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))  # the answer was lost
    assert line.ask(lab.add(2, f"k={hexid(1)}")) == exists(1)
    assert lab.counts() == {"added": 1, "ready": 1, "duplicates": 1}


def test_the_first_add_meets_the_second_call_when_it_arrives_late(make: MakeLab) -> None:
    lab, line = make()
    assert line.ask(lab.add(2, f"k={hexid(1)}")) == created(2)
    assert line.ask(lab.add(1)) == exists(2)
    assert line.ask(lab.add(1)) == exists(2)
    assert lab.counts() == {"added": 1, "ready": 1, "duplicates": 1}


def test_the_late_first_add_meets_the_second_call_when_that_is_done(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(2, f"k={hexid(1)}"))
    finish(lab, line, 2)
    assert line.ask(lab.add(1)) == exists(2)


def test_the_second_call_meets_the_first_job_when_that_is_done(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))
    finish(lab, line, 1)
    assert line.ask(lab.add(2, f"k={hexid(1)}")) == exists(1)


def test_the_second_call_runs_when_the_first_job_is_dead(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))
    finish(lab, line, 1, "dead")
    assert line.ask(lab.add(2, f"k={hexid(1)}")) == created(2)


def test_an_id_as_key_is_one_of_the_same_task_only_and_the_same_call(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))
    assert line.ask(lab.add(2, f"k={hexid(1)}").replace(" t ", " u ")) == created(2)
    assert line.ask(lab.add(3, f"k={hexid(1)}").replace("f" * 32, "e" * 32)) == conflict(1)


@pytest.mark.parametrize("spelled", ["upper", "spaced"])
def test_a_key_that_only_resembles_an_id_is_a_key_of_its_own(make: MakeLab, spelled: str) -> None:
    lab, line = make()
    first = "abcdef" + hexid(1)[6:]
    line.ask(lab.add(1).replace(hexid(1), first))
    key = first.upper() if spelled == "upper" else first[:28] + "%20%20%20%20"
    assert line.ask(lab.add(2, f"k={key}")) == created(2)


# -- requeue takes the key again -----------------------------------------------------------------------------------


def test_a_requeued_job_holds_its_key_again(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1, "k=order"))
    finish(lab, line, 1, "dead")
    assert line.ask(f"requeue {hexid(1)}") == "ok ready"
    assert line.ask(lab.add(2, "k=order")) == exists(1)


def test_requeue_is_refused_while_another_job_holds_the_key(make: MakeLab) -> None:
    lab, line = make(key_window=5_000)
    line.ask(lab.add(1, "k=order"))
    finish(lab, line, 1, "dead")
    line.ask(lab.add(2, "k=order"))
    refused = f"err key-conflict {hexid(2)} holds this job's key now"
    assert line.ask(f"requeue {hexid(1)}") == refused
    finish(lab, line, 2)
    assert line.ask(f"requeue {hexid(1)}") == refused  # for its window
    lab.pass_time(5.1)
    assert line.ask(f"requeue {hexid(1)}") == "ok ready"
    assert lab.counts()["ready"] == 1


def test_requeue_is_refused_while_another_job_holds_the_id_as_its_key(make: MakeLab) -> None:
    lab, line = make()
    line.ask(lab.add(1))
    finish(lab, line, 1, "dead")
    line.ask(lab.add(2, f"k={hexid(1)}"))
    assert line.ask(f"requeue {hexid(1)}") == f"err key-conflict {hexid(2)} holds this job's key now"
    assert lab.counts()["dead"] == 1
    finish(lab, line, 2, "dead")
    assert line.ask(f"requeue {hexid(1)}") == "ok ready"


def test_a_batch_meets_its_own_jobs(make: MakeLab) -> None:
    lab, line = make()
    answers = line.ask("\n".join([lab.add(1, "k=a"), lab.add(2, "k=a"), lab.add(1, "k=a"), lab.add(2, "k=a")]))
    assert answers.split("\n") == [created(1), exists(1), created(1), exists(1)]


def test_a_known_id_under_the_name_of_another_queue_makes_no_queue(make: MakeLab) -> None:
    lab, line = make()
    assert line.ask(lab.add(1)) == created(1)
    assert line.ask(lab.add(1, queue="other")) == created(1)
    line.ask("take 1 1 0 30000 q")
    assert line.ask(f"done {hexid(1)}:1 then=1\n{lab.add(1, queue='another')}") == "ok done created"
    assert list(lab.record()["queues"]) == ["q"]
