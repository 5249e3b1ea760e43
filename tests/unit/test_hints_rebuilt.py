"""Objects by their hints arrive as equal objects, or are refused at the call: never changed in silence."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import attrs
import pydantic
import pytest

from tenure import App, NotSerializable, ResultNotStored, WrongArgument
from tenure.codec import Stored
from tenure.hints import plan
from tenure.sameness import difference
from tenure.testing import inline_worker
from tests.unit.fake_broker import FakeBroker
from tests.unit.labels import label
from tests.unit.test_hints import (
    Address,
    Customer,
    FurtherAddress,
    Hidden,
    Status,
    Strict,
    a_customer,
    travelled,
    typed,
)


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr
    token: pydantic.SecretBytes | None = None
    home: Path | None = None
    pins: dict[str, list[pydantic.SecretStr]] = {}


class Serialized(pydantic.BaseModel):
    cents: int
    when: dt.datetime | None = None

    @pydantic.field_serializer("cents")
    def show(self, cents: int) -> int:
        return cents * 100


class Shown(pydantic.BaseModel):
    a: int

    @pydantic.model_serializer
    def show(self) -> dict[str, Any]:
        return {"a": self.a + 1}


class Doubled(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def double(cls, n: int) -> int:
        return n * 2


class Stripped(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def strip(cls, name: str) -> str:
        return name.strip()


class Holder(pydantic.BaseModel):
    inner: list[Doubled | Serialized] = []


class Texts(pydantic.BaseModel):
    data: pydantic.Json[list[int]]


class Private(pydantic.BaseModel):
    a: int
    _seen: int = 0


class Numbered(pydantic.BaseModel):
    a: int
    _n: int = pydantic.PrivateAttr(default_factory=itertools.count().__next__)


class Loose(pydantic.BaseModel):
    what: Any = None


class Lazy(pydantic.BaseModel):
    """Its defaults are of other types than its fields, as pydantic lets one write."""

    score: float = 0
    price: Decimal = 1  # type: ignore[assignment]
    status: Status = "paid"  # type: ignore[assignment]


class Opaque:
    def __init__(self, n: int) -> None:
        self.n = n


class Custom(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    what: Opaque

    @pydantic.field_validator("what", mode="before")
    @classmethod
    def read(cls, what: Any) -> Any:
        return Opaque(what) if isinstance(what, int) else what

    @pydantic.field_serializer("what")
    def write(self, what: Opaque) -> int:
        return what.n


class Pair(pydantic.RootModel[tuple[tuple[int, int], ...]]):
    pass


class Away(pydantic.BaseModel):
    secret: str = pydantic.Field(exclude=True, default="x")


class Holds(pydantic.BaseModel):
    away: Away


class Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    a: int
    tags: tuple[str, ...] = ()
    secret: pydantic.SecretStr | None = None
    kid: Frozen | None = None


class Sets(pydantic.BaseModel):
    all: set[Frozen] = set()
    by: dict[Frozen, int] = {}


class Checks(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_validator("password")
    @classmethod
    def long(cls, password: pydantic.SecretStr) -> pydantic.SecretStr:
        if len(password.get_secret_value()) < 8:
            raise ValueError("too short")
        return password


class Scaled(NamedTuple):
    x: float


def one_more(n: int) -> int:
    return n + 1


@attrs.define
class Converted:
    n: int = attrs.field(converter=one_more)


@attrs.define
class Whole:
    n: int = attrs.field(converter=int)


@dataclass
class Grows:
    tags: list[str]

    def __post_init__(self) -> None:
        self.tags.append("seen")


@dataclass
class Priced:
    net: float
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        self.net *= 1.19


@dataclass
class Titled:
    name: str
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        self.name, self.note = self.name.title(), self.note + "!"


@dataclass(eq=False)
class Plain:
    n: float
    boxes: tuple[Plain, ...] = ()


@dataclass
class Once:
    n: int

    def __post_init__(self) -> None:
        if self.n > 1:
            raise ValueError("is above 1")


def used(counter: Once) -> Once:
    counter.n = 5
    return counter


ARRIVES: list[tuple[Any, Any]] = [
    (
        Login,
        Login(
            user="ann",
            password=pydantic.SecretStr("hunter2"),
            token=pydantic.SecretBytes(b"\x00\xff"),
            home=Path("/tmp"),
            pins={"a": [pydantic.SecretStr("1234")]},
        ),
    ),
    (list[Login | None], [Login(user="ann", password=pydantic.SecretStr("x")), None]),
    (Serialized, Serialized(cents=7, when=dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Paris")))),
    (Shown, Shown(a=1)),
    (Stripped, Stripped(name=" Ann ")),
    (Holder, Holder(inner=[Serialized(cents=3)])),
    (Texts, Texts(data="[1, 2]")),  # type: ignore[arg-type]
    (Pair, Pair(((1, 2), (3, 4)))),
    (Private, Private(a=1)),
    (Loose, Loose(what=[math.inf, {"a": {1}}])),
    (Whole, Whole(3)),
    (Lazy, Lazy()),
    (set[Frozen], {Frozen(a=1), Frozen(a=2, tags=("x",), secret=pydantic.SecretStr("y"))}),
    (Sets, Sets(all={Frozen(a=1), Frozen(a=2)})),
    (Scaled, Scaled(-0.0)),
]


@pytest.mark.parametrize(("hint", "value"), ARRIVES, ids=label)
def test_what_can_be_rebuilt_arrives_equal(app: App, broker: FakeBroker, hint: Any, value: Any) -> None:
    task = typed(app, hint)
    assert travelled(task, broker, value) == value
    assert task.unpack_result(task.pack_result(value)) == Stored(value)


def test_secrets_arrive_as_secrets(app: App, broker: FakeBroker) -> None:
    got = travelled(typed(app, Login), broker, ARRIVES[0][1])
    assert got.password.get_secret_value() == "hunter2"
    assert got.token.get_secret_value() == b"\x00\xff"
    assert got.pins["a"][0].get_secret_value() == "1234"


BROKEN = Strict.model_construct(when="x", address=Address(city="X"))
FURTHER = a_customer(address=FurtherAddress(city="X", street="Y"))
CHANGES: list[tuple[Any, Any, str, str]] = [
    (Doubled, Doubled(n=1), ".n", "is 2 and would arrive as 4, for Doubled does not make"),
    (list[Doubled], [Doubled(n=0), Doubled(n=1)], "[1].n", "2 and would arrive as 4"),
    (Holder, Holder(inner=[Doubled(n=1)]), ".inner[0].n", "for Doubled"),
    (Private, None, "._seen", "is 3 and would arrive as 0"),
    (Numbered, Numbered(a=1), "._n", "private attributes do not travel"),
    (Loose, Loose(what=Stripped(name="x")), ".what", "(of type dict, not Stripped)"),
    (Loose, Loose(what=Path("/tmp")), ".what", "would arrive as '/tmp'"),
    (Loose, Loose(what=pydantic.SecretStr("hunter2")), ".what", "(of type str, not SecretStr)"),
    (Loose, Loose(what=deque([1])), ".what", "deque"),
    (Converted, Converted(1), ".n", "is 2 and would arrive as 3, for Converted"),
    (dict[str, Converted | None], {"a": Converted(1)}, "['a'].n", "for Converted"),
    (Grows, Grows(["a"]), ".tags", "is ['a', 'seen'] and would arrive as ['a', 'seen', 'seen'], for Grows"),
    (Priced | None, Priced(100.0), ".net", "for Priced"),
    (Titled, Titled("ann"), ".note", "is '!' and would arrive as '!!'"),
    (Once, used(Once(1)), "", "cannot be made into Once: ValueError: is above 1"),
    (Hidden, Hidden(secret="x"), "", "left out of dumps: secret"),
    (Strict, BROKEN, "", "cannot be made into Strict: 1 validation error: when: Input should be a valid datetime"),
    (Customer, FURTHER, ".address", "would arrive as Address(city='X') (of type Address, not FurtherAddress)"),
    (set[Frozen], {Frozen(a=1, kid=Frozen(a=2))}, "{member}", "cannot be made into Frozen"),
    (Sets, Sets(by={Frozen(a=1): 2}), ".by", "which has no plain form that can be a key"),
    (Holds, Holds(away=Away(secret="x")), ".away", "left out of dumps: secret"),
]


@pytest.mark.parametrize(("hint", "value", "path", "words"), CHANGES, ids=label)
@pytest.mark.parametrize("check", [True, False])
def test_what_would_arrive_changed_is_refused_before_anything_is_sent(
    app: App, broker: FakeBroker, hint: Any, value: Any, path: str, words: str, check: bool
) -> None:
    if hint is Private:
        value = Private(a=1)
        value._seen = 3
    task = typed(app, hint, check=check)
    for call in (task.delay, task.s):
        with pytest.raises(WrongArgument) as caught:
            call(value)
        text = str(caught.value)
        assert text.startswith(f"args[0]{path} "), text
        assert words in text
    assert broker.messages == []
    with pytest.raises(NotSerializable, match=r"^result") as told:
        task.pack_result(value)
    assert str(told.value).startswith(f"result{path} ")
    assert words in str(told.value)


def test_a_result_that_would_arrive_changed_is_told_to_the_caller() -> None:
    app = App("shop")

    @app.task
    def make() -> Converted:
        return Converted(1)

    with inline_worker(app) as worker:
        job = make.delay()
        worker.run_all()
        assert job.state() == "done"
        with pytest.raises(ResultNotStored, match=r"result\.n is 2 and would arrive as 3"):
            job.result()


def test_a_look_at_a_call_leaves_its_arguments_alone(app: App) -> None:
    value = Grows(["a"])
    with pytest.raises(WrongArgument):
        typed(app, Grows).delay(value)
    assert value.tags == ["a", "seen"]


def test_no_error_tells_a_secret(app: App) -> None:
    value = Checks.model_construct(password=pydantic.SecretStr("hunter2"))
    with pytest.raises(WrongArgument, match="password: Value error, too short") as caught:
        typed(app, Checks).delay(value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@dataclass
class Sealed:
    what: pydantic.SecretStr


def test_a_secret_outside_a_model_is_refused(app: App, broker: FakeBroker) -> None:
    secret = pydantic.SecretStr("hunter2")
    for hint, value, path in ((Sealed, Sealed(secret), "['what']"), (pydantic.SecretStr, secret, "")):
        with pytest.raises(NotSerializable) as caught:
            typed(app, hint).delay(value)
        assert str(caught.value).startswith(f"args[0]{path} is a pydantic.types.SecretStr, which has no wire form")
    assert broker.messages == []


def test_a_custom_type_with_its_own_serializer_and_validator_travels(app: App, broker: FakeBroker) -> None:
    assert travelled(typed(app, Custom), broker, Custom(what=Opaque(3))).what.n == 3


def test_classes_without_eq_and_nan_are_compared_by_what_they_hold(app: App, broker: FakeBroker) -> None:
    got = travelled(typed(app, set[Plain]), broker, {Plain(math.nan), Plain(1.5, (Plain(2.0),))})
    assert sorted((one.n, len(one.boxes)) for one in got if one.n == 1.5) == [(1.5, 1)]
    assert len(got) == 2


def test_plain_hints_are_not_rebuilt() -> None:
    def take(rows: list[dict[str, int]]) -> list[int]: ...  # type: ignore[empty-body]

    hinted = plan(take)
    rows = [{"a": 1}]
    assert hinted.pack((rows,), {})[0][0] is rows
    assert not hinted.shapes["rows"].converts


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, True, False),
        (0.0, -0.0, False),
        (math.nan, float("nan"), True),
        ({1: "a", 2: "b"}, {2: "b", 1: "a"}, True),
        ({math.nan: 1}, {float("nan"): 1}, True),
        ({math.nan: 1}, {float("nan"): 2}, False),
        ({1}, {True}, False),
        ({1, 2}, {1}, False),
        ([1], [1, 2], False),
        ({Plain(1)}, {Plain(1)}, True),
        ({Plain(1)}, {Plain(2)}, False),
        (Opaque(1), Opaque(1), True),
        (Opaque(1), Opaque(2), False),
        (IPv4Address(1), IPv4Address(1), True),
        (Scaled(1), Scaled(2), False),
        (
            dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris")),
            dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
            False,
        ),
    ],
)
def test_difference(one: Any, other: Any, same: bool) -> None:
    assert (difference(one, other) is None) is same
