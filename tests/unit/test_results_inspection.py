"""What an operator sees of a job's result and progress, always as JSON that every reader takes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tenure.cli import jobs as cli
from tenure.codec import pack_not_stored, pack_value
from tenure.context import Progress, pack_progress
from tenure.inspection import Inspection, json_shaped
from tests.property.lab import Lab, Line, hexid

J1 = hexid(1)


class Admin:
    """The lab's engine as an operator's view has it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def job(self, id: str) -> dict[str, Any] | None:
        shown = self.lab.engine.show(bytes.fromhex(id))
        return None if shown is None else json.loads(json.dumps(shown, allow_nan=False))


@pytest.fixture
def worker(lab: Lab) -> Line:
    worker = lab.connect(1)
    worker.ask(lab.add(1))
    worker.ask("take 1 1 0 30000 q")
    return worker


def seen(lab: Lab) -> dict[str, Any]:
    found = Inspection(Admin(lab)).job(J1)  # type: ignore[arg-type]
    json.dumps(found, allow_nan=False)
    return found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "NaN"),
        ([float("inf"), {"a": -float("inf")}, 1.5], ["Infinity", {"a": "-Infinity"}, 1.5]),
        ({1: (True, None)}, [[1, [True, None]]]),
        ({float("nan"): 1}, [["NaN", 1]]),
        (frozenset({"x"}), ["x"]),
        (Decimal("1.50"), "1.50"),
        (b"raw", "b'raw'"),
        (2**64, str(2**64)),
        ([10**5000], [hex(10**5000)]),
        ("text", "text"),
    ],
)
def test_a_result_as_json(lab: Lab, worker: Line, value: object, shown: object) -> None:
    packed = pack_value(value)
    worker.ask(b"done %b:1 %d\n%b" % (J1.encode(), len(packed), packed))
    assert seen(lab)["result"] == {"value": shown}
    assert json_shaped(value) == shown


@pytest.mark.parametrize(
    ("packed", "missing"),
    [
        (pack_not_stored("too large", "it has 2 MiB"), "too large: it has 2 MiB"),
        (b"\xc1", "it cannot be read here: "),
    ],
)
def test_a_result_that_is_missing(lab: Lab, worker: Line, packed: bytes, missing: str) -> None:
    worker.ask(b"done %b:1 %d\n%b" % (J1.encode(), len(packed), packed))
    assert seen(lab)["result"]["missing"].startswith(missing)


def test_no_result_yet_and_none_as_result(lab: Lab, worker: Line) -> None:
    assert (seen(lab)["result"], seen(lab)["progress"]) == (None, None)
    worker.ask(f"done {J1}:1")
    assert seen(lab)["result"] == {"value": None}


def test_progress_while_it_runs(lab: Lab, worker: Line) -> None:
    packed = pack_progress(Progress(3, 7, "pages"))
    worker.ask(b"extend %b:1+%d\n%b" % (J1.encode(), len(packed), packed))
    assert seen(lab)["progress"] == {"done": 3, "total": 7, "note": "pages"}
    worker.ask(b"extend %b:1+3\n\xc1\xc1\xc1" % J1.encode())
    assert seen(lab)["progress"] is None
    worker.ask(f"done {J1}:1")
    assert seen(lab)["progress"] is None


def test_how_a_terminal_shows_them(lab: Lab, worker: Line, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack_progress(Progress(3, None, "pages"))
    worker.ask(b"extend %b:1+%d\n%b" % (J1.encode(), len(packed), packed))
    cli._print_job(seen(lab))
    assert "progress   3, pages" in capsys.readouterr().out
    packed = pack_value(["x" * 3000, float("nan"), "\x1b"])
    worker.ask(b"done %b:1 %d\n%b" % (J1.encode(), len(packed), packed))
    cli._print_job(seen(lab))
    out = capsys.readouterr().out
    assert "... (--json prints all of it)" in out
    assert len(out) < 2000
    assert cli._result({"value": ["NaN", "\x1b\x9b"]}) == '["NaN", "\\u001b\\x9b"]'
    assert cli._result({"missing": "too large: 2 MiB"}) == "not kept, too large: 2 MiB"
