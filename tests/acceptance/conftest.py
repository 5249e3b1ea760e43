"""The fixtures of these tests."""

from __future__ import annotations

from tests.stage.fixtures import bare, stage

__all__ = ["bare", "stage"]
