"""Jobs in a Redis or Valkey server: the queue's rules are Lua scripts that run there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.brokers.redis.broker import RedisBroker

CLIENT_KEEPS = True


def from_url(url: str, **settings: Any) -> RedisBroker:
    """Return the broker for a URL; raises ConfigError, also where the extra `redis` is not installed."""
    if find_spec("hiredis") is None:
        scheme = url.partition("://")[0]
        raise ConfigError(f"a broker at {scheme}:// needs the extra `redis`: pip install 'tenure[redis]'")
    from tenure.brokers.redis.broker import from_url as made

    return made(url, **settings)
