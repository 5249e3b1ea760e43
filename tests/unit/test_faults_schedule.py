"""Faults as values: their text, what a proxy does at their word, and random schedules of them."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import threading
from itertools import islice

import pytest

from tenure.faults import Direction, Fault, Proxy, Schedule, parse_fault, perform, run_schedule
from tenure.faults.schedule import DECK, Turn
from tenure.faults.verbs import VERBS


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pass", Fault("pass")),
        ("stall", Fault("stall")),
        ("stall 5", Fault("stall", (5,))),
        ("stall 0.4 answer new", Fault("stall", (0.4,), Direction.ANSWER, new=True)),
        ("cut-after 17 request", Fault("cut-after", (17,), Direction.REQUEST)),
        ("delay 0.05 2", Fault("delay", (0.05, 2))),
        ("kill-child 2", Fault("kill-child", (2,))),
    ],
)
def test_the_text_of_a_fault(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault
    assert str(fault) == text


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_of_a_schedule_is_its_text(seed: int) -> None:
    for turn in islice(Schedule(seed), 50):
        assert parse_fault(str(turn.fault)) == turn.fault
        assert str(turn) == f"+{turn.wait:.3f} {turn.fault}"


@pytest.mark.parametrize("text", ["stall soon", "delay -1", "drop nan", "cut-on-accept 1e300"])
def test_a_word_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text.split()[1]}' in '{text}' is no number"):
        parse_fault(text)


@pytest.mark.parametrize("text", ["stall request answer", "stall new new"])
def test_nothing_is_said_twice(text: str) -> None:
    with pytest.raises(ValueError, match="says a thing twice"):
        parse_fault(text)


@pytest.mark.parametrize(
    "text",
    ["pass 1", "cut answer", "cut-on-accept 1 2", "cut-after request", "cut-after 1", "stall 1 2", "drop new",
     "late 1 request", "delay", "delay 1 2 3", "throttle answer", "throttle 5 new"],
)  # fmt: skip
def test_what_does_not_fit_a_verb_is_refused_with_its_form(proxy: Proxy, text: str) -> None:
    verb = text.split(maxsplit=1)[0]
    with pytest.raises(ValueError, match="does not fit") as refused:
        perform(proxy, parse_fault(text))
    assert str(refused.value).endswith(VERBS[verb].usage)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("throttle 0", "RATE has to be a whole number of 1 or more (`pass` ends it)"),
        ("throttle 0.5", "RATE has to be a whole number of 1 or more"),
        ("throttle 5 0", "SECONDS has to be above 0"),
        ("delay 0", "EACH has to be above 0"),
        ("stall 0", "SECONDS has to be above 0"),
        ("late 0", "SECONDS has to be above 0"),
        ("drop 0", "N has to be a whole number of 1 or more"),
        ("cut-on-accept 1.5", "N has to be a whole number of 1 or more"),
        ("cut-after 0.5 request", "N has to be a whole number of 0 or more"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_limit(proxy: Proxy, text: str, limit: str) -> None:
    with pytest.raises(ValueError, match=f"^'{re.escape(text)}' is not possible: {re.escape(limit)}"):
        perform(proxy, parse_fault(text))


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_a_fault_that_is_made_by_hand_is_checked_too(proxy: Proxy, number: float) -> None:
    for verb in ("stall", "drop", "late", "delay", "throttle", "cut-on-accept"):
        with pytest.raises(ValueError, match="is not possible"):
            perform(proxy, Fault(verb, (number,)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"seconds": 0}, "seconds=0 is not possible: give seconds above 0"),
        ({"seconds": math.nan}, "seconds=nan is not possible"),
        ({"least": -1.0}, "least=-1.0 is not possible"),
        ({"most": 0}, "most=0 is not possible"),
        ({"least": 0.5, "most": 0.1}, "least=0.5 is above most=0.1"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(words: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schedule(1, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "shake 1"])
def test_an_unknown_verb_is_refused_with_all_verbs(proxy: Proxy, text: str) -> None:
    with pytest.raises(ValueError, match="is no verb; there are pass, cut,"):
        perform(proxy, parse_fault(text))


def test_a_proxy_does_what_a_text_says(proxy: Proxy) -> None:
    perform(proxy, parse_fault("cut-on-accept 2"))
    for _ in range(2):
        with pytest.raises(ConnectionResetError), socket.create_connection(proxy.address, 10) as client:
            client.recv(1)
    with socket.create_connection(proxy.address, 10):
        perform(proxy, parse_fault("stall 3600 new"))
        assert proxy.connections == 1
        perform(proxy, parse_fault("cut"))
        assert proxy.connections == 0


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    first, again = list(Schedule(7, 30)), list(Schedule(7, 30))
    assert first == again
    assert first != list(Schedule(8, 30))
    assert 30 / 0.3 - 1 < len(first) < 30 / 0.05
    assert all(0.05 <= turn.wait <= 0.3 for turn in first)
    assert 29.7 < sum(turn.wait for turn in first) <= 30


def test_a_schedule_without_an_end_has_every_mode_of_the_proxy() -> None:
    kinds = {turn.fault.verb for turn in islice(Schedule(1), 500)}
    assert kinds == set(VERBS)


def test_a_schedule_is_carried_out_with_what_the_caller_adds(proxy: Proxy) -> None:
    killed: list[float] = []
    waits: list[float] = []
    deck = (*DECK, lambda roll: Fault("kill-child", (roll.randrange(3),)))
    schedule = Schedule(3, 60, deck)
    done = run_schedule(schedule, proxy, {"kill-child": killed.append}, waits.append)
    turns = list(schedule)
    assert waits == [turn.wait for turn in turns]
    assert killed == [turn.fault.numbers[0] for turn in turns if turn.fault.verb == "kill-child"]
    assert done.total() == len(turns)
    assert set(done) == {*VERBS, "kill-child"}
    assert set(killed) == {0, 1, 2}


def test_a_schedule_ends_early_and_leaves_calm_behind(proxy: Proxy) -> None:
    stop = threading.Event()
    turns = [Turn(0, Fault("cut-on-accept", (100,))), Turn(0, Fault("stop")), Turn(0, Fault("never"))]
    seen: list[Turn] = []
    done = run_schedule(turns, proxy, {"stop": stop.set}, stop.wait, seen.append)
    assert done == {"cut-on-accept": 1, "stop": 1}
    assert seen == turns[:2]
    with socket.create_connection(proxy.address, 10) as client:
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_an_own_fault_without_anyone_for_it_is_an_error_and_leaves_calm_behind(proxy: Proxy) -> None:
    turns = [Turn(0, Fault("stall", new=True)), Turn(0, Fault("kill-child"))]
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(proxy.address, 10))
        with pytest.raises(ValueError, match="'kill-child' is no verb"):
            run_schedule(turns, proxy)
        client.sendall(b"x")
        assert proxy.connections == 1
