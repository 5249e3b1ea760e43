"""The checker of marks finds what it is there for: a test that cannot fail proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stage import marks


def _found(place: Path, *lines: str) -> int:
    (place / "marks").write_text("".join(f"{line}\n" for line in lines))
    return len(marks.overlaps(place))


def test_overlaps_are_found(tmp_path: Path) -> None:
    assert _found(tmp_path, "start a 1 7 1.0", "end a 1 7 2.0", "start a 2 8 2.1", "start b 1 8 1.5") == 0
    assert _found(tmp_path, "start a 1 7 1.0", "start a 2 8 1.9", "end a 1 7 2.0", "end a 2 8 3.0") == 1


def test_a_killed_execution_ends_at_its_last_mark(tmp_path: Path) -> None:
    assert _found(tmp_path, "start a 1 7 1.0", "beat a 1 7 2.0", "start a 2 8 2.1", "end a 2 8 3.0") == 0
    assert _found(tmp_path, "start a 1 7 1.0", "start a 2 8 1.9", "beat a 1 7 2.0", "end a 2 8 3.0") == 1


def test_fences_grow_and_are_used_once(tmp_path: Path) -> None:
    assert _found(tmp_path, "start a 2 7 1.0", "end a 2 7 2.0", "start a 1 8 3.0", "end a 1 8 4.0") == 1
    with pytest.raises(AssertionError, match="started twice"):
        _found(tmp_path, "start a 1 7 1.0", "end a 1 7 2.0", "start a 1 8 3.0")
