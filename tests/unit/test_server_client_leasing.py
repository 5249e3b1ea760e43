"""Taking, settling, extending and the operator's verbs against a server that breaks."""

from __future__ import annotations

import threading
from typing import Any
from zlib import crc32

import msgpack
import pytest

from tenure.broker import EndedAs, Extend, Extended, Settled
from tenure.brokers.leasing import ServerConsumer
from tenure.brokers.server import ServerBroker, from_url
from tenure.clock import own_deadline
from tenure.errors import BrokerUnavailable, ConfigError, JobNotFound, KeyConflict, ProtocolError, ServerError
from tenure.message import Message, Raw, Settlement
from tenure.wire import commands, encode
from tests.unit.scripted import MovedClock, Peer, Script, Scripted, body, message, swallow

SESSION = "ab" * 16


def job(number: int = 1, packed: bytes | None = None, hold: int = 30_000) -> commands.Job:
    one = message(number)
    return commands.Job(
        id=bytes.fromhex(one.id),
        number=3,
        hold=hold,
        vt=30_000,
        attempt=2,
        losses=1,
        queue="default",
        task=one.task,
        fingerprint=one.fingerprint,
        body=body(number) if packed is None else packed,
        key="k",
        priority=7,
        run_at=5_000,
        expires=None,
        max_attempts=20,
        max_losses=5,
    )


def answers(*replies: bytes) -> Script:
    """A script that answers each command with the next reply, then closes, or waits to be closed after the last."""

    def script(peer: Peer) -> None:
        peer.hello()
        waiting = list(replies)
        for _ in peer.commands():
            if not waiting:
                return
            peer.send(waiting.pop(0))

    return script


def tears(piece: bytes) -> Script:
    """A script that sends a piece of an answer and closes."""

    def script(peer: Peer) -> None:
        peer.hello()
        peer.read()
        peer.send(piece)

    return script


def client(server: Scripted, clock: MovedClock | None = None) -> ServerBroker:
    return from_url(server.url, clock=clock or MovedClock(), read_limit=0.2, connect_limit=2.0)


def consumer(broker: ServerBroker) -> ServerConsumer:
    return broker.consumer(["default", "a b"], session=SESSION, name="w 1", visibility_timeout=30.0)


def lines(peer: Peer) -> list[bytes]:
    return peer.got.split(b"\n")[1:-1]


def test_what_was_taken_comes_as_deliveries_with_an_own_deadline() -> None:
    with Scripted(answers(encode.jobs([job(1), job(2)]), b"jobs 0 0\n")) as server:
        taker = consumer(client(server, clock := MovedClock()))
        first, second = taker.take(5, 0.0)
        assert taker.take(9, 0.5) == []
        assert first.receipt == f"{message(1).id}:3".encode()
        assert (first.fence, first.attempt, first.losses, first.visibility_timeout) == (3, 2, 1, 30.0)
        assert first.deadline == own_deadline(clock.now, 30.0)
        assert isinstance(first.message, Message)
        assert (first.message.id, first.message.args, first.message.key) == (message(1).id, b"abc", "k")
        assert isinstance(second.message, Message)
        assert server.peers[0].got.startswith(b"hello 1 " + SESSION.encode() + b" worker w%201\n")
        assert lines(server.peers[0]) == [b"take 1 5 0 30000 default a%20b", b"take 2 9 500 30000 default a%20b"]
        taker.close()


@pytest.mark.parametrize(("expires", "left"), [(None, None), (60_001, 60.0), (1, None)])
def test_a_latest_start_is_told_by_the_own_clock(expires: int | None, left: float | None) -> None:
    """The server, whose calendar shows 1 ms here, hands out nothing that is too late: else its clock was set."""
    with Scripted(answers(encode.jobs([job()._replace(expires=expires)]))) as server:
        taker = consumer(client(server, clock := MovedClock()))
        (taken,) = taker.take(1, 0.0)
        assert taken.start_by == (None if left is None else pytest.approx(clock.now + left))
        taker.close()


PACKED = encode.jobs([job()])


