"""An app whose worker takes from the same queue and knows none of the other app's tasks."""

from __future__ import annotations

from tenure import App

app = App("elsewhere")


@app.task
def something_else() -> None:
    """Be there, so that the app has a task."""
