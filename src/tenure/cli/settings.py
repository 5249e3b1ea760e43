"""`tenure settings`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import click

from tenure.app import App
from tenure.cli import main
from tenure.cli.options import json_option, print_json
from tenure.cli.tables import print_table
from tenure.errors import ConfigError
from tenure.names import without_secrets
from tenure.sources import OF_APP, Sources


class Setting(NamedTuple):
    """A setting's value, and where it was written."""

    name: str
    value: object
    source: str


@click.command()
@click.option("-A", "--app", metavar="MODULE[:NAME]", help="The module with your App, to see what its code says.")
@json_option
@click.pass_context
def settings(ctx: click.Context, app: str | None, as_json: bool) -> None:
    """Show every setting, and where its value was written.

    The places, nearest first: the command line or App(...), $TENURE_NAME, [tool.tenure] in the nearest pyproject.toml,
    the default.
    """
    parts = {"app": _of_app(app)} | {name: _of_command(ctx, name) for name in main.SETTINGS_OF}
    if as_json:
        print_json({part: [one._asdict() for one in rows] for part, rows in parts.items()})
        return
    rows = [(part, one.name, _shown(one.value), one.source) for part, rows in parts.items() for one in rows]
    print_table(("of", "setting", "value", "from"), rows, whole=("value",))


def _of_app(target: str | None) -> list[Setting]:
    if target is None:
        app = App("settings")
    else:
        app = _loaded(target)
    loaded = app.loaded()
    values: dict[str, Any] = asdict(loaded.settings)
    url, source = app.found_broker()
    return [
        Setting("broker", without_secrets(url), source),
        *(Setting(name, values[name], loaded.sources.get(name, "default")) for name in OF_APP if name != "broker"),
    ]


def _loaded(target: str) -> App:
    from tenure.worker.load import load_app, look_here, why_not_loaded

    look_here()
    try:
        return load_app(target)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the app's modules may raise anything)
        raise ConfigError(why_not_loaded(error, target)) from None


def _of_command(ctx: click.Context, name: str) -> list[Setting]:
    """Read a command's options as the command itself would, with none on its command line but those that it needs."""
    command = main.cli.get_command(ctx, name)
    assert command is not None
    names = main.SETTINGS_OF[name]
    sources = Sources()
    needed = [word for one in command.params if one.required for word in (one.opts[0], "-")]
    read = command.make_context(name, needed, default_map=sources.of_command(names)).params
    found = {name: sources.find(name) for name in names}
    return [Setting(name, read[name], "default" if at is None else at.source) for name, at in found.items()]


def _shown(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
