"""Arguments and results: stored by their declared types, or refused at once; never pickled."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from lash.errors import ConfigError, InvalidInput
from lash.model.process.process import Failure, ProcessStatus
from lash.runtime.processes.context import Context
from lash.runtime.steps.values import UNTYPED, check_type, describe, from_json, json_schema, result_type, to_json
from tests.runtime.process_bench import World, outcome_of, records_of

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Trip:
    name: str
    day: datetime.date
    stops: list[Point]
    colour: Colour = Colour.RED


class Page(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    title: str = pydantic.Field(alias="pageTitle")
    seen: datetime.datetime


class Pair(NamedTuple):
    left: int
    right: str


class Movie(TypedDict):
    name: str
    year: int


class Opaque:
    pass


@dataclasses.dataclass(eq=False)
class Identity:
    name: str


_WHEN = datetime.datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=datetime.UTC)
_GOOD: list[tuple[object, object]] = [
    (None, type(None)),
    (True, bool),
    ({"a": [1, 2.5, None, "ü"]}, dict),
    ({"a": 1}, UNTYPED),
    (Point(1, 2.5), Point),
    (Trip("north", datetime.date(2024, 1, 1), [Point(1)], Colour.BLUE), Trip),
    ([Point(1), None], list[Point | None]),
    (Page(pageTitle="t", seen=_WHEN), Page),
    ([Page(pageTitle="t", seen=_WHEN)], list[Page]),
    (Page(pageTitle="t", seen=_WHEN), Page | None),
    (None, Page | None),
    (Colour.BLUE, Colour),
    (_WHEN, datetime.datetime),
    (datetime.timedelta(minutes=3), datetime.timedelta),
    (Decimal("1.10"), Decimal),
    (uuid.UUID(int=7), uuid.UUID),
    (b"\x00\xff", bytes),
    ({1, 2}, set[int]),
    ((1, "a"), tuple[int, str]),
    (Pair(1, "a"), Pair),
    ({"name": "M", "year": 1931}, Movie),
    ({1: "one"}, dict[int, str]),
    (3, float),
    ({"any": [1]}, Any),
    ({"any": [1]}, object),
    ([1, "a", None], list[object]),
]


@pytest.mark.parametrize(("value", "declared"), _GOOD, ids=lambda each: type(each).__name__)
def test_what_is_declared_comes_back_as_it_was(value: object, declared: object) -> None:
    """Structs, dataclasses, pydantic models, enums, times and plain JSON come back equal and of their type."""
    back = from_json(to_json(value, declared, "it"), declared, "it")
    assert back == value
    assert type(back) is type(value) or declared is float


class Cat(pydantic.BaseModel):
    lives: int


class Dog(pydantic.BaseModel):
    tricks: list[str]


class Wolf(Dog):
    pass


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (Cat(lives=9), Cat | Dog),
        ([Dog(tricks=["sit"]), Cat(lives=7)], list[Cat | Dog]),
        ({"rex": Dog(tricks=[]), "none": None}, dict[str, Cat | Dog | None]),
        ((Cat(lives=1), "x"), tuple[Cat | Dog, str]),
    ],
)
def test_unions_of_pydantic_models_come_back(value: object, declared: object) -> None:
    """Each value is read back as the model that it was."""
    check_type(declared, "the type")
    assert from_json(to_json(value, declared, "it"), declared, "it") == value
    assert "anyOf" in str(json_schema(declared))


def test_a_union_in_which_a_model_cannot_be_told_apart_is_refused() -> None:
    """A model that would be read back as another one of the union is refused when it is stored."""
    with pytest.raises(InvalidInput, match="it is of type Wolf and would not be read back as what it is"):
        to_json(Wolf(tricks=[]), Dog | Cat, "it")
    with pytest.raises(InvalidInput, match="it does not fit its declared type"):
        from_json({"wings": 2}, Cat | Dog, "it")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: 2}, "it has the key 1 of type int, and the keys of JSON are text: use str(key), or declare the type"),
        ({"a": [{"b": {2.5: 1}}]}, "it['a'][0]['b'] has the key 2.5 of type float"),
        ([1, Point(1)], "it[1] is of type Point; declare its type"),
    ],
)
def test_what_is_not_json_is_named_with_its_place(value: object, text: str) -> None:
    """The error names the part, its type and what to do."""
    with pytest.raises(InvalidInput) as refused:
        to_json(value, UNTYPED, "it")
    assert str(refused.value).startswith(text)


def test_a_dataclass_without_equality_comes_back() -> None:
    """Values of a class that compares by identity are accepted."""
    back = from_json(to_json(Identity("me"), Identity, "it"), Identity, "it")
    assert isinstance(back, Identity)
    assert back.name == "me"


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (Opaque(), UNTYPED),
        (Opaque(), Opaque),
        (Opaque(), Any),
        (Point(1), UNTYPED),
        (Point(1), dict),
        (Point(1), Any),
        ([_WHEN], list),
        ([_WHEN], list[object]),
        ({"when": _WHEN}, dict[str, Any]),
        ({"a", "b"}, Any),
        ("text", int),
        (1.5, int),
        (object, UNTYPED),
        (lambda: 1, UNTYPED),
        (float("nan"), float),
        (2**80, int),
        ("\udc80", str),
        ({1: "one"}, Any),
        ((item for item in "ab"), UNTYPED),
        (Page(pageTitle="t", seen=_WHEN), UNTYPED),
    ],
    ids=lambda each: type(each).__name__,
)
def test_anything_else_is_refused_at_once(value: object, declared: object) -> None:
    """A value that would not round-trip raises InvalidInput, which names it."""
    with pytest.raises(InvalidInput, match="the thing"):
        to_json(value, declared, "the thing")


def test_a_deep_value_is_refused() -> None:
    """Endless nesting raises InvalidInput, not RecursionError."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput):
        to_json(deep, UNTYPED, "it")


