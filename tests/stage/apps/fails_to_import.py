"""A module that raises when it is imported."""

from __future__ import annotations

from tenure import App

app = App("broken")


def _settings() -> int:
    return int("not a number")


LIMIT = _settings()