@pytest.mark.parametrize(
    "fault",
    [
        swallow,
        tears(b""),
        tears(PACKED[:10]),
        tears(PACKED[:-1]),
        tears(PACKED[:-1] + b"x"),
        tears(b"jobs 2 3\nabc"),
        answers(b"err stale an older copy\n"),
    ],
)
def test_a_take_whose_answer_is_not_whole_is_repeated_byte_for_byte(fault: Script) -> None:
    with Scripted(fault, answers(PACKED, b"jobs 0 0\n")) as server:
        taker = consumer(client(server, clock := MovedClock()))
        with pytest.raises(ConnectionError):
            taker.take(5, 0.1)
        clock.now += 7
        (delivery,) = taker.take(1, 0.0)
        assert delivery.deadline == own_deadline(clock.now, 30.0)
        taker.take(2, 0.0)
        taker.close()
    assert lines(server.peers[0]) == [b"take 1 5 100 30000 default a%20b"]
    assert lines(server.peers[1]) == [b"take 1 5 100 30000 default a%20b", b"take 2 2 0 30000 default a%20b"]


def test_every_truncation_of_an_answer_is_a_broken_connection() -> None:
    ends = range(0, len(PACKED), 9)
    with Scripted(*[tears(PACKED[:end]) for end in ends], answers(PACKED)) as server:
        taker = consumer(client(server))
        for _ in ends:
            with pytest.raises(ConnectionError):
                taker.take(5, 0.0)
        assert len(taker.take(5, 0.0)) == 1
        taker.close()


def test_a_store_that_cannot_write_leaves_the_take_pending_and_a_refused_line_does_not() -> None:
    script = answers(b"err storage disk full\n", b"err limit too many jobs\n", b"jobs 0 0\n")
    with Scripted(script) as server:
        taker = consumer(client(server))
        with pytest.raises(ConnectionError, match="disk full"):
            taker.take(5, 0.0)
        with pytest.raises(ServerError, match="too many jobs"):
            taker.take(5, 0.0)
        assert taker.take(4, 0.0) == []
        assert [line[:8] for line in lines(server.peers[0])] == [b"take 1 5", b"take 1 5", b"take 1 4"]
        taker.close()


def test_bytes_that_do_not_decode_come_raw_with_the_reason() -> None:
    newer = msgpack.packb([9, "what"])
    damaged = msgpack.packb([1, b"abc", crc32(b"abd"), None, None])
    with Scripted(answers(encode.jobs([job(1, b"junk"), job(2, newer), job(3, damaged)]))) as server:
        taker = consumer(client(server))
        junk, later, corrupt = (delivery.message for delivery in taker.take(5, 0.0))
        assert isinstance(junk, Raw)
        assert (junk.id, junk.body, junk.version) == (message(1).id, b"junk", None)
        assert isinstance(later, Raw)
        assert later.version == 9
        assert isinstance(corrupt, Raw)
        assert corrupt.why == "corrupt"
        taker.close()


def done(number: int, **fields: Any) -> Settlement:
    return Settlement(f"{message(number).id}:1".encode(), "done", **fields)


def test_settlements_go_out_in_one_write_and_are_answered_in_order() -> None:
    replies = b"ok done created exists\nrefused returned\ngone\nerr closed this session\nok dead\nlost\n"
    with Scripted(tears(replies)) as server:
        settler = consumer(client(server))
        settled = settler.settle(
            [
                done(1, then=(message(8), message(9)), result=b"r"),
                done(2),
                done(3),
                done(4),
                Settlement(done(5).receipt, "retry", delay=1.5, reason="no luck", error=b"err"),
                Settlement(done(6).receipt, "release", reason="unknown task"),
            ]
        )
        assert settled == [
            Settled("ok", "done", (True, False)),
            Settled("refused", "returned"),
            Settled("gone"),
            Settled("closed"),
            Settled("ok", "dead"),
            Settled("lost"),
        ]
        got = server.peers[0].got
        assert b" 1 then=2\nr\nadd " in got
        assert f"retry {message(5).id}:1 1500 no%20luck 3\nerr\n".encode() in got
        settler.close()


@pytest.mark.parametrize(
    "fault", [swallow, tears(b"ok done\nok"), tears(b"ok done\nerr storage full\n"), tears(b"a\nb\n")]
)
def test_settlements_without_a_complete_answer_are_repeated_byte_for_byte(fault: Script) -> None:
    settlements = [done(1, then=(message(8),)), done(2)]
    with Scripted(fault, tears(b"ok done exists\nok done\n")) as server:
        settler = consumer(client(server))
        with pytest.raises(ConnectionError):
            settler.settle(settlements)
        settler._settling.drop()
        assert [settled.answer for settled in settler.settle(settlements)] == ["ok", "ok"]
        settler.close()
    first, second = (peer.got.split(b"\n", 1)[1] for peer in server.peers)
    assert first == second


