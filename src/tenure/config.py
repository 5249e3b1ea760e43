"""Settings: what they are, between which limits, and where the broker's address comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

from tenure.errors import ConfigError
from tenure.message import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, DEFAULT_PRIORITY, DEFAULT_VISIBILITY_TIMEOUT
from tenure.names import shown, without_secrets
from tenure.quantities import seconds_of, whole_of
from tenure.retry import MAX_DELAY

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.sources import Found, Sources

DEFAULT_BROKER = "tenure://127.0.0.1:7333"

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Limit:
    """From which to which value a number may be; `unit` is for the error's text, `whole` for whole numbers only."""

    least: float
    most: float
    unit: str = "seconds"
    whole: bool = False


LIMITS: Mapping[str, Limit] = {
    "visibility_timeout": Limit(0.1, 7 * _DAY),
    "grace": Limit(0.0, _DAY),
    "add_timeout": Limit(0.1, 300.0),
    "answer_limit": Limit(0.05, 60.0),
    "result_ttl": Limit(0.0, 365 * _DAY),
    "key_window": Limit(0.0, 365 * _DAY),
    "delay": Limit(0.0, MAX_DELAY),
    "expires": Limit(0.0, MAX_DELAY),
    "timeout": Limit(0.05, 7 * _DAY),
    "max_attempts": Limit(1, 1_000_000, "attempts", whole=True),
    "max_losses": Limit(1, 1_000_000, "losses", whole=True),
    "priority": Limit(0, 9, "(9 goes first)", whole=True),
    "compress_over": Limit(0, 2**31, "bytes", whole=True),
    "pool_size": Limit(1, 1_000, "connections", whole=True),
    "threads": Limit(1, 1_000, "slots", whole=True),
    "async_slots": Limit(1, 10_000, "slots", whole=True),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What everything shares; times in seconds.  A value outside of its limits raises ConfigError.

    `visibility_timeout` is how long a worker holds a job without a sign of life, `grace` how long a leaving worker
    lets jobs run on, `add_timeout` how long `.delay()` takes at most, `answer_limit` how long an answer may take,
    `result_ttl` and `key_window` how long results and keys are kept after the end, `pool_size` how many connections
    a producer process has at most, `compress_over` from how many bytes on arguments travel compressed (None: never).
    A job is dead after `max_attempts` failures or `max_losses` losses; `priority` is
    0 to 9, 9 first.
    """

    visibility_timeout: float = DEFAULT_VISIBILITY_TIMEOUT
    grace: float = 25.0
    add_timeout: float = 5.0
    answer_limit: float = 1.0
    result_ttl: float = 3600.0
    key_window: float = _DAY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_losses: int = DEFAULT_MAX_LOSSES
    priority: int = DEFAULT_PRIORITY
    pool_size: int = 8
    compress_over: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                object.__setattr__(self, field.name, checked_number(field.name, value))


def checked_number(name: str, value: object) -> float:
    """Return a setting's value if it is within its limits; raises ConfigError."""
    return whole(name, value) if LIMITS[name].whole else seconds(name, value)


def seconds(name: str, value: object) -> float:
    """Return a number of seconds or a timedelta as seconds, if it is within the limits of `name`."""
    if type(value) is timedelta:
        number = value.total_seconds()
    elif type(value) is int or type(value) is float:
        number = _float(value)
    else:
        raise ConfigError(
            f"{name}={shown(value)} is a {type(value).__name__}; give seconds as int or float, or a timedelta"
        )
    limit = LIMITS[name]
    if not isfinite(number) or not limit.least <= number <= limit.most:
        raise ConfigError(f"{name}={shown(value)} is not possible: give {limit.least:g} to {limit.most:.10g} seconds")
    return number


def whole(name: str, value: object) -> int:
    """Return a whole number, if it is within the limits of `name`."""
    limit = LIMITS[name]
    if type(value) is not int or not limit.least <= value <= limit.most:
        raise ConfigError(
            f"{name}={shown(value)} is not possible: "
            f"give a whole number from {limit.least:g} to {limit.most:.10g} {limit.unit}"
        )
    return value


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


@dataclass(frozen=True, slots=True)
class Loaded:
    """An app's settings, and for each of them where its value was written."""

    settings: Settings
    sources: Mapping[str, str]


def load(given: Mapping[str, object], sources: Sources | None = None) -> Loaded:
    """Return the settings of an app: as `given` in its code, else in the environment, else in pyproject.toml, else the
    defaults.  Raises ConfigError naming the place of a value that cannot be.
    """
    from tenure.sources import OF_APP, OF_STORE, Sources  # a process that only defines tasks reads no files

    values: dict[str, Any] = dict(given)
    places = {name: f"App({name}=)" for name in given}
    sources = Sources() if sources is None else sources
    for name in (*OF_APP, *OF_STORE):
        found = None if name in values or name == "broker" else sources.find(name)
        if found is not None:
            values[name], places[name] = _read(name, found), found.source
    return Loaded(Settings(**values), places)


def _read(name: str, found: Found) -> float:
    """Return the number that a setting was written as, in a text or in the project's file."""
    value = found.value
    try:
        if isinstance(value, str):
            value = whole_of(value) if LIMITS[name].whole else seconds_of(value)
        return checked_number(name, value)
    except ValueError as error:  # ConfigError is one
        raise ConfigError(f"{found.source}: {error}") from None


def find_broker(
    given: str | None = None,
    of_app: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return the broker's URL: as `given` (`--broker`), else the app's, else $TENURE_BROKER, else the project's, else
    the default, `tenure://127.0.0.1:7333`.

    The project's is `broker` under `[tool.tenure]` in the `pyproject.toml` of `folder` (default: the current one) or
    of the nearest folder above it that has such a table.
    """
    return find_broker_and_source(given, of_app, environ=environ, folder=folder)[0]


def find_broker_and_source(
    given: str | None = None,
    of_app: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[str, str]:
    """Return the broker's URL as `find_broker` does, and where it was written."""
    for source, url in (("--broker", given), ("App(broker=)", of_app)):
        if url is not None:
            return _checked_url(source, url), source
    from tenure.sources import Sources

    found = Sources(environ, folder).find("broker")
    if found is None:
        return DEFAULT_BROKER, "default"
    named = found.source if found.source.startswith("$") else f"{found.source}: broker"
    return _checked_url(named, found.value), found.source


def _checked_url(source: str, url: object) -> str:
    if type(url) is str and url.startswith("unix:"):
        from pathlib import Path
        from urllib.parse import quote

        path = quote(str(Path(url.removeprefix("unix:")).absolute()))
        raise ConfigError(f"{source} is {_shown(url)}, which is no URL; write it as tenure+unix://{path}")
    if type(url) is not str or "://" not in url:
        raise ConfigError(f"{source} is {_shown(url)}, which is no URL; write for example {DEFAULT_BROKER}")
    return url


def _shown(url: object) -> str:
    return shown(without_secrets(url) if isinstance(url, str) else url)
