"""Every value that crosses is counted before anything is built from it, and a large one is worked on off the loop."""

from __future__ import annotations

import gc
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pausing import PAUSING, start
from pydantic import BaseModel, field_serializer
from suite import full_only
from waiting import within

from codemode import (
    CodeModeProtocolError,
    ExecutionPolicy,
    Interrupt,
    Tool,
    continue_interrupt,
    request_interrupt,
    run_code_mode_sync,
)
from codemode.data.json_shape import estimate_json_length, find_exceeded_limit, has_more_values_than
from codemode.data.json_values import encode_json
from codemode.data.plain_json import MAX_INT_DIGITS
from codemode.errors import CodeModeSerializationError

TABLE = [{"id": i, "name": "a name", "price": 1.5, "sold": True, "city": None} for i in range(25_000)]
EMPTIES = "[" + "{}," * 349_000 + "{}]"
LIMIT = "execution_policy.max_values"
WIDE = {"execution_policy": {"max_result_bytes": 8 << 20, "max_tool_input_bytes": 8 << 20}}


def run(js: str, tools: Any = (), **policy: Any) -> Any:
    return run_code_mode_sync(js, tools, options={"execution_policy": {**WIDE["execution_policy"], **policy}})


def refused(js: str, tools: Any = (), **policy: Any) -> CodeModeSerializationError:
    with pytest.raises(CodeModeSerializationError, match=LIMIT) as caught:
        run(js, tools, **policy)
    assert caught.value.details["max_values"] == policy.get("max_values", 250_000)
    return caught.value


def giving(value: Any, **settings: Any) -> Tool:
    async def give(_input: Any) -> Any:
        return value

    return Tool("give", execute=give, **settings)


async def take(value: Any) -> int:
    return len(value)


TAKE = Tool("take", execute=take)


def test_loop_a_table_fits_in_every_direction():
    assert ExecutionPolicy().max_values < 350_000
    assert run("return await tools.give()", [giving(TABLE)]) == TABLE
    assert run("return await tools.take(await tools.give())", [giving(TABLE), TAKE]) == 25_000


@pytest.mark.parametrize("schema", [None, *full_only(list[dict[str, int]], {"type": "array"}, {})])
def test_loop_an_input_of_too_many_values_is_refused_before_it_is_decoded(schema):
    received: list[Any] = []
    tool = Tool("take", execute=received.append, input_schema=schema)
    error = refused("return await tools.take(Array.from({ length: 349_001 }, () => ({})))", [tool])
    assert "the input of tool 'take'" in error.message
    assert received == []


@pytest.mark.parametrize("schema", [list[dict[str, int]], *full_only(None, {"type": "array"}, {})])
def test_loop_an_output_of_too_many_values_is_refused(schema):
    error = refused("return await tools.give()", [giving(json.loads(EMPTIES), output_schema=schema)])
    assert "the output of tool 'give'" in error.message


def test_loop_a_result_of_too_many_values_is_refused():
    assert "the program's result" in refused("return Array(400_000).fill(0)").message
    assert "the program's result" in refused("return Array(350_000).fill({})").message
    assert run("return [[1, {}], {a: []}]", max_values=6) == [[1, {}], {"a": []}]
    refused("return [[1, {}], {a: []}]", max_values=5)


def test_loop_a_program_can_catch_that_its_values_are_too_many():
    js = "try { await tools.take([1, 2, 3]) } catch (error) { return [error.name, error.message] }"
    name, message = run(js, [TAKE], max_values=3)
    assert name == "CodeModeSerializationError"
    assert LIMIT in message


def test_loop_an_edited_input_and_an_answer_of_too_many_values_are_refused():
    edited = {"approved": True, "input": {"order": [0] * 300_000}}
    guarded = Tool("refund", execute=lambda value: value, needs_approval=True)
    paused = start("return await tools.refund({ order: 'a' })", [guarded], PAUSING)
    assert isinstance(paused, Interrupt)
    with pytest.raises(CodeModeProtocolError, match=LIMIT):
        within(continue_interrupt(paused, edited, tools=[guarded], options=PAUSING))
    assert within(continue_interrupt(paused, {"approved": True}, tools=[guarded], options=PAUSING)) == {"order": "a"}


def test_loop_an_interrupt_payload_of_too_many_values_is_refused():
    def ask(_input: Any) -> None:
        request_interrupt({"kind": "ask", "choices": [{}] * 300_000})

    refused("return await tools.ask()", [Tool("ask", execute=ask)])


def test_loop_an_output_that_holds_itself_is_cut_and_said_to_do_so(caplog: pytest.LogCaptureFixture):
    circle: list[Any] = [0] * 1000
    circle.append({"again": circle})
    assert run("return await tools.give()", [giving(circle)]) == [*[0] * 1000, {}]
    assert "circular reference" in caplog.text


