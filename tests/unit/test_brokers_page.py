"""docs/reference/brokers.md: the stored run of the contract is one of the brokers as they are now."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from docs import make_brokers
from tenure.broker import Capabilities
from tenure.brokers import SCHEMES
from tenure.testing import contract

SUITE = Path(contract.__file__ or "").parent
FLAGS = [field.name for field in dataclasses.fields(Capabilities)]
RUN = make_brokers.last_run()


def test_each_broker_has_a_column() -> None:
    shown = {SCHEMES[url.partition("://")[0]] for _, url in make_brokers.COLUMNS.values()}
    assert shown == set(SCHEMES.values())


@pytest.mark.parametrize("name", RUN)
def test_the_last_run_was_of_the_flags_that_there_are(name: str) -> None:
    now = make_brokers.flags_now()[name]
    assert RUN[name]["flags"] == now, f"the flags of {name} have changed since its last run: run `make contract`"


@pytest.mark.parametrize("name", RUN)
def test_the_last_run_was_of_all_parts_and_all_tests_held(name: str) -> None:
    parts = RUN[name]["parts"]
    assert set(parts) == {part.__name__ for part in contract.BrokerContract.__bases__}, "run `make contract`"
    assert {part: counts["broken"] for part, counts in parts.items()} == dict.fromkeys(parts, 0)


@pytest.mark.parametrize("flag", FLAGS)
def test_the_suite_reads_each_flag_and_the_page_says_what_it_means(flag: str) -> None:
    assert make_brokers.flag_words()[flag]
    texts = [file.read_text(encoding="utf-8") for file in SUITE.glob("*.py")]
    assert any(f"can.{flag}" in text or f'"{flag}"' in text for text in texts), f"no test reads {flag}"
