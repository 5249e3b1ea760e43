"""Options and types that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenure.quantities import seconds_of, size_of

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


def size(value: str) -> int:
    """Read a number of bytes, with KiB, MiB or GiB behind it if wanted."""
    try:
        return size_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def seconds(value: str | float) -> float:
    """Read a length of time, in seconds or with s, m, h or d behind it."""
    try:
        return seconds_of(str(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
