import asyncio
import dataclasses
import datetime as dt
import functools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
)
from typing_extensions import TypedDict

from codemode.data.json_values import encode_json
from codemode.errors import CodeModeSerializationError, CodeModeToolError
from codemode.tools.collecting import collect_tools
from codemode.tools.context import ToolCallContext
from codemode.tools.tool import MISSING, Tool, tool

CONTEXT = ToolCallContext(tool_call_id="outer:tool-1", outer_tool_call_id="outer")


class Line(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    customer: str
    lines: list[Line] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    pair: tuple[int, int]


class Login(BaseModel):
    secret: SecretStr
    hidden: int = Field(default=3, exclude=True)


class Area(BaseModel):
    side: int

    @computed_field
    @property
    def square(self) -> int:
        return self.side**2


class Renamed(BaseModel):
    class_name: str = Field(alias="class")


ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "priority": {"enum": ["low", "high"], "default": "low"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["customer"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"count": {"type": "integer", "minimum": 1, "default": 1}},
        }
    },
}


def make(**settings):
    return Tool("orders", execute=lambda value, context: value, **settings)


def problems_of(one, value):
    with pytest.raises(CodeModeToolError) as raised:
        one.validate_input(value)
    assert raised.value.details["tool_name"] == one.name
    assert f'"{one.name}"' in str(raised.value)
    for problem in raised.value.details["problems"]:
        assert problem["path"] in str(raised.value)
        assert problem["message"] in str(raised.value)
    return raised.value.details["problems"]


# --- plain functions ---


def search(query: str, limit: Annotated[int, "how many"] = 10, *, tags: list[str] | None = None) -> list[Line]:
    """Search the
    catalogue.

    More that models need not read.

    Args:
        query: what to look for,
            in words
        tags (list[str]): only these
    """
    return [Line(sku=f"{query}-{limit}-{tags}")]


