"""Settings: what they are, between which limits, and where the broker's address comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

from tenure.errors import ConfigError
from tenure.message import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, DEFAULT_PRIORITY, DEFAULT_VISIBILITY_TIMEOUT
from tenure.names import did_you_mean, shown
from tenure.retry import MAX_DELAY

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_BROKER = "tenure://127.0.0.1:7333"
BROKER_VARIABLE = "TENURE_BROKER"

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
    a producer process has at most.  A job is dead after `max_attempts` failures or `max_losses` losses; `priority` is
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

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            checked = whole(field.name, value) if LIMITS[field.name].whole else seconds(field.name, value)
            object.__setattr__(self, field.name, checked)


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
    environ = os.environ if environ is None else environ
    for source, url in (
        ("--broker", given),
        ("App(broker=)", of_app),
        (f"${BROKER_VARIABLE}", environ.get(BROKER_VARIABLE) or None),
    ):
        if url is not None:
            return _checked_url(source, url)
    return _project_broker(folder) or DEFAULT_BROKER


def _checked_url(source: str, url: object) -> str:
    if type(url) is str and url.startswith("unix:"):
        from pathlib import Path
        from urllib.parse import quote

        path = quote(str(Path(url.removeprefix("unix:")).absolute()))
        raise ConfigError(f"{source} is {shown(url)}, which is no URL; write it as tenure+unix://{path}")
    if type(url) is not str or "://" not in url:
        raise ConfigError(f"{source} is {shown(url)}, which is no URL; write for example {DEFAULT_BROKER}")
    return url


def _project_broker(folder: Path | None) -> str | None:
    from pathlib import Path  # as tomllib, only needed where no nearer source names the broker

    folder = folder or Path.cwd()
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        table = _tenure_table(file) if file.is_file() else None
        if table is None:
            continue
        for word in table:
            if word != "broker":
                raise ConfigError(
                    f"{file}: [tool.tenure] has no setting {word!r}.{did_you_mean(word, ['broker'])} Settings: broker."
                )
        return _checked_url(f"{file}: broker", table["broker"]) if "broker" in table else None
    return None


def _tenure_table(file: Path) -> dict[str, Any] | None:
    import tomllib

    try:
        table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("tenure")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{file} could not be read for the broker's address ({error}); "
            f"repair it, or set ${BROKER_VARIABLE} or App(broker=)"
        ) from None
    if table is not None and type(table) is not dict:
        raise ConfigError(f"{file}: tool.tenure has to be a table, [tool.tenure]")
    return table
