"""Lines that are nearly right: made from a seed, for a server that must not stumble over any of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.stage.raw import FP

IDS = [f"{number:032x}" for number in range(1, 9)]
"""So few that the lines meet each other's jobs."""
SESSIONS = [f"{number:032x}" for number in range(100, 104)]
ODD_WORDS = (
    b"", b"-", b"-1", b"0", b"+", b"+5", b"1e3", b"%", b"%zz", b"%00", b"%FF", b"%2D", b"=", b"k=", b"then=3", b"as=x",
    b"99999999999999999999", b"9223372036854775807", b"18446744073709551616",
    b"\x00", b"\xff\xfe", b"\t", b"\r", b"q" * 600,
)  # fmt: skip


def lines(seed: int, count: int) -> bytes:
    """Return so many lines for one connection, behind a hello."""
    random = Random(seed)
    hello = f"hello 1 {random.choice(SESSIONS)} worker w\n".encode()
    return hello + b"".join(_bent(random, random.choice(_LINES)(random)) for _ in range(count))


def _id(random: Random) -> str:
    return random.choice(IDS)


def _receipt(random: Random) -> str:
    return f"{_id(random)}:{random.randint(1, 3)}"


def _body(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 5, 200)))


def _add(random: Random) -> bytes:
    body = _body(random)
    options = random.sample(("p=3", "k=key", "at=+5", "x=+60000", "vt=1000", "ma=2", "ml=1"), random.randint(0, 3))
    words = ["add", _id(random), "almost", "t", FP, str(len(body)), *options]
    return " ".join(words).encode() + b"\n" + body + b"\n"


def _take(random: Random) -> bytes:
    return f"take {random.randint(1, 50)} {random.randint(1, 5)} {random.choice((0, 10))} 200 almost\n".encode()


def _settle(random: Random) -> bytes:
    body = _body(random)
    adds = [_add(random) for _ in range(random.randint(0, 2))]
    then = f" then={len(adds)}" if adds else ""
    head = random.choice((f"done {_receipt(random)}", f"retry {_receipt(random)} 5 because"))
    return f"{head} {len(body)}{then}\n".encode() + body + b"\n" + b"".join(adds)


def _plain(random: Random) -> bytes:
    return random.choice(
        (
            f"release {_receipt(random)} 0 later\n",
            f"cancel {_receipt(random)} no\n",
            f"dead {_receipt(random)} no 0\n\n",
            f"extend {_receipt(random)} {_receipt(random)}+0\n\n",
            f"bye {random.choice(SESSIONS)} lost gone {_receipt(random)}\n",
            f"wait 5 {_id(random)} {_id(random)}\n",
            f"cancel-job {_id(random)}\n",
            f"requeue {_id(random)}\n",
            f"purge {_id(random)}\n",
            f"show {_id(random)}\n",
            "browse dead - 10 -\n",
            "record\n",
            "queues\n",
            "verify\n",
        )
    ).encode()


_LINES: tuple[Callable[[Random], bytes], ...] = (_add, _add, _take, _settle, _plain)


def _bent(random: Random, line: bytes) -> bytes:
    """Leave a line as it is, or do something to it."""
    return random.choice((_same, _same, _same, _word, _words, _length, _byte, _cut))(random, line)


def _same(random: Random, line: bytes) -> bytes:
    return line


def _word(random: Random, line: bytes) -> bytes:
    head, end, rest = line.partition(b"\n")
    words = head.split(b" ")
    words[random.randrange(len(words))] = random.choice(ODD_WORDS)
    return b" ".join(words) + end + rest


def _words(random: Random, line: bytes) -> bytes:
    head, end, rest = line.partition(b"\n")
    words = random.choices(head.split(b" "), k=random.randint(1, 12))
    return b" ".join(words) + end + rest


def _length(random: Random, line: bytes) -> bytes:
    """State another length than that of the body."""
    head, end, rest = line.partition(b"\n")
    words = [
        b"%d" % max(0, int(word) + random.choice((-1, 1, 100))) if word.isdigit() else word for word in head.split(b" ")
    ]
    return b" ".join(words) + end + rest


def _byte(random: Random, line: bytes) -> bytes:
    at = random.randrange(len(line))
    return line[:at] + random.randbytes(random.randint(0, 2)) + line[at + 1 :]


def _cut(random: Random, line: bytes) -> bytes:
    return line[: random.randrange(len(line))]