def test_a_functions_signature_and_docstring_describe_the_tool():
    one = tool(search)
    assert (one.name, one.description) == ("search", "Search the catalogue.")
    assert one.input_json_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for, in words"},
            "limit": {"type": "integer", "default": 10, "description": "how many"},
            "tags": {
                "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}],
                "default": None,
                "description": "only these",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert one.output_json_schema["type"] == "array"


def test_a_function_receives_coerced_keyword_arguments():
    one = tool(search)
    validated = one.validate_input({"query": "x", "limit": "3"})
    assert validated.value == {"query": "x", "limit": 3, "tags": None}
    assert validated.json_value == {"query": "x", "limit": 3, "tags": None}
    result = one.call(validated.value, CONTEXT)
    assert one.validate_output(result) == [{"sku": "x-3-None", "count": 1}]


def test_wrong_arguments_name_path_and_expectation():
    found = problems_of(tool(search), {"query": 5, "tags": ["a", 1], "extra": 1})
    assert [problem["path"] for problem in found] == ["query", "tags[1]", "extra"]
    assert "string" in found[0]["message"]
    assert problems_of(tool(search), MISSING)[0]["path"] == "query"
    assert problems_of(tool(search), "text")[0]["path"] == ""


def test_the_context_may_stand_anywhere_and_is_no_input():
    def first(context: ToolCallContext, x: int) -> str:
        return f"{context.tool_call_id} {x}"

    def last(x: int, *, where: ToolCallContext | None = None) -> str:
        return f"{where.tool_call_id} {x}"

    for function in (first, last):
        one = tool(function)
        assert list(one.input_json_schema["properties"]) == ["x"]
        assert one.call(one.validate_input({"x": 1}).value, CONTEXT) == "outer:tool-1 1"


def test_awkward_parameter_names_work():
    def odd(copy: int, _x: int, model_config: str, json: str = "j", schema: str = "s", p0: int = 7) -> Any:
        return (copy, _x, model_config, json, schema, p0)

    one = tool(odd)
    assert set(one.input_json_schema["properties"]) == {"copy", "_x", "model_config", "json", "schema", "p0"}
    value = one.validate_input({"copy": 1, "_x": 2, "model_config": "m"}).value
    assert one.call(value, CONTEXT) == (1, 2, "m", "j", "s", 7)


def test_extra_keywords_reach_a_function_that_takes_them():
    def anything(x: int, *rest: int, **extra: Any) -> Any:
        return (x, rest, extra)

    one = tool(anything)
    assert one.call(one.validate_input({"x": 1, "p0": 2, "y": {"z": 3}}).value, CONTEXT) == (
        1,
        (),
        {"p0": 2, "y": {"z": 3}},
    )


def test_defaults_that_are_no_json_are_kept_out_of_the_schema():
    nothing = object()

    def f(x: Any = nothing, y: int = Field(default=3, ge=2, description="why")) -> Any:
        return x is nothing, y

    one = tool(f)
    assert one.input_json_schema["properties"] == {
        "x": {},
        "y": {"default": 3, "minimum": 2, "description": "why", "type": "integer"},
    }
    validated = one.validate_input({})
    assert one.call(validated.value, CONTEXT) == (True, 3)
    assert validated.json_value == {}
    assert problems_of(one, {"y": 1})[0]["path"] == "y"


def test_an_instance_reaches_a_parameter_annotated_with_a_model():
    def place(order: Order) -> str:
        return order.lines[0].sku

    one = tool(place)
    validated = one.validate_input({"order": {"customer": "c", "lines": [{"sku": "s"}]}})
    assert one.call(validated.value, CONTEXT) == "s"
    assert validated.json_value == {"order": {"customer": "c", "lines": [{"sku": "s", "count": 1}]}}


def test_a_method_a_partial_and_a_callable_object_are_functions():
    class Shop:
        def price(self, sku: str) -> int:
            return len(sku)

        def __call__(self, sku: str) -> int:
            """Sell."""
            return len(sku) + 1

    tools = collect_tools({"price": Shop().price, "sell": Shop(), "again": functools.partial(search, limit=2)})
    assert [one.call(one.validate_input({"sku": "abc"}).value, CONTEXT) for one in (tools["price"], tools["sell"])] == [
        3,
        4,
    ]
    assert tools["again"].description == "Search the catalogue."
    assert tools["again"].call(tools["again"].validate_input({"query": "q"}).value, CONTEXT)[0].sku == "q-2-None"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (len, "cannot be given by name"),
        (lambda x: x, "has no name"),
    ],
)
def test_functions_that_make_no_tool(function, said):
    with pytest.raises(ValueError, match=said):
        tool(function)


def test_an_unknown_annotation_is_named():
    def f(x: "Nowhere"):  # noqa: F821
        return x

    with pytest.raises(ValueError, match="Nowhere"):
        tool(f)


def test_a_parameter_that_pydantic_cannot_describe_is_refused_when_prepared():
    class Opaque:
        pass

    def f(x: Opaque) -> int:
        return 1

    with pytest.raises(ValueError, match="input_schema of tool 'f'"):
        tool(f).prepare()


def test_the_decorator_takes_settings():
    @tool(name="refund", needs_approval=lambda value: value["amount"] > 10, annotations={"destructiveHint": True})
    async def pay_back(amount: int) -> None:
        """Pay back."""

    assert (pay_back.name, pay_back.description) == ("refund", "Pay back.")
    assert pay_back.annotations == {"destructiveHint": True}
    assert pay_back.asks_approval({"amount": 11}, CONTEXT) is True
    assert pay_back.asks_approval({"amount": 10}, CONTEXT) is False
    assert pay_back.output_json_schema == {"type": "null"}


# --- what a function gives ---


def gives_any() -> Any: ...
def gives_unsaid(): ...
def gives_opaque() -> asyncio.Event: ...
def gives_iterator() -> Iterator[int]:
    yield 1


