from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure.broker import EndedAs, Settled
from tenure.worker.counts import NAMES, Counts, check_place, counter_of, counts_of_bye


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (Settled("ok", "done"), "done"),
        (Settled("ok", "scheduled"), "retried"),
        (Settled("ok", "released"), "released"),
        (Settled("ok", "dead"), "dead"),
        (Settled("ok", "cancelled"), "cancelled"),
        (Settled("refused", "lost"), "refused"),
        (Settled("gone"), "unknown"),
        (Settled("lost"), "dropped"),
        (Settled("closed"), "dropped"),
    ],
)
def test_each_answer_moves_its_counter(answer: Settled, name: str) -> None:
    assert NAMES[counter_of(answer)] == name


def test_the_answer_to_a_bye_is_counted_as_what_had_happened() -> None:
    ended = [
        EndedAs("done"),
        EndedAs("retried"),
        EndedAs("dead"),
        EndedAs("cancelled"),
        EndedAs("released"),
        EndedAs("lost"),
        EndedAs("left"),
        EndedAs("returned"),
        EndedAs("returned", late=True),
        EndedAs("unknown"),
    ]
    assert counts_of_bye(ended) == Counts(1, 1, 1, 1, 1, refused=1, unknown=1)


def test_the_line_and_the_file_say_the_same(tmp_path: Path) -> None:
    counts = Counts(done=3, added=2) + Counts(done=1, dropped=4)
    counts.write(tmp_path / "counts.json")
    assert json.loads((tmp_path / "counts.json").read_text())["done"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json"]
    check_place(tmp_path / "counts.json")
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json"], "a look leaves nothing behind"
    assert json.loads((tmp_path / "counts.json").read_text())["done"] == 4
    assert counts.line() == (
        "counts: done=4 retried=0 released=0 dead=0 cancelled=0 refused=0 unknown=0 dropped=4 added=2"
    )
