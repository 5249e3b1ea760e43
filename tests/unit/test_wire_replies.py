"""The client's reading of single answers, right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.errors import KeyConflict, MessageTooLarge, NoSpace, ProtocolError, ServerError
from tenure.message import Settlement, When
from tenure.wire import encode, replies
from tenure.wire.commands import MAX_LINE
from tests.unit.scripted import message

ID = "0" * 31 + "1"


def test_the_welcome_names_the_limits() -> None:
    welcome = replies.parse_welcome(
        b"ok tenure/1 version=0.1.0 server=ab start=cd time=5 floor=600000 vt=30000 body=1 line=2 take=3 batch=4 "
        b"durability=full new=thing"
    )
    assert (welcome.version, welcome.time, welcome.body, welcome.batch, welcome.durability) == (
        "0.1.0",
        5,
        1,
        4,
        "full",
    )
    for line in (b"ok tenure/2 x", b"ok tenure/1 version=1", b"ok", b""):
        with pytest.raises(ProtocolError):
            replies.parse_welcome(line)
    with pytest.raises(ServerError, match="version: no"):
        replies.parse_welcome(b"err version no")


def test_answers_to_an_add() -> None:
    first = "0" * 31 + "2"
    assert replies.parse_added(b"ok %b created" % ID.encode(), ID) == (ID, True)
    assert replies.parse_added(b"ok %b exists" % first.encode(), ID) == (first, False)
    with pytest.raises(KeyConflict, match=first):
        replies.parse_added(b"err key-conflict %b held by it" % first.encode(), ID, "k")
    with pytest.raises(MessageTooLarge, match="9 bytes, the broker takes 5"):
        replies.parse_added(b"err too-large what", ID, "k", 9, 5)
    with pytest.raises(NoSpace, match=f"job {ID} was not added: 1.0 MiB are free") as refused:
        replies.parse_added(b"err no-space 1.0 MiB are free", ID)
    assert refused.value.id == ID
    with pytest.raises(ServerError, match="storage: disk full"):
        replies.parse_added(b"err storage disk full", ID)


@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (lambda line: replies.parse_added(line, ID), b"ok x created"),
        (lambda line: replies.parse_added(line, ID), b"ok %b made" % ID.encode()),
        (lambda line: replies.parse_added(line, ID), b"\xff"),
        (replies.parse_settled, b"ok"),
        (replies.parse_settled, b"ok well"),
        (replies.parse_settled, b"ok done what"),
        (replies.parse_settled, b"refused"),
        (replies.parse_settled, b"refused what"),
        (replies.parse_settled, b"gone away"),
        (replies.parse_settled, b""),
        (lambda line: replies.parse_extended(line, 2), b"ok 1"),
        (lambda line: replies.parse_extended(line, 1), b"ok x"),
        (lambda line: replies.parse_extended(line, 1), b"ok 1/what"),
        (lambda line: replies.parse_extended(line, 1), b"ok 1/"),
        (lambda line: replies.parse_bye(line, 1), b"ok"),
        (lambda line: replies.parse_bye(line, 1), b"ok what"),
        (lambda line: replies.parse_bye(line, 1), b"ok done/early"),
        (lambda line: replies.parse_jobs(line, b""), b"jobs 1 0"),
        (lambda line: replies.parse_jobs(line, b"x\n"), b"jobs 0 2"),
        (lambda line: replies.parse_jobs(line, b""), b"jobs 1001 0"),
        (lambda line: replies.parse_jobs(line, b""), b"ok"),
    ],
)
def test_what_is_no_answer_to_the_line_is_a_protocol_error(parse: Callable[[bytes], Any], line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(line)


def test_a_settlements_answer_tells_what_became_of_its_adds() -> None:
    assert replies.parse_settled(b"ok done created exists conflict") == ("ok", "done", (True, False, False))


@pytest.mark.parametrize(
    "data", [b"x" * (MAX_LINE + 1), b"jobs 1 99999999999999\n", b"jobs 1\n", b"json x\n", b"just\n"]
)
def test_the_reader_keeps_nothing_without_bounds(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        replies.ReplyReader().feed(data)
    reader = replies.ReplyReader()
    with pytest.raises(ProtocolError):
        list(map(reader.feed, (data[at : at + 1] for at in range(len(data)))))


def test_an_error_is_one_line_of_printable_ascii_whatever_its_text_is() -> None:
    assert encode.err("bad-line", "a\nb\x00ü" + "x" * 5000) == b"err bad-line a?b??" + b"x" * 995 + b"\n"


def test_seconds_become_whole_milliseconds() -> None:
    assert encode.take(1, 2, 0.0006, 0.0, ["q"]) == b"take 1 2 1 1 q\n"
    assert encode.settle(Settlement(b"r", "release", delay=1.2344, reason="")) == b"release r 1234 -\n"
    assert encode.milliseconds(-3) == 0


def test_an_add_carries_only_what_differs_from_the_defaults() -> None:
    plain = message(1)
    assert encode.add(plain, b"xy").split(b"\n")[0].endswith(b" 2")
    timed = type(plain)(
        plain.id,
        "t",
        b"",
        0,
        plain.fingerprint,
        run_at=When(1.5, relative=True),
        expires=When(2.0),
        visibility_timeout=9,
    )
    assert encode.add(timed, b"").split(b"\n")[0].endswith(b" 0 at=+1500 x=2000 vt=9000")


def test_a_reason_is_cut_and_a_lone_surrogate_in_it_replaced() -> None:
    line = encode.settle(Settlement(b"r", "cancel", reason="\ud800" + "ü" * 60_000))
    assert line.startswith(b"cancel r ?%C3%BC")
    assert len(line) < 10_000
