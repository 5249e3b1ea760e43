"""The line protocol without I/O: round trips, every chunking, random bytes, every truncation."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenure.errors import ProtocolError, ServerError
from tenure.message import Message, Settlement, When
from tenure.wire import encode, lines, replies
from tenure.wire.commands import (
    Add,
    Bad,
    Browse,
    Bye,
    CancelJob,
    Command,
    Extend,
    ExtendItem,
    Hello,
    Job,
    Purge,
    PurgeQueue,
    Report,
    Requeue,
    Settle,
    Show,
    StateLine,
    Switch,
    Take,
    Untake,
    Wait,
)
from tenure.wire.fields import Refused
from tenure.wire.parse import CommandParser
from tenure.wire.words import quote, unquote

ids = st.binary(min_size=16, max_size=16)
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
bodies = st.binary(max_size=80)
millis = st.integers(0, 2**40)
whens = st.none() | st.tuples(millis, st.booleans())
receipts = st.tuples(ids, st.integers(1, 2**62))


def _receipt(pair: tuple[bytes, int]) -> bytes:
    return f"{pair[0].hex()}:{pair[1]}".encode()


adds = st.builds(
    Add,
    ids,
    names,
    names,
    ids,
    bodies,
    st.none() | names,
    st.integers(0, 9),
    whens,
    whens,
    st.none() | st.integers(1, 2**40),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
)


def _when(pair: tuple[int, bool] | None) -> When | None:
    return None if pair is None else When(pair[0] / 1000, pair[1])


def _message(add: Add) -> Message:
    return Message(
        id=add.id.hex(),
        task=add.task,
        args=b"",
        checksum=0,
        fingerprint=add.fingerprint,
        queue=add.queue,
        key=add.key,
        priority=add.priority,
        run_at=_when(add.run_at),
        expires=_when(add.expires),
        visibility_timeout=None if add.vt is None else add.vt / 1000,
        max_attempts=add.max_attempts,
        max_losses=add.max_losses,
    )


@st.composite
def settles(draw: st.DrawFn) -> Settle:
    verb = draw(st.sampled_from(["done", "retry", "release", "dead", "cancel"]))
    id, number = draw(receipts)
    return Settle(
        verb,  # type: ignore[arg-type]
        id,
        number,
        draw(millis) if verb in ("retry", "release") else 0,
        draw(texts) if verb != "done" else "",
        draw(bodies) if verb in ("retry", "dead") else draw(st.none() | bodies) if verb == "done" else None,
        tuple(draw(st.lists(adds, max_size=3))) if verb in ("done", "retry") else (),
        draw(st.none() | ids),
        draw(st.booleans()) if verb == "dead" else True,
    )


def _settlement(settle: Settle) -> Settlement:
    return Settlement(
        receipt=_receipt((settle.id, settle.number)),
        kind=settle.verb,
        delay=settle.delay / 1000,
        reason=settle.reason,
        error=settle.body or b"",
        result=settle.body,
        then=tuple(_message(add) for add in settle.then),
        ran=settle.ran,
    )


commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Hello, st.just(1), ids, st.sampled_from(["producer", "worker", "keeper", "admin"]), st.just("") | names),
    adds,
    st.builds(
        Take,
        st.integers(1, 2**62),
        st.integers(1, 1000),
        millis,
        st.integers(1, 2**40),
        st.lists(names, min_size=1, max_size=4).map(tuple),
    ),
    settles(),
    st.builds(
        Extend,
        st.lists(
            st.builds(
                lambda receipt, progress: ExtendItem(receipt[0], receipt[1], progress), receipts, st.none() | bodies
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
    ),
    st.builds(Bye, ids, st.sampled_from(["left", "lost"]), texts, st.lists(receipts, max_size=4).map(tuple)),
    st.builds(Untake, ids, st.integers(1, 2**62), texts, st.lists(receipts, max_size=4).map(tuple)),
    st.builds(CancelJob, ids, st.booleans()),
    st.builds(Requeue, ids),
    st.builds(Purge, ids),
    st.builds(Switch, st.sampled_from(["pause", "resume", "close", "open"]), names),
    st.builds(PurgeQueue, names, st.none() | ids),
    st.builds(Show, ids),
    st.builds(Browse, st.none() | names, st.integers(0, 1000), st.none() | ids),
    st.builds(Wait, millis, st.lists(ids, min_size=1, max_size=4).map(tuple)),
    st.builds(Report, st.sampled_from(["record", "verify", "queues"])),
)


def line(command: Command) -> bytes:
    """The client's bytes for a command."""
    match command:
        case Hello():
            return encode.hello(command.session.hex(), command.role, command.name)
        case Add():
            return encode.add(_message(command), command.body)
        case Take(number, limit, wait, vt, queues):
            return encode.take(number, limit, wait / 1000, vt / 1000, queues)
        case Settle():
            session = None if command.session is None else command.session.hex()
            return encode.settle(_settlement(command), [add.body for add in command.then], session)
        case Extend():
            return encode.extend([(_receipt((item.id, item.number)), item.progress) for item in command.items])
        case Bye():
            return encode.bye(
                command.session.hex(), command.end, command.cause, [_receipt(pair) for pair in command.receipts]
            )
        case Untake():
            held = [_receipt(pair) for pair in command.receipts]
            return encode.untake(command.session.hex(), command.number, command.cause, held)
        case CancelJob():
            return encode.cancel_job(command.id.hex(), command.terminate)
        case Requeue():
            return encode.requeue(command.id.hex())
        case Purge():
            return encode.purge(command.id.hex())
        case Switch():
            return encode.switch(command.verb, command.queue)
        case PurgeQueue():
            return encode.purge_queue(command.queue, None if command.after is None else command.after.hex())
        case Show():
            return encode.show(command.id.hex())
        case Browse():
            after = None if command.after is None else command.after.hex()
            return encode.browse(command.queue, command.limit, after)
        case Wait():
            return encode.wait([id.hex() for id in command.ids], command.wait / 1000)
        case Report():
            return encode.report(command.what)
        case Bad():
            raise AssertionError(command)


