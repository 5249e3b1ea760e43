"""Onions: what an app puts around each execution of a job, and around each adding of jobs.

The layer that was registered first is the outermost one.  Each is given the next one as a function: what it does
before that call comes before the job, what it does after comes after it, and its exception is the job's exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from tenure.broker import Added
from tenure.context import JobContext
from tenure.message import Message

CallNext = Callable[[], Any]
"""Runs what is inside of a middleware; it returns what that returned, or an awaitable of it."""

Middleware = Callable[[JobContext, CallNext], Any]
"""Code around each execution of a job; what it returns is the job's result."""

PublishNext = Callable[[Sequence[Message]], Sequence[Added]]
"""Adds the messages, through the middleware further in; one answer a message, in order."""

PublishMiddleware = Callable[[Sequence[Message], PublishNext], Sequence[Added]]
"""Code around each adding of jobs; it may pass on changed messages, one for one, and returns the answers."""

_NO_LOOP = (
    "an async middleware around a plain function runs without an event loop and can await nothing but call_next(); "
    "write it as a plain function"
)


class Layer(NamedTuple):
    """One middleware, and whether a call of it returns a coroutine."""

    call: Middleware
    is_async: bool


def around_function(layers: Sequence[Layer], context: JobContext, body: CallNext) -> Any:
    """Return what a plain function comes to inside of the layers."""
    if not layers:
        return body()
    call, is_async = layers[0]
    rest = partial(around_function, layers[1:], context, body)
    return _driven(call(context, partial(_at_once, rest)), call) if is_async else call(context, rest)


async def around_coroutine(layers: Sequence[Layer], context: JobContext, body: Callable[[], Awaitable[Any]]) -> Any:
    """Return what a coroutine comes to inside of the layers; what a plain layer returns is awaited."""
    if not layers:
        return await body()
    call, is_async = layers[0]
    rest = partial(around_coroutine, layers[1:], context, body)
    made = call(context, rest if is_async else partial(_Later, rest))
    if not hasattr(type(made), "__await__"):
        raise TypeError(
            f"middleware {_name(call)} returned {type(made).__name__} around the coroutine of {context.task}, which "
            "has to be awaited: return what call_next() returned, or write the middleware as async def"
        )
    return await made


def around_adding(
    layers: Sequence[PublishMiddleware], messages: Sequence[Message], send: PublishNext
) -> Sequence[Added]:
    """Add messages inside of the layers; raises TypeError for a layer that changes how many there are."""
    if not layers:
        return send(messages)
    layer = layers[0]

    def call_next(changed: Sequence[Message]) -> Sequence[Added]:
        passed = tuple(changed)
        if len(passed) != len(messages) or not all(isinstance(one, Message) for one in passed):
            raise _miscounted(layer, len(messages))
        return around_adding(layers[1:], passed, send)

    answers: object = layer(messages, call_next)
    if not isinstance(answers, Sequence) or len(answers) != len(messages):
        raise _miscounted(layer, len(messages))
    return answers


class _Later:
    """The rest of an onion around a coroutine, which runs when it is awaited."""

    __slots__ = ("_rest",)

    def __init__(self, rest: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._rest().__await__()


async def _at_once(rest: CallNext) -> Any:
    """The rest of an onion around a plain function, for a layer that awaits it."""
    return rest()


def _driven(coroutine: Coroutine[Any, Any, Any], layer: Middleware) -> Any:
    """Return what an async layer around a plain function comes to: nothing in it may have to be waited for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    except RuntimeError as error:
        if str(error) == "no running event loop":
            error.add_note(f"middleware {_name(layer)}: {_NO_LOOP}")
        raise
    wrong = TypeError(f"middleware {_name(layer)} awaited something else than call_next(): {_NO_LOOP}")
    with suppress(StopIteration):
        coroutine.throw(wrong)  # its own clean-up runs
    coroutine.close()
    raise wrong


def _miscounted(layer: PublishMiddleware, count: int) -> TypeError:
    return TypeError(
        f"publish middleware {_name(layer)} was given {count} messages and has to pass on as many to call_next(), and "
        "return its answers; raise an exception to refuse the call"
    )


def _name(layer: Callable[..., Any]) -> str:
    return f"{getattr(layer, '__module__', '?')}.{getattr(layer, '__qualname__', repr(layer))}"
