"""An app whose jobs carry something, so that a small disk is soon full."""

from __future__ import annotations

from tenure import App
from tests.stage.marks import GO, folder, marked

app = App("heavy", visibility_timeout=1)


@app.task
def carry(number: int, load: bytes) -> int:
    """Give the number back."""
    with marked():
        return number


@app.task(queue="held")
def hold(number: int) -> bytes:
    """Run until the test lets go, and return 1 KiB."""
    with marked(60.0, until=folder() / GO):
        return bytes([number % 256]) * 1024
