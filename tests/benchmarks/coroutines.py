"""The app with a coroutine: its own, so that the worker of the others has no event loop to carry."""

from __future__ import annotations

from tenure import App

app = App("benchmark-coroutines")


@app.task
async def noop(number: int) -> None:
    """Do nothing."""
