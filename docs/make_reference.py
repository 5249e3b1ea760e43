"""Writes the pages of docs/reference that are made from the code: `make reference`.

The words are those of the docstrings, of the commands' own help, and of the checked settings; to change a page, change
them and run this again.  A unit test compares the pages with what this makes.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click

import tenure
from docs.describe import Documented, as_markdown, block, definition, docstring, filled, hint_text, one_line, table
from docs.make_brokers import brokers_page
from tenure import (
    broker,
    config,
    context,
    errors,
    faults,
    job_log,
    message,
    signature,
    sources,
    task,
    task_options,
    testing,
)
from tenure.cli import main, options
from tenure.contrib import structlog
from tenure.faults import process
from tenure.testing import contract, plugin
from tenure.worker import Worker
from tenure.worker.counts import Counts

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- made from the code by `make reference`: change the docstrings, not this page -->"
FOR_TENURE_ITSELF = {
    "App": {"aadd_message", "add_message", "add_task", "dead_hooks", "found_broker", "import_includes", "loaded"},
    "BrokerUnavailable": {"adapt"},
    "Counts": {"line", "write"},
    "InlineWorker": {"close"},
    "JobContext": {"boot_clock", "hold"},
    "MovableClock": {"boot", "mono", "wait", "wall", "watch"},
    "RecordingBroker": {"add", "close", "end"},
    "Signature": {"call_options"},
    "Task": {
        "asend", "belong_to", "check", "check_call", "forget_plan", "message", "pack_result", "plan", "send",
        "unpack", "unpack_result",
    },
    "TaskGroup": {"join"},
    "TestHold": {"cancelled", "deadline", "extend", "idle", "progress", "stopping"},
}  # fmt: skip
"""Members without an underscore that only Tenure's own modules have a use for."""

MADE_BY_TENURE = {"InlineWorker", "MovableClock", "RecordingBroker", "Script", "Task", "TaskCall", "Worker"}
"""Classes whose objects come from a function or a fixture, or that are written anew."""


class Section(typing.NamedTuple):
    """A part of the page: its heading, some words, and what is described below it, each under its name."""

    title: str
    words: str
    things: Sequence[tuple[str, Documented]]


def sections() -> list[Section]:
    """The whole of the public interface, in the order of the page."""
    return [
        Section(
            "App and tasks",
            "",
            [
                *_named(tenure.App, tenure.TaskGroup, tenure.Task),
                ("TaskCall", task.TaskCall),
                *_named(tenure.Signature, tenure.Backoff),
                ("Worker", Worker),
                ("Counts", Counts),
                ("ProducerCounts", broker.ProducerCounts),
            ],
        ),
        Section(
            "Jobs and results",
            filled(
                "A `Timeout` is seconds, a timedelta or None.",
                f"A `State` is one of {', '.join(get_args(message.State))}.",
            ),
            [*_named(tenure.Job, tenure.as_completed), ("Progress", context.Progress)],
        ),
        Section(
            "Inside a task",
            "What a task raises to say what becomes of its job is among the errors, under `JobControl`.",
            [
                *_named(tenure.JobContext),
                ("current_job", type(tenure.current_job)),
                *_named(tenure.DeadJob, tenure.Failure),
            ],
        ),
        Section(
            "Around jobs",
            filled(
                "From `tenure.middleware`: a `CallNext` takes nothing and returns what the inside of a middleware "
                "does, or an awaitable of it; a `PublishNext` takes messages (`tenure.message`) and returns one "
                "`Added` (`tenure.broker`) for each."
            ),
            [
                *_named(tenure.Depends, tenure.Event),
                ("Message", message.Message),
                ("Added", broker.Added),
                ("JsonFormatter", job_log.JsonFormatter),
                ("add_job", structlog.add_job),
            ],
        ),
        Section("Errors", _error_tree(), _named(*_errors())),
        Section(
            "Testing",
            filled("From `tenure.testing`; the last two from `tenure.testing.contract`.", testing.__doc__ or ""),
            [
                ("tenure_app", _fixture(plugin, "tenure_app")),
                ("tenure_worker", _fixture(plugin, "tenure_worker")),
                ("faults", _fixture(plugin, "faults")),
                *_named(*(getattr(testing, name) for name in testing.__all__)),
                ("TestHold", context.TestHold),
                *_named(contract.BrokerContract, contract.BrokerSite),
            ],
        ),
        Section(
            "Faults",
            filled("From `tenure.faults`.", faults.__doc__ or ""),
            [
                *_named(*(getattr(faults, name) for name in faults.__all__)),
                *((f"process.{name}", verb) for name, verb in _functions(process)),
            ],
        ),
    ]


