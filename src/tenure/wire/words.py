"""Words of a line: text to percent-encoded ASCII and back.

A word is percent-encoded UTF-8; the empty word is spelled `-`, and a word that is just `-` is `%2D`.  Reading is
strict: a bad escape, a character that had to be escaped, or bytes that are no UTF-8 raise ValueError.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tenure.message import check_name

_plain = re.compile(r"[!-$&-~]+").fullmatch
_spelled = re.compile(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})+").fullmatch
_escape = re.compile(rb"%([0-9A-Fa-f]{2})")
_must_escape = re.compile(rb"[^!-$&-~]")


def quote(text: str) -> str:
    """Spell `text` as one word; raises UnicodeEncodeError (a ValueError) for a lone surrogate."""
    if _plain(text) and text != "-":
        return text
    if text == "":
        return "-"
    if text == "-":
        return "%2D"
    return _must_escape.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode("ascii")


def unquote(word: str) -> str:
    """Return the text that `word` spells; raises ValueError when it is not a word."""
    if _plain(word):
        return "" if word == "-" else word
    if not _spelled(word):
        raise ValueError(f"{word[:60]!r} is not percent-encoded UTF-8")
    raw = _escape.sub(lambda found: bytes((int(found[1], 16),)), word.encode("ascii"))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{word[:60]!r} is not percent-encoded UTF-8") from None


# Queues and tasks are few and come with every line; keys are many and come once, so they are not kept here.
quote_name = lru_cache(maxsize=1024)(quote)


@lru_cache(maxsize=1024)
def queue_name(word: str) -> str:
    """Return the queue that `word` spells; raises ValueError when it cannot name one."""
    return check_name("queue", unquote(word))


@lru_cache(maxsize=1024)
def task_name(word: str) -> str:
    """Return the task that `word` spells; raises ValueError when it cannot name one."""
    return check_name("task", unquote(word))


@lru_cache(maxsize=1024)
def queue_of(word: bytes) -> str:
    """Do what `queue_name` does with a word as it stands in a line."""
    return queue_name(word.decode("ascii"))


@lru_cache(maxsize=1024)
def task_of(word: bytes) -> str:
    """Do what `task_name` does with a word as it stands in a line."""
    return task_name(word.decode("ascii"))


def key_name(word: str) -> str:
    """Return the idempotency key that `word` spells; raises ValueError when it cannot be one."""
    return check_name("key", unquote(word))


@lru_cache(maxsize=256)
def queue_names(words: str) -> tuple[str, ...]:
    """Return the queues that `words`, separated by one space, spell; raises ValueError."""
    return tuple([queue_name(word) for word in words.split(" ")])
