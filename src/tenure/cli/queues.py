"""`tenure queues`, and what an operator does to a whole queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tenure.cli.options import broker_option, json_option, print_json
from tenure.cli.tables import print_table
from tenure.inspection import Inspection, inspect
from tenure.outcome import escape

_SIZES = ("ready", "scheduled", "running", "dead", "done", "added")


@click.command()
@broker_option
@json_option
def queues(broker: str | None, as_json: bool) -> None:
    """List the queues and how many jobs wait in each."""
    with inspect(broker) as inspection:
        rows = inspection.queues()
    if as_json:
        print_json(rows)
    elif rows:
        _print_queues(rows)
    else:
        click.echo("no queue yet: the first job makes it")


def _print_queues(rows: list[dict[str, Any]]) -> None:
    """Print one row a queue; the columns of what is rare are left out where it is not there."""
    rare: dict[str, Callable[[dict[str, Any]], str]] = {"stopped": _stopped, "unknown tasks": _unknown}
    shown = {title: tell for title, tell in rare.items() if any(map(tell, rows))}
    print_table(
        ("queue", *_SIZES, "waiting workers", *shown),
        [
            (row["name"], *(row[size] for size in _SIZES), row["waiting"], *(tell(row) for tell in shown.values()))
            for row in rows
        ],
    )


def _stopped(row: dict[str, Any]) -> str:
    return ", ".join(word for word in ("paused", "closed") if row[word])


def _unknown(row: dict[str, Any]) -> str:
    return escape(", ".join(f"{task} ({count})" for task, count in sorted(row["unknown_tasks"].items())))


_names = click.argument("names", nargs=-1, required=True, metavar="QUEUE...")


@click.command()
@_names
@broker_option
@json_option
def pause(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Hand out no more jobs of these queues.

    Jobs that run go on to their end, and new ones are taken in and wait.  It holds until `tenure resume`, also when the
    server is started anew.
    """
    _on_each(Inspection.pause_queue, names, broker, as_json)


@click.command()
@_names
@broker_option
@json_option
def resume(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Hand out the jobs of paused queues again."""
    _on_each(Inspection.resume_queue, names, broker, as_json)


@click.command()
@_names
@broker_option
@json_option
def close(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Take no new jobs into these queues.

    Callers get `QueueClosed`.  The jobs that are there are handed out as ever, retries included, and those that a job
    adds along with its own end are taken too.  It holds until `tenure open`, also when the server is started anew.
    """
    _on_each(Inspection.close_queue, names, broker, as_json)


@click.command()
@_names
@broker_option
@json_option
def open(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Take new jobs into closed queues again."""
    _on_each(Inspection.open_queue, names, broker, as_json)


def _on_each(act: Callable[[Inspection, str], str], names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    with inspect(broker) as inspection:
        words = {name: act(inspection, name) for name in names}
    if as_json:
        print_json(words)
        return
    for name, word in words.items():
        click.echo(f"{escape(name)}: {word}")


@click.command()
@click.argument("queue", metavar="QUEUE")
@broker_option
@json_option
@click.option("--dry-run", is_flag=True, help="Change nothing, and say how many jobs it would be.")
def purge(queue: str, broker: str | None, as_json: bool, dry_run: bool) -> None:
    """Cancel all jobs that wait in a queue, also those that wait for their time.

    They are counted as cancelled, and whoever waits for one is told.  Jobs that run go on.  `tenure dead purge` is for
    those that have failed.
    """
    with inspect(broker) as inspection:
        count = inspection.waiting_in(queue) if dry_run else inspection.purge_queue(queue)
    if as_json:
        print_json({"queue": queue, "jobs": count, "dry_run": dry_run})
        return
    jobs = "1 job" if count == 1 else f"{count} jobs"
    click.echo(f"{escape(queue)}: {jobs} {'would be cancelled' if dry_run else 'cancelled'}")