def _named(*things: Any) -> list[tuple[str, Documented]]:
    return [(thing.__name__, thing) for thing in things]


def _errors() -> list[type]:
    """All errors, in the order of the tree."""
    names = re.findall(r"^(?:[| ]*[|`]-- )?([A-Z]\w+)(?: |$)", errors.__doc__ or "", re.MULTILINE)
    return [getattr(errors, name) for name in names if hasattr(errors, name)]


def _error_tree() -> str:
    first, _, tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")
    return f"{first} All are in `tenure`.\n\n{block(tree, 'text')}"


def _fixture(module: ModuleType, name: str) -> Callable[..., Any]:
    """The function below `@pytest.fixture`."""
    return typing.cast("Callable[..., Any]", inspect.unwrap(getattr(module, name)))


def _functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield name, value


# --------------------------------------------------------------------------------------------------------- api.md


def api_page() -> str:
    """Return the page of the Python interface."""
    parts = [
        "# The Python interface",
        MADE,
        filled(
            "Times are in seconds and sizes in bytes where nothing else is said. Names are in `tenure` unless their "
            "section says otherwise. What is not on this page may change at any time."
        ),
    ]
    for section in sections():
        parts.append(f"## {section.title}")
        parts += [section.words] if section.words else []
        for name, thing in section.things:
            parts += _described(name, thing)
    return "\n\n".join(parts) + "\n"


def _described(name: str, thing: Documented) -> list[str]:
    if not isinstance(thing, type):
        return [f"### {name}", _define(name, thing), docstring(thing)]
    parts = [f"### {name}", *_class(name, thing), docstring(thing), *_attributes(name, thing)]
    for member, value in _members(name, thing):
        if inspect.isfunction(value):
            parts += [f"#### {name}.{member}", _define(f"{name}.{member}", value), docstring(value)]
    return parts


def _define(name: str, function: Callable[..., Any]) -> str:
    start = "async def" if inspect.iscoroutinefunction(function) else "def"
    return definition(f"{start} {name.rpartition('.')[2]}", function, without={"self", "cls"})


def _class(name: str, kind: type) -> list[str]:
    """The first line of a class: how it is made, or its name alone where nobody makes one."""
    if not name[0].isupper():
        return []  # an object, of which there is one
    if issubclass(kind, enum.Enum):
        return [block(f"class {name}(Enum):" + "".join(f'\n    {one.name} = "{one.value}"' for one in kind))]
    error = issubclass(kind, BaseException)
    if "__init__" in vars(kind) if error else name not in MADE_BY_TENURE:
        return [definition(f"class {name}", kind, without={"_app", *FOR_TENURE_ITSELF.get(name, ())})]
    bases = ", ".join(base.__name__ for base in kind.__bases__) if error else ""
    return [block(f"class {name}({bases})" if bases else f"class {name}")]


