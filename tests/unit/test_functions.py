"""What is told from a function at its definition: a context as first parameter, coroutines, what cannot run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import pytest

import tenure
from tenure import App, JobContext, TaskDefinitionError
from tenure import JobContext as Ctx
from tenure.codec import unpack_call
from tenure.definition import AsyncContextTask, AsyncTask, ContextTask, PlainTask
from tenure.functions import callers_signature, is_coroutine_function
from tenure.signature import NO_OPTIONS

if TYPE_CHECKING:
    from tenure import JobContext as OnlyForCheckers


def first(ctx: JobContext, order_id: int, note: str = "") -> int:
    return order_id + ctx.attempt


def renamed(ctx: Ctx, order_id: int) -> None: ...
def dotted(ctx: tenure.JobContext, order_id: int) -> None: ...
def only_for_checkers(ctx: OnlyForCheckers, order_id: int) -> None: ...
def with_default(ctx: JobContext = None, order_id: int = 0) -> None: ...  # type: ignore[assignment]  # as some write it
def alone(ctx: JobContext) -> None: ...
def without(ctx: int, context: str) -> None: ...


def positional(ctx: JobContext, /, order_id: int) -> None: ...


async def coroutine(ctx: JobContext, order_id: int) -> None: ...


def with_a_class_as_annotation() -> Callable[..., None]:
    def made(ctx, order_id):  # type: ignore[no-untyped-def]
        return None

    made.__annotations__["ctx"] = JobContext
    return made


@pytest.mark.parametrize(
    "function", [first, renamed, dotted, with_default, positional, coroutine, with_a_class_as_annotation()]
)
def test_a_first_parameter_that_is_a_context_is_no_part_of_the_call(function: Callable[..., Any]) -> None:
    takes, signature = callers_signature(function)
    assert takes
    assert next(iter(signature.parameters)) == "order_id"


def test_a_name_that_only_type_checkers_know_is_taken_by_its_name() -> None:
    assert not callers_signature(only_for_checkers)[0]  # another name than JobContext: nothing tells

    def named_as_it_is(ctx: Missing.JobContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert callers_signature(named_as_it_is)[0]


def test_without_a_context_the_signature_is_the_functions() -> None:
    takes, signature = callers_signature(without)
    assert not takes
    assert list(signature.parameters) == ["ctx", "context"]
    assert list(callers_signature(alone)[1].parameters) == []


def second(order_id: int, ctx: JobContext) -> None: ...
def twice(ctx: JobContext, other: JobContext) -> None: ...
def as_word(*, ctx: JobContext) -> None: ...
def as_rest(*ctx: JobContext) -> None: ...


@pytest.mark.parametrize("function", [second, twice, as_word, as_rest])
def test_a_context_in_another_place_is_refused_at_definition(function: Callable[..., Any]) -> None:
    with pytest.raises(TaskDefinitionError, match="has to be the first parameter"):
        App("shop").task(function)


def optional(ctx: Optional[JobContext], order_id: int) -> None: ...  # noqa: UP045  (as it is written often)
def or_none(ctx: JobContext | None, order_id: int) -> None: ...
def or_none_renamed(ctx: Ctx | None = None) -> None: ...
def annotated(ctx: Annotated[JobContext, "of the worker"], order_id: int) -> None: ...
def deep(ctx: Annotated[JobContext | None, "of the worker"]) -> None: ...
def forward(ctx: Optional["JobContext"]) -> None: ...  # noqa: UP037, UP045
def later(order_id: int, ctx: Union[tenure.JobContext, None] = None) -> None: ...  # noqa: UP007
def only_as_text(ctx: Missing.JobContext | None) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def several(contexts: list[JobContext]) -> None: ...


@pytest.mark.parametrize(
    "function", [optional, or_none, or_none_renamed, annotated, deep, forward, later, only_as_text, several]
)
def test_a_context_with_more_in_its_annotation_is_refused_at_definition(function: Callable[..., Any]) -> None:
    with pytest.raises(TaskDefinitionError, match=r"annotated JobContext alone: def f\(ctx: JobContext, ...\)"):
        App("shop").task(function)


@pytest.mark.parametrize("annotation", [list[int], "dict[str, NotJobContexts]", int | None, "Optional[Nothing]"])
def test_other_annotations_are_left_alone(annotation: Any) -> None:
    def made(value): ...  # type: ignore[no-untyped-def]

    made.__annotations__["value"] = annotation
    assert not callers_signature(made)[0]


def test_a_context_is_neither_on_the_wire_nor_in_the_key() -> None:
    app = App("shop")
    task = app.task(key=lambda order_id, note: f"order:{order_id}")(first)
    message = task.message((7,), {"note": "x"}, NO_OPTIONS)
    assert unpack_call(message.args) == ((7,), {"note": "x"})
    assert message.key == "order:7"
    with pytest.raises(TypeError, match="order_id"):
        task.message((), {}, NO_OPTIONS)
    assert task(JobContext.for_test(attempt=3), 7) == 10


class Callme:
    async def __call__(self, order_id: int) -> None: ...


class Streams:
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


class Generates:
    def __call__(self) -> Iterator[int]:
        yield 1


async def plain_coroutine(order_id: int) -> None: ...


@pytest.mark.parametrize("function", [plain_coroutine, Callme(), functools.partial(plain_coroutine, 1)])
def test_coroutine_functions_of_all_shapes_are_known(function: Callable[..., Any]) -> None:
    assert is_coroutine_function(function)
    assert App("shop").task(name="c")(function).is_async


@pytest.mark.parametrize("function", [first, Generates(), len])
def test_other_functions_are_none(function: Callable[..., Any]) -> None:
    assert not is_coroutine_function(function)


@pytest.mark.parametrize("function", [Streams(), Generates()])
def test_an_object_whose_call_is_a_generator_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TaskDefinitionError, match="generator function, of which a call runs nothing"):
        App("shop").task(name="s")(function)


def test_each_kind_has_its_class() -> None:
    app = App("shop")
    made = [app.task(function) for function in (without, first, plain_coroutine, coroutine)]
    assert [type(task) for task in made] == [PlainTask, ContextTask, AsyncTask, AsyncContextTask]