async def gives_stream() -> AsyncIterator[Line]:
    yield Line(sku="a")


@pytest.mark.parametrize(
    ("function", "schema"),
    [
        (gives_any, None),
        (gives_unsaid, None),
        (gives_opaque, None),
        (gives_iterator, {"type": "array", "items": {"type": "integer"}}),
        (gives_stream, TypeAdapter(Line).json_schema(mode="serialization")["title"]),
    ],
)
def test_return_annotations(function, schema):
    given = tool(function).output_json_schema
    assert (given["title"] if isinstance(schema, str) else given) == schema


def test_a_generator_counts_as_its_items():
    one = tool(gives_iterator)
    assert one.validate_output(one.call({}, CONTEXT)) == [1]


async def async_function(): ...
async def async_generator():
    yield 1


def sync_function(): ...


class AsyncCallable:
    async def __call__(self): ...


@functools.wraps(sync_function)
async def async_wrapper(): ...


@functools.wraps(async_function)
def sync_wrapper():
    return async_function()


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (async_function, "async"),
        (async_generator, "async_iterator"),
        (sync_function, "sync"),
        (AsyncCallable(), "async"),
        (AsyncCallable().__call__, "async"),
        (functools.partial(async_function), "async"),
        (functools.partial(functools.partial(async_generator)), "async_iterator"),
        (functools.partial(AsyncCallable()), "async"),
        (async_wrapper, "async"),
        (sync_wrapper, "sync"),
        (len, "sync"),
        (None, None),
    ],
)
def test_how_a_tool_is_called_is_decided_once(function, kind):
    assert Tool("x", execute=function).execute_kind == kind


def with_context(a: int, context: ToolCallContext) -> int:
    return a


@pytest.mark.parametrize(
    ("one", "takes"),
    [
        (Tool("x", execute=lambda value, context: value), True),
        (Tool("x", execute=lambda *arguments: arguments), True),
        (Tool("x", execute=lambda value: value), False),
        (Tool("x", execute=lambda: 1), False),
        (Tool("x", execute=None), False),
        (Tool.from_function(with_context), True),
        (Tool.from_function(lambda a: a, name="x"), False),
    ],
)
def test_a_context_is_made_only_for_tools_that_take_it(one, takes):
    assert one.takes_context == takes


@pytest.mark.parametrize(
    ("execute", "received"),
    [
        (lambda: (), ()),
        (lambda value: (value,), (1,)),
        (lambda value, context: (value, context), (1, CONTEXT)),
        (lambda *everything: everything, (1, CONTEXT)),
        (lambda value, context, extra=5: (value, context, extra), (1, CONTEXT, 5)),
    ],
)
def test_execute_takes_what_it_asks_for(execute, received):
    assert Tool("x", execute=execute).call(1, CONTEXT) == received


def test_a_tool_without_execute_says_so():
    with pytest.raises(CodeModeToolError, match="cannot be executed") as raised:
        make_declared().call(1, CONTEXT)
    assert raised.value.details == {"tool_name": "declared"}


def make_declared():
    return Tool("declared", execute=None)


# --- JSON Schema dicts ---


def test_a_dict_schema_gives_plain_json_with_defaults():
    one = make(input_schema=ORDER_SCHEMA)
    given = {"customer": "c", "lines": [{}, {"count": 2}]}
    validated = one.validate_input(given)
    assert validated.value == {"customer": "c", "priority": "low", "lines": [{"count": 1}, {"count": 2}]}
    assert validated.json_value == validated.value
    assert given == {"customer": "c", "lines": [{}, {"count": 2}]}
    assert one.input_json_schema == ORDER_SCHEMA


