"""The glossary says what there is: its words are the code's, and what does not exist yet is not in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from tenure.message import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, Ended, State, Verb

TEXT = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text("utf-8")
WORDS = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.*) \|$", TEXT, re.MULTILINE))


def test_each_word_is_there_once_in_order() -> None:
    found = re.findall(r"^\| \*\*(.+?)\*\* \|", TEXT, re.MULTILINE)
    assert found == sorted(set(found), key=str.lower)


def test_states_ends_and_verbs_are_the_codes() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == get_args(State)
    named = [(WORDS["hand-out"].partition("exactly one way:")[2], Ended), (WORDS["settle"].partition("word:")[2], Verb)]
    for text, kinds in named:
        assert set(re.findall(r"[a-z]+", text)) - {"or"} == set(get_args(kinds))


def test_defaults_are_the_codes() -> None:
    assert f"({DEFAULT_MAX_ATTEMPTS} where nothing else is said)" in WORDS["attempt"]
    assert f"({DEFAULT_MAX_LOSSES} where nothing else is said)" in WORDS["loss"]


def test_what_does_not_exist_has_no_word() -> None:
    assert {"schedule", "workflow", "chain", "group", "chord"}.isdisjoint(WORDS)
