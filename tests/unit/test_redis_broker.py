"""The queue's rules on Redis, against a real server whose clock stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tenure.broker import EndedAs, Extend, Settled
from tenure.brokers import connect
from tenure.brokers.redis import recounting, settling
from tenure.clock import own_deadline
from tenure.errors import JobNotFound, KeyConflict, QueueClosed, QueueNotFound, ServerError
from tenure.message import Message, Raw, Settlement, When
from tenure.outcome import NO_TASK
from tests.stage.redis_lab import RedisLab, done, hexid, message, session_of, standing_clock
from tests.stage.redis_servers import Cluster, RedisServer


@pytest.fixture
def lab(redis_server: RedisServer) -> Iterator[RedisLab]:
    with standing_clock():
        one = RedisLab(redis_server)
        yield one
        one.close()


Spoil = Callable[..., None]


def _field(name: str, value: str) -> Spoil:
    def spoil(lab: RedisLab, id: str, queue: str = "q") -> None:
        lab.server.command("HSET", f"tenure:{{{queue}}}:j:{id}", name, value)

    return spoil


def _a_string(lab: RedisLab, id: str, queue: str = "q") -> None:
    lab.server.command("SET", f"tenure:{{{queue}}}:j:{id}", "junk")


def _no_message(lab: RedisLab, id: str, queue: str = "q") -> None:
    lab.server.command("HDEL", f"tenure:{{{queue}}}:j:{id}", "m")


@pytest.fixture(
    params=[_field("m", "junk"), _field("m", "1"), _field("m", "d\xc1"), _field("n", "junk"), _a_string, _no_message],
    ids=["junk", "one byte", "no plain message", "no number", "string", "no message"],
)
def spoil(request: pytest.FixtureRequest) -> Spoil:
    """Spoils the record of a job."""
    spoil: Spoil = request.param
    return spoil


def ids(deliveries: object) -> list[int]:
    assert isinstance(deliveries, list)
    return [int(one.message.id[13:], 16) for one in deliveries]


# ---------------------------------------------------------------------------------------------------------------- adds


def test_a_job_is_stored_once_whatever_is_repeated(lab: RedisLab) -> None:
    assert lab.add(message(1))[0] == (hexid(1), True, None)
    assert lab.add(message(1), message(1))[1] == (hexid(1), True, None)
    assert lab.counts() == {"added": 1, "ready": 1}
    assert ids(lab.consumer().take(10, 0)) == [1]


def test_a_key_is_held_by_one_job_until_its_window_is_over(lab: RedisLab) -> None:
    first, second, other = lab.add(message(1, key="k"), message(2, key="k"), message(3, key="k", fingerprint=b"g" * 16))
    assert first.created
    assert second == (hexid(1), False, None)
    assert isinstance(other.error, KeyConflict)
    assert other.error.first_id == hexid(1)
    assert lab.add(message(2, key="k"))[0].id == hexid(1), "the repeat of a duplicate is found by its id"
    assert lab.counts() == {"added": 1, "duplicates": 1, "ready": 1}
    assert lab.add(message(4, key="k", task="u"))[0].created, "a key is its task's"
    assert (lab.broker.counts().added, lab.broker.counts().duplicates) == (2, 2)


def test_an_automatic_key_meets_the_first_job(lab: RedisLab) -> None:
    lab.add(message(1))
    assert lab.add(message(2, key=hexid(1)))[0].id == hexid(1)


def test_a_dead_job_frees_its_key(lab: RedisLab) -> None:
    consumer = lab.consumer()
    lab.add(message(1, key="k"))
    (job,) = consumer.take(1, 0)
    consumer.settle([Settlement(job.receipt, "dead", reason="no")])
    assert lab.add(message(2, key="k"))[0].created
    with pytest.raises(KeyConflict):
        lab.broker.admin().requeue(hexid(1))


# --------------------------------------------------------------------------------------------------------------- takes


def test_the_highest_priority_goes_first_and_then_whoever_came_first(lab: RedisLab) -> None:
    lab.add(message(1), message(2, priority=0), message(3, priority=9), message(4), message(5, priority=9))
    assert ids(lab.consumer().take(10, 0)) == [3, 5, 1, 4, 2]


def test_a_delayed_job_waits_for_its_time(lab: RedisLab) -> None:
    lab.add(message(1, run_at=When(10.0, True)), message(2, run_at=When(lab.now / 1000 + 5)), message(3))
    consumer = lab.consumer()
    assert ids(consumer.take(10, 0)) == [3]
    lab.pass_time(4.999)
    assert consumer.take(10, 0) == []
    lab.pass_time(0.001)
    assert ids(consumer.take(10, 0)) == [2]
    lab.pass_time(5)
    assert ids(consumer.take(10, 0)) == [1]


def test_a_job_that_did_not_start_in_time_is_dead(lab: RedisLab) -> None:
    lab.add(message(1, expires=When(5.0, True)), message(2), message(3, expires=When(60.0, True)))
    lab.pass_time(5)
    second, third = lab.consumer().take(10, 0)
    assert (second.start_by, third.message.id) == (None, hexid(3))
    assert third.start_by is not None
    assert lab.counts() == {"added": 3, "dead": 1, "expired": 1, "handed_out": 2, "running": 2}
    (state,) = lab.broker.results().states([hexid(1)])
    assert (state.state, state.reason) == ("dead", "expired")


def test_a_repeated_take_brings_what_still_runs_and_nothing_new(lab: RedisLab) -> None:
    lab.add(*(message(n) for n in range(1, 6)))
    consumer = lab.consumer()
    first = consumer.take(2, 0)
    consumer.settle([done(first[0])])
    lab.pass_time(10)
    again = lab.consumer()  # the same session and number, as after a broken connection
    assert [job.receipt for job in again.take(5, 0)] == [first[1].receipt]
    assert lab.counts()["handed_out"] == 2
    assert ids(again.take(5, 0)) == [3, 4, 5]


def test_a_worker_of_several_queues_takes_from_all(lab: RedisLab) -> None:
    names = ["a:b", "a b{c}%", "队列", "x" * 300]
    lab.add(*(message(n, queue=queue) for n, queue in enumerate(names, 1)))
    taken = lab.consumer(queues=names).take(4, 0)
    assert {job.message.queue for job in taken} == set(names)
    assert sorted(lab.verified()["queues"]) == sorted(names)


# --------------------------------------------------------------------------------------------------- settling, leases


def test_each_settlement_is_answered_the_same_again_and_refused_otherwise(lab: RedisLab) -> None:
    lab.add(*(message(n) for n in range(1, 6)))
    consumer = lab.consumer()
    a, b, c, d, e = consumer.take(5, 0)
    verbs = [
        done(a, b"r"),
        Settlement(b.receipt, "retry", delay=5.0, reason="oops", error=b"e"),
        Settlement(c.receipt, "dead", reason="no", error=b"f"),
        Settlement(d.receipt, "cancel", reason="unwanted"),
        Settlement(e.receipt, "release", delay=0.0),
    ]
    answers = [Settled("ok", word) for word in ("done", "scheduled", "dead", "cancelled", "released")]
    assert consumer.settle(verbs) == answers
    assert consumer.settle(verbs) == answers
    assert consumer.settle([done(b)]) == [Settled("refused", "retried")]
    assert consumer.settle([done(b)]) == [Settled("refused", "retried")]
    assert consumer.settle([Settlement(a.receipt, "release"), done(a)]) == [Settled("lost"), Settled("ok", "done")]
    assert consumer.settle([Settlement(f"{hexid(9)}:1".encode(), "done")]) == [Settled("gone")]
    assert lab.counts() == {
        "added": 5, "done": 1, "dead": 1, "cancelled": 1, "scheduled": 1, "ready": 1, "handed_out": 5, "refused": 1,
        "/done": 1, "/retried": 1, "/dead": 1, "/cancelled": 1, "/released": 1,
    }  # fmt: skip


def test_the_last_attempt_that_fails_makes_the_job_dead(lab: RedisLab) -> None:
    lab.add(message(1, max_attempts=2))
    consumer = lab.consumer()
    (job,) = consumer.take(1, 0)
    consumer.settle([Settlement(job.receipt, "retry", reason="oops")])
    (job,) = consumer.take(1, 0)
    assert (job.attempt, job.fence) == (2, 2)
    assert consumer.settle([Settlement(job.receipt, "retry", reason="oops", error=b"e")]) == [Settled("ok", "dead")]
    (dead,) = lab.broker.admin().dead(None, 10, None)
    assert dead["reason"] == "gave up after 2 attempts: oops"
    assert [one["ended"] for one in dead["handouts"]] == ["retried", "dead"]


def test_a_lease_that_runs_out_comes_back_and_the_late_done_is_refused(lab: RedisLab) -> None:
    lab.add(message(1, max_losses=2))
    first, second = lab.consumer(1, vt=10.0), lab.consumer(2)
    (job,) = first.take(1, 0)
    lab.pass_time(6)
    assert lab.keeper.extend([Extend(job.receipt)])[0].deadline is not None
    lab.pass_time(9.999)
    assert second.take(1, 0) == []
    lab.pass_time(0.001)
    (again,) = second.take(1, 0)
    assert (again.fence, again.losses, again.attempt) == (2, 1, 1)
    assert lab.keeper.extend([Extend(job.receipt), Extend(b"0" * 32 + b":1")]) == [(None, None), (None, None)]
    assert first.settle([done(job)]) == [Settled("refused", "returned")]
    lab.keeper.bye(session_of(2), "lost", "signal 9", [])
    (state,) = lab.broker.results().states([hexid(1)])
    assert (state.state, state.losses, state.reason) == ("dead", 2, "worker lost (signal 9)")


def test_bye_gives_all_back_and_tells_how_each_had_ended(lab: RedisLab) -> None:
    lab.add(*(message(n, queue=f"q{n % 2}") for n in range(1, 5)))
    consumer = lab.consumer(queues=["q0", "q1"])
    jobs = consumer.take(4, 0)
    consumer.settle([done(jobs[0])])
    receipts = [jobs[0].receipt, jobs[1].receipt, b"f" * 32 + b":1"]
    ended = [EndedAs("done"), EndedAs("left"), EndedAs("unknown")]
    assert lab.keeper.bye(session_of(1), "left", "drained", receipts) == ended
    assert lab.keeper.bye(session_of(1), "left", "drained", receipts) == ended
    assert consumer.settle([done(jobs[1])]) == [Settled("closed")]
    assert len(lab.consumer(2, queues=["q0", "q1"]).take(9, 0)) == 3


def test_a_take_that_nobody_reads_is_given_back(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    consumer = lab.consumer()
    jobs = consumer.take(2, 0)
    lab.keeper.untake(session_of(1), 1, "nobody listens", [jobs[0].receipt])
    assert lab.counts() == {"added": 2, "ready": 1, "running": 1, "handed_out": 2, "/left": 1}
    lab.keeper.untake(session_of(1), 2, "nobody listens", [])
    assert consumer.take(2, 0) == [], "the number grants nothing any more"
    assert ids(consumer.take(2, 0)) == [2]


def test_a_job_ends_and_adds_others_in_one_step_also_to_other_queues(lab: RedisLab) -> None:
    lab.add(message(1))
    consumer = lab.consumer()
    (job,) = consumer.take(1, 0)
    then = (message(2), message(3, queue="other"), message(4, queue="other", key="k"))
    lab.add(message(5, queue="other", key="k"))
    end = done(job, then=then)
    assert consumer.settle([end]) == [Settled("ok", "done", (True, True, False))]
    assert consumer.settle([end]) == [Settled("ok", "done", (True, True, False))]
    assert ids(consumer.take(5, 0)) == [2]
    assert ids(lab.consumer(2, queues=["other"]).take(5, 0)) == [5, 3]
    assert lab.counts("other")["duplicates"] == 1
    assert lab.server.command("EXISTS", "tenure:{q}:out") == 0


def test_what_somebody_left_to_be_handed_over_the_next_worker_hands_over(
    lab: RedisLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.add(message(1))
    first, second = lab.consumer(1), lab.consumer(2)
    (job,) = first.take(1, 0)

    def dies(*_: object) -> dict[str, bool]:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(settling, "hand_over", dies)
        with pytest.raises(ConnectionError):
            first.settle([done(job, then=(message(2, queue="other"),))])
    assert second.take(1, 0) == []
    assert ids(lab.consumer(3, queues=["other"]).take(5, 0)) == [2]
    assert lab.server.command("EXISTS", "tenure:{q}:out") == 0


# ---------------------------------------------------------------------------------------------------------- operators


def test_the_list_of_queues_tells_who_waits_and_which_tasks_nobody_knows(lab: RedisLab) -> None:
    lab.add(message(1, task="lost"), message(2))
    lab.pass_time(0)
    consumer = lab.consumer()
    lost, other = consumer.take(2, 0)
    consumer.settle([Settlement(lost.receipt, "release", delay=30.0, reason=f"{NO_TASK} lost"), done(other)])
    consumer.take(1, 0)
    (queue,) = lab.broker.admin().queues()
    assert queue == {
        "name": "q", "ready": 0, "scheduled": 1, "running": 0, "dead": 0, "done": 1, "added": 2, "waiting": 1,
        "paused": False, "closed": False, "unknown_tasks": {"lost": 1},
    }  # fmt: skip


def test_a_running_job_is_told_that_it_is_not_wanted(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    consumer, admin = lab.consumer(), lab.broker.admin()
    (job,) = consumer.take(1, 0)
    assert admin.cancel(hexid(1)) == "asked"
    assert lab.keeper.extend([Extend(job.receipt)])[0].cancel == "ask"
    assert admin.cancel(hexid(1), terminate=True) == "asked"
    assert lab.keeper.extend([Extend(job.receipt)])[0].cancel == "terminate"
    assert admin.cancel(hexid(2)) == "cancelled"
    assert consumer.settle([Settlement(job.receipt, "retry")]) == [Settled("ok", "cancelled")]
    assert admin.cancel(hexid(1)) == "already cancelled"
    with pytest.raises(JobNotFound):
        admin.cancel(hexid(7))
    assert lab.counts() == {"added": 2, "cancelled": 2, "handed_out": 1, "/cancelled": 1}


def test_queues_are_paused_closed_and_emptied(lab: RedisLab) -> None:
    admin = lab.broker.admin()
    with pytest.raises(QueueNotFound):
        admin.switch("pause", "q")
    lab.add(message(1), message(2, run_at=When(60.0, True)))
    assert admin.switch("pause", "q") == "paused"
    assert lab.consumer().take(1, 0) == []
    assert admin.switch("close", "q") == "closed"
    added, known = lab.add(message(3), message(1))
    assert isinstance(added.error, QueueClosed)
    assert known.created
    assert [admin.switch("resume", "q"), admin.switch("open", "q")] == ["resumed", "open"]
    assert admin.purge_queue("q") == 2
    assert lab.counts() == {"added": 2, "cancelled": 2}


def test_a_dead_job_is_put_back_or_purged(lab: RedisLab) -> None:
    admin, consumer = lab.broker.admin(), lab.consumer()
    lab.add(message(1, expires=When(1.0, True)), message(2))
    lab.pass_time(2)
    (job,) = consumer.take(1, 0)
    consumer.settle([Settlement(job.receipt, "dead", reason="no", ran=False)])
    assert [one["id"] for one in admin.dead("q", 1, None)] == [hexid(1)]
    assert [one["id"] for one in admin.dead(None, 1, hexid(1))] == [hexid(2)]
    assert admin.requeue(hexid(1)) == "ready"
    assert admin.requeue(hexid(1)) == "already ready"
    assert [admin.purge(hexid(2)), admin.purge(hexid(2))] == ["purged", "already purged"]
    assert lab.broker.results().states([hexid(2)])[0].reason == "purged from the dead list: no"
    assert lab.counts() == {"added": 2, "purged": 1, "ready": 1, "handed_out": 1, "/dead": 1}
    assert ids(consumer.take(5, 0)) == [1]


def test_the_jobs_are_recounted_in_parts_and_again_where_something_moved(
    lab: RedisLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recounting, "PART", 2)
    lab.add(*(message(n) for n in range(1, 8)))
    consumer = lab.consumer()
    consumer.settle([done(job) for job in consumer.take(3, 0)])
    assert lab.counts() == {"added": 7, "ready": 4, "done": 3, "handed_out": 3, "/done": 3}
    more = iter(range(8, 100))
    rests: list[int] = []

    def rest(attempt: int) -> None:
        rests.append(attempt)

    def moves(*words: object, **_: object) -> object:
        lab.add(message(next(more)))
        return count(*words)  # type: ignore[arg-type]

    count = recounting._count
    monkeypatch.setattr(recounting, "_count", moves)
    with pytest.raises(ServerError, match="changed during each of 20 counts"):
        recounting.recount(lab.broker._looking, "q", rest)
    assert rests == list(range(1, 20))


def test_a_recount_tells_what_is_wrong(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    lab.server.command("HSET", f"tenure:{{q}}:j:{hexid(1)}", "st", "4")
    lab.server.command("HINCRBY", "tenure:{q}", "added", "1")
    answer = lab.broker.admin().record(verify=True)
    assert not answer["verified"]
    assert answer["differences"][:2] == [
        f"queue 'q': job {hexid(1)}: it is where no job of state 4 can be",
        "queue 'q': added: the jobs say 1, the record says 3",
    ]


def test_what_is_long_is_kept_beside_the_job_and_goes_with_it(lab: RedisLab) -> None:
    long = b"a" * 1_000
    lab.add(message(1, args=long), message(2, args=long), message(3))
    consumer, admin = lab.consumer(), lab.broker.admin()
    one, two, three = consumer.take(3, 0)
    assert isinstance(one.message, Message)
    assert one.message.args == long
    assert lab.server.command("OBJECT", "ENCODING", f"tenure:{{q}}:j:{hexid(1)}") == b"listpack"
    consumer.settle([done(one, b"r"), Settlement(two.receipt, "dead"), done(three, b"r" * 1_000)])
    shown = [admin.job(hexid(n)) for n in (1, 2, 3)]
    assert [len(job["body"]) > 2_000 if job and job["body"] else None for job in shown] == [None, True, None]
    assert [job["result"] if job else "" for job in shown] == [b"r".hex(), None, (b"r" * 1_000).hex()]
    assert [state.result for state in lab.broker.results().states([hexid(1), hexid(3)])] == [b"r", b"r" * 1_000]
    beside = [f"tenure:{{q}}:b:{hexid(n)}".encode() for n in (2, 3)]
    assert sorted(lab.server.command("KEYS", "tenure:{q}:b:*")) == beside
    admin.purge(hexid(2))
    lab.pass_time(3_601)
    consumer.take(1, 0)
    assert lab.server.command("KEYS", "tenure:{q}:b:*") == []


def test_what_is_cancelled_lets_go_of_its_body_at_once(lab: RedisLab) -> None:
    lab.add(*(message(n, args=b"a" * 1_000) for n in range(1, 5)), message(5))
    consumer, admin = lab.consumer(), lab.broker.admin()
    (held,) = consumer.take(1, 0)
    admin.cancel(hexid(1))
    keys = [f"tenure:{{q}}:b:{hexid(n)}".encode() for n in (1, 2, 3, 4)]
    assert sorted(lab.server.command("KEYS", "tenure:{q}:b:*")) == keys, "one that runs may have to begin again"
    assert admin.cancel(hexid(2)) == "cancelled"
    assert admin.purge_queue("q") == 3
    consumer.settle([Settlement(held.receipt, "cancel")])
    assert lab.server.command("KEYS", "tenure:{q}:b:*") == []
    assert not lab.server.command("HEXISTS", f"tenure:{{q}}:j:{hexid(5)}", "b")
    shown = [admin.job(hexid(n)) for n in range(1, 6)]
    assert [job and job["state"] for job in shown] == ["cancelled"] * 5
    assert {one.state for one in lab.broker.results().states([hexid(n) for n in range(1, 6)])} == {"cancelled"}


def test_keys_that_somebody_has_deleted_stop_nothing_else(lab: RedisLab) -> None:
    soon = When(1.0, True)
    lab.add(message(1), message(2, run_at=soon), message(3, expires=soon), message(4), message(5, args=b"a" * 100))
    consumer = lab.consumer()
    (held,) = consumer.take(1, 0)
    assert held.message.id == hexid(1)
    for n in (1, 2, 3, 4):
        lab.server.command("DEL", f"tenure:{{q}}:j:{hexid(n)}")
    lab.server.command("DEL", f"tenure:{{q}}:b:{hexid(5)}")
    lab.pass_time(40)
    (left,) = lab.consumer(2).take(5, 0)
    assert isinstance(left.message, Raw)
    assert left.message.id == hexid(5)
    for name in ("ready", "due", "expiring"):
        assert lab.server.command("ZCARD", f"tenure:{{q}}:{name}") == 0


# ------------------------------------------------------------------------------------------------------------- spoiled


def test_a_spoiled_record_costs_no_other_job_of_its_take(lab: RedisLab, spoil: Spoil) -> None:
    lab.add(*(message(n, key=f"k{n}") for n in range(1, 9)))
    spoil(lab, hexid(8))
    consumer, admin = lab.consumer(), lab.broker.admin()
    shown = admin.job(hexid(8))
    assert shown is not None
    assert "its record is spoiled" in shown["reason"]
    taken = consumer.take(10, 0)
    assert set(range(1, 8)) <= set(ids(taken))
    raw = [one for one in taken if isinstance(one.message, Raw)]
    consumer.settle([Settlement(one.receipt, "dead", reason="spoiled") for one in raw])
    consumer.settle([done(one) for one in taken if one not in raw])
    assert lab.counts() == {
        "added": 8, "done": 7, "dead": 1, "handed_out": 7 + len(raw), "/done": 7, **({"/dead": 1} if raw else {})
    }  # fmt: skip
    (dead,) = admin.dead("q", 10, None)
    assert dead["id"] == hexid(8)
    assert "spoiled" in dead["reason"] or "could not be read" in dead["reason"]
    assert lab.add(message(9, key="k8"))[0].created, "nobody could read its key, which is free all the same"
    assert admin.purge(hexid(8)) == "purged"


def test_a_spoiled_record_ends_no_other_script_in_its_middle(lab: RedisLab, spoil: Spoil) -> None:
    soon = When(1.0, True)
    lab.add(*(message(n, key=f"k{n}") for n in range(1, 7)))
    lab.add(*(message(n, run_at=soon) for n in range(7, 9)), *(message(n, queue="e", expires=soon) for n in (9, 10)))
    consumer, admin, keeper = lab.consumer(), lab.broker.admin(), lab.broker.keeper()
    held = consumer.take(6, 0)
    for n in (1, 3, 5, 7):
        spoil(lab, hexid(n))
    spoil(lab, hexid(9), "e")
    assert all(one.deadline is not None for one in keeper.extend([Extend(one.receipt) for one in held])[1::2])
    states = lab.broker.results().states([hexid(n) for n in range(1, 11)])
    assert [states[n].state for n in (1, 3, 5, 7, 9)] == ["running"] * 3 + ["scheduled", "ready"]
    answers = consumer.settle([done(held[0]), done(held[1]), Settlement(held[2].receipt, "retry"), done(held[3])])
    assert answers[1::2] == [Settled("ok", "done")] * 2
    keeper.bye(session_of(1), "lost", "it died", [one.receipt for one in held])
    lab.pass_time(60)
    admin.queues()
    assert {6, 8} <= set(ids(lab.consumer(2).take(10, 0)))
    assert lab.consumer(3, ["e"]).take(10, 0) == []
    assert admin.job(hexid(10))["state"] == "dead"  # type: ignore[index]
    for n in (1, 3, 5, 7, 9):
        for verb in (admin.cancel, admin.requeue, admin.purge):
            with suppress(JobNotFound):
                verb(hexid(n))
        assert admin.job(hexid(n)) is None or admin.job(hexid(n))["id"] == hexid(n)  # type: ignore[index]
    admin.dead(None, 100, None)
    assert admin.record()["balanced"]
    assert admin.purge_queue("q") >= 0
    lab.pass_time(200_000)
    lab.consumer(4).take(10, 0)
    assert admin.record()["balanced"]
    keeper.close()


def test_a_spoiled_hand_out_costs_its_job_only(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    consumer = lab.consumer()
    consumer.settle([Settlement(one.receipt, "retry") for one in consumer.take(2, 0)])
    lab.server.command("HSET", f"tenure:{{q}}:j:{hexid(1)}", "he", "junk")
    lab.pass_time(60)
    assert ids(consumer.take(2, 0)) == [2]
    shown = lab.broker.admin().job(hexid(1))
    assert shown is not None
    assert (shown["state"], shown["reason"][:30]) == ("dead", "its record could not be read: ")


def test_a_job_that_runs_is_handed_out_to_nobody_else_even_where_somebody_puts_it_in_line(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    holder, other = lab.consumer(1), lab.consumer(2)
    (held,) = holder.take(1, 0)
    lab.server.command("ZADD", "tenure:{q}:ready", "0", hexid(1))
    assert ids(other.take(10, 0)) == [2]
    admin = lab.broker.admin()
    shown = admin.job(hexid(1))
    assert shown is not None
    assert (shown["state"], len(shown["handouts"]), shown["handouts"][0]["ended"]) == ("dead", 1, "lost")
    assert holder.settle([done(held)]) == [Settled("refused", "lost")]
    record = admin.record()
    assert (record["overlaps"], record["balanced"], admin.record(verify=True)["differences"]) == (0, True, [])


# ---------------------------------------------------------------------------------------------------------- retention


@pytest.mark.parametrize("end", ["lease", "bye"])
def test_what_was_cancelled_and_never_settled_is_kept_as_long_as_other_cancelled_jobs(lab: RedisLab, end: str) -> None:
    lab.add(message(1), message(2))
    lab.consumer().take(1, 0)
    admin = lab.broker.admin()
    assert [admin.cancel(hexid(n)) for n in (1, 2)] == ["asked", "cancelled"]
    if end == "lease":
        lab.pass_time(31)
        lab.consumer(2).take(1, 0)
    else:
        lab.keeper.bye(session_of(1), "lost", "it died", [])
    for seconds, left in ((3_500, 2), (200, 0)):
        lab.pass_time(seconds)
        lab.consumer(2).take(1, 0)
        assert len([n for n in (1, 2) if admin.job(hexid(n)) is not None]) == left


def test_what_is_over_is_kept_for_its_time_and_counted_for_ever(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    consumer = lab.consumer()
    one, two = consumer.take(2, 0)
    consumer.settle([done(one, b"r"), Settlement(two.receipt, "retry")])
    (two,) = consumer.take(1, 0)
    consumer.settle([done(two)])
    before = lab.counts()
    assert lab.broker.results().states([hexid(1)])[0].result == b"r"
    lab.pass_time(3_599)
    consumer.take(1, 0)
    assert lab.broker.results().states([hexid(1)])[0].state == "done"
    lab.pass_time(2)
    assert lab.broker.results().states([hexid(1)])[0].state == "expired"
    consumer.take(1, 0)
    assert lab.broker.admin().job(hexid(1)) is None
    assert lab.counts() == before
    assert lab.server.command("KEYS", "tenure:{q}:[jhb]:*") == []


# ------------------------------------------------------------------------------------------------ the server was away


def test_a_server_that_stood_still_gives_each_lease_its_full_time_again(lab: RedisLab) -> None:
    lab.add(message(1), message(2))
    first, second = lab.consumer(1, vt=10.0), lab.consumer(2)
    (job,) = first.take(1, 0)
    assert ids(second.take(1, 0)) == [2]
    before = lab.clock.own
    lab.pass_time(60)
    lab.clock.own = before + 500  # for the worker only half a second has passed since its last answer
    assert second.take(1, 0) == []
    (held,) = lab.keeper.extend([Extend(job.receipt)])
    assert held.deadline is not None
    lab.pass_time(9.999)
    assert second.take(1, 0) == []
    lab.pass_time(0.001)
    assert ids(second.take(1, 0)) == [1]


def test_leases_end_as_ever_where_only_nobody_took(lab: RedisLab) -> None:
    lab.add(message(1))
    first, second = lab.consumer(1, vt=10.0), lab.consumer(2)
    first.take(1, 0)
    second.take(1, 0)
    lab.pass_time(60)
    assert ids(second.take(1, 0)) == [1]


def test_a_start_of_the_server_gives_each_lease_its_full_time_again(lab: RedisLab) -> None:
    lab.add(message(1))
    first, second = lab.consumer(1, vt=10.0), lab.consumer(2)
    (job,) = first.take(1, 0)
    lab.server.restart()
    lab.pass_time(60)
    second.close()
    second = lab.consumer(3)
    assert second.take(1, 0) == []
    assert first.settle([done(job)]) == [Settled("ok", "done")]
    assert lab.counts() == {"added": 1, "done": 1, "handed_out": 1, "/done": 1}


def test_a_clock_that_was_set_back_makes_no_lease_longer(lab: RedisLab) -> None:
    lab.add(message(1))
    first, second = lab.consumer(1, vt=10.0), lab.consumer(2)
    first.take(1, 0)
    second.take(1, 0)
    lab.pass_time(-3_600)
    lab.clock.own += 3_600_000
    assert second.take(1, 0) == []
    lab.pass_time(9.999)
    assert second.take(1, 0) == []
    lab.pass_time(0.001)
    assert ids(second.take(1, 0)) == [1]


# ------------------------------------------------------------------------------------------------------------- waiting


def test_a_worker_that_waits_for_several_queues_is_woken_by_any(lab: RedisLab) -> None:
    consumer = lab.consumer(queues=["a", "b", "c"])
    with ThreadPoolExecutor(1) as pool:
        for n, queue in enumerate("cab", 1):
            taken = pool.submit(consumer.take, 5, 20.0)
            lab.until_waiting(1)
            lab.add(message(n, queue=queue))
            assert ids(taken.result(5)) == [n]


def test_a_lease_that_began_at_the_end_of_a_wait_is_held_from_then_on(lab: RedisLab) -> None:
    consumer = lab.consumer(vt=30.0)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(consumer.take, 1, 20.0)
        lab.until_waiting(1)
        lab.pass_time(8)
        lab.add(message(1))
        (job,) = taken.result(5)
    exact = own_deadline(lab.clock.boot(), 30.0)
    assert exact - 0.02 < job.deadline <= exact


def test_many_jobs_in_one_line_wake_all_workers_that_wait(lab: RedisLab) -> None:
    consumers = [lab.consumer(n) for n in range(1, 4)]
    with ThreadPoolExecutor(3) as pool:
        taken = [pool.submit(one.take, 1, 20.0) for one in consumers]
        lab.until_waiting(3)
        lab.add(*(message(n) for n in range(1, 4)))
        assert sorted(ids(one.result(5))[0] for one in taken) == [1, 2, 3]


def test_workers_of_several_queues_of_a_cluster_are_woken_too(redis_cluster: Cluster) -> None:
    broker = connect(redis_cluster.url)
    queues = [f"q{n}" for n in range(6)]
    consumer = broker.consumer(queues, session=session_of(1), name="w", visibility_timeout=30.0)
    receipt = b""
    try:
        with ThreadPoolExecutor(1) as pool:
            for n, queue in enumerate(queues, 1):
                taken = pool.submit(consumer.take, 5, 20.0)
                assert broker.add([message(n, queue=queue)])[0].created
                (job,) = taken.result(10)
                assert consumer.settle([done(job, b"r")]) == [Settled("ok", "done")]
                receipt = job.receipt
        results, admin = broker.results(), broker.admin()
        assert results is not None
        assert admin is not None
        assert [one.result for one in results.states([hexid(n) for n in range(1, 7)])] == [b"r"] * 6
        answer = admin.record(verify=True)
        assert (answer["verified"], answer["record"]["totals"]["done"]) == (True, 6)
        keeper = broker.keeper()
        assert keeper.bye(session_of(1), "left", "drained", [receipt]) == [EndedAs("done")]
        keeper.close()
    finally:
        consumer.close()
        broker.close()
