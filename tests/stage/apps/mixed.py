"""Plain functions and coroutines in one queue: a parent waits for its child."""

from __future__ import annotations

from tenure import App, Backoff

app = App("mixed")


@app.task
async def child(number: int) -> int:
    return number * 2


@app.task(backoff=Backoff(base=0.2))
def parent(number: int) -> int:
    return child.delay(number).result()
