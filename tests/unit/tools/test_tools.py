"""Tools by name and in sets: how each is called, what makes none, and that nothing heavy is loaded."""

import functools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orders_tool import CONTEXT, ORDER_SCHEMA, Order, make, problems_of, said, search
from suite import each_row

from codemode.errors import CodeModeToolError
from codemode.tools.collecting import collect_tools
from codemode.tools.context import ToolCallContext
from codemode.tools.prepared import prepare_tool
from codemode.tools.tool import Tool, tool


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


@each_row(
    "function, kind",
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
    assert prepare_tool(Tool("x", execute=function)).execute_kind == kind


def with_context(a: int, context: ToolCallContext) -> int:
    return a


@each_row(
    "one, takes",
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
    assert prepare_tool(one).takes_context == takes


@each_row(
    "execute, received",
    [
        (lambda: (), ()),
        (lambda value: (value,), (1,)),
        (lambda value, context: (value, context), (1, CONTEXT)),
        (lambda *everything: everything, (1, CONTEXT)),
        (lambda value, context, extra=5: (value, context, extra), (1, CONTEXT, 5)),
    ],
)
def test_execute_takes_what_it_asks_for(execute, received):
    assert prepare_tool(Tool("x", execute=execute)).call(1, CONTEXT) == received


def test_a_tool_without_execute_says_so():
    with pytest.raises(CodeModeToolError, match="cannot be executed") as raised:
        prepare_tool(make_declared()).call(1, CONTEXT)
    assert raised.value.details == {"tool_name": "declared"}


def make_declared():
    return Tool("declared", execute=None)


@pytest.mark.parametrize("name", ["", 5, None])
def test_what_names_nothing_is_refused_at_once(name):
    with pytest.raises(ValueError, match="name"):
        Tool(name, execute=None)


@each_row("name", ["", "then", "$search", "a\nb", "a\u2028b", "x" * 129, "\ud800", 5, None])
def test_impossible_names(name):
    if name and isinstance(name, str):
        with pytest.raises(ValueError, match=r"name|called"):
            collect_tools([Tool(name, execute=None)])
    with pytest.raises(ValueError, match=r"name|called"):
        collect_tools({name: said()})


@each_row("name", ["a", "kebab-name", "a.b", "a.then", "constructor", "__proto__", "x" * 128, "größe", "a b"])
def test_possible_names(name):
    assert collect_tools({name: said()})[name].name == name


def test_a_mapping_renames_and_errors_follow():
    one = said(input_schema=ORDER_SCHEMA)
    tools = collect_tools({"a": one, "b": search, "orders": one})
    assert [tool.name for tool in tools.values()] == ["a", "b", "orders"]
    assert tools["orders"] is prepare_tool(one)
    assert problems_of(tools["a"], {})


def test_an_iterable_uses_own_names():
    assert list(collect_tools([said(), search])) == ["orders", "search"]
    assert collect_tools(one for one in ()) == {}
    with pytest.raises(ValueError, match="two tools are called 'orders'"):
        collect_tools([said(), said()])


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
    one.compile_schemas()
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


DICT_TOOL, TYPE_TOOL, FUNCTION_TOOL = (
    make(input_schema=ORDER_SCHEMA),
    make(input_schema=Order),
    prepare_tool(tool(search)),
)


def test_importing_the_tools_loads_nothing_heavy():
    heavy = ["pydantic", "pydantic_core", "jsonschema", "httpx"]
    program = f"import sys, codemode.tools.tool; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
