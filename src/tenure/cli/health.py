"""`tenure health`."""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any

import click

from tenure.cli.options import json_option, print_json, seconds

DEFAULT = "127.0.0.1:7334"


@click.command()
@click.argument("address", metavar="[HOST:PORT]", default=DEFAULT)
@click.option("--live", is_flag=True, help="Ask whether it needs a new start, not whether it can take jobs.")
@click.option(
    "--timeout", type=seconds, default="1s", show_default=True, metavar="TIME", help="How long to wait for the answer."
)
@json_option
def health(address: str, live: bool, timeout: float, as_json: bool) -> None:
    """Ask a worker whether it can take jobs.

    HOST:PORT is what the worker was started with as --health; without it: 127.0.0.1:7334.  Exit code 0: it takes jobs,
    or all its slots are at work.  1: it does not, and the reasons are printed.
    """
    what = "live" if live else "ready"
    status, body = _ask(address, f"/{what}", timeout)
    if as_json:
        print_json(body)
    else:
        why = body.get("why") or [f"the answer was {status}"]
        for line in [what] if status == 200 else [f"not {what}: {reason}" for reason in why]:
            click.echo(line)
    sys.exit(0 if status == 200 else 1)


def _ask(address: str, path: str, timeout: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the answer; without one, 0 and why."""
    try:
        host, port = _parse(address)
        connection = http.client.HTTPConnection(host, port, timeout=max(0.001, timeout))
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(response.read(65_536))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, {"why": [f"no worker answers for its health at {address} ({str(error) or type(error).__name__})"]}
    return response.status, body if isinstance(body, dict) else {}


def _parse(address: str) -> tuple[str, int]:
    from tenure.errors import ConfigError
    from tenure.worker.health import parse_address

    try:
        return parse_address(address)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="HOST:PORT") from None
