"""`tenure job`, `tenure cancel` and `tenure dead`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from tenure.cli.options import F, broker_option, json_option, print_json
from tenure.cli.tables import open_console, print_table, shorten
from tenure.errors import KeyConflict
from tenure.inspection import Inspection, inspect
from tenure.outcome import escape

_ID = re.compile(r"[0-9a-f]{32}")
_MAX_RESULT = 1_000


_ROOMY = 140
"""Columns of a terminal from which the dead list has room for everything."""

_SHORT = 45
"""Letters of a reason in a terminal that is narrower."""

_LONG = 100
"""Letters of a reason at most, in a wide terminal, a pipe or a file; `tenure dead show` and `--json` have all of it."""


def job_id(value: str) -> str:
    """Read a job's id; dashes and capitals are taken too."""
    id = value.lower().replace("-", "")
    if not _ID.fullmatch(id):
        raise click.BadParameter(f"{value!r} is not a job's id: 32 hexadecimal digits, as job.id and the log show it")
    return id


@click.command()
@click.argument("id", type=job_id)
@broker_option
@json_option
def job(id: str, broker: str | None, as_json: bool) -> None:
    """Show one job: its state, every hand-out, worker and error."""
    with inspect(broker) as inspection:
        found = inspection.job(id)
    if as_json:
        print_json(found)
    else:
        _print_job(found)


@click.command()
@click.argument("ids", nargs=-1, required=True, type=job_id, metavar="ID...")
@broker_option
@json_option
@click.option("--terminate", is_flag=True, help="End it where it runs, as by its time limit.")
def cancel(ids: tuple[str, ...], broker: str | None, as_json: bool, terminate: bool) -> None:
    """Cancel jobs that are not wanted any more.

    One that waits never runs.  One that runs is asked to stop: its task finds `ctx.cancelled` set about a second later.
    """
    with inspect(broker) as inspection:
        outcomes = {id: _outcome(partial(Inspection.cancel, terminate=terminate), inspection, id) for id in ids}
    _print_outcomes(outcomes, as_json)
    if not {*outcomes.values()} <= {"cancelled", "asked", "already cancelled"}:
        sys.exit(1)


@click.group()
def dead() -> None:
    """Look at jobs that failed for good; put them back, or purge them."""


