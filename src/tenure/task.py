"""A registered function: called, it runs here and now; with `.delay()` it becomes a job."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack
from zlib import crc32

from tenure.apps import task_named
from tenure.binding import Binding
from tenure.carry import put_in
from tenure.codec import (
    NotStored,
    Stored,
    deflate,
    fingerprint,
    pack_call,
    pack_scalar_call,
    pack_value,
    plain_args,
    unpack_call,
    unpack_result,
)
from tenure.errors import ConfigError, DecodeError, NotSerializable, TaskDefinitionError
from tenure.functions import callers_signature, is_coroutine_function
from tenure.hints import Plan, plan
from tenure.ids import new_id
from tenure.job import Job
from tenure.message import DEFAULT_QUEUE, NO_HEADERS, Message
from tenure.names import checked, shown
from tenure.packable import SCALARS
from tenure.recipes import recipes_of
from tenure.retry import Backoff
from tenure.signature import NO_OPTIONS, CallOptions, CallWords, Signature, call_options
from tenure.task_options import TaskOptions

if TYPE_CHECKING:
    from tenure.app import App

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Task(Generic[P, R]):
    """A function under the name by which workers find it; made by `@app.task`.

    Calling it runs the plain function.  `delay()` adds a job, `s()` makes a signature, `options()` gives a call
    options of its own.  `queue` is where its jobs wait, unless a call or a function in the app's routes says otherwise.
    """

    __name__: str

    def __init__(self, app: App, function: Callable[..., Any], name: str, defaults: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self.fn = function
        self.name = name
        self.defaults = defaults
        self.takes_context, signature = callers_signature(function)
        self.is_async = is_coroutine_function(function)
        self.recipes = recipes_of(function, name)
        self._binding = Binding(name, signature, tuple(self.recipes))
        self._hinted = function  # kept beside `fn`, in whose place a test may put another
        self._plan: Plan | None = None
        self._known: AbstractSet[tuple[object, ...]] = frozenset()
        if defaults.key is not None:
            _check_key_takes(name, defaults.key, signature)
        self.belong_to(app)

    def belong_to(self, app: App) -> None:
        """Become a task of this app; a task of a TaskGroup does when the group is added to one."""
        own = self.defaults.queue
        self.app = app
        self.queue = own or app.routing.of_task(self.name) or DEFAULT_QUEUE
        self._routed = own is None and app.routing.by_call
        self.forget_plan()

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which its jobs may come: its own first, then its aliases."""
        return self.name, *self.defaults.aliases

    @property
    def backoff(self) -> Backoff:
        """How long a job of it rests after a failed attempt."""
        return self.defaults.backoff

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.recipes:
            self._check_all_given(args, kwargs)
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # As a function is: by the place where whoever reads it finds it, so that another process can call it.
        function = self.fn
        place = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        return _task_at, (*place, self.app.name, self.name)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job for this call and return its handle once the broker has it safe.

        Raises TypeError (names or number of arguments), WrongArgument (one that does not fit its type hint),
        NotSerializable (one without a wire form), KeyConflict and MessageTooLarge (refused by the broker), and
        BrokerUnavailable when there was no answer within the app's `add_timeout`.
        """
        return self.app.add_message(self.message(args, kwargs, NO_OPTIONS))

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job from a coroutine: as `delay`, and the event loop goes on meanwhile.

        Cancelled while it waits, the job is added all the same, or `app.counts` tells that it was not.  Raises what
        `delay` does.
        """
        return await self.app.aadd_message(self.message(args, kwargs, NO_OPTIONS))

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return the call as a value that can be kept, given options, and sent later.

        Raises TypeError, WrongArgument and NotSerializable, as `delay` does.
        """
        self.check_call(args, kwargs)
        return Signature(self, args, kwargs)

    def options(self, **words: Unpack[CallWords]) -> TaskCall[P, R]:
        """Return the task with options for one call.

        `queue`: where the job waits.  `key`: the idempotency key, within the task.  `delay` (seconds or timedelta) or
        `run_at` (aware datetime): the earliest start.  `expires` (any of them): the latest start.  `priority`: 0 to
        9, 9 first.  `visibility_timeout` (seconds or timedelta): how long a worker holds it without a sign of life.
        `timeout` (seconds or timedelta): how long an attempt may run.  `max_attempts`: how often it may run.  Raises
        ConfigError.
        """
        return TaskCall(self, call_options(words))

    def send(self, signature: Signature[R]) -> Job[R]:
        """Add the job of a signature of this task."""
        message = self.message(signature.args, signature.kwargs, signature.call_options)
        return self.app.add_message(message)

    async def asend(self, signature: Signature[R]) -> Job[R]:
        """Add the job of a signature of this task from a coroutine."""
        message = self.message(signature.args, signature.kwargs, signature.call_options)
        return await self.app.aadd_message(message)

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError unless the function can be called so."""
        self._binding.check(args, kwargs)

    def check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError unless the function can be called so, and WrongArgument where its hints say otherwise."""
        self.check(args, kwargs)
        if kwargs or (*map(type, args),) not in self._known:
            self.plan.pack(args, kwargs, self.defaults.check)

    @property
    def plan(self) -> Plan:
        """What the type hints come to; worked out when first needed, for they may name what is defined later."""
        made = self._plan
        if made is None:
            made = plan(self._hinted, self._binding.signature, self.name)
            made = self._plan = replace(made, enums=made.enums.with_(self.app.enums))
            self._known = made.known
        return made

    def forget_plan(self) -> None:
        """Work the hints out anew: the app knows more Enum classes than before."""
        self._plan = None
        self._known = frozenset()

    def message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CallOptions) -> Message:
        """Make the message of one call, with a new id; raises like `delay`, but for what the broker refuses."""
        if self._routed and options.queue is None:
            options = replace(options, queue=self.app.routing.of_call(self.name, args, kwargs))
        filled = self._binding.filled(args, kwargs)
        if filled is None:
            return self._bound_message(args, kwargs, options)
        key = self._key(options, filled, {})
        if filled is args and (types := (*map(type, args),)) in self._known and SCALARS.issuperset(types):
            return self._made(*pack_scalar_call(self.name, args), key, options)
        return self._hinted_message(args, kwargs, key, options)

    def _hinted_message(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str | None, options: CallOptions
    ) -> Message:
        """Make the message of a call whose arguments have to be looked at, and perhaps converted, by their hints."""
        hinted = self.plan
        if not hinted.knows(args, kwargs):
            args, kwargs = hinted.pack(args, kwargs, self.defaults.check)
        packed = _packed(args, kwargs, hinted)
        filled = self._binding.filled(args, kwargs) or args
        same = not kwargs and len(filled) == len(args)
        print_ = fingerprint(self.name, filled, {}, packed if same else None, hinted.enums)
        return self._made(packed, print_, key, options)

    def _bound_message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CallOptions) -> Message:
        """Make the message of a call that only a full binding understands."""
        bound = self._binding.bound(args, kwargs)
        key = self._key(options, bound.args, bound.kwargs)
        left_out = self._binding.without_wire_form(bound)
        hinted = self.plan
        args, kwargs = hinted.pack(args, kwargs, self.defaults.check)
        packed = _packed(args, kwargs, hinted)
        bound = self._binding.bound(args, kwargs)
        for name in left_out:
            del bound.arguments[name]
        print_ = fingerprint(self.name, bound.args, bound.kwargs, None, hinted.enums)
        return self._made(packed, print_, key, options)

    def unpack(self, message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a message as the function declares them.

        Raises DecodeError for bytes that cannot be read, and TypeError for arguments that do not fit the function.
        """
        hinted = self._plan or self.plan
        data = plain_args(message.args, message.headers) if message.headers else message.args
        args, kwargs = unpack_call(data, hinted.enums)
        self.check(args, kwargs)
        if not kwargs and (*map(type, args),) in self._known:
            return args, kwargs
        args, fitted = hinted.fit(args, kwargs, self.defaults.check)
        return args, dict(fitted)

    def pack_result(self, value: Any) -> bytes:
        """Pack what the function returned; raises NotSerializable, and nothing else."""
        try:
            return pack_value(self.plan.pack_result(value), "result", self.plan.enums)
        except NotSerializable:
            raise
        except BaseException as error:
            raise NotSerializable(f"the result cannot be packed: {type(error).__name__}") from error

    def unpack_result(self, data: bytes) -> Stored | NotStored:
        """Return the result that a worker of this task packed; raises DecodeError."""
        result = unpack_result(data, self.plan.enums)
        if isinstance(result, NotStored) or self.plan.returns is None:
            return result
        try:
            return Stored(self.plan.fit_result(result.value))
        except Exception as error:
            raise DecodeError(f"the result does not fit the hint of {self.name}: {error}") from error

    def _made(self, packed: bytes, print_: bytes, key: str | None, options: CallOptions) -> Message:
        own = self.defaults
        visible = options.visibility_timeout
        over = self.app.settings.compress_over
        headers: Mapping[str, Any] = NO_HEADERS
        if over is not None and len(packed) > over:
            packed, headers = deflate(packed)
        if self.app.carried:
            headers = put_in(headers, self.app.carried, self.app.enums)
        fields = (  # in the order of `Message`, which is made so in a fourth of the time that names take
            new_id(),
            self.name,
            packed,
            crc32(packed),
            print_,
            options.queue or self.queue,
            key,
            own.priority if options.priority is None else options.priority,
            options.run_at,
            options.expires,
            own.timeout if options.timeout is None else options.timeout,
            own.visibility_timeout if visible is None else visible,
            options.max_attempts or own.max_attempts,
            own.max_losses,
            headers,
        )
        return Message(*fields)

    def _check_all_given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError for a direct call that leaves out what only a worker fills."""
        given = inspect.signature(self.fn).bind(*args, **kwargs).arguments
        left_out = [name for name in self.recipes if name not in given]
        if left_out:
            raise TypeError(f"{self.name}() was called directly, where no worker fills {left_out[0]}; pass it by name")

    def _key(self, options: CallOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        if options.key is not None or self.defaults.key is None:
            return options.key
        try:
            key = self.defaults.key(*args, **kwargs)
        except Exception as error:
            error.add_note(f"raised by key= of task {self.name}")
            raise
        if type(key) is not str:
            raise ConfigError(f"key= of task {self.name} returned {shown(key)}; it has to return a str")
        try:
            return checked("key", key)
        except ConfigError as error:
            raise ConfigError(f"key= of task {self.name}: {error}") from None


def _task_at(module: str, qualname: str, app: str, name: str) -> Task[..., Any]:
    """Return the task that was pickled: what its function's name stands for, else the one that an app knows."""
    found: object = importlib.import_module(module) if module else None
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Task) and found.name == name:
        return found
    return task_named(app, name)