def test_defaults_are_never_shared():
    one = make(input_schema={"type": "object", "properties": {"a": {"default": []}}})
    one.validate_input({}).value["a"].append(1)
    assert one.validate_input({}).value == {"a": []}


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"customer": 5}, "customer", "expected string, got number"),
        ({"customer": True}, "customer", "expected string, got boolean"),
        ({}, "", 'missing required "customer"'),
        (MISSING, "", 'missing required "customer"'),
        (None, "", "expected object, got null"),
        ([], "", "expected object, got array"),
        ({"customer": "c", "priority": "top"}, "priority", 'must be one of "low", "high"'),
        ({"customer": "c", "lines": [{}, {"count": 0}]}, "lines[1].count", "must satisfy minimum: 1"),
        ({"customer": "c", "x y": 1}, "", "does not take 'x y'"),
    ],
)
def test_dict_schema_problems_name_path_and_expectation(value, path, message):
    (problem,) = problems_of(make(input_schema=ORDER_SCHEMA), value)
    assert problem["path"] == path
    assert message in problem["message"]


def test_problems_are_few_and_short():
    one = make(input_schema={"type": "array", "items": {"maxLength": 3, "type": "string"}})
    found = problems_of(one, ["x" * 100_000, *range(10_000)])
    assert len(found) <= 8
    assert max(len(problem["message"]) for problem in found) <= 200
    typed = make(input_schema=list[str])
    assert problems_of(typed, list(range(5000))) == [{"path": "", "message": "does not fit in 5000 places"}]
    assert len(problems_of(typed, list(range(50)))) == 8


def test_an_alternative_that_comes_close_explains_itself():
    one = make(input_schema={"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "string"}}}]})
    assert problems_of(one, {"a": 1}) == [{"path": "a", "message": "expected string, got number"}]


def test_remote_references_are_never_fetched(monkeypatch):
    fetched = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    one = make(input_schema={"properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}})
    assert "not part of it" in problems_of(one, {"a": 1})[0]["message"]
    assert fetched == []


def test_drafts_follow_the_schema():
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
    }
    assert problems_of(make(input_schema=old), 3)
    assert make(input_schema=old).validate_input(4).value == 4


def tree(depth):
    value = {"kind": "leaf"}
    for _ in range(depth):
        value = {"kind": "add", "left": value, "right": {"kind": "leaf"}}
    return value


def variant(kind):
    both = {"left": {"$ref": "#"}, "right": {"$ref": "#"}}
    return {"type": "object", "properties": {"kind": {"const": kind}, **both}, "required": ["kind"]}


def test_recursive_alternatives_end_in_bounded_time():
    one = make(input_schema={"oneOf": [variant("leaf"), variant("multiply"), variant("add")]})
    assert one.validate_input(tree(3)).value == tree(3)
    assert one.validate_input(tree(40)).value == tree(40)
    wrong = tree(40)
    wrong["right"]["kind"] = "nothing"
    assert problems_of(one, wrong)


def test_large_plain_data_is_not_too_much():
    one = make(input_schema={"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}})
    value = [{"a": number} for number in range(40_000)]
    assert one.validate_input(value).value == value


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 100_000 + "b", False),
        ({"pattern": r"\S+@\S+\.\S+"}, "a@" * 50_000, False),
        ({"pattern": r"^\p{L}+$"}, "größe", True),
        ({"pattern": r"^(?<first>a)$"}, "a", True),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "b"}, 5, True),
        ({"patternProperties": {"^(x+)+$": {"type": "string"}}}, {"x" * 50_000 + "y": 1}, True),
        ({"patternProperties": {"^x": {"type": "string"}}}, {"xa": 1}, False),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xa": 1}, True),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"ya": 1}, False),
        ({"additionalProperties": {"type": "string"}, "properties": {"a": {}}}, {"a": 1, "b": "c"}, True),
        ({"additionalProperties": {"type": "string"}, "properties": {"a": {}}}, {"a": 1, "b": 1}, False),
        ({"uniqueItems": True}, [{"a": number} for number in range(40_000)], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"uniqueItems": True}, [1, True, "1", None], True),
    ],
)
def test_hostile_values_meet_every_keyword_in_bounded_time(schema, value, fits):
    one = make(input_schema=schema)
    if fits:
        assert one.validate_input(value).value == value
    else:
        assert problems_of(one, value)


