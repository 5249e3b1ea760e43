"""Finds the app that a command is to know, by the name given on its command line."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from tenure.app import App
from tenure.errors import ConfigError

_OURS = Path(__file__).parent.parent


def look_here() -> None:
    """Have the modules of the current folder found: an installed command does not look there by itself."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def load_app(path: str) -> App:
    """Import `module` or `module:name` and return its App, with the modules that it includes imported as well.

    Without a name: the attribute `app`, else the only App in the module.  Raises ConfigError, or whatever the
    module raises.
    """
    module_name, _, name = path.partition(":")
    module = importlib.import_module(module_name)
    app = _named(module, name) if name else _only(module)
    app.import_includes()
    return app


def _named(module: ModuleType, name: str) -> App:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = "there is nothing of that name" if found is None else f"that is {type(found).__name__}"
        raise ConfigError(f"-A {module.__name__}:{name} does not name an App ({what}); give MODULE:NAME of your App")
    return found


def _only(module: ModuleType) -> App:
    found = getattr(module, "app", None)
    if isinstance(found, App):
        return found
    apps = {id(value): name for name, value in vars(module).items() if isinstance(value, App)}
    if len(apps) == 1:
        only = getattr(module, next(iter(apps.values())))
        assert isinstance(only, App)
        return only
    if not apps:
        raise ConfigError(f"{module.__name__} has no App; write `app = App(...)` in it, or give MODULE:NAME with -A")
    names = ", ".join(sorted(apps.values()))
    raise ConfigError(f"{module.__name__} has several Apps ({names}); say which one with -A {module.__name__}:NAME")


def why_not_loaded(error: BaseException, app: str) -> str:
    """What a person is told of an app that could not be loaded: our own words, or where in their code it went wrong."""
    return str(error) if isinstance(error, ConfigError) else f"-A {app} could not be imported:\n{traced(error)}"


def traced(error: BaseException) -> str:
    """Return an error with its traceback, from the first line that is neither ours nor the import system's."""
    frames = error.__traceback__
    while frames is not None and _is_machinery(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _is_machinery(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    return file.startswith("<frozen importlib") or _OURS in Path(file).parents or file == importlib.__file__
