"""Brokers by URL: the module of a broker is imported when its scheme is asked for."""

from __future__ import annotations

from collections.abc import Mapping
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
"""URL scheme -> module, which has `from_url(url, **settings) -> Broker`, and `CLIENT_KEEPS` where there is no server of
ours that knows how long results and keys are kept, so that its clients have to."""


def connect(url: str, *, keeping: Mapping[str, float] | None = None, **settings: Any) -> Broker:
    """Return the broker that `url` names, such as `tenure://127.0.0.1:7333` or `tenure+unix:///run/tenure.sock`.

    `keeping` are the settings `result_ttl` and `key_window` (seconds) for brokers whose clients decide about them.
    No connection is made before the first call needs one.  Raises ConfigError for an unknown scheme or setting.
    """
    scheme = url.partition("://")[0]
    name = SCHEMES.get(scheme)
    if name is None or "://" not in url:
        raise ConfigError(_unknown(url, scheme))
    module = import_module(name)
    if getattr(module, "CLIENT_KEEPS", False):
        settings = {**(keeping or {}), **settings}
    return cast(Broker, module.from_url(url, **settings))


def _unknown(url: str, scheme: str) -> str:
    close = get_close_matches(scheme, SCHEMES, 1)
    hint = f" Did you mean {close[0]}:// ?" if close else ""
    known = ", ".join(f"{name}://" for name in SCHEMES)
    return f"broker URL {without_secrets(url)!r} begins with no known scheme.{hint} There are: {known}"
