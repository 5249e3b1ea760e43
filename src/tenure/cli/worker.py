"""`tenure worker`."""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource

from tenure.cli.options import app_broker_option, log_level_option, seconds, size
from tenure.worker.options import DEFAULT_ASYNC_SLOTS, DEFAULT_THREADS, WorkerOptions, default_processes


@click.command()
@click.option(
    "-A",
    "--app",
    required=True,
    metavar="MODULE[:NAME]",
    help="The module with your App, such as shop.jobs or shop.jobs:app.",
)
@app_broker_option
@click.option("--queues", metavar="A,B", help="Take from these queues only.  [default: all queues of the app's tasks]")
@click.option(
    "--queue", "others", metavar="NAME", multiple=True,
    help="Take from this queue, also where its name has a comma; may be given again, and with --queues.",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 256), default=default_processes(), metavar="N",
    help="Worker processes.  [default: the number of CPUs, at most 4]",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1, 1000), default=DEFAULT_THREADS, show_default=True, metavar="N",
    help="Slots in each process: how many plain functions it runs at once.",
)  # fmt: skip
@click.option(
    "--async-slots", type=click.IntRange(1, 10_000), default=DEFAULT_ASYNC_SLOTS, show_default=True, metavar="N",
    help="How many coroutines (async def tasks) each process runs at once.",
)  # fmt: skip
@click.option(
    "--isolate", is_flag=True,
    help="One slot a process: a job that goes on after its time limit is ended with its process, at once and alone.",
)  # fmt: skip
@click.option("--name", metavar="TEXT", help="The worker's label in the record.  [default: host-pid]")
@click.option(
    "--grace", type=seconds, default="25s", show_default=True, metavar="TIME",
    help="On SIGTERM or Ctrl+C: how long running jobs may go on before they are stopped and given back.",
)  # fmt: skip
@click.option(
    "--visibility-timeout", type=seconds, metavar="TIME",
    help="How long the server waits for a sign of life before it gives a job to another worker.  "
    "[default: App(visibility_timeout=), 30s]",
)  # fmt: skip
@click.option(
    "--max-jobs-per-process", type=click.IntRange(1), metavar="N",
    help="Replace a process by a fresh one after this many jobs.",
)  # fmt: skip
@click.option(
    "--max-memory-per-process", type=size, metavar="SIZE",
    help="Replace a process by a fresh one when it has more memory than this, looked at between jobs.",
)  # fmt: skip
@click.option(
    "--health", metavar="HOST:PORT",
    help="Answer there over HTTP: /live (200: needs no new start) and /ready (200: takes jobs), else 503 and why.",
)  # fmt: skip
@click.option(
    "--counts-file", metavar="PATH", type=click.Path(dir_okay=False), help="Write the worker's counts there, as JSON."
)
@log_level_option
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How it is written there; json: an object a line, with the job's id and task.",
)  # fmt: skip
def worker(
    app: str,
    broker: str | None,
    queues: str | None,
    others: tuple[str, ...],
    processes: int,
    threads: int,
    async_slots: int,
    isolate: bool,
    name: str | None,
    grace: float,
    visibility_timeout: float | None,
    max_jobs_per_process: int | None,
    max_memory_per_process: int | None,
    health: str | None,
    counts_file: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a worker that takes jobs and calls your functions.

    A supervisor starts the processes, keeps their jobs held while they run, and gives a job back at once when its
    process dies.  Stop it with Ctrl+C or SIGTERM: running jobs finish first.  A second time: at once.
    """
    from tenure.cli.signals import no_more_ends
    from tenure.worker.supervisor import run_supervisor

    if isolate:
        _refuse_slots()
    options = WorkerOptions(
        app=app,
        broker=broker,
        processes=processes,
        threads=1 if isolate else threads,
        async_slots=1 if isolate else async_slots,
        isolate=isolate,
        queues=_names(queues, others),
        name=name,
        grace=grace,
        log_level=log_level,
        log_format=log_format,
        counts_file=_counts_file(counts_file),
        visibility_timeout=_visibility_timeout(visibility_timeout),
        max_jobs=max_jobs_per_process,
        max_memory=max_memory_per_process,
        health=health,
    )
    code = run_supervisor(options)
    no_more_ends()
    sys.exit(code)


def _names(queues: str | None, others: tuple[str, ...]) -> tuple[str, ...] | None:
    source = click.get_current_context().get_parameter_source("queues")
    if queues is None or (others and source is not ParameterSource.COMMANDLINE):  # what is written elsewhere gives way
        return tuple(dict.fromkeys(others)) or None
    names = tuple(dict.fromkeys((*(name.strip() for name in queues.split(",") if name.strip()), *others)))
    if not names:
        raise click.BadParameter("names no queue; write for example --queues default,mail", param_hint="--queues")
    return names


def _refuse_slots() -> None:
    """Raise UsageError where the same command line asks for several slots a process."""
    context = click.get_current_context()
    for name in ("threads", "async_slots"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"--isolate means one slot a process: leave out {option}, or give --processes")


def _counts_file(path: str | None) -> str | None:
    from tenure.worker.counts import check_place

    if path is not None:
        try:
            check_place(path)
        except OSError as error:
            raise click.BadParameter(
                f"no file can be made at {path} ({error.strerror}), so this worker's counts would be lost; name one in "
                "a folder that is there and that it may write to",
                param_hint="--counts-file",
            ) from None
    return path


def _visibility_timeout(timeout: float | None) -> float | None:
    if timeout is not None and timeout < 0.1:
        raise click.BadParameter(f"{timeout:g} s is too short; give 0.1 s or more", param_hint="--visibility-timeout")
    return timeout