def test_a_settlement_that_is_refused_as_a_line_is_a_server_error() -> None:
    with Scripted(tears(b"err too-large limit\nok done\n")) as server:
        settler = consumer(client(server))
        with pytest.raises(ServerError, match="too-large"):
            settler.settle([done(1), done(2)])
        settler.close()


def test_many_settlements_keep_below_the_limits_of_a_batch() -> None:
    counts: list[int] = []

    def serve(peer: Peer) -> None:
        peer.hello()
        for command in peer.commands():
            assert isinstance(command, commands.Settle)
            counts.append(1 + len(command.then))
            peer.send(b"ok done%b\n" % (b" created" * len(command.then)))

    with Scripted(serve) as server:
        settler = consumer(client(server))
        many = [done(n, then=tuple(message(n) for n in range(99))) for n in range(25)]
        assert [len(settled.added) for settled in settler.settle(many)] == [99] * 25
        assert counts == [100] * 25
        settler.close()


def test_an_interrupted_take_ends_and_is_repeated() -> None:
    arrived = threading.Event()

    def park(peer: Peer) -> None:
        peer.hello()
        peer.read()
        arrived.set()
        peer.until_closed()

    with Scripted(park, answers(PACKED)) as server:
        taker = consumer(client(server))
        caught: list[Exception] = []

        def take() -> None:
            with pytest.raises(ConnectionError) as error:
                taker.take(1, 30.0)
            caught.append(error.value)

        thread = threading.Thread(target=take)
        thread.start()
        assert arrived.wait(10)
        taker.interrupt()
        thread.join(10)
        assert len(caught) == 1
        assert len(taker.take(1, 0.0)) == 1
        assert lines(server.peers[1]) == lines(server.peers[0])
        taker.close()
        with pytest.raises(ConnectionError, match="closed"):
            taker.take(1, 0.0)


def test_queues_that_make_no_line_are_refused() -> None:
    broker = from_url("tenure://127.0.0.1:1")
    for queues in ([], [""], ["a\n"], [f"{n:0500}" for n in range(140)]):
        with pytest.raises(ConfigError):
            broker.consumer(queues, session=SESSION, name="w", visibility_timeout=30.0)


def test_a_settlement_with_too_many_adds_is_not_sent() -> None:
    settler = consumer(from_url("tenure://127.0.0.1:1"))
    with pytest.raises(ValueError, match="1000 adds"):
        settler.settle([done(1, then=(message(2),) * 1001)])


def receipts(count: int) -> list[bytes]:
    return [f"{n:032x}:1".encode() for n in range(count)]


def test_extends_carry_progress_and_bring_deadlines() -> None:
    with Scripted(answers(b"ok 30000 lost 20000/ask 10000/terminate\n")) as server:
        keeper = client(server, clock := MovedClock()).keeper()
        one, two, three, four = receipts(4)
        assert keeper.extend([Extend(one, b"half"), Extend(two), Extend(three, b""), Extend(four)]) == [
            Extended(own_deadline(clock.now, 30.0)),
            Extended(None),
            Extended(own_deadline(clock.now, 20.0), "ask"),
            Extended(own_deadline(clock.now, 10.0), "terminate"),
        ]
        assert server.peers[0].got.split(b" ")[3] == b"keeper"
        assert lines(server.peers[0])[0] == b"extend %b+4 %b %b+0 %b" % (one, two, three, four)
        assert lines(server.peers[0])[1] == b"half"
        keeper.close()


def test_long_lists_of_receipts_are_split_below_a_lines_limit() -> None:
    def serve(peer: Peer) -> None:
        peer.hello()
        for command in peer.commands():
            if isinstance(command, commands.Extend):
                peer.send(b"ok" + b" 1000" * len(command.items) + b"\n")
            elif isinstance(command, commands.Bye):
                peer.send(b"ok" + b" done/late" * len(command.receipts) + b"\n")
            elif isinstance(command, commands.Untake):
                peer.send(b"ok\n")

    with Scripted(serve) as server:
        keeper = client(server).keeper()
        assert len(keeper.extend([Extend(receipt) for receipt in receipts(3_000)])) == 3_000
        assert keeper.extend([]) == []
        assert keeper.bye(SESSION, "lost", "signal 9", receipts(3_000)) == [EndedAs("done", True)] * 3_000
        keeper.untake(SESSION, 7, "did not listen", receipts(commands.MAX_TAKE))
        assert max(map(len, lines(server.peers[0]))) < commands.MAX_LINE
        keeper.close()