def test_formats_are_not_checked():
    assert make(input_schema={"type": "string", "format": "date"}).validate_input("no").value == "no"


def circular_schema():
    schema = {"type": "object"}
    schema["properties"] = {"self": schema}
    return schema


def deep_schema():
    schema = {}
    for _ in range(100_000):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    "make_schema",
    [
        lambda: {"type": "strange"},
        lambda: {"type": 5},
        lambda: {"required": "a"},
        lambda: {"$schema": 5},
        lambda: {"properties": {"a": {"pattern": "("}}},
        lambda: {"patternProperties": {"(": {}}},
        lambda: {"default": float("nan")},
        lambda: {"enum": {1, 2}},
        circular_schema,
        deep_schema,
    ],
)
def test_a_broken_schema_is_a_value_error_naming_the_tool(make_schema):
    with pytest.raises(ValueError, match="input_schema of tool 'orders'"):
        make(input_schema=make_schema()).prepare()
    with pytest.raises(ValueError, match="output_schema of tool 'orders'"):
        make(output_schema=make_schema()).prepare()


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}])
def test_circular_references_end(schema):
    assert "too deeply" in problems_of(make(input_schema={**schema, "default": 1}), {})[0]["message"]


def test_deep_values_end():
    value = []
    for _ in range(500):
        value = [value]
    one = make(input_schema={"items": {"$ref": "#"}, "type": "array", "default": []})
    assert problems_of(one, value) == [{"path": "", "message": "nests too deeply to be checked"}]


@pytest.mark.parametrize(("schema", "value"), [(True, 5), ({}, None)])
def test_schemas_that_take_anything(schema, value):
    assert make(input_schema=schema).validate_input(value).value == value


def test_false_takes_nothing():
    assert problems_of(make(input_schema=False), 1) == [{"path": "", "message": "is not allowed"}]


def test_no_schema_takes_anything():
    one = make()
    one.prepare()
    assert (one.input_json_schema, one.output_json_schema) == (None, None)
    assert one.validate_input({"a": [1]}).json_value == {"a": [1]}
    assert one.validate_input(MISSING).value is None
    assert one.validate_output(one) is one


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object"}, {}),
        ({"properties": {}}, {}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, {}),
        ({"type": ["string", "null"]}, None),
        (dict[str, int], {}),
        (int | None, None),
    ],
)
def test_a_missing_input(schema, value):
    assert make(input_schema=schema).validate_input(MISSING).value == value


# --- types ---


class Query(TypedDict):
    text: str


@dataclasses.dataclass
class Page:
    number: int = 1


@pytest.mark.parametrize(
    ("schema", "given", "value", "shown"),
    [
        (Order, {"customer": "c"}, Order(customer="c"), {"customer": "c", "lines": []}),
        (Page, {}, Page(), {"number": 1}),
        (Query, {"text": "t"}, {"text": "t"}, {"text": "t"}),
        (list[dt.date], ["2024-01-02"], [dt.date(2024, 1, 2)], ["2024-01-02"]),
        (TypeAdapter(set[int]), [1, 1], {1}, [1]),
        (Annotated[int, Field(ge=3)], "3", 3, 3),
        (Area, {"side": 2}, Area(side=2), {"side": 2}),
        (
            Strict,
            {"day": "2024-01-02", "pair": [1, 2]},
            Strict(day=dt.date(2024, 1, 2), pair=(1, 2)),
            {"day": "2024-01-02", "pair": [1, 2]},
        ),
        (Renamed, {"class": "c"}, Renamed(**{"class": "c"}), {"class": "c"}),
    ],
)
def test_a_type_gives_an_instance_and_shows_json(schema, given, value, shown):
    one = make(input_schema=schema)
    validated = one.validate_input(given)
    assert validated.value == value
    assert validated.json_value == shown
    assert one.validate_input(validated.json_value).value == value


