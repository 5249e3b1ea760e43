"""The command `tenure`: each subcommand's module is imported when it is called."""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import click
from click.core import ParameterSource

from tenure.errors import TenureError
from tenure.sources import OF_SERVER, OF_WORKER, PREFIX, Sources

COMMANDS = {
    "server": ("tenure.cli.server", "Run a server that keeps the jobs (one file, nothing to install)."),
    "worker": ("tenure.cli.worker", "Run a worker that takes jobs and calls your functions."),
    "dev": ("tenure.cli.dev", "Run a server and a worker in one command, for development."),
    "health": ("tenure.cli.health", "Ask a worker whether it can take jobs."),
    "record": ("tenure.cli.record", "Show the server's own count of every job and hand-out."),
    "queues": ("tenure.cli.queues", "List the queues and how many jobs wait in each."),
    "pause": ("tenure.cli.queues", "Hand out no more jobs of these queues."),
    "resume": ("tenure.cli.queues", "Hand out the jobs of paused queues again."),
    "close": ("tenure.cli.queues", "Take no new jobs into these queues."),
    "open": ("tenure.cli.queues", "Take new jobs into closed queues again."),
    "purge": ("tenure.cli.queues", "Cancel all jobs that wait in a queue, also those that wait for their time."),
    "job": ("tenure.cli.jobs", "Show one job: its state, every hand-out, worker and error."),
    "cancel": ("tenure.cli.jobs", "Cancel jobs that are not wanted any more."),
    "dead": ("tenure.cli.jobs", "Look at jobs that failed for good; put them back, or purge them."),
    "chaos": ("tenure.cli.chaos", "Stand between clients and a server, and break their connections on purpose."),
    "settings": ("tenure.cli.settings", "Show every setting, and where its value was written."),
}

SETTINGS_OF = {"worker": OF_WORKER, "server": OF_SERVER}
"""Options that may also be written in the environment and in pyproject.toml, by their commands."""


class LazyGroup(click.Group):
    """A group that knows its commands' names, and imports one only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry[0]), cmd_name)
        for parameter in command.params:
            if parameter.name in SETTINGS_OF.get(cmd_name, ()):
                parameter.envvar = f"{PREFIX}{parameter.name.upper()}"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            raise _with_source(error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _with_source(error: click.BadParameter) -> click.BadParameter:
    """Return an error that also names the place where the value was written, if that is not the command line."""
    ctx, parameter = error.ctx, error.param
    source = None if ctx is None or parameter is None else ctx.get_parameter_source(parameter.name or "")
    if parameter is None or source not in (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP):
        return error
    place = f"${parameter.envvar}" if source is ParameterSource.ENVIRONMENT else "pyproject.toml"
    return click.BadParameter(f"{error.message} (from {place})", ctx, parameter)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `tenure server`, then `tenure worker -A your.module` in another terminal.",
)
@click.version_option(package_name="tenure", prog_name="tenure")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Tenure: a task queue for work that must not be lost.

    A server keeps the jobs in one file.  Your program adds jobs to it with `.delay()`.  A worker takes them, calls
    your functions, and says "done" only after the work.
    """
    if ctx.invoked_subcommand in SETTINGS_OF:
        ctx.default_map = {name: Sources().of_command(names) for name, names in SETTINGS_OF.items()}


def main(args: list[str] | None = None) -> Any:
    """Run the command line; errors that Tenure raises on purpose become one line and exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no letter for something shows the rest
    try:
        return cli.main(args=args, prog_name="tenure", standalone_mode=True)
    except BrokenPipeError:  # `tenure record | head`; it is a ConnectionError as well
        sys.exit(1)
    except (TenureError, ConnectionError) as error:
        click.echo(f"tenure: {error}", err=True)
        sys.exit(1)