def test_a_keeper_settles_and_says_bye_for_a_session() -> None:
    with Scripted(answers(b"ok dead\n", b"ok done unknown refused\n", b"ok retried\n", b"ok\n")) as server:
        keeper = client(server).keeper()
        settlement = Settlement(receipts(1)[0], "retry", reason="time limit", error=b"e")
        assert keeper.settle(SESSION, [settlement]) == [Settled("ok", "dead")]
        with pytest.raises(ProtocolError):
            keeper.bye(SESSION, "lost", "signal 9", receipts(3))
        keeper.close()
        assert f" as={SESSION}\n".encode() in server.peers[0].got
    with Scripted(answers(b"ok\n", b"err storage full\n", b"ok lost retried/late\n")) as server:
        keeper = client(server).keeper()
        assert keeper.bye(SESSION, "left", "", []) == []
        with pytest.raises(ConnectionError, match="full"):
            keeper.bye(SESSION, "left", "", receipts(2))
        assert keeper.bye(SESSION, "left", "", receipts(2)) == [EndedAs("lost"), EndedAs("retried", True)]
        assert lines(server.peers[0])[0] == f"bye {SESSION} left -".encode()
        keeper.close()


def test_the_operators_verbs() -> None:
    script = answers(
        encode.json_answer(b'{"balanced": true}'),
        encode.json_answer(b"{}"),
        encode.json_answer(b"[]"),
        encode.json_answer(b'[{"id": 1}]'),
        encode.json_answer(b'{"id": 1}'),
        b"err unknown no such job\n",
        b"ok ready\n",
        b"ok already done\n",
        b"ok asked\n",
        b"err unknown no such job\n",
        b"err key-conflict %b held\n" % message(2).id.encode(),
        encode.json_answer(b"[]"),
        encode.json_answer(b"{"),
    )
    with Scripted(script) as server:
        broker = client(server)
        admin = broker.admin()
        id = message(1).id
        assert admin.record() == {"balanced": True}
        assert admin.record(verify=True) == {}
        assert admin.queues() == []
        assert admin.dead(None, 10, None) == [{"id": 1}]
        assert admin.job(id) == {"id": 1}
        assert admin.job(id) is None
        assert admin.requeue(id) == "ready"
        assert admin.purge(id) == "already done"
        assert admin.cancel(id, terminate=True) == "asked"
        with pytest.raises(JobNotFound):
            admin.purge(id)
        with pytest.raises(KeyConflict) as conflict:
            admin.requeue(id)
        assert conflict.value.first_id == message(2).id
        for _ in range(2):
            with pytest.raises(ProtocolError):
                admin.record()
        broker.close()


def test_an_operators_verb_survives_one_broken_connection_and_names_the_server_after_two() -> None:
    with Scripted(tears(b""), answers(b"ok purged\n"), tears(b"o"), swallow) as server:
        broker = client(server)
        admin = broker.admin()
        assert admin.purge(message(1).id) == "purged"
        broker.pool._drop_idle()
        with pytest.raises(BrokerUnavailable, match="tenure server"):
            admin.purge(message(1).id)
        broker.close()


@pytest.mark.parametrize(
    ("now", "told"),
    [(120.0, "120 s ahead of"), (-120.0, "120 s behind"), (4.9, ""), (-4.9, "")],
)
def test_a_worker_says_once_that_its_clock_is_off(now: float, told: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = MovedClock()
    clock.now = now
    with Scripted(swallow, swallow, answers(b"jobs 0 0\n")) as server:
        broker = from_url(server.url, clock=clock, read_limit=0.1)
        consumer = broker.consumer(["default"], session=SESSION, name="w", visibility_timeout=30.0)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                consumer.take(1, 0.0)
        assert consumer.take(1, 0.0) == []
        consumer.close()
        broker.close()
    told_of = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert told_of == [
        f"the clock of this machine is {told} the server's; due times and leases go by the server's",
    ] * bool(told)