@dead.command()
@broker_option
@json_option
@click.option("--queue", metavar="NAME", help="Of this queue only.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="At most so many.")
def ls(broker: str | None, as_json: bool, queue: str | None, limit: int) -> None:
    """List dead jobs, oldest first; `tenure dead show ID` says all about one."""
    with inspect(broker) as inspection:
        rows = list(inspection.dead(queue, limit))
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no dead jobs")
        return
    console = open_console()
    narrow = console.width < _ROOMY
    columns = ("id", "queue", "task", *(() if narrow else ("attempts", "losses")), "died", "reason")
    cells = [
        {
            **row,
            "died": _when(row["ended_at"])[: 19 if narrow else None],
            "reason": shorten(row["reason"] or "", _SHORT if narrow else min(console.width // 2, _LONG)),
        }
        for row in rows
    ]
    print_table(columns, [[row[column] for column in columns] for row in cells], whole=("id",), console=console)


dead.add_command(job, "show")


def _choice(verb: str) -> Callable[[F], F]:
    """The arguments of requeue and purge: ids, or --all."""

    def decorate(command: F) -> F:
        for option in (
            click.argument("ids", nargs=-1, type=job_id, metavar="[ID]..."),
            broker_option,
            json_option,
            click.option("--all", "everything", is_flag=True, help=f"{verb} all dead jobs."),
            click.option("--queue", metavar="NAME", help="With --all: of this queue only."),
        ):
            command = option(command)
        return command

    return decorate


@dead.command()
@_choice("Requeue")
def requeue(ids: tuple[str, ...], broker: str | None, as_json: bool, everything: bool, queue: str | None) -> None:
    """Put dead jobs back into their queues, with the same id and key and all their attempts."""
    _for_each(Inspection.requeue, "ready", ids, broker, as_json, everything, queue)


@dead.command()
@_choice("Purge")
def purge(ids: tuple[str, ...], broker: str | None, as_json: bool, everything: bool, queue: str | None) -> None:
    """Take dead jobs off the list for good; they are counted as purged."""
    _for_each(Inspection.purge, "purged", ids, broker, as_json, everything, queue)


def _for_each(
    act: Any, wanted: str, ids: tuple[str, ...], broker: str | None, as_json: bool, everything: bool, queue: str | None
) -> None:
    if bool(ids) == everything:
        raise click.UsageError("name the jobs' ids, or give --all (and not both)")
    if queue is not None and not everything:
        raise click.UsageError("--queue goes with --all")
    outcomes: dict[str, str] = {}
    with inspect(broker) as inspection:
        chosen = ids or [row["id"] for row in inspection.dead(queue)]
        try:
            for id in chosen:
                outcomes[id] = _outcome(act, inspection, id)
        finally:  # also when the server is gone in the middle: what was done is done
            if outcomes or not chosen:
                _print_outcomes(outcomes, as_json)
    if any(outcome != wanted for outcome in outcomes.values()):
        sys.exit(1)


def _outcome(act: Any, inspection: Inspection, id: str) -> str:
    """Act on one job; that it cannot be done for this one keeps nobody from the others."""
    try:
        return str(act(inspection, id))
    except (LookupError, KeyConflict) as error:
        return str(error)


def _print_outcomes(outcomes: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(outcomes)
        return
    for id, outcome in outcomes.items():
        click.echo(f"{id}  {outcome}")
    if not outcomes:
        click.echo("no dead jobs")


def _print_job(found: dict[str, Any]) -> None:
    click.echo(f"job {found['id']}: {found['state']}" + (f" ({found['reason']})" if found["reason"] else ""))
    facts = [
        ("task", found["task"]),
        ("queue", f"{found['queue']}, priority {found['priority']}"),
        ("key", found["key"] if found["key"] != found["id"] else "the id"),
        ("added", _when(found["added_at"])),
        ("run at", _when(found["run_at"])),
        ("expires", _when(found["expires"])),
        ("ended", _when(found["ended_at"])),
        ("attempts", f"{found['attempts']} of {found['max_attempts']}"),
        ("losses", f"{found['losses']} of {found['max_losses']}"),
        ("cancel", found["cancel"]),
        ("progress", _progress(found["progress"])),
        ("result", _result(found["result"])),
        ("arguments", found["arguments"]),
        ("raw bytes", _raw(found)),
    ]
    for name, value in facts:
        if value:
            click.echo(f"  {name:<10} {value}")
    for handout in found["handouts"]:
        _print_handout(handout)


def _progress(progress: dict[str, Any] | None) -> str:
    if progress is None:
        return ""
    total = "" if progress["total"] is None else f" of {progress['total']}"
    return escape(f"{progress['done']}{total}" + (f", {progress['note']}" if progress["note"] else ""))


def _result(result: dict[str, Any] | None) -> str:
    """A result on one line, cut where it is long; why there is none where that is so."""
    if result is None:
        return ""
    text = f"not kept, {result['missing']}" if "missing" in result else json.dumps(result["value"], ensure_ascii=False)
    return escape(text if len(text) <= _MAX_RESULT else f"{text[:_MAX_RESULT]}... (--json prints all of it)")


def _raw(found: dict[str, Any]) -> str | None:
    """The beginning of a dead job's body, as hexadecimal digits, where it is no call that could be shown."""
    body: str = found["body"] or ""
    return f"{body[:400]}{'...' if len(body) > 400 else ''}" if found["arguments"] is None else None


def _print_handout(handout: dict[str, Any]) -> None:
    click.echo(
        f"  hand-out {handout['number']}: {handout['worker']}, {_when(handout['begin_at'])} to "
        f"{_when(handout['end_at']) or 'now'}: {handout['ended']}"
        + (f" ({handout['cause']})" if handout["cause"] else "")
        + (", a late settlement was refused" if handout["late"] else "")
    )
    if handout["error"]:
        click.echo("\n".join(f"      {line}" for line in _error_lines(handout["error"])))


_SAID = {"cause": "caused by", "context": "while handling", "member": "member"}


def _error_lines(error: dict[str, Any]) -> list[str]:
    """An error in short, with its notes and its causes, and then its traceback."""
    lines = _named(error).splitlines()
    lines += [f"  note: {line}" for note in error["notes"] for line in note.splitlines()]
    for link in error["chain"]:
        first, *more = _named(link).splitlines() or [""]
        indent = "  " * min(link["depth"], 40)
        lines += [f"{indent}{_SAID.get(link['how'], link['how'])} {first}", *(f"{indent}  {line}" for line in more)]
    # Without notes and causes, the traceback's last line says it all.
    short = error["notes"] or error["chain"] or not error["traceback"]
    return [*(lines if short else []), *error["traceback"].splitlines()]


def _named(error: dict[str, Any]) -> str:
    return ": ".join(part for part in (error["kind"], error["text"]) if part)


def _when(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):  # a date beyond the calendar
        return f"{milliseconds} ms since 1970"
    return moment.isoformat(sep=" ", timespec="milliseconds")
