"""The error that a job failed with, made anew in the caller's process from its texts.

Nothing is unpickled, and of the error's class no code of its own runs: only what the built-in class under it does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection
from typing import Any

from tenure.errors import RemoteError
from tenure.outcome import Failure


def cause_of(failure: Failure, importable: Collection[str] = ()) -> BaseException:
    """Return an exception of the failure's own class, or a RemoteError where that cannot be.

    The class is looked for among the built-in ones and in modules that this process has loaded; of those in
    `importable`, which the app names, one that is not loaded yet is imported.
    """
    try:
        kind = _class_of(failure.kind, importable)
        error = None if kind is None else _made(kind, failure)
    except Exception:  # noqa: BLE001  (a class may be as odd as it likes)
        error = None
    if error is None:
        error = RemoteError(failure.text, failure.kind)
    for note in failure.notes:
        error.add_note(note)
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
    """Look names up without running a module's or a class's own `__getattr__`."""
    found: Any = sys.modules.get(module)
    for name in names:
        found = getattr(found, "__dict__", {}).get(name)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _made(kind: type[BaseException], failure: Failure) -> BaseException | None:
    """Make the exception as its built-in base would; None where it then does not say what it said."""
    base: Any = next(one for one in kind.__mro__ if one.__module__ == "builtins")
    args = (failure.text,) if failure.args is None else failure.args
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)
    if failure.args is not None or str(error) == failure.text:
        str(error)  # raises where the class's own needs what its constructor would have set
        return error
    # Its text is not what its arguments say; the text is what a person reads.
    error.args = (failure.text,)
    return error if failure.text in str(error) else None
