"""The fixtures that several of these tests share."""

from __future__ import annotations

from tests.unit.proxied import connect, echo, pair, proxy

__all__ = ["connect", "echo", "pair", "proxy"]
