"""Adds that arrive together come to what they come to one by one: the same answers, rows, counts and order."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.engine import line
from tests.property.lab import Lab, take

PLAIN = st.tuples(st.integers(1, 30), st.just(""), st.sampled_from(["q", "q", "q", "other"]), st.just("body"))
ADDS = st.tuples(
    st.integers(1, 30),
    st.sampled_from(["", "", "p=9", "k=order", "at=+1000", "x=+1000", "vt=5", "ma=1 ml=2"]),
    st.sampled_from(["q", "q", "other"]),
    st.sampled_from(["", "body", "b" * 900]),
)
LISTS = st.one_of(st.lists(PLAIN, min_size=2, max_size=40), st.lists(ADDS, max_size=25))


def together_and_alone(lists: list[list[tuple[int, str, str, str]]]) -> list[tuple[object, ...]]:
    """What two servers make of the same adds: one gets each list in one write, the other each add in its own."""
    seen: list[tuple[object, ...]] = []
    for apart in (False, True):
        with closing(Lab()) as lab:
            lab.connect(2).ask(lab.add(99))  # the queue is known from now on
            client = lab.connect(1)
            answers: list[str] = []
            for adds in lists:
                texts = [lab.add(n, options, queue, body) for n, options, queue, body in adds]
                for text in texts if apart else ["\n".join(texts)] * bool(texts):
                    answers += client.ask(text).splitlines()
            rows, counts, places = lab.rows(), (lab.counts(), lab.counts("other")), lab.engine._core.place
            taken = [client.ask(take(n, limit=100, queues=q)) for n, q in enumerate(("q", "other"), 1)]
            seen.append((answers, rows, counts, places, taken))
    return seen


@given(st.lists(LISTS, min_size=1, max_size=3))
def test_together_is_as_one_by_one(lists: list[list[tuple[int, str, str, str]]]) -> None:
    together, alone = together_and_alone(lists)
    assert together == alone


@given(st.lists(LISTS, min_size=1, max_size=3), st.integers(0, 20))
def test_the_same_where_only_a_few_wait_in_memory(lists: list[list[tuple[int, str, str, str]]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line, "MOST", most)
        together, alone = together_and_alone(lists)
    assert [*together[:1], *together[2:]] == [*alone[:1], *alone[2:]]  # which rows are listed may differ


def test_one_that_is_known_already_is_not_counted_again() -> None:
    with closing(Lab()) as lab:
        client = lab.connect()
        client.ask(lab.add(3))
        answers = client.ask("\n".join(lab.add(n) for n in range(1, 6))).splitlines()
        assert [answer.split()[2] for answer in answers] == ["created"] * 5
        assert lab.counts() == {"added": 5, "ready": 5}
