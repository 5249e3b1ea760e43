"""The apps of this process: found again by their names, and kept whole over a fork."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.app import App
    from tenure.job import Job
    from tenure.task import Task

_apps: weakref.WeakSet[App] = weakref.WeakSet()


def add(app: App) -> None:
    """Remember an app for as long as somebody has it."""
    _apps.add(app)


def task_named(app: str, name: str) -> Task[..., Any]:
    """Return a task that was pickled, by its app's name; raises ConfigError where there is none, or more than one."""
    found = [one.tasks[name] for one in list(_apps) if one.name == app and name in one.tasks]
    if len(found) != 1:
        what = "no" if not found else f"{len(found)}"
        raise ConfigError(f"task {name} was pickled, and {what} app named {app!r} here has it; import its module first")
    return found[0]


def app_named(name: str | None, job: Job[Any]) -> App:
    """Return the app of a handle that was pickled; raises ConfigError where there is none, or more than one."""
    found = [app for app in list(_apps) if app.name == name]
    knowing = [app for app in found if job.task in app.tasks] or found
    if len(knowing) != 1:
        what = "no app" if not knowing else f"{len(knowing)} apps"
        raise ConfigError(
            f"the handle of job {job.id} came without its app, and this process has {what} named {name!r}; import the "
            "module that makes it, or use app.job(id)"
        )
    return knowing[0]


class _Forks:
    """Keeps a fork from happening while another thread makes an app's broker.

    That thread may be importing the broker's module, whose import lock nobody would ever release in the child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = False
        self._held: list[App] = []

    def before(self) -> None:
        """Wait for those threads, a second at most: a fork out of a signal handler may have interrupted one."""
        self._own = self._lock.acquire(timeout=_FORK_LIMIT)
        self._held = [app for app in list(_apps) if app._lock.acquire(timeout=_FORK_LIMIT)]

    def after_in_parent(self) -> None:
        """Let them go on."""
        held, self._held = self._held, []
        for app in held:
            app._lock.release()
        if self._own:
            self._lock.release()

    def after_in_child(self) -> None:
        """Begin anew: each app makes a broker of its own."""
        self._lock = threading.Lock()
        self._held = []
        for app in list(_apps):
            app._forget()


_FORK_LIMIT = 1.0
_forks = _Forks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child
    )
