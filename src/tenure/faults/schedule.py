"""Random weather: a seeded schedule of faults, and what carries it out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tenure.faults import checks
from tenure.faults.policy import Direction
from tenure.faults.proxy import Proxy
from tenure.faults.verbs import Fault, perform

Card = Callable[[Random], Fault]
"""Makes a fault of one kind; all that is random in it comes from what it is given."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A fault, and the seconds that pass before it."""

    wait: float
    fault: Fault

    def __str__(self) -> str:
        return f"+{self.wait:.3f} {self.fault}"


def _either(roll: Random) -> Direction:
    return roll.choice(list(Direction))


def _seconds(roll: Random, least: float, most: float) -> float:
    return round(roll.uniform(least, most), 3)


def _any(roll: Random) -> Direction | None:
    ways: list[Direction | None] = [None, *Direction]
    return roll.choice(ways)


def _stall_some(roll: Random) -> Fault:
    return Fault("stall", (_seconds(roll, 0.1, 1.5),), _any(roll), new=roll.random() < 0.25)


DECK: tuple[Card, ...] = (
    lambda roll: Fault("pass"),
    lambda roll: Fault("cut"),
    lambda roll: Fault("cut-on-accept", (roll.randint(1, 5),)),
    lambda roll: Fault("cut-after", (roll.randint(0, 500),), _either(roll)),
    lambda roll: Fault("stall"),
    _stall_some,
    lambda roll: Fault("drop", (roll.randint(1, 3),)),
    lambda roll: Fault("late", (_seconds(roll, 0.1, 2.5),)),
    lambda roll: Fault("late"),
    lambda roll: Fault(
        "delay", (_seconds(roll, 0.005, 0.1), _seconds(roll, 0.1, 1.0)), roll.choice([None, *Direction])
    ),
    lambda roll: Fault("throttle", (roll.randint(500, 50_000), _seconds(roll, 0.1, 1.0)), _any(roll)),
)
"""All that a proxy can do, each kind once; stalls and late requests twice, with a time and without."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A random order of faults that is the same for the same seed; iterate over it for its turns.

    It lasts `seconds` (None: for ever), with a fault every `least` to `most` seconds, each drawn from `deck`: functions
    that make a `Fault` from a `random.Random`.  `tenure.faults.schedule.DECK` is all that a proxy can do; add cards of
    your own for faults that `run_schedule` is to hand to you.  Raises ValueError for times that cannot be.
    """

    seed: int
    seconds: float | None = None
    deck: Sequence[Card] = DECK
    least: float = 0.05
    most: float = 0.3

    def __post_init__(self) -> None:
        checks.seconds_or_none("seconds", self.seconds)
        if checks.seconds_or_zero("least", self.least) > checks.seconds("most", self.most):
            raise ValueError(f"least={self.least!r} is above most={self.most!r}: give the shorter time as least")

    def __iter__(self) -> Iterator[Turn]:
        roll = Random(self.seed)  # noqa: S311  it is to be repeatable
        passed = 0.0
        while True:
            wait = _seconds(roll, self.least, self.most)
            passed += wait
            if self.seconds is not None and passed > self.seconds:
                return
            yield Turn(wait, roll.choice(self.deck)(roll))


def run_schedule(
    turns: Iterable[Turn],
    proxy: Proxy,
    own: Mapping[str, Callable[..., object]] | None = None,
    wait: Callable[[float], object] = time.sleep,
    told: Callable[[Turn], object] = lambda turn: None,
) -> Counter[str]:
    """Carry out turn by turn on `proxy`, then let it pass everything; returns how often each verb was done.

    A fault whose verb is in `own` goes there, with its numbers as arguments.  `wait` is called with the seconds
    before each fault; where it returns something true, as `threading.Event.wait` does, that is the end.  `told` is
    called with each turn once it is done.
    """
    done: Counter[str] = Counter()
    try:
        for turn in turns:
            if wait(turn.wait):
                break
            if own is not None and turn.fault.verb in own:
                own[turn.fault.verb](*turn.fault.numbers)
            else:
                perform(proxy, turn.fault)
            done[turn.fault.verb] += 1
            told(turn)
    finally:
        proxy.pass_through()
    return done