def test_what_would_not_come_back_is_shown_as_the_guest_gave_it():
    one = make(input_schema=Login)
    validated = one.validate_input({"secret": "s3", "hidden": 4})
    assert validated.json_value == {"secret": "s3", "hidden": 4}
    assert one.validate_input(validated.json_value).value == validated.value


def test_what_is_shown_is_a_copy():
    for schema in (None, ORDER_SCHEMA, dict[str, Any]):
        validated = make(input_schema=schema).validate_input({"customer": "c", "lines": [{"count": 1}]})
        before = json.dumps(validated.value)
        validated.json_value["lines"][0]["count"] = 2
        validated.json_value["lines"].append({})
        assert json.dumps(validated.value) == before


class Clumsy(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def look_up(cls, value: int) -> int:
        return {}[value]

    @field_serializer("x")
    def write(self, value: int) -> int:
        return {}[value]


def test_what_a_validator_raises_by_accident_is_hidden():
    one = make(input_schema=Clumsy, output_schema=Clumsy)
    for check in (one.validate_input, one.validate_output):
        with pytest.raises(CodeModeToolError) as raised:
            check({"x": 12345})
        assert raised.value.code == "CODE_MODE_HOST_TOOL_ERROR"
        assert isinstance(raised.value.__cause__, KeyError)
        assert "12345" not in str(raised.value)


def test_type_problems_name_the_path():
    found = problems_of(make(input_schema=Order), {"lines": [{"sku": "s", "count": 0}]})
    assert [problem["path"] for problem in found] == ["customer", "lines[0].count"]
    assert "Field required" in found[0]["message"]
    assert "greater than or equal to 1" in found[1]["message"]


@pytest.mark.parametrize("schema", [lambda: asyncio.Event, lambda: "Nowhere"])
def test_a_type_that_pydantic_cannot_describe_is_a_value_error(schema):
    with pytest.raises(ValueError, match="input_schema of tool 'orders'"):
        make(input_schema=schema()).prepare()


# --- output ---


@pytest.mark.parametrize(
    ("schema", "returned", "given"),
    [
        (Order, Order(customer="c"), {"customer": "c", "lines": []}),
        (Order, {"customer": "c"}, {"customer": "c", "lines": []}),
        (Renamed, Renamed(**{"class": "c"}), {"class": "c"}),
        (list[dt.date], [dt.date(2024, 1, 2)], ["2024-01-02"]),
        ({"type": "object", "required": ["customer"]}, Order(customer="c"), {"customer": "c", "lines": []}),
        ({"type": "array", "items": {"type": "integer"}}, (1, 2), [1, 2]),
        ({"type": "string"}, dt.date(2024, 1, 2), "2024-01-02"),
    ],
)
def test_outputs_become_json(schema, returned, given):
    output = make(output_schema=schema).validate_output(returned)
    assert json.loads(encode_json(output, what="output")) == given


@pytest.mark.parametrize(
    ("schema", "returned", "path"),
    [
        (Order, {"customer": 5}, "customer"),
        (int, "x", ""),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": 1}, "a"),
        ({"type": "string"}, None, ""),
    ],
)
def test_a_tool_that_breaks_its_own_declaration(schema, returned, path):
    with pytest.raises(CodeModeToolError, match='Invalid output of tool "orders"') as raised:
        make(output_schema=schema).validate_output(returned)
    assert raised.value.details["problems"][0]["path"] == path
    assert raised.value.code == "CODE_MODE_TOOL_ERROR"


def test_an_output_that_cannot_be_json_names_the_tool():
    with pytest.raises(CodeModeSerializationError, match='Output of tool "orders" is not JSON'):
        make(output_schema={"type": "string"}).validate_output(object())


# --- names and sets ---


@pytest.mark.parametrize("name", ["", "then", "$search", "a\nb", "a\u2028b", "x" * 129, "\ud800", 5, None])
def test_impossible_names(name):
    with pytest.raises(ValueError, match=r"name|called"):
        Tool(name, execute=None)
    with pytest.raises(ValueError, match=r"name|called"):
        collect_tools({name: make()})


@pytest.mark.parametrize(
    "name", ["a", "kebab-name", "a.b", "a.then", "constructor", "__proto__", "x" * 128, "größe", "a b"]
)
def test_possible_names(name):
    assert collect_tools({name: make()})[name].name == name


def test_a_mapping_renames_and_errors_follow():
    one = make(input_schema=ORDER_SCHEMA)
    tools = collect_tools({"a": one, "b": search, "orders": one})
    assert [tool.name for tool in tools.values()] == ["a", "b", "orders"]
    assert tools["orders"] is one
    assert problems_of(tools["a"], {})


def test_an_iterable_uses_own_names():
    assert list(collect_tools([make(), search])) == ["orders", "search"]
    assert collect_tools(one for one in ()) == {}
    with pytest.raises(ValueError, match="two tools are called 'orders'"):
        collect_tools([make(), make()])


@pytest.mark.parametrize("tools", [None, 5, "search", search])
def test_what_is_no_set_of_tools(tools):
    with pytest.raises(TypeError, match="tools must be a mapping or an iterable"):
        collect_tools(tools)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"execute": 5}, "execute of tool 'x'"),
        ({"execute": None, "to_model_output": 5}, "to_model_output of tool 'x'"),
        ({"execute": None, "needs_approval": "yes"}, "needs_approval of tool 'x'"),
    ],
)
def test_what_is_not_callable(settings, said):
    with pytest.raises(TypeError, match=said):
        Tool("x", **settings)