def cut(data: bytes, points: list[int]) -> list[bytes]:
    """The pieces of `data` between the points."""
    edges = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def parse(pieces: list[bytes], max_body: int = 1000) -> list[Command]:
    """What a parser makes of the pieces."""
    parser = CommandParser(max_body=max_body)
    return [command for piece in pieces for command in parser.feed(piece)]


@given(texts)
def test_a_word_comes_back_as_it_was(text: str) -> None:
    word = quote(text)
    assert word.isascii()
    assert word.isprintable()
    assert " " not in word
    assert word
    assert unquote(word) == text


@given(commands)
def test_a_command_comes_back_as_it_was(command: Command) -> None:
    parser = CommandParser()
    assert parser.feed(line(command)) == [command]
    assert not parser.partial


broken = st.sampled_from(
    [
        b"\n",
        b"nonsense\n",
        b"add\n",
        b"add x y z q 3\nabc\n",
        b"add " + b"0" * 32 + b" q t " + b"0" * 32 + b" 1200\n" + b"x" * 1200 + b"\n",
        b"add " + b"0" * 32 + b" q t " + b"0" * 32 + b" 2 p=10\nab\n",
        b"done " + b"0" * 32 + b":0\n",
        b"done x then=1\nadd a b c d 0\n\n",
        b"done " + b"0" * 32 + b":1 then=2\nadd a b c d 0\n\nadd\n",
    ]
)


@settings(deadline=None)
@given(st.lists(commands.map(line) | broken, max_size=6), st.lists(st.integers(0, 10**6), max_size=12))
def test_every_chunking_gives_the_same_commands(stream: list[bytes], points: list[int]) -> None:
    data = b"".join(stream)
    assert parse(cut(data, points)) == parse([data])


@settings(deadline=None, max_examples=40)
@given(st.lists(commands.map(line) | broken, max_size=4))
def test_byte_by_byte_gives_the_same_commands(stream: list[bytes]) -> None:
    data = b"".join(stream)
    assert parse([data[i : i + 1] for i in range(len(data))]) == parse([data])


@settings(deadline=None, max_examples=60)
@given(st.lists(commands.map(line) | broken, min_size=1, max_size=3), st.binary(max_size=30))
def test_a_truncated_stream_gives_a_prefix(stream: list[bytes], tail: bytes) -> None:
    data = b"".join(stream) + tail
    whole = parse([data])
    for end in range(len(data)):
        part = parse([data[:end]])
        assert part == whole[: len(part)]


@given(st.lists(st.binary(max_size=300) | commands.map(line), max_size=8))
def test_random_bytes_never_raise_and_are_not_hoarded(pieces: list[bytes]) -> None:
    parser = CommandParser(max_body=100, max_line=200)
    for piece in pieces:
        parser.feed(piece)
        assert len(parser._held) <= 200 + len(piece)


@given(st.data())
def test_a_flipped_byte_never_raises(data: st.DataObject) -> None:
    packed = bytearray(line(data.draw(commands)))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    parse([bytes(packed), b"record\n"])


