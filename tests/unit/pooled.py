"""Tasks that another process finds by their names."""

from __future__ import annotations

from tenure import App

app = App("pooled")


@app.task
def charge(order: int, cents: int) -> int:
    return order * cents


def plain(order: int) -> int:
    return order


under_another_name = app.task(name="pooled.plain")(plain)