def test_types_that_can_never_be_stored_are_known_before_anything_runs() -> None:
    """A declared type without a JSON form is refused, wherever in it the cause is."""
    refused: tuple[object, ...] = (Opaque, list[Opaque], Callable[[], int], dict[str, list[Opaque]])
    for declared in refused:
        with pytest.raises(InvalidInput, match="the type"):
            check_type(declared, "the type")
    for value, fine in _GOOD:
        check_type(fine, repr(value))
    check_type(object, "anything")


def _local(value: T) -> T:
    return value


def _later() -> Awaitable[Trip]:
    raise NotImplementedError


def _half_known(_first: Fraction, second: Point) -> Trip:
    raise NotImplementedError(second)


def test_declared_results_are_found() -> None:
    """Found through partial functions and awaitables, and if only another annotation is unknown."""
    assert result_type(_later) is Trip
    assert result_type(_half_known) is Trip
    assert result_type(functools.partial(_half_known, second=Point(1))) is Trip
    assert result_type(len) is UNTYPED
    assert to_json({"a": 1}, result_type(_local), "it") == {"a": 1}


def test_arguments_take_part_in_the_identity_alike_in_every_run() -> None:
    """Small arguments count by value, large ones by hash, others by type; sets have one order in every process."""
    large = describe(("x" * 5_000,), {}, limit=100)
    assert isinstance(large, dict)
    assert isinstance(args := large["args"], list)
    assert isinstance(first := args[0], dict)
    assert set(first) == {"sha256", "bytes"}
    assert describe((Opaque(),), {"b": 1, "a": Point(1)}, limit=100) == {
        "args": [{"type": "Opaque"}],
        "kwargs": {"a": {"x": 1, "y": 0.0}, "b": 1},
    }
    program = (
        "from lash.runtime.steps.values import describe; print(describe(({'a','b','c','d','e','f'},), {}, limit=99))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert printed == {"{'args': [['a', 'b', 'c', 'd', 'e', 'f']]}\n"}


async def make_trip(name: str) -> Trip:
    return Trip(name, datetime.date(2024, 1, 1), [Point(1)], Colour.BLUE)


async def make_page() -> Page:
    return Page(pageTitle="t", seen=_WHEN)


async def plan_trip(ctx: Context, start: Point, pages: list[Page], colour: Colour = Colour.RED) -> Trip:
    """A process whose arguments, steps and result are typed."""
    assert isinstance(start, Point)
    assert isinstance(colour, Colour)
    page = await ctx.step(make_page)
    trip = await ctx.step(make_trip, "north")
    await ctx.sleep(1)
    assert isinstance(page, Page)
    assert page == pages[0]
    return dataclasses.replace(trip, stops=[*trip.stops, start], colour=colour)


async def test_typed_arguments_steps_and_results(world: World) -> None:
    """Typed values keep their types through a process, its steps, a pause and its result."""
    app = await world.app()
    process = app.process(plan_trip)
    handle = await app.start(process, Point(9), [Page(pageTitle="t", seen=_WHEN)], colour=Colour.BLUE)
    await app.drain()
    await world.seconds(1)
    await app.drain()
    expected = Trip("north", datetime.date(2024, 1, 1), [Point(1), Point(9)], Colour.BLUE)
    assert await handle.result(timeout_s=5) == expected


async def test_arguments_that_do_not_fit_are_refused_at_the_start(world: World) -> None:
    """Missing, unknown, ill-typed or untyped arguments raise InvalidInput with their names; nothing is registered."""
    app = await world.app()
    process: Any = app.process(plan_trip)
    for args, kwargs, said in (
        ((), {}, "start"),
        ((Point(1), [], Colour.RED, 4), {}, "too many"),
        ((Point(1), []), {"speed": 3}, "speed"),
        ((Point(1), "pages"), {}, "pages"),
        (({"x": "one"}, []), {}, "start"),
        ((Opaque(), []), {}, "Opaque"),
    ):
        with pytest.raises(InvalidInput, match=said):
            await app.start(process, *args, **kwargs)
    assert (await app.storage.processes.list()).processes == ()


async def test_a_process_takes_its_arguments_by_name(world: World) -> None:
    """A function with starred or positional-only arguments is refused when it is declared."""
    app = await world.app()

    async def starred(ctx: Context, *numbers: int) -> None: ...
    async def open_ended(ctx: Context, **options: int) -> None: ...
    async def positional(ctx: Context, number: int, /) -> None: ...

    for function in (starred, open_ended, positional):
        with pytest.raises(ConfigError, match="by name"):
            app.process(function)


def odd() -> Opaque:
    raise AssertionError("it must not run")


async def untyped_result() -> object:
    return Opaque()


async def test_a_step_whose_result_cannot_be_stored(world: World) -> None:
    """If its type shows it, the step does not run; otherwise nothing is recorded and the process fails."""
    app = await world.app()

    @app.process
    async def early(ctx: Context) -> None:
        await ctx.step(odd)

    @app.process
    async def late(ctx: Context) -> None:
        world.count("late")
        await ctx.step(untyped_result)

    first, second = await app.start(early), await app.start(late)
    await app.drain()
    for handle, said in ((first, "step 'odd'"), (second, "Opaque")):
        outcome = await outcome_of(handle)
        assert isinstance(outcome, Failure)
        assert outcome.code == "InvalidInput"
        assert said in outcome.message
        assert await records_of(app, handle) == {}
    assert world.calls["late"] == 1


async def test_a_result_that_cannot_be_stored_ends_the_process(world: World) -> None:
    """The process fails at once with a code of its own: another run would not help."""
    app = await world.app()

    @app.process
    async def opaque(ctx: Context) -> Any:  # noqa: ANN401 (the point)
        return Opaque()

    @app.process
    async def large(ctx: Context) -> str:
        return "x" * 3_000_000

    @app.process
    async def wrong(ctx: Context) -> int:
        return "text"  # type: ignore[return-value]

    handles = [await app.start(each) for each in (opaque, large, wrong)]
    assert await app.drain() == 3
    for handle in handles:
        outcome = await outcome_of(handle)
        assert isinstance(outcome, Failure)
        assert outcome.code == "process_result_invalid"


async def test_stored_arguments_that_no_longer_fit_end_the_process(world: World) -> None:
    """The process fails with the reason and is not run again."""
    app = await world.app()

    async def before(ctx: Context, name: str) -> None: ...
    async def renamed(ctx: Context, title: str) -> None: ...
    async def one_more(ctx: Context, name: str, extra: int) -> None: ...
    async def retyped(ctx: Context, name: int) -> None: ...

    declare: Any = app.process
    for number, after in enumerate((renamed, one_more, retyped)):
        old = declare(name=f"changed-{number}")(before)
        handle = await app.start(old, "n")
        app._definitions.processes.clear()
        declare(name=f"changed-{number}")(after)
        assert await app.drain() == 1
        outcome = await outcome_of(handle)
        assert isinstance(outcome, Failure), outcome
        assert outcome.code == "process_arguments_invalid"
        assert await handle.status() is ProcessStatus.FAILED
