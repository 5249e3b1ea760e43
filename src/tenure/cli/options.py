"""Options and types that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def _broker(first: str) -> Callable[[F], F]:
    return click.option(
        "--broker",
        metavar="URL",
        help=f"Where the jobs are kept. Without it: {first}$TENURE_BROKER, then [tool.tenure] in pyproject.toml, "
        "then tenure://127.0.0.1:7333.",
    )


broker_option = _broker("")
"""Adds `--broker URL` to a command that knows no app."""

app_broker_option = _broker("App(broker=...), then ")
"""Adds `--broker URL` to a command that has an app."""


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def log_level_option(command: F) -> F:
    """Add `--log-level LEVEL`."""
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is written to stderr.",
    )(command)


def print_json(value: object) -> None:
    """Print a value as JSON that every reader takes (no NaN, plain ASCII)."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def size(value: str) -> int:
    """Read a number of bytes, with KiB, MiB or GiB behind it if wanted."""
    text = value.strip().lower().removesuffix("ib").removesuffix("b").rstrip()
    number, unit = (text[:-1].rstrip(), text[-1]) if text[-1:] in ("k", "m", "g") else (text, "")
    if not number.isdecimal() or int(number) < 1:
        raise click.BadParameter(f"{value!r} is not a size; write bytes, or for example 64KiB or 1MiB")
    return int(number) * _SIZES[unit]


def seconds(value: str | float) -> float:
    """Read a length of time, in seconds or with s, m, h or d behind it."""
    text = str(value).strip().lower()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _TIMES else (text, "s")
    try:
        length = float(number) * _TIMES[unit]
    except ValueError:
        length = -1.0
    if not 0 <= length < 1e10:
        raise click.BadParameter(f"{value!r} is not a length of time; write seconds, or for example 30s, 10m, 1h or 2d")
    return length
