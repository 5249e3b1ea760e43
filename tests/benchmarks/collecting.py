"""Measurements one after the other: what fails costs its own figures only."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks.report import Figure


def collected(names: Sequence[str], measure: Callable[[str, Path], list[Figure]]) -> tuple[list[Figure], list[str]]:
    """Measure each, in an empty folder of its own; returns the figures, and the names of what failed."""
    figures: list[Figure] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        for name in names:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            own = Path(folder) / name
            own.mkdir(exist_ok=True)
            try:
                figures += measure(name, own)
            except Exception:  # noqa: BLE001  (what was measured before it is kept, and shown)
                traceback.print_exc()
                failed.append(name)
    return figures, failed
