"""Arguments and results by the type hints of their function: what fits, what is refused, and what comes back."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import io
import threading
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)
from uuid import UUID, uuid4

import attrs
import pydantic
import pytest
from freezegun import freeze_time

from tenure import App, DecodeError, NotSerializable, TaskDefinitionError, WrongArgument
from tenure.codec import Stored
from tenure.hints import plan
from tenure.message import Message
from tenure.task import Task
from tests.unit.fake_broker import FakeBroker
from tests.unit.labels import label

if typing.TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Status(str, enum.Enum):  # noqa: UP042  (as many models have it)
    PAID = "paid"


@dataclass
class Item:
    name: str
    price: Decimal
    color: Color | None = None


@dataclass(frozen=True)
class Spot:
    x: int
    y: int = 0


@dataclass
class Order:
    id: UUID
    items: list[Item]
    when: dt.datetime
    spots: set[Spot] = field(default_factory=set)
    by_spot: dict[Spot, Item] = field(default_factory=dict)
    total: int = field(init=False, default=0)
    parent: Order | None = None


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str


@dataclass
class Puppy(Dog):
    age: int = 0


@dataclass
class NeedsMore:
    a: int
    secret: InitVar[int]


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError(f"{self.n} is not above 0")


class Point(NamedTuple):
    x: int
    y: Spot | None = None


Bare = collections.namedtuple("Bare", "a b")  # noqa: PYI024


class Row(TypedDict):
    id: int
    spot: NotRequired[Spot]


@attrs.define
class Part:
    _code: str
    spots: tuple[Spot, ...] = ()
    seen: int = attrs.field(init=False, default=3)


class Address(pydantic.BaseModel):
    city: str


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    status: Status
    address: Address | None = None
    others: list[Address] = []
    born: dt.date | None = None
    score: float = 0.0
    home: Path | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: dt.datetime
    address: Address


@dataclass(slots=True, kw_only=True, frozen=True)
class Slotted:
    a: int
    b: str = "x"


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    spot: Spot | None = None


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Tree(pydantic.BaseModel):
    kids: list[Tree] = []
    tags: set[str] = set()
    extra: dict[str, Any] = {}


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    url: pydantic.HttpUrl | None = None


@attrs.frozen
class Node:
    x: int
    kids: tuple[Node, ...] = attrs.field(default=(), kw_only=True)


class Branches(TypedDict, total=False):
    a: Required[int]
    b: list[Branches]


class FurtherAddress(Address):
    street: str


class Hidden(pydantic.BaseModel):
    secret: str = pydantic.Field(exclude=True)


def typed(app: App, hint: Any, **words: Any) -> Task[..., Any]:
    """A task with one parameter and a result of that hint."""

    def take(value: Any) -> Any:
        return value

    take.__annotations__ = {"value": hint, "return": hint}
    task: Task[..., Any] = app.task(name="take", **words)(take)
    return task


def travelled(task: Task[..., Any], broker: FakeBroker, *args: Any, **kwargs: Any) -> Any:
    """What the function would be called with on a worker."""
    task.delay(*args, **kwargs)
    got, named = task.unpack(broker.last)
    return got[0] if got else next(iter(named.values()))


def a_customer(**fields: Any) -> Customer:
    return Customer(**({"fullName": "Ann", "status": "paid"} | fields))


HINTED: list[tuple[Any, Any]] = [
    (int, 1),
    (int, True),
    (int, 10**40),
    (float, 1),
    (float, 1.5),
    (UserId, 3),
    (Annotated[int, "ge=0"], 3),
    (Any, [1]),
    (object, {1: 2}),
    (Literal["a", 1, Color.RED], Color.RED),
    (Literal["a", 1], 1),
    (Optional[int], None),  # noqa: UP045
    (int | str | None, "x"),
    (dt.date, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (Sequence[int], (1, 2)),
    (Iterable[str], {"a"}),
    (Mapping[str, list[int]], {"a": [1]}),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (list, [1, "x"]),
    (dict, {1: "x"}),
    (Color, Color.BLUE),
    (Status, Status.PAID),
    (dict[Color, set[Color]], {Color.RED: {Color.BLUE}}),
    (Item, Item("pen", Decimal("1.10"), Color.RED)),
    (Item | None, None),
    (Item | None, Item("pen", Decimal("1.10"))),
    (list[Item | None], [Item("pen", Decimal(1)), None]),
    (dict[str, Item], {"a": Item("pen", Decimal(1))}),
    (tuple[Item, int], (Item("pen", Decimal(1)), 1)),
    (tuple[Item, ...], (Item("pen", Decimal(1)),) * 2),
    (set[Spot], {Spot(1), Spot(1, 2)}),
    (frozenset[Spot | None], frozenset({Spot(1), None})),
    (dict[Spot, int], {Spot(1): 1}),
    (dict[tuple[Spot, int], int], {(Spot(1), 3): 1}),
    (Point, Point(1, Spot(2, 3))),
    (set[Point], {Point(1, Spot(2, 3))}),
    (Bare, Bare(1, [2])),
    (Row, {"spot": Spot(1), "id": 3}),
    (list[Row], [{"id": 3}]),
    (Part, Part("x", (Spot(1),))),
    (list[Part] | None, [Part("x")]),
    (Box[Spot], Box(Spot(1))),
    (Box[Box[int]], Box(Box(1))),
    (Cat | Dog, Cat("Tom")),
    (Cat | Dog, Dog("Rex")),
    (list[Cat | Dog | str], [Dog("Rex"), "x", Cat("Tom")]),
    (list[Cat] | list[Dog], [Dog("Rex")]),
    (Cat | dict[str, str], {"name": "Tom"}),
    (Cat | Any, {"name": "Tom"}),
    (Cat | tuple[str, int], ("Cat", 1)),
    (set[Cat | Spot], {Spot(1)}),
    (Dog | Puppy, Puppy("Rex", 1)),
    (Positive, Positive(1)),
    (Customer, a_customer()),
    (
        list[Customer],
        [
            a_customer(
                address=Address(city="X"), others=[Address(city="Y")], born=dt.date(2000, 1, 1), score=float("inf")
            )
        ],
    ),
    (Customer | None, a_customer(home=Path("/tmp"))),
    (Customer | Address | None, Address(city="X")),
    (Slotted, Slotted(a=1)),
    (Checked, Checked(1, Spot(1))),
    (Numbers | None, Numbers([1])),
    (Numbers | list[int], Numbers([1])),
    (Numbers | list[int], [1]),
    (Tree, Tree(kids=[Tree()], tags={"a"}, extra={"d": 1})),
    (set[Open], {Open(url="http://example.org/", more=2)}),  # type: ignore[call-arg, arg-type]
    (dict[Open, Node], {Open(): Node(3, kids=(Node(4),))}),
    (Branches, {"b": [{"a": 2}], "a": 1}),
    (Mapping[str, Sequence[Spot]], {"a": (Spot(1),)}),
    (Strict, Strict(when=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), address=Address(city="X"))),
]


@pytest.mark.parametrize(("hint", "value"), HINTED, ids=label)
def test_what_fits_comes_back_as_declared(app: App, broker: FakeBroker, hint: Any, value: Any) -> None:
    task = typed(app, hint)
    for got in (travelled(task, broker, value), travelled(task, broker, value=value)):
        assert (type(got), got) == (type(value), value)
    assert len({message.fingerprint for message in broker.messages}) == 1
    assert task.unpack_result(task.pack_result(value)) == Stored(value)


def test_an_order_with_everything(app: App, broker: FakeBroker) -> None:
    pen = Item("pen", Decimal("0.30"), Color.RED)
    parent = Order(uuid4(), [], dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    order = Order(uuid4(), [pen], dt.datetime(1, 1, 1), {Spot(1), Spot(2)}, {Spot(3): pen}, parent)  # noqa: DTZ001
    order.total = 7

    @app.task
    def ship(order: Order, copies: list[Order] | None = None) -> Order:
        return order

    ship.delay(order, copies=[parent])
    args, kwargs = ship.unpack(broker.last)
    assert (args, kwargs) == ((order,), {"copies": [parent]})
    assert args[0].total == 7
    assert ship.unpack_result(ship.pack_result(order)) == Stored(order)


def test_the_fingerprint_of_objects_does_not_depend_on_order(app: App, broker: FakeBroker) -> None:
    spots = [Spot(n) for n in range(50)]
    task = typed(app, dict[str, set[Spot]])
    task.delay({"a": set(spots), "b": set()})
    task.delay({"b": set(), "a": {*spots[::-1]}})
    task.delay({"a": set(spots[1:]), "b": set()})
    one, two, other = [message.fingerprint for message in broker.messages]
    assert one == two != other


REFUSED: list[tuple[Any, Any, str, str]] = [
    (int, "1", "args[0]", "'1' of type str, which does not fit the hint int"),
    (int, 1.0, "args[0]", "hint int"),
    (int, None, "args[0]", "hint int"),
    (bool, 1, "args[0]", "hint bool"),
    (str, b"x", "args[0]", "hint str"),
    (float, "1", "args[0]", "hint float"),
    (list[int], (1,), "args[0]", "hint list[int]"),
    (list[int], [1, "x"], "args[0][1]", "hint int"),
    (set[int], {"x"}, "args[0]{member}", "hint int"),
    (dict[str, list[int]], {"a": [1, None]}, "args[0]['a'][1]", "hint int"),
    (dict[str, int], {1: 1}, "args[0].keys()[1]", "hint str"),
    (tuple[int, str], (1, 2), "args[0][1]", "hint str"),
    (tuple[int, str], (1,), "args[0]", "has 1 items"),
    (Literal["a", 1], True, "args[0]", "Literal['a', 1]"),
    (Literal["a"], [], "args[0]", "Literal"),
    (Color, "red", "args[0]", "hint Color"),
    (Item, {"name": "pen"}, "args[0]", "hint Item"),
    (Item, Item("pen", 1.5), "args[0].price", "hint Decimal"),  # type: ignore[arg-type]
    (Item | None, Item("pen", Decimal(1), "red"), "args[0].color", "Color | None"),  # type: ignore[arg-type]
    (list[Item], [Item("pen", Decimal(1)), Cat("Tom")], "args[0][1]", "hint Item"),
    (Dog, Puppy("Rex"), "args[0]", "would come back as its base Dog"),
    (Cat | Dog, Puppy("Rex"), "args[0]", "Cat | Dog"),
    (Row, {"id": "x"}, "args[0]['id']", "hint int"),
    (Row, {"id": 1, "more": 2}, "args[0]", "has a field 'more'"),
    (Row, {}, "args[0]", "has no field 'id'"),
    (NeedsMore, NeedsMore(1, 2), "args[0]", "also needs secret"),
    (Customer, {"name": "Ann"}, "args[0]", "hint Customer"),
]


@pytest.mark.parametrize(("hint", "value", "path", "words"), REFUSED, ids=label)
def test_what_does_not_fit_is_refused_at_the_call(
    app: App, broker: FakeBroker, hint: Any, value: Any, path: str, words: str
) -> None:
    task = typed(app, hint)
    for call in (task.delay, task.s, task.options(priority=1).delay, task.options(priority=1).s):
        with pytest.raises(WrongArgument) as caught:
            call(value)
        text = str(caught.value)
        assert text.startswith(f"{path} "), text
        assert words in text
        assert "(parameter value of take)" in text
        assert "check=False" in text
    with pytest.raises(WrongArgument, match=r"^kwargs\['value'\]"):
        task.delay(value=value)
    assert broker.messages == []


def test_without_check_anything_that_can_travel_does(app: App, broker: FakeBroker) -> None:
    assert travelled(typed(app, int, check=False), broker, "x") == "x"
    task = typed(app, list[Item], check=False)
    assert travelled(task, broker, [{"a": 1}]) == [{"a": 1}]
    assert travelled(task, broker, [Item("pen", Decimal(1))]) == [Item("pen", Decimal(1))]
    with pytest.raises(NotSerializable, match=r"args\[0\]\[1\] is a object"):
        task.delay([1, object()])
    with pytest.raises(TaskDefinitionError, match="check='no'"):
        app.task(check="no")  # type: ignore[call-overload]


def test_a_default_of_another_type_fits(app: App, broker: FakeBroker) -> None:
    def find(name: str, limit: int = None, spot: Spot = "here") -> None: ...  # type: ignore[assignment] # noqa: RUF013

    task = app.task(find)
    task.delay("x", None, "here")  # type: ignore[arg-type]
    task.delay("x")
    assert broker.messages[0].fingerprint == broker.messages[1].fingerprint
    with pytest.raises(WrongArgument, match=r"int \| None"):
        task.delay("x", "y")  # type: ignore[arg-type]


def test_an_object_as_default_gives_the_same_fingerprint(app: App, broker: FakeBroker) -> None:
    def find(color: Color = Color.RED, spot: Spot = Spot(1)) -> None: ...

    task = app.task(find)
    task.delay()
    task.delay(Color.RED, Spot(1))
    task.delay(spot=Spot(1))
    task.delay(spot=Spot(2))
    prints = [message.fingerprint for message in broker.messages]
    assert prints[0] == prints[1] == prints[2] != prints[3]
    assert task.unpack(broker.last) == ((), {"spot": Spot(2)})


def test_parameters_of_every_kind_are_looked_at(app: App, broker: FakeBroker) -> None:
    def many(a: int, /, b: Spot, *rest: Spot, c: int = 3, **more: Item) -> None: ...

    task = app.task(many)
    pen = Item("pen", Decimal(1))
    task.delay(1, Spot(1), Spot(2), Spot(3), c=1, pen=pen, a=pen)
    assert task.unpack(broker.last) == ((1, Spot(1), Spot(2), Spot(3)), {"c": 1, "pen": pen, "a": pen})
    for args, kwargs, path in [
        ((1, Spot(1), 2), {}, r"args\[2\]"),
        ((1, Spot(1)), {"c": "x"}, r"kwargs\['c'\]"),
        ((1, Spot(1)), {"other": 1}, r"kwargs\['other'\]"),
    ]:
        with pytest.raises(WrongArgument, match=f"^{path} "):
            task.delay(*args, **kwargs)  # type: ignore[arg-type]


def test_the_key_function_sees_the_objects(app: App, broker: FakeBroker) -> None:
    @app.task(key=lambda spot: f"{spot.x}/{spot.y}")
    def visit(spot: Spot) -> None: ...

    assert visit.delay(Spot(3)).key == "3/0"


@dataclass(frozen=True)
class Unruly:
    rows: list[int]

    def __post_init__(self) -> None:
        if self.rows == [0]:
            raise SystemExit(3)

    def __hash__(self) -> int:
        return 1


def test_classes_whose_own_code_fails_end_no_worker(app: App, broker: FakeBroker) -> None:
    message = packed_as(broker, dict, {"rows": [0]})
    with pytest.raises(TypeError, match="cannot be made into Unruly: SystemExit: 3"):
        typed(app, Unruly).unpack(message)
    with pytest.raises(WrongArgument, match=r"^args\[0\] cannot be converted: TypeError: unhashable"):
        typed(app, set[Unruly]).delay({Unruly([1])})


class Opaque(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    lock: Any


def test_a_model_that_cannot_be_dumped_is_refused(app: App) -> None:
    with pytest.raises(WrongArgument, match=r"^args\[0\]"):
        typed(app, Opaque).delay(Opaque(lock=threading.Lock()))


def test_hints_that_are_looked_at_in_frozen_time_are_the_same(app: App, broker: FakeBroker) -> None:
    @app.task
    def take(when: datetime, day: date) -> None: ...

    with freeze_time("2026-05-05"):
        assert travelled(take, broker, datetime.now(UTC), date.today()).year == 2026  # noqa: DTZ011
        with pytest.raises(WrongArgument):
            take.delay("x", date.today())  # type: ignore[arg-type] # noqa: DTZ011
    assert travelled(take, broker, datetime.now(UTC), date.today()).tzinfo is UTC  # noqa: DTZ011


def test_an_undeclared_object_is_refused_with_the_way_out(app: App) -> None:
    task = typed(app, Any)
    for value in (Spot(1), Part("x"), Address(city="X"), Point(1)):
        with pytest.raises(NotSerializable, match=r"args\[0\]\['a'\] is a .*declare it in the function's signature"):
            task.delay({"a": value})
    for odd in (io.StringIO(), lambda: 0, Path("x"), range(3), (n for n in "x")):
        with pytest.raises(NotSerializable, match=r"args\[0\]\['when'\]"):
            task.delay({"when": odd})


def test_a_cycle_through_objects_is_refused(app: App) -> None:
    order = Order(uuid4(), [], dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    order.parent = order
    with pytest.raises((WrongArgument, NotSerializable), match=r"args\[0\].*(contains itself|100 containers)"):
        typed(app, Order).delay(order)


def test_an_enum_needs_a_hint_or_the_app(app: App, broker: FakeBroker) -> None:
    task = typed(app, Any)
    with pytest.raises(NotSerializable, match=r"args\[0\]\[0\] is a member of the Enum .*:Color"):
        task.delay([Color.RED])
    assert app.register(Color) is Color
    for color in Color:
        assert travelled(task, broker, [color]) == [color]
    other = typed(App("other", broker=broker), Any)
    with pytest.raises(DecodeError, match=r"app.register\(Color\)"):
        other.unpack(broker.last)
    with pytest.raises(ValueError, match="takes an Enum class"):
        app.register(Spot)  # type: ignore[type-var]


# ----------------------------------------------------------------------------------------- the function has changed


def packed_as(broker: FakeBroker, hint: Any, value: Any) -> Message:
    typed(App("old", broker=broker), hint).delay(value)
    return broker.last


@dataclass
class OldItem:
    name: str


@pytest.mark.parametrize(
    ("old", "value", "new", "words"),
    [
        (str, "x", int, "hint int"),
        (dict, {"name": "pen"}, Item, "no field 'price'"),
        (dict, {"x": 1, "z": 1}, Spot, "a field 'z', which Spot has not"),
        (dict, {"n": -1}, Positive, "ValueError: -1 is not above 0"),
        (dict, {"n": -1}, Customer, "validation error"),
        (Cat | Dog, Cat("Tom"), Dog | Spot, "is a Cat, which is not in the hint"),
        (int, 1, Item | None, "hint"),
        (dict, {1: 2}, Spot, "a field 1"),
    ],
)
def test_arguments_that_do_not_fit_any_more_raise_type_error(
    app: App, broker: FakeBroker, old: Any, value: Any, new: Any, words: str
) -> None:
    message = packed_as(broker, old, value)
    with pytest.raises(TypeError, match=r"^args\[0\]") as caught:
        typed(app, new).unpack(message)
    assert words in str(caught.value)


def test_a_new_field_with_a_default_is_filled_in(app: App, broker: FakeBroker) -> None:
    assert typed(app, Spot).unpack(packed_as(broker, dict, {"x": 1}))[0] == (Spot(1, 0),)


def test_a_call_with_other_parameters_raises_type_error(app: App, broker: FakeBroker) -> None:
    @app.task(name="take")
    def take(one: int, two: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'two'"):
        take.unpack(packed_as(broker, int, 1))


# ----------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (Any, Spot(1), "result is a .*Spot, which has no wire form"),
        (Spot, [Spot(1)], r"result\[0\] is a"),
        (Any, lambda: 0, "function"),
        (Any, {"a": [object()]}, r"result\['a'\]\[0\]"),
        (Any, "\ud800", "lone surrogate"),
    ],
)
def test_a_result_without_wire_form_is_named(app: App, hint: Any, value: Any, words: str) -> None:
    with pytest.raises(NotSerializable, match=f"^{words}" if words.startswith("result") else words):
        typed(app, hint).pack_result(value)


def test_a_result_whose_own_code_fails_is_not_serializable(app: App) -> None:
    @attrs.define
    class Bad:
        x: int

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                raise SystemExit
            return object.__getattribute__(self, name)

    with pytest.raises(NotSerializable, match="SystemExit"):
        typed(app, Bad).pack_result(Bad(1))


def test_a_result_of_another_type_than_declared_is_kept_as_it_is(app: App) -> None:
    task = typed(app, Spot)
    assert task.unpack_result(task.pack_result(None)) == Stored(None)
    assert task.unpack_result(task.pack_result("x")) == Stored("x")
    with pytest.raises(DecodeError):
        task.unpack_result(b"\xc1")


# ------------------------------------------------------------------------------------------------- hints of all sorts


def test_a_hint_that_cannot_be_found_is_left_out(app: App, broker: FakeBroker) -> None:
    def divide(by: Fraction, n: int) -> NoSuchThing:  # type: ignore[name-defined] # noqa: F821
        ...

    task = app.task(divide)
    assert set(task.plan.unclear) == {"by: Fraction", "return: NoSuchThing"}
    with pytest.raises(WrongArgument, match=r"args\[1\]"):
        task.delay(1, "x")  # type: ignore[arg-type]
    with pytest.raises(NotSerializable, match=r"args\[0\] is a .*Spot.*hints could not be found: by: Fraction"):
        task.delay(Spot(1), 2)  # type: ignore[arg-type]


def test_scalar_hints_cost_one_look_at_the_types(app: App, broker: FakeBroker) -> None:
    @app.task
    def charge(order_id: int, note: str = "") -> None: ...

    charge.delay(1, "x")
    assert charge.plan.knows((2, "y"), {})
    assert not charge.plan.knows((2, 3), {})
    charge.delay(1, note="x")
    assert charge.plan.knows((2,), {"note": "y"})
    assert not any(shape.converts for shape in charge.plan.shapes.values())


class Speaks(typing.Protocol):
    def speak(self) -> str: ...


@pytest.mark.parametrize("hint", [Speaks, T, Callable[[], int], type[int], "int", 3, typing.Self, list["Nowhere"]])  # type: ignore[name-defined] # noqa: F821
def test_a_hint_that_says_nothing_of_values_stops_no_definition(hint: Any) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": hint}
    assert plan(take).name.endswith("take")
