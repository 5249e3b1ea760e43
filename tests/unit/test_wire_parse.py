"""What the parser answers to lines that are wrong, and where it goes on."""

from __future__ import annotations

import pytest

from tenure.wire.commands import MAX_BATCH_BYTES, Add, Bad, Command, Extend, Hello, Report, Settle, Take
from tenure.wire.parse import CommandParser

ID = "0" * 31 + "1"
OTHER = "0" * 31 + "2"
FP = "ab" * 16
NEXT = "record\n"


def parse(text: str, **limits: int) -> list[Command]:
    return CommandParser(**limits).feed(text.encode("latin-1"))


def bad(found: list[Command]) -> Bad:
    (first, *rest) = found
    assert isinstance(first, Bad), found
    assert rest == ([] if first.fatal else [Report("record")])
    return first


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ("bogus", "unknown-verb", "bogus"),
        ("ADD", "unknown-verb", "ADD"),
        (" record", "unknown-verb", "''"),
        ("record now", "bad-line", "now"),
        ("add", "bad-line", "words"),
        ("take 0 1 0 1 q", "bad-line", "take number"),
        ("take 1 0 0 1 q", "bad-line", "limit"),
        ("take 1 1001 0 1 q", "limit", "1000"),
        ("take 1 1 0 0 q", "bad-line", "vt"),
        ("take 1 1 -1 1 q", "bad-line", "wait"),
        ("take 1 1 0 1", "bad-line", "words"),
        ("take 1 1 0 1 q ", "bad-line", "percent"),
        ("take 1 1 0 1 q%0a", "bad-line", "control"),
        ("take 1 1 0 1 q%f", "bad-line", "percent"),
        ("take 1 1 0 1 %ff", "bad-line", "percent"),
        (f"take 1 1 0 1 {'q' * 513}", "bad-line", "513"),
        ("take 1 1 0 1 q\xe4", "bad-line", "ASCII"),
        ("take 1 1 0 1 q\t", "bad-line", "percent"),
        (f"take {2**63} 1 0 1 q", "bad-line", "between"),
        (f"take {'1' * 5000} 1 0 1 q", "bad-line", "..."),
        ("done x", "bad-line", "receipt"),
        (f"done {ID}", "bad-line", "receipt"),
        (f"done {ID}:0", "bad-line", "hand-out number"),
        (f"done {ID.upper()[:-1]}A:1", "bad-line", "lower-case"),
        (f"done {ID}:1 as=me", "bad-line", "session"),
        (f"done {ID}:1 what=1", "bad-line", "what=1"),
        (f"done {ID}:1 as={ID} as={ID}", "bad-line", "twice"),
        (f"release {ID}:1 0", "bad-line", "words"),
        (f"release {ID}:1 x why", "bad-line", "delay"),
        (f"release {ID}:1 0 why then=0", "bad-line", "then"),
        (f"cancel {ID}:1", "bad-line", "words"),
        ("extend", "bad-line", "words"),
        ("extend x", "bad-line", "receipt"),
        (f"bye {ID} gone -", "bad-line", "left or lost"),
        (f"bye {ID} left", "bad-line", "words"),
        (f"cancel-job {ID} now", "bad-line", "terminate"),
        ("requeue x", "bad-line", "id"),
        ("browse alive - 1 -", "bad-line", "alive"),
        (f"hello 1 {ID} boss -", "bad-line", "boss"),
        (f"hello 1 {ID} worker", "bad-line", "words"),
        ("hello 2 whatever", "version", "not 2"),
        # the body's length is known, so the body is read over
        (f"add x q t {FP} 3\nabc", "bad-line", "32 lower-case"),
        (f"add {ID} q t {FP} 3 z=1\nabc", "bad-line", "z=1"),
        (f"add {ID} q t {FP} 3 p\nabc", "bad-line", "no option"),
        (f"add {ID} q t {FP} 3 p=10\nabc", "bad-line", "priority"),
        (f"add {ID} q t {FP} 3 p=1 p=1\nabc", "bad-line", "twice"),
        (f"add {ID} q t {FP} 3 ma=0\nabc", "bad-line", "ma"),
        (f"add {ID} q t {FP} 3 ml=0\nabc", "bad-line", "ml"),
        (f"add {ID} q t {FP} 3 at=++1\nabc", "bad-line", "at"),
        (f"add {ID} q t {FP} 3 x=soon\nabc", "bad-line", "x"),
        (f"add {ID} q t {FP} 3 k=-\nabc", "bad-line", "key"),
        (f"add {ID} - t {FP} 3\nabc", "bad-line", "queue"),
        (f"add {ID} q t {FP} 11\nabcdefghijk", "too-large", "limit is 10"),
        ("done x 3\nabc", "bad-line", "receipt"),
        (f"retry {ID}:1 x why 3\nabc", "bad-line", "delay"),
        (f"extend x+3 {ID}:1+2\nabcde", "bad-line", "receipt"),
        (f"extend {ID}:1+6 {ID}:1+5\nabcdefghijk", "too-large", "11"),
    ],
)
def test_a_wrong_line_names_the_word_and_the_next_line_is_read(line: str, code: str, word: str) -> None:
    found = bad(parse(f"{line}\n{NEXT}", max_body=10))
    assert (found.code, found.fatal) == (code, False)
    assert word in found.text
    assert len(found.text) < 300


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"add {ID} q t {FP} x\n{NEXT}", "framing"),
        (f"add {ID} q t {FP} -1\n{NEXT}", "framing"),
        (f"add {ID} q t {FP} {64 * 1024 * 1024 + 1}\n{NEXT}", "framing"),
        (f"add {ID} q t {FP} {'9' * 30}\n{NEXT}", "framing"),
        (f"add {ID} q t {FP} 3\nabcd\n{NEXT}", "framing"),
        (f"add x q t {FP} 3\nabcd\n{NEXT}", "framing"),
        (f"done {ID}:1 what\n{NEXT}", "framing"),
        (f"done {ID}:1 then=x\n{NEXT}", "framing"),
        (f"done {ID}:1 then=1 then=1\n{NEXT}", "framing"),
        (f"done {ID}:1 then=1001\n{NEXT}", "limit"),
        (f"done {ID}:1 then=1\n{NEXT}", "framing"),
        (f"extend {ID}:1+x\n{NEXT}", "framing"),
        ("x" * 65_536 + f"\n{NEXT}", "line-too-long"),
        ("x" * 65_536, "line-too-long"),
    ],
)
def test_where_the_next_line_begins_is_not_known_nothing_more_is_read(text: str, code: str) -> None:
    parser = CommandParser()
    found = bad(parser.feed(text.encode()))
    assert (found.code, found.fatal) == (code, True)
    assert parser.failed
    assert parser.feed(b"record\n") == []


