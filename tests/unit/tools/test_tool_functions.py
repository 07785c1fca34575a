"""A tool made of a plain function: its signature, its docstring, and what it receives and gives."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from orders_tool import CONTEXT, Line, Order, problems_of, search
from pydantic import (
    Field,
    TypeAdapter,
)
from suite import each_row

from codemode.tools.collecting import collect_tools
from codemode.tools.context import ToolCallContext
from codemode.tools.prepared import MISSING, prepare_tool
from codemode.tools.tool import tool


def test_a_functions_signature_and_docstring_describe_the_tool():
    one = prepare_tool(tool(search))
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
    one = prepare_tool(tool(search))
    validated = one.validate_input({"query": "x", "limit": "3"})
    assert validated.value == {"query": "x", "limit": 3, "tags": None}
    assert validated.json_value == {"query": "x", "limit": 3, "tags": None}
    result = one.call(validated.value, CONTEXT)
    assert one.validate_output(result) == [{"sku": "x-3-None", "count": 1}]


def test_wrong_arguments_name_path_and_expectation():
    found = problems_of(prepare_tool(tool(search)), {"query": 5, "tags": ["a", 1], "extra": 1})
    assert [problem["path"] for problem in found] == ["query", "tags[1]", "extra"]
    assert "string" in found[0]["message"]
    assert problems_of(prepare_tool(tool(search)), MISSING)[0]["path"] == "query"
    assert problems_of(prepare_tool(tool(search)), "text")[0]["path"] == ""


def test_the_context_may_stand_anywhere_and_is_no_input():
    def first(context: ToolCallContext, x: int) -> str:
        return f"{context.tool_call_id} {x}"

    def last(x: int, *, where: ToolCallContext | None = None) -> str:
        return f"{where.tool_call_id} {x}"

    for function in (first, last):
        one = prepare_tool(tool(function))
        assert list(one.input_json_schema["properties"]) == ["x"]
        assert one.call(one.validate_input({"x": 1}).value, CONTEXT) == "outer:tool-1 1"


def test_awkward_parameter_names_work():
    def odd(copy: int, _x: int, model_config: str, json: str = "j", schema: str = "s", p0: int = 7) -> Any:
        return (copy, _x, model_config, json, schema, p0)

    one = prepare_tool(tool(odd))
    assert set(one.input_json_schema["properties"]) == {"copy", "_x", "model_config", "json", "schema", "p0"}
    value = one.validate_input({"copy": 1, "_x": 2, "model_config": "m"}).value
    assert one.call(value, CONTEXT) == (1, 2, "m", "j", "s", 7)


def test_extra_keywords_reach_a_function_that_takes_them():
    def anything(x: int, *rest: int, **extra: Any) -> Any:
        return (x, rest, extra)

    one = prepare_tool(tool(anything))
    assert one.call(one.validate_input({"x": 1, "p0": 2, "y": {"z": 3}}).value, CONTEXT) == (
        1,
        (),
        {"p0": 2, "y": {"z": 3}},
    )


def test_extra_keywords_are_validated_by_their_annotation():
    def totals(a: int, **amounts: int) -> int:
        return a + sum(amounts.values())

    one = prepare_tool(tool(totals))
    assert one.input_json_schema["additionalProperties"] == {"type": "integer"}
    assert one.call(one.validate_input({"a": "1", "b": "2"}).value, CONTEXT) == 3
    assert [problem["path"] for problem in problems_of(one, {"a": 1, "b": "x"})] == ["b"]


def test_defaults_that_are_no_json_are_kept_out_of_the_schema():
    nothing = object()

    def f(x: Any = nothing, y: int = Field(default=3, ge=2, description="why")) -> Any:
        return x is nothing, y

    one = prepare_tool(tool(f))
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

    one = prepare_tool(tool(place))
    validated = one.validate_input({"order": {"customer": "c", "lines": [{"sku": "s"}]}})
    assert one.call(validated.value, CONTEXT) == "s"
    assert validated.json_value == {"order": {"customer": "c", "lines": [{"sku": "s", "count": 1}]}}


class Shop:
    def price(self, sku: str) -> int:
        return len(sku)

    def __call__(self, sku: str) -> int:
        """Sell."""
        return len(sku) + 1


def test_a_method_a_partial_and_a_callable_object_are_functions():
    tools = collect_tools({"price": Shop().price, "sell": Shop(), "again": functools.partial(search, limit=2)})
    assert [one.call(one.validate_input({"sku": "abc"}).value, CONTEXT) for one in (tools["price"], tools["sell"])] == [
        3,
        4,
    ]
    assert tools["again"].description == "Search the catalogue."
    assert tools["again"].call(tools["again"].validate_input({"query": "q"}).value, CONTEXT)[0].sku == "q-2-None"


@each_row(
    "function, said",
    [
        (len, "cannot be passed by name"),
        (lambda *numbers: numbers, r"\*numbers of .* cannot be passed by name: make it a list"),
        (lambda first, *rest: rest, r"\*rest of .* cannot be passed by name"),
        (lambda x: x, "has no name"),
        (Shop.price, r"Shop\.price is an unbound method"),
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

    with pytest.raises(ValueError, match="input_schema of tool 'f'") as raised:
        prepare_tool(tool(f)).compile_schemas()
    assert "Opaque'>. Annotate it with" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_decorator_takes_settings():
    @tool(name="refund", needs_approval=lambda value: value["amount"] > 10, annotations={"destructiveHint": True})
    async def pay_back(amount: int) -> None:
        """Pay back."""

    assert (pay_back.name, pay_back.description) == ("refund", "Pay back.")
    assert pay_back.annotations == {"destructiveHint": True}
    assert prepare_tool(pay_back).evaluate_needs_approval({"amount": 11}, CONTEXT) is True
    assert prepare_tool(pay_back).evaluate_needs_approval({"amount": 10}, CONTEXT) is False
    assert prepare_tool(pay_back).output_json_schema == {"type": "null"}


def gives_any() -> Any: ...


def gives_unsaid(): ...


def gives_opaque() -> asyncio.Event: ...


def gives_iterator() -> Iterator[int]:
    yield 1


async def gives_stream() -> AsyncIterator[Line]:
    yield Line(sku="a")


@each_row(
    "function, schema",
    [
        (gives_any, None),
        (gives_unsaid, None),
        (gives_opaque, None),
        (gives_iterator, {"type": "array", "items": {"type": "integer"}}),
        (gives_stream, TypeAdapter(Line).json_schema(mode="serialization")["title"]),
    ],
)
def test_return_annotations(function, schema):
    given = prepare_tool(tool(function)).output_json_schema
    assert (given["title"] if isinstance(schema, str) else given) == schema


def test_a_generator_counts_as_its_items():
    one = prepare_tool(tool(gives_iterator))
    assert one.validate_output(one.call({}, CONTEXT)) == [1]


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
    properties = prepare_tool(tool(function)).input_json_schema["properties"]
    assert {name: rules["description"] for name, rules in properties.items()} == descriptions