class Row(BaseModel):
    text: str
    written: Any = None

    @field_serializer("written")
    def _note(self, _value: Any) -> str:
        return threading.current_thread().name


@pytest.mark.parametrize(("length", "elsewhere"), [(10, False), (100_000, True)])
@pytest.mark.parametrize("declared", [True, False])
def test_loop_a_large_output_is_written_in_a_thread(length, elsewhere, declared):
    tool = giving(Row(text="x" * length), output_schema=Row if declared else None)
    name = run("return (await tools.give()).written", [tool])
    assert (name == "codemode-check") is elsewhere


def test_loop_requests_come_in_their_order_however_large_they_are():
    seen: list[int] = []

    async def note(value: Any) -> None:
        seen.append(value["number"])

    js = "await Promise.all([5, 90_000, 3, 200_000, 70_000, 1, 400_000, 2].map((length, number) => "
    run(js + "tools.note({ number, text: '{'.repeat(length) })))", [Tool("note", execute=note)])
    assert sorted(seen) == list(range(8))
    order = run(
        "const calls = [300_000, 1, 90_000, 2].map((length, i) => tools.echo({ i, text: '['.repeat(length) }));"
        "console.log('x'.repeat(60_000)); return (await Promise.all(calls)).map(({ i }) => i)",
        [Tool("echo", execute=lambda value: {"i": value["i"]})],
    )
    assert order == [0, 1, 2, 3]


# --- counting and writing, whatever the value ---

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('[]{}",\\ ab\u20ac')
VALUES = st.recursive(SCALARS, lambda inside: st.lists(inside) | st.dictionaries(st.text('[{"\\,'), inside))


def count(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inside))


def depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inside), default=0) if isinstance(value, list | dict) else 0


@given(VALUES, st.integers(1, 12), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_loop_a_text_and_its_value_are_counted_alike(value, maximum, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert (find_exceeded_limit(text, max_values=maximum) == "values") == (count(value) > maximum)
    assert (find_exceeded_limit(text, max_depth=maximum) == "depth") == (depth(value) > maximum)
    assert has_more_values_than(value, maximum) == (count(value) > maximum)


@given(VALUES, st.integers(1, 9), st.integers(0, 12))
def test_loop_texts_are_counted_alike_however_they_are_cut(value, size, maximum):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codemode.data.json_shape._SLICE_CHARACTERS", size)
        text = json.dumps(value)
        assert (find_exceeded_limit(text, max_values=maximum) == "values") == (count(value) > maximum)
        assert (find_exceeded_limit(text, max_depth=maximum) == "depth") == (depth(value) > maximum)


@given(VALUES)
def test_loop_an_estimate_of_a_large_value_is_large(value):
    text = encode_json(value, what="it")
    assert estimate_json_length(value, 1 << 20) * 8 >= len(text)
    assert estimate_json_length(value, 10) <= 10 + 20 * len(text)


@pytest.mark.parametrize(
    "schema", [list[int | list[int]], *full_only({"type": "object"}, {"items": {"type": "string"}})]
)
def test_loop_an_error_does_not_keep_the_value_that_it_is_about(schema):
    length = 123_457

    def kept(_input: Any) -> int:
        gc.collect()
        return sum(type(one) is list and len(one) == length for one in gc.get_objects())

    tools = [Tool("take", execute=lambda _: None, input_schema=schema), Tool("kept", execute=kept)]
    js = (
        f"try {{ await tools.take(Array({length}).fill([['x']])) }} catch (e) {{ return [e.name, await tools.kept()] }}"
    )
    assert run(js, tools, max_values=500_000) == ["CodeModeToolError", 0]


@pytest.mark.full
def test_loop_an_error_does_not_keep_the_output_that_it_is_about():
    length = 123_459
    tools = [
        Tool("give", execute=lambda _: [object()] * length),
        Tool("kept", execute=lambda _: sum(type(one) is list and len(one) == length for one in gc.get_objects())),
    ]
    js = "try { await tools.give() } catch (e) { return [e.name, await tools.kept()] }"
    assert run(js, tools) == ["CodeModeSerializationError", 0]


@given(
    st.integers(1, 2 * MAX_INT_DIGITS),
    st.sampled_from([lambda one: one, lambda one: [one], lambda one: {one: 1}, lambda one: {"a": {"b": -one}}]),
)
def test_loop_integers_that_are_too_long_are_refused_however_small_the_rest_is(digits, around):
    value = around(10 ** (digits - 1))
    if digits > MAX_INT_DIGITS:
        with pytest.raises(CodeModeSerializationError):
            encode_json(value, max_values=250_000, what="it")
    else:
        assert encode_json(value, max_values=250_000, what="it") == json.dumps(value, separators=(",", ":"))
