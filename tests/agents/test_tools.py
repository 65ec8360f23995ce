"""Functions become tools: their schema, their arguments and their answers."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

import lash
from lash.agents import Tool, tool
from lash.agents.tools import ToolAnswer


@dataclasses.dataclass
class Place:
    city: str
    country: str = "IT"


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(ge=1)


class Basket(pydantic.BaseModel):
    orders: list[Order]


def answer(made: Tool, arguments: str) -> ToolAnswer:
    return asyncio.run(made.answer(arguments))


def test_the_schema_of_a_function() -> None:
    """The name, the docstring and the type hints are what the model sees."""

    @tool
    def weather(city: Annotated[str, "a city"], days: int = 1, unit: Literal["C", "F"] | None = None) -> str:
        """Return the weather."""
        return f"{city} {days} {unit}"

    assert (weather.spec.name, weather.spec.description) == ("weather", "Return the weather.")
    assert weather.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "a city"},
            "days": {"type": "integer", "default": 1},
            "unit": {"anyOf": [{"enum": ["C", "F"]}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert answer(weather, '{"city": "Rome"}') == ToolAnswer(text="Rome 1 None")
    assert weather("Rome", 2) == "Rome 2 None"


def test_nested_types_come_as_what_they_are() -> None:
    """Dataclasses, structs and pydantic models are read, and their definitions can be found in the schema."""

    @tool
    async def buy(basket: Basket, to: Place) -> dict[str, Any]:
        return {"items": [order.item for order in basket.orders], "to": to.country}

    assert set(buy.spec.parameters["$defs"]) == {"Order", "Place"}
    assert buy.spec.parameters["properties"]["to"] == {"$ref": "#/$defs/Place"}
    got = answer(buy, '{"basket": {"orders": [{"item": "pen", "count": 2}]}, "to": {"city": "Rome"}}')
    assert got == ToolAnswer(text='{"items":["pen"],"to":"IT"}')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "the arguments are not JSON"),
        ('{"count": 0}', "missing required field `item`"),
        ('{"item": "pen", "count": "two"}', "Expected `int`, got `str`"),
        ('{"item": "pen", "count": 1, "colour": "red"}', "unknown field `colour`"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_wrong_arguments_are_an_answer(arguments: str, said: str) -> None:
    """The model gets what is wrong with its arguments."""

    @tool
    def order(item: str, count: int) -> str:
        raise AssertionError("it is not called")

    got = answer(order, arguments)
    assert got.failed
    assert said in got.text


def test_pydantic_refuses_too() -> None:
    """The rules of a pydantic model hold for the arguments of a tool."""

    @tool
    def order(wanted: Order) -> str:
        raise AssertionError("it is not called")

    got = answer(order, '{"wanted": {"item": "pen", "count": 0}}')
    assert got.failed
    assert "greater than or equal to 1" in got.text


def test_errors_are_answers() -> None:
    """An error of the function, a result that is not JSON, and a time-out are answers; a lost database is not."""

    @tool
    async def divide(by: int) -> float:
        return 1 / by

    @tool
    def odd() -> object:
        return object()

    @tool(timeout_s=0.01)
    async def slow() -> None:
        await asyncio.sleep(60)

    @tool
    async def away() -> None:
        raise lash.StoreUnavailable("the database is away")

    assert answer(divide, '{"by": 0}') == ToolAnswer(text="ZeroDivisionError: division by zero", failed=True)
    assert answer(odd, "") == ToolAnswer(
        text="TypeError: the result of type object is not JSON; return text or plain JSON", failed=True
    )
    assert answer(slow, "{}") == ToolAnswer(text="TimeoutError: TimeoutError", failed=True)
    with pytest.raises(lash.StoreUnavailable):
        answer(away, "{}")


def test_results_are_text() -> None:
    """Text is sent as it is, anything else as JSON."""

    @tool
    def place() -> Place:
        return Place("Rome")

    @tool
    def order() -> Order:
        return Order(item="pen", count=1)

    assert answer(place, "").text == '{"city":"Rome","country":"IT"}'
    assert msgspec.json.decode(answer(order, "").text) == {"item": "pen", "count": 1}


def test_what_cannot_be_a_tool() -> None:
    """A tool needs a name that providers accept, typed arguments by name, and options that fit."""

    def untyped(x) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        pass

    def many(*x: int) -> None:
        pass

    def turned(turn: lash.Turn, x: int) -> None:
        pass

    with pytest.raises(lash.ConfigError, match="declare the type of 'x'"):
        tool(untyped)
    with pytest.raises(lash.ConfigError, match="by name"):
        tool(many)
    with pytest.raises(lash.ConfigError, match="expected a tool name"):
        tool(name="no spaces")(turned)
    with pytest.raises(lash.ConfigError, match="takes a turn"):
        tool(once=True)(turned)
    assert set(tool(turned).spec.parameters["properties"]) == {"x"}
