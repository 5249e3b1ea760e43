"""`tenure record`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from tenure.cli.options import broker_option, json_option, print_json
from tenure.cli.tables import print_table
from tenure.inspection import inspect

JOBS = ("added", "done", "dead", "cancelled", "purged", "scheduled", "ready", "running")
NOTES = ("duplicates", "refused", "expired")
HANDOUTS = ("handed_out", "done", "retried", "released", "left", "returned", "lost", "dead", "cancelled", "running")
ALWAYS = ("added", "done", "dead", "ready", "running", "handed_out")


@click.command()
@broker_option
@json_option
@click.option("--verify", is_flag=True, help="Recount everything from the rows, and exit with 1 on a difference.")
def record(broker: str | None, as_json: bool, verify: bool) -> None:
    """Show the server's own count of every job and hand-out.

    added = done + dead + cancelled + purged + scheduled + ready + running, at every moment.  Every hand-out ends in
    exactly one way, or is still running.
    """
    with inspect(broker) as inspection:
        answer = inspection.record(verify=verify)
    ledger = answer["record"] if verify else answer
    if as_json:
        print_json(
            {**ledger, "verified": answer["verified"], "differences": answer["differences"]} if verify else ledger
        )
    else:
        print_record(ledger)
        if verify:
            _print_verdict(answer)
    if verify and not answer["verified"]:
        sys.exit(1)


def print_record(ledger: dict[str, Any]) -> None:
    """Print a record as three tables and one line; columns in which nothing was counted are left out."""
    queues = {**ledger["queues"], "(total)": ledger["totals"]}
    _print_counts("Jobs", "queue", (*JOBS, *NOTES), queues, lambda tally, name: tally[name])
    _print_counts("Hand-outs by queue", "queue", HANDOUTS, queues, _handout)
    _print_counts("Hand-outs by worker", "worker", (*HANDOUTS, "refused"), ledger["workers"], _handout)
    verdict = "balanced" if ledger["balanced"] else "NOT BALANCED"
    click.echo(f"overlaps (one job with two workers at once): {ledger['overlaps']}; the record is {verdict}")


def _handout(tally: dict[str, Any], name: str) -> int:
    flat = name in ("handed_out", "running", "refused")
    count: int = tally[name] if flat else tally["handouts"][name]
    return count


def _print_counts(
    title: str,
    owner: str,
    columns: tuple[str, ...],
    owners: dict[str, Any],
    read: Callable[[dict[str, Any], str], int],
) -> None:
    shown = [name for name in columns if name in ALWAYS or any(read(tally, name) for tally in owners.values())]
    rows = [(title_, *(read(tally, name) for name in shown)) for title_, tally in owners.items()]
    print_table((owner, *(name.replace("_", " ") for name in shown)), rows, title=title)


def _print_verdict(answer: dict[str, Any]) -> None:
    if answer["verified"]:
        click.echo("verified: a recount of all rows agrees")
        return
    click.echo("NOT verified: a recount of the rows differs", err=True)
    for difference in answer["differences"]:
        click.echo(f"  {difference}", err=True)
