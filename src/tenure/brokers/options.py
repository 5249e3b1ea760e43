"""What a broker may be made with, refused alike by every kind."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature

from tenure.brokers.repeating import RESEND_LIMIT
from tenure.errors import ConfigError
from tenure.names import unknown_option


def refuse_unknown_options(url: str, kind: type, words: Iterable[str]) -> None:
    """Raise ConfigError for options that brokers of this kind do not have; the first one is in the URL."""
    _, *known = signature(kind).parameters
    for word in words:
        if word not in known:
            raise ConfigError(unknown_option(f"{url.partition('://')[0]}://", word, known))


def check_adding(add_timeout: float, pool_size: int) -> None:
    """Raise ConfigError for seconds or a number of connections with which nothing could be added."""
    if not 0 < add_timeout <= RESEND_LIMIT:
        raise ConfigError(f"add_timeout={add_timeout!r} is not possible: give seconds above 0 and at most 300")
    if pool_size < 1:
        raise ConfigError(f"pool_size={pool_size!r} is not possible: give 1 or more")
