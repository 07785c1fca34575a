"""Fields of results that a program reads, checked against what functions declare: never where there may be others."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated, Any, final

import pytest
from codemode_pydantic_ai import CodeMode
from codemode_pydantic_ai.conversion import get_closed_or_declared_output_schema
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SerializeAsAny,
    WrapSerializer,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic_ai import Agent, Tool, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from scripted import Script, program
from suite import each_row
from typing_extensions import TypedDict


class Tag(BaseModel):
    name: str


class Item(BaseModel):
    id: int
    tags: list[Tag] = []

    @computed_field
    @property
    def price(self) -> int:
        return 7


@dataclasses.dataclass
class Row:
    id: int


@dataclasses.dataclass
class Counted:
    id: int
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.id * 2


@dataclasses.dataclass
class Renamed:
    id: Annotated[int, Field(alias="number")]


@final
class Last(BaseModel):
    id: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: int


class Parent(BaseModel):
    id: int


class Child(Parent):
    more: int = 1


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int


class Looser(Strict):
    more: int = 1


class Written(BaseModel):
    id: int

    @model_serializer(mode="wrap")
    def write(self, handler: Any):
        return {**handler(self), "more": 1}


class FieldWritten(BaseModel):
    tag: Tag

    @field_serializer("tag", mode="wrap")
    def write(self, tag: Any, handler: Any):
        return {**handler(tag), "more": 1}


class Duck(BaseModel):
    tag: SerializeAsAny[Tag]


class Typed(TypedDict):
    id: int


def schema_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    def give() -> Any: ...

    give.__annotations__["return"] = kind
    declared: Any = Tool(give).tool_def.return_schema
    exact = get_closed_or_declared_output_schema(declared, give)
    assert exact is not None
    return declared, exact


def closed(schema: Any) -> list[bool]:
    """Whether each object in it is closed."""
    found = [schema, *schema.get("$defs", {}).values()]
    return [one.get("additionalProperties") is False for one in found if one.get("type") == "object"]


@each_row("kind", [Item, list[Item], Item | None, Row, list[Row], Last, ToolReturn[Item]])
def test_what_is_written_with_its_fields_alone_is_closed(kind: Any) -> None:
    declared, exact = schema_of(kind)
    assert exact != declared
    assert all(closed(exact))


@each_row(
    "kind",
    [
        *(
            Open,
            Parent,
            list[Parent],
            Counted,
            list[Counted],
            Renamed,
            Written,
            FieldWritten,
            Duck,
            Typed,
            dict[str, int],
            RootModel[dict[str, int]],
        ),
        Annotated[Item, WrapSerializer(lambda value, handler: {**handler(value), "more": 1})],
    ],
)
def test_what_may_have_more_stays_open(kind: Any) -> None:
    declared, exact = schema_of(kind)
    assert exact == declared
    assert not any(closed(exact))


@pytest.mark.parametrize(("kind", "is_closed"), [(Strict, False), (Looser, True)])
def test_a_class_that_forbids_more_is_open_where_one_derived_from_it_has_more(kind: Any, is_closed: bool) -> None:
    declared, exact = schema_of(kind)
    assert closed(declared) == [True]
    assert closed(exact) == [is_closed]


def test_a_class_that_is_derived_from_later_is_open_again() -> None:
    class Base(BaseModel):
        id: int

    def give() -> Any: ...

    give.__annotations__["return"] = Base
    declared: Any = Tool(give).tool_def.return_schema
    assert closed(get_closed_or_declared_output_schema(declared, give)) == [True]
    derived = type("Derived", (Base,), {"__annotations__": {"more": int}, "more": 1})
    assert get_closed_or_declared_output_schema(declared, give) == declared
    assert issubclass(derived, Base)


def test_a_tool_that_says_something_else_is_believed() -> None:
    declared, _ = schema_of(Item)

    def give() -> Row: ...

    assert get_closed_or_declared_output_schema(declared, give) is declared
    assert get_closed_or_declared_output_schema(declared, None) is declared
    assert get_closed_or_declared_output_schema(None, give) is None

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> Item: ...

    assert get_closed_or_declared_output_schema(declared, Unhashable()) is declared


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_program_that_reads_a_field_that_no_item_has_is_told_before_anything_runs(is_wrapped: bool) -> None:
    called: list[int] = []

    def item(number: int) -> Item:
        called.append(number)
        return Item(id=number, tags=[Tag(name="new")])

    name = "shop_item" if is_wrapped else "item"
    wrong = program(f"return (await tools.{name}({{ number: 1 }})).prise")
    right = program(
        f"const one = await tools.{name}({{ number: 2 }}); return [one.price, one.tags[0].name, one.id]", "again"
    )
    script = Script(wrong, right, "done")
    toolset: Any = FunctionToolset([item])
    agent = Agent(
        script.model, toolsets=[toolset.prefixed("shop") if is_wrapped else toolset], capabilities=[CodeMode()]
    )
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    assert "result.prise does not exist; did you mean price?" in str(script.returned())
    assert script.returned("again") == [7, "new", 2]
    assert called == [2]


class Stamping(WrapperToolset[Any]):
    """Adds to each result when it was found."""

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        found = await super().call_tool(name, tool_args, ctx, tool)
        return {**found.model_dump(), "stamp": 1}


class Stamps(AbstractCapability[Any]):
    async def after_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
        return {**result.model_dump(), "stamp": 1} if isinstance(result, Item) else result


async def stamped(_ctx: Any, *, result: Any, **_: Any) -> Any:
    return {**result.model_dump(), "stamp": 1} if isinstance(result, Item) else result


def made(toolset: Any) -> Any:
    def make(_ctx: Any) -> Any:
        return Stamping(toolset)

    return make


@pytest.mark.parametrize("changed", [Stamping, made, Stamps(), Hooks(after_tool_execute=stamped)])
def test_what_somebody_adds_to_a_result_on_its_way_is_there(changed: Any) -> None:
    def item(number: int) -> Item:
        return Item(id=number)

    script = Script(program("return (await tools.item({ number: 1 })).stamp"), "done")
    toolset: Any = FunctionToolset([item])
    hooked: list[Any] = [] if callable(changed) else [changed]
    around: Any = toolset if hooked else changed(toolset)
    agent = Agent(script.model, toolsets=[around], capabilities=[CodeMode(), *hooked])
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    assert script.returned() == 1
