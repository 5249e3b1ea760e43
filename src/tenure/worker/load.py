"""Finds the app that a worker is to run, by the name given on the command line."""

from __future__ import annotations

import importlib
from types import ModuleType

from tenure.app import App
from tenure.errors import ConfigError


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
