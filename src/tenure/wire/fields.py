"""The words of a line: ids, numbers, receipts, times and names, and the errors for what is none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenure.wire.commands import Bad

MAX_SKIP = 64 * 1024 * 1024
"""Bytes of a refused body that are read over; above that the connection ends."""

T = TypeVar("T")
_TOP = 2**63 - 1


class Refused(Exception):
    """A line that cannot be carried out; `bad` is its answer."""

    def __init__(self, text: str, code: str = "bad-line", fatal: bool = False) -> None:
        super().__init__(text)
        self.bad = Bad(code, text, fatal)


def shown(word: str) -> str:
    return repr(word if len(word) <= 60 else word[:57] + "...")


def words_of(text: str, least: int, most: int | None = None) -> list[str]:
    """Split a line into its words; raises Refused when they are too few or too many."""
    words = text.split(" ")
    if len(words) < least:
        raise Refused(f"{words[0]}: {len(words) - 1} words where {least - 1} were to come")
    if most is not None and len(words) > most:
        raise Refused(f"{words[0]}: {shown(words[most])} is one word too many")
    return words


def id_of(word: str, what: str = "an id") -> bytes:
    """Return the 16 bytes that 32 lower-case hexadecimal digits spell."""
    try:
        raw = bytes.fromhex(word)
    except ValueError:
        raw = b""
    if len(raw) != 16 or raw.hex() != word:
        raise Refused(f"{shown(word)} is not {what}: 32 lower-case hexadecimal digits")
    return raw


def number_of(word: str, what: str, least: int = 0, most: int = _TOP) -> int:
    """Return the number that plain decimal digits spell."""
    if not word.isdigit() or len(word) > 19:
        raise Refused(f"{what} {shown(word)} is not a number in decimal digits")
    number = int(word)
    if not least <= number <= most:
        raise Refused(f"{what} {number} is not between {least} and {most}")
    return number


def length_of(word: str) -> int:
    """Return a body's length; what is none, or too much to read over, is fatal."""
    if not word.isdigit() or len(word) > 19:
        raise Refused(
            f"{shown(word)} is not a body's length, so where the next line begins is not known", "framing", True
        )
    length = int(word)
    if length > MAX_SKIP:
        raise Refused(f"a body of {length} bytes is too much even to read over", "framing", True)
    return length


def receipt_of(word: str) -> tuple[bytes, int]:
    """Return the job id and the hand-out number of `ID:N`."""
    if word[32:33] != ":":
        raise Refused(f"{shown(word)} is not a receipt: a job id, a colon, a hand-out number")
    return id_of(word[:32], "a receipt's id"), number_of(word[33:], "a hand-out number", 1)


def moment_of(word: str, what: str) -> tuple[int, bool]:
    """Return (milliseconds, relative?) of `+MS` or `MS`."""
    relative = word.startswith("+")
    return number_of(word[1:] if relative else word, what), relative


def name_of(read_name: Callable[[str], T], word: str) -> T:
    """Read a name or a text; what it is not becomes the answer's text."""
    try:
        return read_name(word)
    except ValueError as error:
        raise Refused(str(error)) from None