jobs = st.builds(
    Job,
    ids,
    st.integers(1, 2**62),
    millis,
    millis,
    st.integers(0, 99),
    st.integers(0, 99),
    names,
    names,
    ids,
    bodies,
    st.none() | names,
    st.integers(0, 9),
    st.none() | millis,
    st.none() | millis,
    st.integers(1, 99),
    st.integers(1, 99),
)


@given(st.lists(st.lists(jobs, max_size=3), max_size=3), st.lists(st.integers(0, 10**6), max_size=8))
def test_jobs_come_back_as_they_were_in_any_chunks(answers: list[list[Job]], points: list[int]) -> None:
    data = (
        b"".join(encode.jobs(answer) for answer in answers) + encode.json_answer(b'{"a":\n1}') + encode.err("x", "ä\n")
    )
    reader = replies.ReplyReader()
    found = [reply for piece in cut(data, points) for reply in reader.feed(piece)]
    assert [replies.parse_jobs(*reply) for reply in found[:-2]] == answers
    assert found[-2:] == [replies.Reply(b"json 8", b'{"a":\n1}\n'), replies.Reply(b"err x ??")]
    assert not reader.partial


@given(st.lists(jobs, min_size=1, max_size=2), st.data())
def test_a_torn_or_damaged_answer_is_a_protocol_error_or_jobs(answer: list[Job], data: st.DataObject) -> None:
    packed = bytearray(encode.jobs(answer))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        for reply in replies.ReplyReader().feed(bytes(packed)):
            replies.parse_jobs(*reply)
    except (ProtocolError, ServerError):
        pass


@given(
    st.lists(st.lists(jobs, max_size=2).map(encode.jobs) | st.sampled_from([b"ok done\n", b"err x y\n"]), max_size=2),
    st.integers(0, 3),
    st.data(),
)
def test_a_whole_answer_is_what_the_reader_makes_of_it(answers: list[bytes], cut_off: int, data: st.DataObject) -> None:
    packed = bytearray(b"".join(answers))
    if packed and data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    read = bytes(packed[: len(packed) - cut_off])
    reader = replies.ReplyReader()
    try:
        found = reader.feed(read)
    except ProtocolError:
        found = []
    try:
        one = replies.whole(read)
    except ProtocolError:
        one = None
    assert one == (found[0] if len(found) == 1 and not reader.partial else None)


state_lines = st.builds(
    StateLine,
    ids,
    st.sampled_from(["scheduled", "ready", "running", "done", "dead", "cancelled", "unknown", "expired"]),
    st.one_of(st.just(""), names),
    st.integers(0, 99),
    st.integers(0, 99),
    texts,
    st.sampled_from(["none", "result", "failure", "progress", "later"]),
    bodies,
)


@given(st.lists(st.lists(state_lines, max_size=3), max_size=3), st.lists(st.integers(0, 10**6), max_size=8))
def test_states_come_back_as_they_were_in_any_chunks(answers: list[list[StateLine]], points: list[int]) -> None:
    data = b"".join(encode.states(answer) for answer in answers) + b"ok done\n"
    reader = replies.ReplyReader()
    found = [reply for piece in cut(data, points) for reply in reader.feed(piece)]
    asked = [[line.id.hex() for line in answer] for answer in answers]
    assert [replies.parse_states(*reply, ids) for reply, ids in zip(found[:-1], asked, strict=True)] == answers
    assert found[-1] == replies.Reply(b"ok done")
    assert not reader.partial


@given(st.lists(state_lines, min_size=1, max_size=2), st.data())
def test_a_torn_or_damaged_answer_is_a_protocol_error_or_states(answer: list[StateLine], data: st.DataObject) -> None:
    packed = bytearray(encode.states(answer))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        for reply in replies.ReplyReader().feed(bytes(packed)):
            replies.parse_states(*reply, [line.id.hex() for line in answer])
    except (ProtocolError, ServerError):
        pass


@given(receipts, st.text("0123456789abcdefABCDEF: -", max_size=3))
@example((b"\x00" * 16, 10**18), "")
@example((b"\x00" * 16, 2**63 - 1), "")
@example((b"\x00" * 16, 1), " 4")
def test_a_done_that_is_read_in_one_step_is_what_it_is_read_as_word_by_word(
    receipt: tuple[bytes, int], more: str
) -> None:
    line = b"done %b%b" % (_receipt(receipt), more.encode())
    short, end = lines.plain_dones(b"x\n" + line + b"\n", 2)
    try:
        long = lines.read(line)
    except Refused:
        long = None
    assert short in ([], [long])
    assert end == 2 + len(short) * (len(line) + 1)
    assert short or more or receipt[1] >= 10**18
    assert len(line) < lines.LONGEST_PLAIN_DONE or not short
