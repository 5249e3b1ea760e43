"""What `make faults` prints, and when it fails."""

from __future__ import annotations

import pytest

from tests.faults.rows.__main__ import main, reach, report
from tests.faults.rows.rows import ROWS, Row
from tests.faults.rows.scene import Reached, Scene


def test_a_row_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["take_answer_lost"]) == 0
    (row,) = (one for one in ROWS if one.name == "take_answer_lost")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in printed] == ["holds", "yes"]
    assert row.fault in printed[1]
    assert "0 lost, 0 started twice" in printed[1]


def _breaks(scene: Scene) -> Reached:
    scene.add(1)
    assert scene.at_producer.cut() == 2, "one connection was open"
    return scene.end()


def test_a_row_that_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("breaks", "a fault", "nothing", _breaks)
    reached = reach(row)
    assert "--- server.log" in capsys.readouterr().err, "the logs are shown"
    assert (reached.holds, reached.text.splitlines()[0]) == (False, "one connection was open")
    assert report([(row, reached)]) == 1
    assert "NO" in capsys.readouterr().out


def test_an_unknown_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert "take_answer_lost" in capsys.readouterr().err