def test_the_longest_line_is_read() -> None:
    line = f"take 1 1 0 1 {'q' * 500}"
    line += " q" * ((65_535 - len(line)) // 2)
    assert isinstance(parse(line + "\n")[0], Take)


def test_empty_lines_and_spellings_by_hand_are_read() -> None:
    text = f"\n\nhello 1 {ID} admin -\n\nbrowse dead - 1 -\nadd {ID} a%20b %2D {FP} 0\n\n"
    hello, _, add = parse(text)
    assert isinstance(hello, Hello)
    assert hello.name == ""
    assert isinstance(add, Add)
    assert (add.queue, add.task, add.body) == ("a b", "-", b"")


def settled(text: str, **limits: int) -> list[Command]:
    """The commands of a text, which has to leave the parser between lines."""
    parser = CommandParser(**limits)
    found = parser.feed(text.encode())
    assert not parser.partial
    return found


def test_a_settlement_is_handed_out_with_its_adds_and_not_before() -> None:
    parser = CommandParser()
    assert parser.feed(f"done {ID}:1 3 then=2\nabc\n".encode()) == []
    assert parser.partial
    assert parser.feed(f"add {ID} q t {FP} 1\na\nadd {OTHER} q t {FP} 1\nb".encode()) == []
    (found,) = parser.feed(b"\n")
    assert isinstance(found, Settle)
    assert found.body == b"abc"
    assert [add.body for add in found.then] == [b"a", b"b"]
    assert not parser.partial


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"done x then=1\nadd {ID} q t {FP} 1\na\n", "bad-line"),
        (f"done {ID}:1 20 then=1\n{'x' * 20}\nadd {ID} q t {FP} 1\na\n", "too-large"),
        (f"done {ID}:1 what=1 then=1\nadd {ID} q t {FP} 1\na\n", "bad-line"),
        (f"done {ID}:1 then=2\nadd {ID} q t {FP} 20\n{'x' * 20}\nadd {ID} q t {FP} 1\na\n", "too-large"),
        (f"done {ID}:1 then=2\nadd {ID} q t {FP} 1\na\nadd x q t {FP} 1\na\n", "bad-line"),
        (f"done {ID}:1 then=2\nadd x\nadd {ID} q t {FP} 1\na\n", "bad-line"),
        (f"release {ID}:1 0 why then=1\nadd {ID} q t {FP} 1\na\n", "bad-line"),
    ],
)
def test_a_settlement_with_anything_bad_is_one_bad_line_and_adds_nothing(text: str, code: str) -> None:
    assert bad(settled(text + NEXT, max_body=10)).code == code


