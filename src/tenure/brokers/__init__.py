"""Brokers by URL: the module of a broker is imported when its scheme is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from tenure.broker import Broker
from tenure.errors import ConfigError
from tenure.names import without_secrets

SCHEMES = {
    "tenure": "tenure.brokers.server",
    "tenure+unix": "tenure.brokers.server",
    "memory": "tenure.brokers.memory",
    "redis": "tenure.brokers.redis",
    "rediss": "tenure.brokers.redis",
    "redis+sentinel": "tenure.brokers.redis",
    "redis+cluster": "tenure.brokers.redis",
    "valkey": "tenure.brokers.redis",
}
"""URL scheme -> module, which has `from_url(url, **settings) -> Broker`."""


def connect(url: str, **settings: Any) -> Broker:
    """Return the broker that `url` names, such as `tenure://127.0.0.1:7333` or `tenure+unix:///run/tenure.sock`.

    No connection is made before the first call needs one.  Raises ConfigError for an unknown scheme or setting.
    """
    scheme = url.partition("://")[0]
    module = SCHEMES.get(scheme)
    if module is None or "://" not in url:
        raise ConfigError(_unknown(url, scheme))
    return cast(Broker, import_module(module).from_url(url, **settings))


def _unknown(url: str, scheme: str) -> str:
    close = get_close_matches(scheme, SCHEMES, 1)
    hint = f" Did you mean {close[0]}:// ?" if close else ""
    known = ", ".join(f"{name}://" for name in SCHEMES)
    return f"broker URL {without_secrets(url)!r} begins with no known scheme.{hint} There are: {known}"
