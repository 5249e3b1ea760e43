"""Faults as values: a verb of the proxy and what it is given, as text and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

from tenure.faults.policy import Direction
from tenure.faults.proxy import Proxy

NEW = "new"
"""The word that makes a stall hold new connections as well."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong; as text a verb and its words, such as `stall 0.4 answer new`.

    `verb` is one of `VERBS`, or a name of your own.  `numbers` are what its usage says, `direction` None stands for
    both, and `new` tells whether new connections are struck too.
    """

    verb: str
    numbers: tuple[float, ...] = ()
    direction: Direction | None = None
    new: bool = False

    def __str__(self) -> str:
        words = [self.verb, *(f"{number:.9g}" for number in self.numbers)]
        words += [self.direction.value] if self.direction else []
        return " ".join(words + [NEW] * self.new)

    @property
    def count(self) -> int:
        """The first number as a count, 1 where there is none."""
        return int(self.numbers[0]) if self.numbers else 1

    def seconds(self, place: int) -> float | None:
        """Return the number at `place`, None where there are not so many."""
        return self.numbers[place] if place < len(self.numbers) else None


@dataclass(frozen=True, slots=True)
class Number:
    """A number behind a verb: its word in the usage, and what it may be: whole from `least` on, or (None) above 0."""

    word: str
    least: int | None = None

    def takes(self, value: float) -> bool:
        """Tell whether it may be that."""
        return 0 < value < inf if self.least is None else value >= self.least and value % 1 == 0

    @property
    def limit(self) -> str:
        """Return what it has to be."""
        return "above 0" if self.least is None else f"a whole number of {self.least} or more"


N, BYTES, RATE = Number("N", 1), Number("N", 0), Number("RATE", 1)
EACH, SECONDS = Number("EACH"), Number("SECONDS")


@dataclass(frozen=True, slots=True)
class Verb:
    """How a verb is written, what it does, and how a proxy is told; at least `least` of its `numbers` belong to it.

    `direction` tells whether one may, or must, be named, and `new` whether that word may stand there.
    """

    usage: str
    meaning: str
    act: Callable[[Proxy, Fault], object]
    numbers: tuple[Number, ...] = ()
    least: int = 0
    direction: Literal["no", "may", "must"] = "no"
    new: bool = False

    def fits(self, fault: Fault) -> bool:
        """Tell whether `fault` has all that belongs to the verb, and nothing else."""
        directions = {"no": [False], "may": [False, True], "must": [True]}[self.direction]
        counted = self.least <= len(fault.numbers) <= len(self.numbers)
        return counted and (fault.direction is not None) in directions and (self.new or not fault.new)


def _stall(proxy: Proxy, fault: Fault) -> None:
    proxy.stall(fault.seconds(0), new_connections=not fault.new, direction=fault.direction)


def _cut_after(proxy: Proxy, fault: Fault) -> None:
    assert fault.direction is not None  # `perform` has checked it
    proxy.cut_after(fault.count, fault.direction)


VERBS: Mapping[str, Verb] = {
    "pass": Verb(
        "pass",
        "back to normal: end every stall, let go what is held back",
        lambda proxy, fault: proxy.pass_through(),
    ),
    "cut": Verb(
        "cut",
        "reset every open connection",
        lambda proxy, fault: proxy.cut(),
    ),
    "cut-on-accept": Verb(
        "cut-on-accept [N]",
        "reset the next N connections (1) right after they open",
        lambda proxy, fault: proxy.cut_on_accept(fault.count),
        numbers=(N,),
    ),
    "cut-after": Verb(
        "cut-after N request|answer",
        "reset the first connection on which N more bytes went that way",
        _cut_after,
        numbers=(BYTES,),
        least=1,
        direction="must",
    ),
    "stall": Verb(
        "stall [SECONDS] [request|answer] [new]",
        "hold all bytes back for SECONDS, or until `pass`; new: of new connections too",
        _stall,
        numbers=(SECONDS,),
        direction="may",
        new=True,
    ),
    "drop": Verb(
        "drop [N]",
        "swallow the answers to the next N requests (1) and reset their connections",
        lambda proxy, fault: proxy.drop_answer(fault.count),
        numbers=(N,),
    ),
    "late": Verb(
        "late [SECONDS]",
        "deliver the next request SECONDS late, or after its repeat was answered",
        lambda proxy, fault: proxy.late_request(fault.seconds(0)),
        numbers=(SECONDS,),
    ),
    "delay": Verb(
        "delay EACH [SECONDS] [request|answer]",
        "let all bytes wait EACH seconds; for SECONDS, or until `pass`",
        lambda proxy, fault: proxy.delay(fault.numbers[0], fault.seconds(1), fault.direction),
        numbers=(EACH, SECONDS),
        least=1,
        direction="may",
    ),
    "throttle": Verb(
        "throttle RATE [SECONDS] [request|answer]",
        "let RATE bytes a second through; for SECONDS, or until `pass`",
        lambda proxy, fault: proxy.throttle(fault.count, fault.seconds(1), fault.direction),
        numbers=(RATE, SECONDS),
        least=1,
        direction="may",
    ),
}
"""What a proxy can be told to do, by name."""


def perform(proxy: Proxy, fault: Fault) -> None:
    """Do to `proxy` what `fault` says; raises ValueError, naming the right form, where it is none of `VERBS`."""
    verb_of(fault).act(proxy, fault)


def verb_of(fault: Fault) -> Verb:
    """Return the verb of `VERBS` that a fault is; raises ValueError, naming the right form, where it is none."""
    verb = VERBS.get(fault.verb)
    if verb is None:
        raise ValueError(f"{fault.verb!r} is no verb; there are {', '.join(VERBS)}")
    if not verb.fits(fault):
        raise ValueError(f"{str(fault)!r} does not fit; write it as: {verb.usage}")
    for number, value in zip(verb.numbers, fault.numbers, strict=False):
        if not number.takes(value):
            raise ValueError(f"{str(fault)!r} is not possible: {number.word} has to be {number.limit} (`pass` ends it)")
    return verb


def parse_fault(text: str) -> Fault:
    """Read a fault's text; raises ValueError where a word is no number of 0 or more, no direction and not `new`."""
    verb, *words = text.split() or [""]
    ways = {way.value: way for way in Direction}
    directions = [ways[word] for word in words if word in ways]
    numbers = tuple(_number(word, text) for word in words if word not in ways and word != NEW)
    if len(directions) > 1 or words.count(NEW) > 1:
        raise ValueError(f"{text!r} says a thing twice; name one direction, or none for both")
    return Fault(verb, numbers, directions[0] if directions else None, NEW in words)


def _number(word: str, text: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise ValueError(f"{word!r} in {text!r} is no number from 0 to 1e9, and none of request, answer, new")
    return number
