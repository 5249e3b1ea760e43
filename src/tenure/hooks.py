"""What an app calls beside its tasks, and how it is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from tenure.carry import Carried, with_variable
from tenure.depends import Depends
from tenure.errors import ConfigError, TaskDefinitionError
from tenure.events import EventName, Subscriber
from tenure.functions import is_coroutine_function
from tenure.middleware import Layer, Middleware, PublishMiddleware
from tenure.names import did_you_mean, shown
from tenure.outcome import DeadHook
from tenure.recipes import recipe_of
from tenure.task_options import dead_hook

if TYPE_CHECKING:
    from tenure.task import Task

Hook = TypeVar("Hook", bound=Callable[[], object])
H = TypeVar("H", bound=DeadHook)
M = TypeVar("M", bound=Middleware)
P = TypeVar("P", bound=PublishMiddleware)
S = TypeVar("S", bound=Subscriber)
V = TypeVar("V", bound=ContextVar[Any])


class Hooks:
    """The part of an App that knows what is to be called, and when."""

    tasks: Mapping[str, Task[..., Any]]

    def __init__(self) -> None:
        self._dead_hooks: list[DeadHook] = []
        self.start_hooks: list[Callable[[], object]] = []
        self.stop_hooks: list[Callable[[], object]] = []
        self.layers: tuple[Layer, ...] = ()
        self.publish_layers: tuple[PublishMiddleware, ...] = ()
        self.carried: Carried = {}
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.subscribers: dict[str, tuple[Subscriber, ...]] = {}

    def on_dead(self, hook: H, /) -> H:
        """Call the function below for every job of any task that has failed for good: `@app.on_dead`.

        It is given the job (`DeadJob`) and its last error (`Failure`), after the hook of the task itself
        (`@app.task(on_dead=...)`).  The process that was told by the broker that the job is dead calls it, in a thread
        of its own, at most once; what it raises is logged.  Where the job cost its own process, another one of the
        worker does.  It is not called for jobs that end without a worker: expired, or out of losses because the whole
        worker died or the lease ran out.  Raises TaskDefinitionError.
        """
        try:
            checked_hook = dead_hook(hook)
        except ConfigError as error:
            raise TaskDefinitionError(f"@app.on_dead: {error}") from None
        if checked_hook not in self._dead_hooks:
            self._dead_hooks.append(checked_hook)
        return hook

    def dead_hooks(self, task: str) -> list[DeadHook]:
        """Return the hooks for dead jobs of a task: its own first, then the app's."""
        known = self.tasks.get(task)
        own = None if known is None else known.defaults.on_dead
        return [*([] if own is None else [own]), *self._dead_hooks]

    def on_worker_start(self, hook: Hook) -> Hook:
        """Have each worker process call this before its first job: `@app.on_worker_start`; sync or async.

        The hooks run in the order of their registration; one that raises ends the process, with its traceback shown.
        Raises ConfigError for what cannot be called without arguments.
        """
        self.start_hooks.append(_checked_hook("on_worker_start", hook))
        return hook

    def on_worker_stop(self, hook: Hook) -> Hook:
        """Have each worker process call this after its last job: `@app.on_worker_stop`; sync or async.

        The hooks run in the reverse order of their registration; the error of one is logged, and the others follow.
        Raises ConfigError for what cannot be called without arguments.
        """
        self.stop_hooks.append(_checked_hook("on_worker_stop", hook))
        return hook

    def middleware(self, layer: M) -> M:
        """Put the function below around each execution of a job: `@app.middleware`; sync or async.

        It is given the job's `JobContext` and `call_next`, a function without parameters that runs what is inside;
        what it returns is the job's result, and its exception is the job's.  The first one registered is the
        outermost.  An async one awaits `call_next()`; around a plain function it can await nothing else.  Around a
        coroutine, what a plain one returns is awaited: it returns what `call_next()` returned.  Raises ConfigError.
        """
        rule = "@app.middleware goes on a function of the job's context and call_next"
        _check_callable(rule, layer, 2)
        self.layers += (Layer(layer, is_coroutine_function(layer)),)
        return layer

    def publish_middleware(self, layer: P) -> P:
        """Put the function below around each adding of jobs, in the process that adds: `@app.publish_middleware`.

        It is given the messages of the call (`delay()` has one) and `call_next`, which takes as many, perhaps changed
        (`message.with_headers(...)`, `message._replace(...)`), and returns the broker's answers; it returns those.  The
        first one registered is the outermost.  What it raises comes out of the call.  A plain function: for
        `adelay()` it runs in a thread, within a copy of the caller's context.  Raises ConfigError.
        """
        rule = "@app.publish_middleware goes on a plain function of the messages and call_next"
        _check_callable(rule, layer, 2)
        if is_coroutine_function(layer):
            raise ConfigError(f"{rule}; {shown(layer)} is a coroutine function")
        self.publish_layers += (layer,)
        return layer

    def carry(self, variable: V) -> V:
        """Let the value of a context variable travel with each job that is added, and set it again where it runs.

        Returns the variable: `tenant = app.carry(ContextVar("tenant"))`.  What it holds when the job is added is what
        the job finds, at every attempt, and so do the jobs that it adds; where it is not set, nothing travels.
        Values are what arguments can be without type hints, all of a job's together at most 4096 bytes, else the call
        raises NotSerializable.  Raises ConfigError for what is no ContextVar, and for a second one of the same name.
        """
        self.carried = with_variable(self.carried, variable)
        return variable

    def on(self, *names: EventName) -> Callable[[S], S]:
        """Tell the function below of events: `@app.on("job.dead", "job.retried")`; it is given an `Event`.

        `job.added` is told in the thread that adds, when the broker has answered that the job is new.  All others are
        told by a worker, in one thread of each of its processes: `job.started` before the function is called, and for
        each that was started one of `job.done`, `job.retried`, `job.released`, `job.dead`, `job.cancelled` and
        `lease.lost`, when the broker has answered; where the job cost its process, another one tells of it.  A
        subscriber watches: what it raises is logged, and when 10,000 events wait for it, further ones are left out.
        Raises ConfigError.
        """
        for name in names or ("",):
            if name not in get_args(EventName):
                known = get_args(EventName)
                raise ConfigError(
                    f"app.on({name!r}) names no event.{did_you_mean(name, known)} Events: {', '.join(known)}"
                )

        def subscribe(subscriber: S) -> S:
            rule = "@app.on goes on a plain function of an Event"
            _check_callable(rule, subscriber, 1)
            if is_coroutine_function(subscriber):
                raise ConfigError(f"{rule}; {shown(subscriber)} is a coroutine function")
            for name in names:
                self.subscribers[name] = (*self.subscribers.get(name, ()), subscriber)
            return subscriber

        return subscribe

    @contextmanager
    def override(self, factory: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[None]:
        """Let `replacement` stand for a factory of `Depends` inside of the `with` block, as tests do.

        It may be whatever a factory may be, and its value is used as long as that of the factory in its place:
        `with app.override(open_db, lambda: fake): ...`.  What a process has open already is not opened anew.  Raises
        TaskDefinitionError for what can be no factory.
        """
        recipe_of(Depends(replacement))
        before = self.overrides.get(factory)
        self.overrides[factory] = replacement
        try:
            yield
        finally:
            if before is None:
                del self.overrides[factory]
            else:
                self.overrides[factory] = before


def _checked_hook(name: str, hook: Callable[[], object]) -> Callable[[], object]:
    _check_callable(f"@app.{name} goes on a function without parameters", hook, 0)
    return hook


def _check_callable(rule: str, hook: object, arguments: int) -> None:
    """Raise ConfigError for what cannot be called with so many arguments."""
    if not callable(hook):
        raise ConfigError(f"{rule}, not on {shown(hook)}")
    try:
        signature(hook).bind(*[None] * arguments)
    except TypeError as error:
        raise ConfigError(f"{rule}; {shown(hook)} cannot be called so: {error}") from None
    except ValueError:
        pass  # some callables of C have no signature: the first call will tell