def test_the_adds_of_a_settlement_are_bounded_together() -> None:
    size = MAX_BATCH_BYTES // 4
    add = f"add {ID} q t {FP} {size}\n{'x' * size}\n"
    whole = settled(f"done {ID}:1 then=4\n{add * 4}", max_body=size)
    assert isinstance(whole[0], Settle)
    assert bad(settled(f"done {ID}:1 then=5\n{add * 5}{NEXT}", max_body=size)).code == "too-large"


def test_a_body_above_the_limit_is_read_over_and_not_kept() -> None:
    parser = CommandParser(max_body=10)
    assert parser.feed(f"add {ID} q t {FP} 1000000\n".encode()) == []
    for _ in range(10):
        assert parser.feed(b"x" * 100_000) == []
        assert len(parser._held) == 0
    assert parser.partial
    assert bad(parser.feed(b"\nrecord\n")).code == "too-large"


def test_progress_goes_to_its_receipts() -> None:
    (extend,) = parse(f"extend {ID}:1+3 {OTHER}:2 {ID}:3+0 {ID}:4+1\nabcd\n")
    assert isinstance(extend, Extend)
    assert [item.progress for item in extend.items] == [b"abc", None, b"", b"d"]


PLAIN = f"add {'0a' * 16} q%20w shop.charge {'f' * 32} 4\nbody\n".encode()


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        PLAIN[:-1] + b"x",  # another byte where the body's end was to come
        PLAIN + b"\n",
        PLAIN * 2,
        PLAIN.replace(b"body", b"bo\ny"),
        PLAIN.replace(b" 4\n", b" 04\n"),
        PLAIN.replace(b" 4\n", b" 4 p=9\n"),
        PLAIN.replace(b" 4\nbody", b" 0\n"),
        PLAIN.replace(b" 4\nbody", b" 99999999999999999999\n"),
        PLAIN.replace(b" 4\nbody", b" 65\n" + b"b" * 65),  # above the limits below
        PLAIN.replace(b"q%20w", b"q" * 200),
        PLAIN.replace(b"q%20w", b"q%0Aw"),  # names that cannot be
        PLAIN.replace(b"shop.charge", b"%"),
        PLAIN.replace(b"q%20w", b"-"),
        PLAIN.replace(b"0a0a", b"0A0A"),
        PLAIN.replace(b"add", b"ADD"),
    ],
)
def test_an_add_that_comes_in_one_piece_is_read_like_one_in_many(line: bytes) -> None:
    whole, pieces = CommandParser(64, 256), CommandParser(64, 256)
    assert whole.feed(line) == [command for n in range(len(line)) for command in pieces.feed(line[n : n + 1])]
    assert whole.partial == pieces.partial
    assert whole.failed == pieces.failed


def test_a_line_at_its_limit_is_read_in_one_piece_as_in_many() -> None:
    for limit in range(len(PLAIN) - 12, len(PLAIN)):
        whole, pieces = CommandParser(64, limit), CommandParser(64, limit)
        assert whole.feed(PLAIN) == [command for n in range(len(PLAIN)) for command in pieces.feed(PLAIN[n : n + 1])]


def test_the_adds_of_a_settlement_are_its_own_also_when_each_comes_in_one_piece() -> None:
    parser = CommandParser()
    assert parser.feed(f"done {'0a' * 16}:1 then=1\n".encode()) == []
    (settle,) = parser.feed(PLAIN)
    assert isinstance(settle, Settle)
    assert [add.task for add in settle.then] == ["shop.charge"]
