"""Which queue a job waits in where neither its call nor its task says so: `App(routes=...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tenure.errors import ConfigError
from tenure.names import checked, shown

Route = Callable[[str, tuple[Any, ...], Mapping[str, Any]], str | None]
"""A function of a task's name and a call's arguments that returns a queue, or None: it does not say."""

Routes = Mapping[str, str] | Route | Sequence[Mapping[str, str] | Route]

_RULE = (
    'routes= takes a dict from task names or patterns to queues, such as {"mail.*": "mail"}, a function of a task\'s '
    "name, its args and kwargs that returns a queue or None, or a list of these"
)


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of an app, checked; the first rule that names a queue decides."""

    rules: tuple[Mapping[str, str] | Route, ...] = ()

    @property
    def by_call(self) -> bool:
        """Whether a job's queue may depend on its arguments."""
        return any(not isinstance(rule, Mapping) for rule in self.rules)

    def of_task(self, task: str) -> str | None:
        """Return the queue of a task as far as its name tells it."""
        named = (_named(rule, task) for rule in self.rules if isinstance(rule, Mapping))
        return next((queue for queue in named if queue is not None), None)

    def of_call(self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return the queue of one call; raises ConfigError where a function returns what is no queue's name."""
        for rule in self.rules:
            queue = _named(rule, task) if isinstance(rule, Mapping) else _asked(rule, task, args, kwargs)
            if queue is not None:
                return queue
        return None


def routing(routes: object) -> Routing:
    """Check the routes of an app; raises ConfigError naming what is wrong with them."""
    if routes is None:
        return Routing()
    given = list(routes) if isinstance(routes, list | tuple) else [routes]
    return Routing(tuple(_checked_rule(rule) for rule in given))


def _checked_rule(rule: object) -> Mapping[str, str] | Route:
    if isinstance(rule, Mapping):
        return {_checked_pattern(pattern): checked("queue in routes", queue) for pattern, queue in rule.items()}
    if not callable(rule) or isinstance(rule, type):
        raise ConfigError(f"{_RULE}; {shown(rule)} is none of them")
    return rule


def _checked_pattern(pattern: object) -> str:
    if type(pattern) is not str or not pattern:
        raise ConfigError(f"{_RULE}; {shown(pattern)} is no task's name and no pattern")
    return pattern


def _named(rule: Mapping[str, str], task: str) -> str | None:
    """Return what a dict says: of the task's whole name, else of the first pattern that fits it."""
    if task in rule:
        return rule[task]
    return next((queue for pattern, queue in rule.items() if fnmatchcase(task, pattern)), None)


def _asked(rule: Route, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    try:
        queue = rule(task, args, kwargs)
    except Exception as error:
        error.add_note(f"raised by a function in routes= for task {task}")
        raise
    if queue is None:
        return None
    try:
        return checked("queue", queue)
    except ConfigError as error:
        raise ConfigError(f"a function in routes= returned {shown(queue)} for task {task}: {error}") from None
