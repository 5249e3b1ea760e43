"""The error that a job failed with, made anew in the caller's process from its texts.

Nothing is unpickled, and of the error's class no code of its own runs: only what the built-in class under it does.
Classes and modules are looked into past their own attributes, for a metaclass or a module may run code for each.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any

from tenure.errors import RemoteError
from tenure.outcome import Failure, text_of

_BUILT_IN = {id(one) for one in vars(builtins).values() if issubclass(type(one), type)}
_MODULE_NAMES: Any = vars(ModuleType)["__dict__"]
_CLASS_NAMES: Any = vars(type)["__dict__"]
_CLASS_ORDER: Any = vars(type)["__mro__"]
_OWN_NAMES: Any = vars(BaseException)["__dict__"]


def cause_of(failure: Failure, importable: Collection[str] = ()) -> BaseException:
    """Return an exception of the failure's own class, or a RemoteError where that cannot be.

    The class is looked for among the built-in ones and in modules that this process has loaded; of those in
    `importable`, which the app names, one that is not loaded yet is imported.
    """
    try:
        kind = _class_of(failure.kind, importable)
        error = None if kind is None else _made(kind, failure)
    except KeyboardInterrupt:  # Ctrl+C in the middle of an import
        raise
    except BaseException:  # noqa: BLE001  (a class may be as odd as it likes, and a module may exit when imported)
        error = None
    if error is None:
        error = RemoteError(failure.text, failure.kind)
    if failure.notes:
        _OWN_NAMES.__get__(error)["__notes__"] = list(failure.notes)  # `add_note` asks the class's own attributes
    return error


def _class_of(path: str, importable: Collection[str]) -> type[BaseException] | None:
    module, _, name = path.rpartition(".")
    if not module:
        return _exception_in("builtins", [name])
    names = [name]
    while module not in sys.modules and module not in importable and "." in module:  # the class is in another class
        module, _, outer = module.rpartition(".")
        names.insert(0, outer)
    if module not in sys.modules and module in importable:
        importlib.import_module(module)
    return _exception_in(module, names)


def _exception_in(module: str, names: list[str]) -> type[BaseException] | None:
    """Look names up without running code of a module, a class or a metaclass; None where there is no such class."""
    found: Any = sys.modules.get(module)
    names_in = _MODULE_NAMES
    for name in names:
        if found is None:
            return None
        found = names_in.__get__(found).get(name)
        names_in = _CLASS_NAMES
    return found if issubclass(type(found), type) and issubclass(found, BaseException) else None


def _made(kind: type[BaseException], failure: Failure) -> BaseException | None:
    """Make the exception as its built-in base would; None where it would not say what it said.

    A class that has a `__str__` of its own is trusted only where its text is what the base makes of the arguments:
    others need what their constructor would have set, and their text is not asked for here.
    """
    order = _CLASS_ORDER.__get__(kind)
    base: Any = next(one for one in order if id(one) in _BUILT_IN)
    args = (failure.text,) if failure.args is None else failure.args
    text = text_of(base(*args))
    own = any("__str__" in _CLASS_NAMES.__get__(one) for one in order if id(one) not in _BUILT_IN)
    if text != failure.text and (own or (failure.args is None and failure.text not in text)):
        return None
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)
    return error