def _members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class itself defines, in their order."""
    for member, value in vars(kind).items():
        if not _for_users(name, member):
            continue
        if isinstance(value, classmethod | staticmethod):
            yield member, value.__func__
        elif isinstance(value, property) or inspect.isfunction(value):
            yield member, value


def _for_users(owner: str, name: str) -> bool:
    return not name.startswith("_") and name not in FOR_TENURE_ITSELF.get(owner, ())


def _attributes(name: str, kind: type) -> list[str]:
    """A table of the properties."""
    rows = [
        (f"`{member}: {hint_text(value.fget.__annotations__['return'])}`", one_line(value.__doc__))
        for member, value in _members(name, kind)
        if isinstance(value, property) and value.fget is not None
    ]
    return [table(("attribute", ""), rows)] if rows else []


# --------------------------------------------------------------------------------------------------------- cli.md


def cli_page() -> str:
    """Return the page of the command line."""
    parts = [
        "# The command line",
        MADE,
        _help(main.cli),
        filled(f"TIME is {_reading(options.seconds)}; SIZE is {_reading(options.size)}; ID is a job's id."),
        filled(
            "Exit codes: 0 when it went well; 1 when it did not, with one line on stderr that says why; 2 when the "
            "command was not written as it has to be."
        ),
    ]
    with click.Context(main.cli, info_name="tenure") as ctx:
        parts.append(table(("command", ""), list(_commands(main.cli, ctx, "tenure"))))
        for name in main.cli.list_commands(ctx):
            parts += _command_parts(main.cli.get_command(ctx, name), ctx, f"tenure {name}")
    return "\n\n".join(parts) + "\n"


def _reading(read: Callable[..., Any]) -> str:
    return one_line(read.__doc__).removeprefix("Read ").rstrip(".")


def _commands(group: click.Group, ctx: click.Context, path: str) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None  # it is in the list
        anchor = f"{path} {name}".replace(" ", "-")
        yield f"[`{path} {name}`](#{anchor})", one_line(command.help).partition(". ")[0].rstrip(".")


def _command_parts(command: click.Command | None, ctx: click.Context, path: str) -> list[str]:
    assert command is not None  # it is in the list
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    chosen = sorted((one for one in command.params if isinstance(one, click.Option)), key=lambda one: one.opts[-1])
    usage = [path, *(["[OPTIONS]"] if chosen else []), *(one.metavar or (one.name or "").upper() for one in arguments)]
    if isinstance(command, click.Group):
        usage.append("COMMAND")
    parts = [f"## {path}", block(" ".join(usage), "text"), _help(command)]
    if chosen:
        parts.append(table(("option", "default", ""), [_option_row(one) for one in chosen]))
    if isinstance(command, click.Group):
        parts.append(table(("command", ""), list(_commands(command, ctx, path))))
        for name in command.list_commands(ctx):
            parts += _command_parts(command.get_command(ctx, name), ctx, f"{path} {name}")
    return parts


def _help(command: click.Command) -> str:
    """A command's help; a paragraph that click leaves as it is becomes a block."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    kept = "\b\n"
    return "\n\n".join(
        block(text.removeprefix(kept), "text") if text.startswith(kept) else as_markdown(text) for text in paragraphs
    )


def _option_row(option: click.Option) -> tuple[str, str, str]:
    """One option; a default that the help does not show is named in its text."""
    value = option.metavar or ""
    if isinstance(option.type, click.Choice):
        value = " or ".join(str(choice) for choice in option.type.choices)
    words = one_line(option.help)
    named = re.search(r"\s*\[default: (.*)\]$", words)
    default = f"`{option.default}`" if option.show_default else named[1] if named else ""
    if option.required:
        default = "(has to be given)"
    words = words[: named.start()] if named else words
    return f"`{', '.join(option.opts)}{' ' + value if value else ''}`", default, words + _range(option.type)


def _range(kind: object) -> str:
    if not isinstance(kind, click.IntRange):
        return ""
    return f" From {kind.min}{'' if kind.max is None else f' to {kind.max}'}."


# ---------------------------------------------------------------------------------------------------- settings.md