def test_schemas_are_compiled_once():
    one = make(input_schema=ORDER_SCHEMA, output_schema=Order)
    one.prepare()
    assert one.input_json_schema is one.input_json_schema
    assert one.output_json_schema is one.output_json_schema


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3) | st.sampled_from(["customer", "lines", "count"]), inner, max_size=3)
        ),
    )
)
def test_any_json_is_accepted_or_refused_and_what_is_shown_comes_back(value):
    for one in (DICT_TOOL, TYPE_TOOL, FUNCTION_TOOL):
        try:
            validated = one.validate_input(value)
        except CodeModeToolError:
            continue
        assert one.validate_input(validated.json_value).value == validated.value


DICT_TOOL, TYPE_TOOL, FUNCTION_TOOL = make(input_schema=ORDER_SCHEMA), make(input_schema=Order), tool(search)


def test_importing_the_tools_loads_nothing_heavy():
    heavy = ["pydantic", "pydantic_core", "jsonschema", "httpx"]
    program = f"import sys, codemode.tools.tool; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# --- docstrings ---


def numpy_style(a: int, b: int, c: int) -> int:
    """Add.

    Parameters
    ----------
    a : int
        the first
        of them
    b, c : int
        the others

    Returns
    -------
    int
        the sum
    """
    return a + b + c


def sphinx_style(a: int, b: int) -> int:
    """Add.

    :param a: the first
        of them
    :param int b: the second
    :returns: the sum
    """
    return a + b


def google_style(a: int, b: int) -> int:
    """Add.

    Args:
        a (int): the first: of them
        b: the second

    Returns:
        the sum
    """
    return a + b


@pytest.mark.parametrize(
    ("function", "descriptions"),
    [
        (numpy_style, {"a": "the first of them", "b": "the others", "c": "the others"}),
        (sphinx_style, {"a": "the first of them", "b": "the second"}),
        (google_style, {"a": "the first: of them", "b": "the second"}),
    ],
)
def test_docstring_styles(function, descriptions):
    properties = tool(function).input_json_schema["properties"]
    assert {name: rules["description"] for name, rules in properties.items()} == descriptions
