"""Where settings are written beside the code: the environment and pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenure.errors import ConfigError
from tenure.names import did_you_mean

PREFIX = "TENURE_"

OF_APP = ("broker", "add_timeout", "visibility_timeout", "pool_size", "compress_over")
OF_WORKER = (
    "queues", "processes", "threads", "async_slots", "name", "isolate", "grace", "max_jobs_per_process",
    "max_memory_per_process", "health", "counts_file", "log_level", "log_format",
)  # fmt: skip
OF_SERVER = (
    "listen", "data", "durability", "result_ttl", "key_window", "max_body", "max_line", "max_connections",
    "line_timeout", "reserve",
)  # fmt: skip
OF_STORE = ("result_ttl", "key_window")
"""Those of a server that the app reads too, for brokers without a server of ours."""
KNOWN = (*OF_APP, *OF_WORKER, *OF_SERVER)
"""Every setting that may be written there; those of a worker and a server are the options of their commands."""

_NEAR = 0.85
"""How alike a variable has to be to a setting to be taken for a mistyped one.

Whatever else begins with TENURE_ is somebody else's: orchestrators set TENURE_PORT_7333_TCP and the like.
"""


class Found(NamedTuple):
    """What a setting was given as, and where."""

    value: object
    source: str


class Sources:
    """The environment and the `[tool.tenure]` table of the nearest pyproject.toml; the environment goes first.

    `folder` is where the search begins, up to the root (default: the current one).  Raises ConfigError for a setting
    that there is not, and for a file that cannot be read.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._file, self._table = _project(Path.cwd() if folder is None else folder)
        _refuse_mistyped(self._environ)

    def find(self, name: str) -> Found | None:
        """Return what is written for a setting, None where nothing is; an empty variable is none."""
        variable = f"{PREFIX}{name.upper()}"
        if text := self._environ.get(variable):
            return Found(text, f"${variable}")
        return Found(self._table[name], str(self._file)) if name in self._table else None

    def of_command(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return what the file says of a command's options, as their texts would be on the command line."""
        return {name: _text(self._table[name]) for name in names if name in self._table}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _project(folder: Path) -> tuple[Path | None, Mapping[str, Any]]:
    for file in _files(folder):
        table = _tenure_table(file)
        if table is None:
            continue
        for word in table:
            if word not in KNOWN:
                raise ConfigError(
                    f"{file}: [tool.tenure] has no setting {word!r}.{did_you_mean(word, KNOWN)} "
                    f"Settings: {', '.join(KNOWN)}."
                )
        return file, table
    return None, {}


def _files(folder: Path) -> Iterator[Path]:
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            yield file


def _tenure_table(file: Path) -> dict[str, Any] | None:
    import tomllib  # not needed where there is no such file

    try:
        table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("tenure")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{file} could not be read for settings ({error}); repair it") from None
    if table is not None and type(table) is not dict:
        raise ConfigError(f"{file}: tool.tenure has to be a table, [tool.tenure]")
    return table


def _refuse_mistyped(environ: Mapping[str, str]) -> None:
    from difflib import get_close_matches

    variables = [f"{PREFIX}{name.upper()}" for name in KNOWN]
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in variables:
            near = get_close_matches(variable, variables, n=1, cutoff=_NEAR)
            if near:
                raise ConfigError(f"${variable} is no setting. Did you mean ${near[0]}?")
