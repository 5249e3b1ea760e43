"""An app whose processes grow with each job, for workers that replace them."""

from __future__ import annotations

import os

from tenure import App
from tests.stage.marks import marked

app = App("growing")
kept: list[bytearray] = []


@app.task
def grow(mebibytes: int) -> int:
    """Keep so much more memory in this process for ever."""
    with marked():
        kept.append(bytearray(os.urandom(1024)) * (mebibytes * 1024))
        return len(kept)