class TaskCall(Generic[P, R]):
    """A task with options for one call; made by `task.options(...)`."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R], options: CallOptions) -> None:
        self._task = task
        self._options = options

    def __repr__(self) -> str:
        return f"<TaskCall {self._task.name} {self._options}>"

    def options(self, **words: Unpack[CallWords]) -> TaskCall[P, R]:
        """Return it with these options as well; see `Task.options`."""
        return TaskCall(self._task, self._options.then(call_options(words)))

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job with these options; see `Task.delay`."""
        task = self._task
        return task.app.add_message(task.message(args, kwargs, self._options))

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job with these options from a coroutine; see `Task.adelay`."""
        task = self._task
        return await task.app.aadd_message(task.message(args, kwargs, self._options))

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return the call with these options as a value that can be kept and sent later."""
        self._task.check_call(args, kwargs)
        return Signature(self._task, args, kwargs, self._options)


def _packed(args: tuple[Any, ...], kwargs: Mapping[str, Any], hinted: Plan) -> bytes:
    try:
        return pack_call(args, kwargs, hinted.enums)
    except NotSerializable as error:
        if not hinted.unclear:
            raise
        raise NotSerializable(f"{error} (these hints could not be found: {', '.join(hinted.unclear)})") from None


def _check_key_takes(name: str, key: Callable[..., str], signature: inspect.Signature) -> None:
    """Look once, at definition, that `key` can be called like the task."""
    places = [parameter for parameter in signature.parameters.values() if parameter.kind in _POSITIONAL]
    words = [
        word for word, parameter in signature.parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    try:
        inspect.signature(key).bind(*places, **dict.fromkeys(words))
    except TypeError as error:
        raise TaskDefinitionError(
            f"key= of task {name} has to take what the task takes, {signature}: {error}; "
            "for example key=lambda order_id, cents: f'order:{order_id}'"
        ) from None
    except ValueError:
        return  # some callables of C have no signature: the first call will tell
