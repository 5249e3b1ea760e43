"""Tasks that are defined before their app is there, as a library defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never, cast

from tenure.definition import TaskMaker, define
from tenure.errors import ConfigError, TaskDefinitionError
from tenure.names import checked
from tenure.routing import Routing
from tenure.task import Task

if TYPE_CHECKING:
    from tenure.app import App
    from tenure.task_options import TaskOptions


class TaskGroup(TaskMaker):
    """Tasks without an app, which `app.add_group(group)` makes its own.

    With a `prefix` its tasks are named `prefix.function`, wherever their module is, and names that they are given
    come behind it too; aliases are whole names.  Raises ConfigError for what cannot be part of a name.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix and checked("prefix", prefix)
        self.tasks: list[Task[..., Any]] = []
        self._app: App | None = None

    def __repr__(self) -> str:
        return f"<TaskGroup {self.prefix}: {len(self.tasks)} tasks>"

    def join(self, app: App) -> None:
        """Belong to `app` from now on; raises ConfigError for a second app."""
        if self._app not in (None, app):
            raise ConfigError(f"{self!r} belongs to {self._app!r}; make another group for {app!r}")
        self._app = app

    def _defined(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[..., Any]:
        task = define(cast("App", _NoApp(self)), function, self._name(function, name), options)
        self.tasks.append(task)
        if self._app is not None:
            self._app.add_task(task)
        return task

    def _name(self, function: Callable[..., Any], name: str | None) -> str | None:
        if not self.prefix:
            return name
        own = getattr(function, "__qualname__", "<lambda>") if name is None else name
        if name is None and "<lambda>" in own:
            raise TaskDefinitionError(f"{function!r} has no name of its own; give the task one: @group.task(name=...)")
        return f"{self.prefix}.{own}"


class _NoApp:
    """Stands where the app of a group's task will be, and says what is missing to whoever needs one."""

    routing = Routing()

    def __init__(self, group: TaskGroup) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Never:
        if name.startswith("__"):  # asked for by copy, pickle and the like, which take it that there is none
            raise AttributeError(name)
        raise ConfigError(f"the tasks of {self._group!r} have no app yet; add the group to one: app.add_group(group)")
