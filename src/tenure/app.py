"""The application: its tasks, its broker, and the way from both to jobs and workers."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from enum import Enum, EnumType
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Never, TypeVar, Unpack, overload

from tenure import apps
from tenure.broker import NOTHING_ADDED, Broker, ProducerCounts
from tenure.config import Loaded, Settings, checked_number, find_broker, find_broker_and_source, load, seconds, whole
from tenure.definition import TaskMaker, define
from tenure.errors import AddError, ConfigError, TaskDefinitionError
from tenure.groups import TaskGroup
from tenure.hooks import Hooks
from tenure.job import Job
from tenure.leaves import NO_ENUMS, Enums
from tenure.message import DEFAULT_QUEUE, Message
from tenure.middleware import Middleware
from tenure.names import checked, job_id, place_of, refuse_unknown, shown
from tenure.publishing import add_many, add_one, checked_call
from tenure.routing import Routes, routing
from tenure.signature import CallWords, Signature
from tenure.task import R, Task
from tenure.task_options import TaskOptions

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from datetime import timedelta

    from tenure.worker import Worker

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_DEFAULTS = Settings()


class App(TaskMaker, Hooks):
    """A named set of tasks and the broker that holds their jobs.

    `broker` is a URL, or a broker; left out, it is looked for in $TENURE_BROKER, then in `[tool.tenure]` of
    pyproject.toml, then at tenure://127.0.0.1:7333, when it is first needed.  So are the
    other settings: $TENURE_ADD_TIMEOUT and so on, `add_timeout = 3` under `[tool.tenure]`, then the default.
    `include` names the modules that a worker imports for their tasks.  `add_timeout` (5; at most 300) and
    `visibility_timeout` (30) are seconds, `pool_size` (8) is the largest number of connections for adding.
    `compress_over`: arguments of more than so many bytes travel compressed (None: never).  `routes` says in which
    queues the jobs of tasks wait that name none: a dict from names or patterns (`"mail.*"`) to queues, a function of a
    task's name, its args and kwargs that returns a queue or None, or a list of these, of which the first that names a
    queue decides.  `middleware` are functions around each execution of a job, the outermost first; see
    `App.middleware`.  Raises ConfigError for a value that cannot be.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: str | Broker | None = None,
        include: Sequence[str] = (),
        add_timeout: float | timedelta | None = None,
        visibility_timeout: float | timedelta | None = None,
        pool_size: int | None = None,
        compress_over: int | None = None,
        routes: Routes | None = None,
        middleware: Sequence[Middleware] = (),
        **unknown: Never,
    ) -> None:
        if unknown:
            refuse_unknown("App()", App, unknown)
        super().__init__()
        self.name = checked("App name", name)
        self.include = _checked_include(include)
        for layer in middleware:
            self.middleware(layer)
        words = {
            "add_timeout": add_timeout,
            "visibility_timeout": visibility_timeout,
            "pool_size": pool_size,
            "compress_over": compress_over,
        }
        self._words = {name: checked_number(name, value) for name, value in words.items() if value is not None}
        self._loaded: Loaded | None = None
        self.routing = routing(routes)
        self.enums = NO_ENUMS
        self._given = broker
        self._tasks: dict[str, Task[..., Any]] = {}
        self.tasks: Mapping[str, Task[..., Any]] = MappingProxyType(self._tasks)
        self._elsewhere: dict[str, Task[..., Any]] = {}
        self._lock = threading.Lock()
        self._broker: Broker | None = None
        self._counted = NOTHING_ADDED  # over brokers that were closed
        self._senders: ThreadPoolExecutor | None = None
        apps.add(self)

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self._tasks)} tasks>"

    def register(self, kind: type[E]) -> type[E]:
        """Let members of an Enum class travel that no type hint of their task names; also as a decorator.

        Raises ConfigError for what is no Enum class.
        """
        if not isinstance(kind, EnumType):
            raise ConfigError(
                f"app.register takes an Enum class, not {shown(kind)}; other classes are declared in the signature"
            )
        self.enums = self.enums.with_(Enums([kind]))
        for task in self._tasks.values():
            task.forget_plan()
        return kind

    def queues(self) -> list[str]:
        """Return the names of all queues of the tasks, `default` first, then in alphabetical order."""
        names = {task.queue for task in self._tasks.values()}
        return sorted(names, key=lambda name: (name != DEFAULT_QUEUE, name))

    def add_group(self, group: TaskGroup) -> None:
        """Make the tasks of a group tasks of this app, and those that the group makes later.

        Raises ConfigError for a group of another app, and TaskDefinitionError where two tasks have one name.
        """
        if not isinstance(group, TaskGroup):
            raise ConfigError(f"app.add_group takes a TaskGroup, not {shown(group)}")
        for task in group.tasks:
            self._refuse_seconds(task)
        group.join(self)
        for task in group.tasks:
            self.add_task(task)

    def add_task(self, task: Task[..., Any]) -> None:
        """Know a task under its name and its aliases; `task` and `add_group` are built on it."""
        self._refuse_seconds(task)
        task.belong_to(self)
        self._tasks.update(dict.fromkeys(task.names, task))

    def send(
        self, task: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **words: Unpack[CallWords]
    ) -> Job[Any]:
        """Add a job of a task by its name alone, whose code need not be here: `app.send("shop.charge", [42])`.

        A task that this app has is called with its own options and checks.  Of any other one nothing is known: its
        queue is what the call or the routes say, else `default`.  Options are those of `Task.options`, raises what
        `Task.delay` does.
        """
        named = checked_call(task, args, kwargs)
        return self._by_name(task).options(**words).delay(*args, **named)

    async def asend(
        self, task: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **words: Unpack[CallWords]
    ) -> Job[Any]:
        """Add a job by a task's name from a coroutine; see `send`."""
        named = checked_call(task, args, kwargs)
        return await self._by_name(task).options(**words).adelay(*args, **named)

    def add_many(self, signatures: Iterable[Signature[T]]) -> list[Job[T] | AddError]:
        """Add many jobs in as few writes as possible; one answer a signature, in order.

        What could not be added is an AddError at its place (KeyConflict, MessageTooLarge, or one whose cause tells
        why the call could not be packed) and does not stop the others.  Raises BrokerUnavailable when the broker did
        not confirm within `add_timeout`; its `resend()` returns what this would have.
        """
        return add_many(self, signatures)

    def add_message(self, message: Message) -> Job[Any]:
        """Add one message; `Task.delay` is built on it."""
        return add_one(self, message)

    async def aadd_message(self, message: Message) -> Job[Any]:
        """Add one message from a coroutine, in a thread beside the event loop; `Task.adelay` is built on it."""
        import asyncio  # a process without coroutines does not pay for it

        loop = asyncio.get_running_loop()
        add = partial(copy_context().run, self.add_message, message)  # what the caller has set, its middleware finds
        # Shielded: a job that was called for is added and counted, also where nobody waits for it any more.
        return await asyncio.shield(loop.run_in_executor(self._sender_threads(), add))

    @overload
    def job(self, id: str, task: Task[..., R]) -> Job[R]: ...
    @overload
    def job(self, id: str, task: None = None) -> Job[Any]: ...
    def job(self, id: str, task: Task[..., Any] | None = None) -> Job[Any]:
        """Return the handle of a job by its id alone, as another process was told it; asks nobody.

        `id` is 32 hexadecimal digits (dashes and capitals are taken too).  With its `task` the result comes back as
        that task's hints say, else as plain values.  Raises ConfigError for what is no id.
        """
        return Job(known := job_id(id), known, "", "" if task is None else task.name, False, self)

    @property
    def broker(self) -> Broker:
        """The broker, made when it is first asked for; a child of a fork makes its own."""
        broker = self._broker
        return self._connect() if broker is None else broker

    @property
    def broker_url(self) -> str:
        """The URL of the broker, looked for as `App` says; raises ConfigError for an app that was given a broker."""
        return self.found_broker()[0]

    def found_broker(self) -> tuple[str, str]:
        """Return the URL of the broker, and where it was written; raises ConfigError as `broker_url` does."""
        if isinstance(self._given, str | None):
            return find_broker_and_source(of_app=self._given)
        raise ConfigError(f"{self!r} was given a broker and no URL, so other processes cannot find it; give a URL")

    @property
    def counts(self) -> ProducerCounts:
        """What this process's adds came to so far, those before a `close()` included."""
        broker = self._broker or (None if isinstance(self._given, str | None) else self._given)
        return self._counted if broker is None else self._counted.plus(broker.counts())

    @property
    def settings(self) -> Settings:
        """What its code, the environment and pyproject.toml say, looked for when it is first needed."""
        return (self._loaded or self.loaded()).settings

    def loaded(self) -> Loaded:
        """Return the settings with where each was written; raises ConfigError for one that cannot be."""
        with self._lock:  # a fork waits for it: what is imported to read them leaves no import half done in a child
            return self._load()

    def use_broker(self, url: str) -> None:
        """Use this broker instead of the app's own, as `--broker` does; before the first job is added.

        Counts begin anew.  Raises ConfigError for what is no URL.
        """
        self.close()
        self._given, self._counted = find_broker(url), NOTHING_ADDED

    @contextmanager
    def on_broker(self, broker: str | Broker) -> Iterator[None]:
        """Use another broker inside of the `with` block, as tests do; the app's own comes back after it."""
        self.close()
        before = self._given, self._counted
        self._given, self._counted = broker, NOTHING_ADDED
        try:
            yield
        finally:
            self.close()
            self._given, self._counted = before

    def close(self) -> None:
        """Close the connections; the app can still be used and opens new ones."""
        with self._lock:
            broker, self._broker = self._broker, None
            senders, self._senders = self._senders, None
        if senders is not None:
            senders.shutdown()  # what was called for is added first
        if broker is not None:
            broker.close()
            if broker is not self._given:  # one that was given goes on counting when it is used again
                self._counted = self._counted.plus(broker.counts())

    def import_includes(self) -> None:
        """Import the modules in `include`, so that their tasks are known; an error in one of them comes through."""
        for module in self.include:
            importlib.import_module(module)

    def worker(
        self,
        queues: Sequence[str] | None = None,
        threads: int = 8,
        name: str | None = None,
        grace: float = _DEFAULTS.grace,
        visibility_timeout: float | timedelta | None = None,
        async_slots: int = 100,
        health: str | None = None,
        **unknown: Never,
    ) -> Worker:
        """Return a worker for this process; `run()` works until it is told to stop.

        `queues`: default all queues of the tasks.  `threads` and `async_slots`: how many jobs run at a time, of plain
        functions and of coroutines.  `grace` (for running jobs when it is told to stop) and `visibility_timeout` are
        seconds.  `health`: HOST:PORT, where `run()` answers as `tenure worker --health` does.  Raises ConfigError.
        """
        from tenure.worker import Worker  # the one import of a higher layer, when it is asked for

        if unknown:
            refuse_unknown("app.worker()", self.worker, unknown)
        return Worker(
            self,
            queues=queues,
            threads=whole("threads", threads),
            async_slots=whole("async_slots", async_slots),
            name=name,
            grace=seconds("grace", grace),
            health=health,
            visibility_timeout=self.settings.visibility_timeout
            if visibility_timeout is None
            else seconds("visibility_timeout", visibility_timeout),
        )

    def _forget(self) -> None:
        """Let go of the parent's broker and lock in the child of a fork, without closing what the parent uses."""
        self._lock = threading.Lock()
        self._broker = None
        self._counted = NOTHING_ADDED
        self._senders = None

    def _load(self) -> Loaded:
        """Return the settings; call it with the lock."""
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = load(self._words)
        return loaded

    def _sender_threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._senders is None:
                from concurrent.futures import ThreadPoolExecutor

                self._senders = ThreadPoolExecutor(self._load().settings.pool_size, "tenure-add")
            return self._senders

    def _connect(self) -> Broker:
        with self._lock:
            if self._broker is None:
                self._broker = self._made_broker()
            return self._broker

    def _made_broker(self) -> Broker:
        if not isinstance(self._given, str | None):
            return self._given
        from tenure.brokers import connect  # a process that only defines tasks needs no socket

        settings = self._load().settings
        return connect(
            self.broker_url,
            keeping={"result_ttl": settings.result_ttl, "key_window": settings.key_window},
            add_timeout=settings.add_timeout,
            pool_size=settings.pool_size,
        )

    def _defined(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> Task[..., Any]:
        task = define(self, function, name, options)
        self.add_task(task)
        return task

    def _refuse_seconds(self, task: Task[..., Any]) -> None:
        for name in task.names:
            other = self._tasks.get(name)
            # The same place defined again is a module that was loaded again.
            if other is None or place_of(other.fn) == place_of(task.fn):
                continue
            file, line = place_of(other.fn) or ("unknown file", 0)
            raise TaskDefinitionError(
                f"two tasks have the name {name}: the other one is defined in {file}, line {line}; "
                "rename one, or give it a name of its own: @app.task(name=...)"
            )

    def _by_name(self, name: str) -> Task[..., Any]:
        """Return the task of this name, or a stand-in for one whose code is elsewhere."""
        known = self._tasks.get(checked("task name", name)) or self._elsewhere.get(name)
        if known is None:
            known = self._elsewhere[name] = define(self, _elsewhere, name, TaskOptions(check=False))
        return known


def _elsewhere(*args: Any, **kwargs: Any) -> Any:
    """Stand for a function that this process does not have."""


def _checked_include(include: object) -> tuple[str, ...]:
    if isinstance(include, str) or not isinstance(include, Sequence):
        raise ConfigError(f"include={shown(include)} has to be a list of module names, such as ['shop.jobs']")
    return tuple(checked("module in include", module) for module in include)
