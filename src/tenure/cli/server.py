"""`tenure server`."""

from __future__ import annotations

import logging
from typing import Literal

import click

from tenure.cli.options import log_level_option, seconds, size

_SHORTEST_LINE = 1024
_LEAST_RESERVE = 64 * 1024


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:7333",
    show_default=True,
    metavar="ADDRESS",
    help="HOST:PORT on this machine (port 0: any free one), or unix:PATH.",
)
@click.option(
    "--data",
    default="tenure.db",
    show_default=True,
    metavar="PATH",
    type=click.Path(dir_okay=False),
    help="The file that keeps everything; made when it is not there.",
)
@click.option(
    "--durability",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="full: on disk before each answer. normal: survives a killed server; a power cut may take the last moments.",
)
@click.option(
    "--result-ttl", type=seconds, default="1h", show_default=True, metavar="TIME",
    help="How long a result can be had, and done and cancelled jobs are kept (these 10 minutes at least).",
)  # fmt: skip
@click.option(
    "--key-window", type=seconds, default="24h", show_default=True, metavar="TIME",
    help="How long after its job is done a given idempotency key still means that job. 0: the key is free at once.",
)  # fmt: skip
@click.option(
    "--max-body", type=size, default="1MiB", show_default=True, metavar="SIZE", help="Largest job, arguments packed."
)
@click.option(
    "--max-line", type=size, default="64KiB", show_default=True, metavar="SIZE", help="Longest line of the protocol."
)
@click.option(
    "--max-connections", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="How many clients at once.",
)  # fmt: skip
@click.option(
    "--line-timeout",
    type=seconds,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="How long a client may take to finish a line that it has begun (60 s at most).",
)
@click.option(
    "--reserve", type=size, default="8MiB", show_default=True, metavar="SIZE",
    help="Free space below which new jobs are refused, so that those that are there can be ended (64KiB or more).",
)  # fmt: skip
@log_level_option
def server(
    listen: str,
    data: str,
    durability: Literal["full", "normal"],
    result_ttl: float,
    key_window: float,
    max_body: int,
    max_line: int,
    max_connections: int,
    line_timeout: float,
    reserve: int,
    log_level: str,
) -> None:
    """Run a server that keeps the jobs.

    It answers on this machine only, and stores everything in one file.  Stop it with Ctrl+C or SIGTERM; kill it, and
    nothing that it has answered is lost.
    """
    from tenure.server.address import parse_listen
    from tenure.server.server import ServerOptions, run

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(message)s")
    options = ServerOptions(
        listen=parse_listen(listen),
        data=data,
        durability=durability,
        result_ttl=result_ttl,
        key_window=key_window,
        max_body=max_body,
        max_line=_max_line(max_line),
        max_connections=max_connections,
        line_timeout=_line_timeout(line_timeout),
        reserve=_reserve(reserve),
    )
    run(options, lambda url: click.echo(f"tenure server on {url}, data in {data}, durability {durability}"))


def _max_line(limit: int) -> int:
    # A line carries the names of a queue and a task, a key and more, of up to 512 bytes each.
    if limit < _SHORTEST_LINE:
        raise click.BadParameter(f"{limit} bytes are too few for a line; give 1KiB or more", param_hint="--max-line")
    return limit


def _line_timeout(timeout: float) -> float:
    # What a line's age is bounded by: the ids of jobs stay known on the strength of it.
    if not 0.1 <= timeout <= 60:
        raise click.BadParameter(f"{timeout:g} s is not possible; give 0.1 s to 60 s", param_hint="--line-timeout")
    return timeout


def _reserve(room: int) -> int:
    # A done changes some pages of 4 KiB, in the log and in the file.
    if room < _LEAST_RESERVE:
        raise click.BadParameter(
            f"{room} bytes are too few to end a job in; give 64KiB or more", param_hint="--reserve"
        )
    return room