def settings_page() -> str:
    """Return the page of all settings with a limit, and of the options of tasks and calls."""
    parts = [
        "# Settings and their limits",
        MADE,
        filled(
            "Whatever is outside of these limits is refused where it is written, with the value, the limit and the way "
            "out."
        ),
        "## Where the broker is",
        docstring(config.find_broker).replace("Return the", "The", 1),
        "## In the environment and in pyproject.toml",
        filled(
            "Each of these may be written as a variable of the environment, or under its name in the `[tool.tenure]` "
            "table of the nearest pyproject.toml, found from the current folder upwards. The command line and what the "
            "code says come first, then the environment, then the file, then the default; `tenure settings` shows each "
            "value and where it came from. Lengths of time may have a unit (`30s`, `10m`, `1h`, `2d`), sizes too "
            "(`64KiB`, `1MiB`). A name that there is not is refused in the file; in the environment it is refused "
            "where it is nearly one of these."
        ),
        table(("setting", "variable", "of"), list(_source_rows())),
        "## Numbers",
        docstring(config.Settings),
        table(("name", "default", "from", "to", "unit", "where"), list(_limit_rows())),
        "## Options of a task",
        docstring(tenure.App.task).partition("\n\n")[2],
        table(("option", "type", "default"), list(_task_rows())),
        "## Options of a call",
        docstring(tenure.Task.options).partition("\n\n")[2],
        table(("option", "type"), list(_call_rows())),
    ]
    return "\n\n".join(parts) + "\n"


def _source_rows() -> Iterator[tuple[str, str, str]]:
    parts = {
        "the app": sources.OF_APP,
        "`tenure worker`": sources.OF_WORKER,
        "`tenure server`": sources.OF_SERVER,
    }
    for part, names in parts.items():
        for name in names:
            where = f"{part}, with Redis the app" if name in sources.OF_STORE else part
            yield f"`{name}`", f"`${sources.PREFIX}{name.upper()}`", where


def _limit_rows() -> Iterator[tuple[str, ...]]:
    defaults = {**_defaults(message.Message), **_defaults(config.Settings), **_flags()}
    for name, limit in config.LIMITS.items():
        default = defaults.get(name)
        shown = "" if default in (None, dataclasses.MISSING) else f"{default:.10g}"
        yield (f"`{name}`", shown, f"{limit.least:.10g}", f"{limit.most:.10g}", limit.unit, ", ".join(_places(name)))


def _flags() -> dict[str, Any]:
    """The defaults of `App.worker`, where they are numbers."""
    found = inspect.signature(tenure.App.worker).parameters.values()
    return {one.name: one.default for one in found if type(one.default) in (int, float)}


def _places(name: str) -> Iterator[str]:
    """Where a setting is written."""
    if name in inspect.signature(tenure.App).parameters:
        yield f"`App({name}=)`"
    if name in task_options.TaskWords.__annotations__:
        yield f"`@app.task({name}=)`"
    if name in signature.CallWords.__annotations__:
        yield f"`.options({name}=)`"
    if name in inspect.signature(tenure.App.worker).parameters:
        yield f"`app.worker({name}=)`"
    with click.Context(main.cli) as ctx:
        for command in ("server", "worker"):
            found = main.cli.get_command(ctx, command)
            if found is not None and any(one.name == name for one in found.params):
                yield f"`tenure {command} --{name.replace('_', '-')}`"


def _defaults(kind: Any) -> dict[str, Any]:
    if issubclass(kind, tuple):
        return dict(kind._field_defaults)
    return {one.name: one.default for one in dataclasses.fields(kind)}


def _task_rows() -> Iterator[tuple[str, str, str]]:
    defaults = _defaults(task_options.TaskOptions)
    for name, hint in task_options.TaskWords.__annotations__.items():
        yield f"`{name}`", f"`{hint_text(hint)}`", f"`{defaults[name]!r}`" if name in defaults else ""


def _call_rows() -> Iterator[tuple[str, str]]:
    for name, hint in signature.CallWords.__annotations__.items():
        yield f"`{name}`", f"`{hint_text(hint)}`"


# ------------------------------------------------------------------------------------------------------- the files


def pages() -> dict[str, str]:
    """Return all pages that are made, by the name of their file."""
    return {
        "api.md": api_page(),
        "brokers.md": brokers_page(MADE),
        "cli.md": cli_page(),
        "settings.md": settings_page(),
    }


def write() -> None:
    """Write the pages into docs/reference."""
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
