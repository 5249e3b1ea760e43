"""An app without tasks: no worker can be made of it."""

from __future__ import annotations

from tenure import App

app = App("empty")
