"""Integers beyond 2^53 cross exactly, both ways, through pauses and through browsers."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeToolError,
    Interrupt,
    Tool,
    continue_approval_sync,
    create_code_mode_tool,
    get_approval_response,
    is_interrupt,
    replace_interrupt_result,
    run_code_mode_sync,
    to_approval_messages,
)
from codemode.data.exact_integers import PLACES_KEY, integers_as_in, with_texts, without_texts
from codemode.data.json_values import decode_json, encode_json
from codemode.interrupts.interrupt import same_json
from codemode.signatures.declarations import declare_tools

ORDER = 1180591620717411303
EDGES = [sign * (2**53 + step) for sign in (1, -1) for step in (-2, -1, 0, 1, 2)]
LONGEST = 10**1000 - 1
PAUSING = {"approval": {"mode": "interrupt"}}


def run(js: str, tools: Any = (), **settings: Any) -> Any:
    return run_code_mode_sync(js, tools, **settings)


def giving(value: Any) -> Tool:
    return Tool("give", execute=lambda _: value)


ECHO = Tool("echo", execute=lambda value: value)


BOXES = ["Object(%s)", "{ a: Object(%s) }.a", "[Object(%s)][0]", "Object.setPrototypeOf(Object(%s), null)"]


@pytest.mark.parametrize("box", [*BOXES, "{ toJSON() { return Object(%s) } }"])
@pytest.mark.parametrize("value", [0, -7, ORDER])
def test_18_a_bigint_in_an_object_leaves_as_the_integer_that_it_is(box, value):
    boxed = f"({box % f'{value}n'})"
    assert run(f"return {boxed}") == value
    assert run(f"return await tools.echo([{boxed}, 1, {{ a: Object(true) }}])", [ECHO]) == [value, 1, {"a": True}]


def test_18_what_an_object_says_of_itself_is_heard_and_its_own_errors_pass():
    assert run("return [Object.assign(Object(5n), { toJSON() { return 7 } }), Object(1n)]") == [7, 1]
    with pytest.raises(CodeModeSerializationError, match="own words"):
        run("return [Object(1n), { toJSON() { throw new Error('own words') } }]")
    with pytest.raises(CodeModeSerializationError, match="circular"):
        run("const a = [Object(1n)]; a.push(a); return a")


def as_numbers_leave(value: Any) -> Any:
    """The same with floats as JavaScript writes numbers: large whole ones with as few digits as tell them apart."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(Decimal(repr(value)))
    if isinstance(value, list):
        return [as_numbers_leave(item) for item in value]
    return {key: as_numbers_leave(item) for key, item in value.items()} if isinstance(value, dict) else value


# --- both ways ---


def test_18_an_integer_arrives_as_a_bigint_beyond_2_to_the_53_and_as_a_number_up_to_it():
    js = "return (await tools.give({})).map((one) => [typeof one, String(one)])"
    told = run(js, [giving(EDGES)])
    assert told == [["bigint" if abs(one) > 2**53 else "number", str(one)] for one in EDGES]


@pytest.mark.parametrize("number", [1e21, 1.5e300, float(ORDER), -1e20, 0.1, 12345678901234567.0, 1e15])
def test_18_a_float_stays_a_number_and_the_same(number):
    js = f"const n = await tools.give({{}}); return [typeof n, n === {number!r}, n]"
    assert run(js, [giving(number)]) == ["number", True, as_numbers_leave(number)]


@pytest.mark.parametrize("value", [ORDER, -ORDER, LONGEST, -LONGEST, {"a": [{"b": ORDER}]}, [[ORDER] * 3, str(ORDER)]])
def test_18_what_a_tool_gives_is_what_the_program_returns_and_sends(value):
    assert run("return await tools.give({})", [giving(value)]) == value
    assert run("return await tools.echo(await tools.give({}))", [giving(value), ECHO]) == value


def test_18_a_bigint_leaves_as_an_integer_however_small_or_deep():
    js = "return tools.echo({ a: 10n, b: [-(2n ** 70n), { c: 0n }], d: new BigInt64Array([5n]) })"
    assert run(js, [ECHO]) == {"a": 10, "b": [-(2**70), {"c": 0}], "d": {"0": 5}}
    assert run("return 10n ** 30n") == 10**30
    assert run("return tools.echo(7n)", [ECHO]) == 7


def test_18_console_and_details_take_bigints():
    lines = []
    options = {"lifecycle": {"on_console": lambda event: lines.append(event.text)}}
    js = f"""
    console.log({ORDER}n, {{ a: [{ORDER}n] }});
    throw Object.assign(new Error("x"), {{ details: {{ id: {ORDER}n }} }});
    """
    with pytest.raises(CodeModeError) as caught:
        run(js, options=options)
    assert lines == [f'{ORDER} {{"a":[{ORDER}]}}']
    assert caught.value.details["details"] == {"id": ORDER}


def test_18_numbers_leave_as_the_language_writes_them():
    assert run("return [2 ** 60, -(2 ** 62), 1e20]") == [1152921504606847000, -4611686018427388000, 10**20]
    assert run("return [NaN, Infinity, 1e21, -0, 2 ** 53]") == [None, None, 1e21, 0, 2**53]


@pytest.mark.parametrize("js", ["return 10n ** 1000n", "return { a: [-(10n ** 1000n)] }", "return 1n << 100000n"])
def test_18_more_digits_than_the_host_takes_are_refused(js):
    with pytest.raises(CodeModeSerializationError, match="1000 digits"):
        run(js)
    js = f"try {{ {js.replace('return', 'await tools.echo(')}) }} catch (error) {{ return error.name }}"
    assert run(js, [ECHO]) == "RangeError"


@pytest.mark.parametrize("digits", [4300, 0, 100_000])
def test_18_the_limit_of_digits_does_not_follow_the_processes_own(digits):
    was = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(digits)
    try:
        assert run("return await tools.give({})", [giving(LONGEST)]) == LONGEST
        told = run("return tools.give({}).catch((error) => error.message)", [giving({"a": LONGEST + 1})])
        assert "1000 digits" in told
        assert ".a" in told
        text = "9" * 5000  # digits in a text are no number
        assert run("return await tools.give({})", [giving({"a": text, "b": ORDER})]) == {"a": text, "b": ORDER}
    finally:
        sys.set_int_max_str_digits(was)


long_integers = st.integers(min_value=0, max_value=999).flatmap(
    lambda digits: st.integers(min_value=-(10**digits), max_value=10**digits)
)
numbers = st.one_of(
    st.integers(min_value=-(2**128), max_value=2**128),
    st.integers(min_value=2**53 - 3, max_value=2**53 + 3),
    st.integers(min_value=-(2**64), max_value=2**64),
    long_integers,
    st.floats(allow_nan=False, allow_infinity=False),
)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, numbers.map(str)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=30,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(values, max_size=4))
def test_18_every_json_value_comes_back_as_it_was(value):
    expected = as_numbers_leave(value)
    js = "const v = await tools.give({}); return [v, await tools.echo(v)]"
    assert run(js, [giving(value), ECHO]) == [expected] * 2


# --- what stays the language's own ---


def test_18_the_language_keeps_its_own_errors_and_gives_away_no_raw_json():
    js = f"""
    const errors = [];
    for (const attempt of [
      () => JSON.stringify(1n), () => {ORDER}n + 1, () => Math.max(1n), () => +1n, () => new Date(1n),
      () => {{ "use strict"; BigInt.prototype.toJSON = () => "mine" }},
      () => Object.defineProperty(BigInt.prototype, "toJSON", {{ value: () => "mine" }}),
    ]) try {{ attempt(); errors.push("none") }} catch (error) {{ errors.push(error.name) }}
    return [errors, typeof JSON.rawJSON, typeof JSON.isRawJSON, await tools.echo({{ a: 1n }})];
    """
    assert run(js, [ECHO]) == [["TypeError"] * 7, "undefined", "undefined", {"a": 1}]


def test_18_what_a_program_runs_while_it_is_read_runs_once():
    js = """
    let reads = 0;
    const input = { get a() { reads++; return 1n }, b: { toJSON() { reads++; return { c: 2n ** 64n } } } };
    const sent = await tools.echo(input);
    return [sent, reads, typeof input.a];
    """
    assert run(js, [ECHO]) == [{"a": 1, "b": {"c": 2**64}}, 2, "bigint"]


def test_18_a_patched_program_cannot_change_what_crosses():
    js = f"""
    const seen = [];
    for (const patch of [
      () => {{ JSON.stringify = () => "{{}}" }}, () => {{ globalThis.BigInt = Number }},
      () => {{ RegExp.prototype.exec = () => null }},
      () => {{ Object.defineProperty(Object.prototype, "source", {{ value: "7", configurable: true }}) }},
    ]) try {{ patch() }} catch {{ seen.push("refused") }}
    return [await tools.echo({{ id: {ORDER}n }}), await tools.give({{}})];
    """
    assert run(js, [ECHO, giving([ORDER])]) == [{"id": ORDER}, [ORDER]]


def test_18_own_json_keeps_its_keys():
    value = {"__proto__": {"constructor": ORDER}, "toJSON": ORDER, "10": 1, "2": ORDER, "": [ORDER]}
    assert run("return await tools.give({})", [giving(value)]) == value


def test_18_large_outputs_with_long_integers_fit_the_default_limits():
    rows = [
        {"id": ORDER + index, "name": f"row {index}", "tags": ["a", "b"], "price": index / 4} for index in range(25_000)
    ]
    js = "const rows = await tools.give({}); return rows.filter((row) => row.id % 10000n === 0n)"
    told = run(js, [giving(rows)])
    assert told == [row for row in rows if row["id"] % 10_000 == 0]


def test_18_deep_values_cross():
    value: Any = ORDER
    for _ in range(500):
        value = [value]
    assert run("return await tools.give({})", [giving(value)]) == value


# --- tools ---


class Order(BaseModel):
    id: int
    cents: float = 0.0


SCHEMAS: list[Any] = [
    Order,
    {"type": "object", "properties": {"id": {"type": "integer"}, "cents": {"type": "number"}}, "required": ["id"]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["pydantic", "json schema"])
def test_18_validators_take_them(schema):
    got = []
    take = Tool("take", execute=lambda order: got.append(order), input_schema=schema)
    run(f"await tools.take({{ id: {ORDER}n }}); await tools.take({{ id: 5n, cents: 2n ** 64n }})", [take])
    ids = [one.id if isinstance(one, Order) else one["id"] for one in got]
    assert ids == [ORDER, 5]


@pytest.mark.parametrize(
    "rules",
    [{"multipleOf": 7}, {"multipleOf": 0.5}, {"minimum": 1.5}, {"maximum": 1e300}, {"enum": [1]}, {"type": "string"}],
    ids=str,
)
def test_18_no_number_of_digits_breaks_a_check(rules, caplog):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", **rules}, "m": {}},
        "additionalProperties": False,
    }
    tools = [
        Tool("take", execute=lambda _: "taken", input_schema=schema),
        Tool("model", execute=lambda _: 1, input_schema=Order),
    ]
    js = """
    const told = [];
    for (const n of [10n ** 999n, -(10n ** 400n), 2n ** 1024n])
      for (const call of [tools.take({ n }), tools.model({ id: n, cents: n })])
        told.push(await call.catch((error) => error.code));
    return told;
    """
    # To a float field of pydantic the longest are infinite, which is no JSON.
    assert set(run(js, tools)) <= {"taken", 1, "CODE_MODE_TOOL_ERROR", "CODE_MODE_SERIALIZATION_ERROR"}
    assert not caplog.records


def test_18_a_literal_that_a_number_would_round_is_refused_before_anything_runs():
    ran = []
    for schema in SCHEMAS:
        take = Tool("take", execute=lambda order: ran.append(order), input_schema=schema)
        with pytest.raises(CodeModeSyntaxError, match=f"{ORDER}n"):
            run(f"await tools.take({{ id: {ORDER} }})", [take])
        with pytest.raises(CodeModeSyntaxError, match=f"write -{ORDER}n"):
            run("await tools.take({ id: -1_180591620717411303 })", [take])
    assert ran == []


@pytest.mark.parametrize(
    "written", ["0x3fff_ffff_ffff_ffff", "-0X3FFFFFFFFFFFFFFF", "0o7777777777777777777", "+9007199254740993"]
)
def test_18_so_is_one_in_other_digits_or_with_a_sign(written):
    take = Tool("take", execute=lambda order: order["id"], input_schema=SCHEMAS[1])
    with pytest.raises(CodeModeSyntaxError, match="a number does not hold exactly") as refused:
        run(f"return await tools.take({{ id: {written} }})", [take])
    advice = refused.value.message.rpartition("write ")[2]
    assert run(f"return await tools.take({{ id: {advice} }})", [take]) == int(written, 0)


def test_18_literals_in_other_digits_are_what_the_engine_takes_them_for():
    take = Tool(
        "take", execute=lambda order: order["id"], input_schema={"properties": {"id": {"enum": [8, 255, 2**53]}}}
    )
    for written, value in [("010", 8), ("0xff", 255), ("0B1000", 8), ("+8", 8), ("08", 8), ("0x20000000000000", 2**53)]:
        assert run(f"return await tools.take({{ id: {written} }})", [take]) == value


def test_18_literals_that_are_exact_or_for_no_integer_are_not_refused():
    take = Tool("take", execute=lambda order: order, input_schema=SCHEMAS[1])
    js = f"""
    const first = await tools.take({{ id: {ORDER}n }});
    return [first, await tools.take({{ id: 1e18 }}), await tools.take({{ id: 1, cents: {ORDER} }})];
    """
    assert run(js, [take]) == [{"id": ORDER}, {"id": 10**18}, {"id": 1, "cents": 1180591620717411300}]


def test_18_declarations_and_the_description_say_so():
    schema = {
        "type": "object",
        "properties": {
            "small": {"type": "integer"},
            "large": {"type": "integer", "maximum": 2**64},
            "one": {"const": ORDER},
        },
    }
    declared = declare_tools([Tool("t", execute=None, output_schema=schema)])
    assert "small?: number;" in declared
    assert "large?: number | bigint;" in declared
    assert f"one?: {ORDER}n" in declared
    assert "BigInt" in create_code_mode_tool([ECHO]).description


# --- pauses ---


def in_a_browser(value: Any) -> Any:
    """What JSON.parse and JSON.stringify make of plain JSON."""
    return json.loads(run("return JSON.stringify(JSON.parse(await tools.give({})))", [giving(json.dumps(value))]))


def refunding(ran: list[Any], **settings: Any) -> list[Tool]:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "integer"}}, "x": {}},
    }
    given = {"needs_approval": True, "input_schema": schema, **settings}
    return [Tool("refund", execute=lambda value: ran.append(value) or value["id"], **given)]


INPUT = {
    "id": ORDER,
    "lines": [1, ORDER + 1, -ORDER],
    "x": {"a/b~c": ORDER, "10": 1, "text": str(ORDER), "f": 1.5},
}
JS = f"""
const f = await tools.give({{}});
const x = {{ "a/b~c": {ORDER}n, 10: 1, text: "{ORDER}", f }};
return [typeof f, await tools.refund({{ id: {ORDER}n, lines: [1n, {ORDER + 1}n, -{ORDER}n], x }})];
"""


def paused(ran: list[Any], js: str = JS) -> tuple[Interrupt, list[Tool], Any]:
    tools = [*refunding(ran), giving(1.5)]
    code_mode = create_code_mode_tool(tools, PAUSING)
    interrupt = code_mode.execute_sync({"js": js}, tool_call_id="c")
    assert isinstance(interrupt, Interrupt)
    return interrupt, tools, code_mode


def test_18_an_interrupt_survives_a_browser_and_shows_what_runs():
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    assert interrupt.input == INPUT
    sent = in_a_browser(interrupt.to_dict())
    assert sent["input"]["id"] == sent["requests"][0]["input"]["id"] == str(ORDER)
    assert sorted(sent[PLACES_KEY]) == [
        "/input/id",
        "/input/lines/1",
        "/input/lines/2",
        "/input/x/a~1b~0c",
    ]
    assert Interrupt.from_dict(sent).input["id"] == ORDER
    assert is_interrupt(sent)
    assert code_mode.resume_sync(sent, {"approved": True}) == ["number", ORDER]
    assert ran == [INPUT]
    # the same answer again, from the page and from here
    assert code_mode.resume_sync(sent, {"approved": True}) == ["number", ORDER]
    assert code_mode.resume_sync(interrupt, {"approved": True}) == ["number", ORDER]
    assert len(ran) == 1


def test_18_both_forms_are_taken():
    interrupt, _, code_mode = paused([])
    as_they_are = {**interrupt.to_dict(), "input": INPUT, "requests": [interrupt.requests[0].shown()]}
    del as_they_are[PLACES_KEY]
    assert Interrupt.from_dict(as_they_are) == Interrupt.from_dict(interrupt.to_dict()) == interrupt
    assert code_mode.resume_sync(as_they_are, {"approved": True}) == ["number", ORDER]


@pytest.mark.parametrize(
    ("edit", "runs"),
    [
        ({"id": str(ORDER)}, {"id": ORDER}),
        ({"id": str(ORDER + 4)}, {"id": ORDER + 4}),
        ({"id": ORDER}, {"id": ORDER}),
        ({"id": 5, "lines": [2, str(ORDER)]}, {"id": 5, "lines": [2, ORDER]}),
        ({"id": 5, "x": {"text": str(ORDER)}}, {"id": 5, "x": {"text": str(ORDER)}}),
    ],
)
def test_18_what_a_page_sends_back_as_an_edit_is_read_as_it_was_shown(edit, runs):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    code_mode.resume_sync(in_a_browser(interrupt.to_dict()), {"approved": True, "input": edit})
    assert ran == [runs]


@pytest.mark.parametrize("rounded", [1180591620717411300, float(ORDER)])
def test_18_an_edit_with_what_a_browser_makes_of_an_integer_is_refused(rounded):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    with pytest.raises(CodeModeProtocolError, match="as in a browser"):
        code_mode.resume_sync(interrupt, {"approved": True, "input": {"id": rounded}})
    assert ran == []
    code_mode.resume_sync(interrupt, {"approved": True, "input": {"id": "1180591620717411300"}})
    assert ran == [{"id": 1180591620717411300}]


def test_18_an_edit_may_list_its_own_integers():
    ran: list[Any] = []
    interrupt, tools, _ = paused(ran)
    answer = {
        "approvalId": interrupt.interrupt_id, "approved": True,
        "input": {"id": 5, "lines": [str(ORDER)] * 2}, PLACES_KEY: ["/input/lines/0", "/input/lines/1"],
    }  # fmt: skip
    messages = [{"role": "tool", "content": [{"type": "tool-approval-response", **answer}]}]
    response = get_approval_response(in_a_browser(messages), interrupt)
    assert response is not None
    continue_approval_sync(interrupt, response, tools=tools)
    assert ran == [{"id": 5, "lines": [ORDER, ORDER]}]


@pytest.mark.parametrize(
    "places", [5, [5], ["/input/no"], ["/input/text"], [""], ["/input/lines/7"], ["x"], ["/approved"]]
)
def test_18_places_that_are_none_are_refused_and_use_nothing_up(places):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    wrong = {"approved": True, "input": {"id": 5, "text": "abc", "lines": ["1"]}, PLACES_KEY: places}
    with pytest.raises(CodeModeProtocolError):
        code_mode.resume_sync(interrupt, wrong)
    broken = {**interrupt.to_dict(), PLACES_KEY: places}
    with pytest.raises(CodeModeProtocolError):
        Interrupt.from_dict(broken)
    assert not is_interrupt(broken)
    assert ran == []
    assert code_mode.resume_sync(interrupt, {"approved": True}) == ["number", ORDER]


@pytest.mark.parametrize("changed", [ORDER + 1, str(ORDER), float(ORDER), ORDER - 3])
def test_18_another_integer_than_the_one_that_waits_is_refused(changed):
    interrupt, _, code_mode = paused([])
    shown = {**INPUT, "id": changed}
    request = {**interrupt.requests[0].shown(), "input": shown}
    forged = {**interrupt.to_dict(), "input": shown, "requests": [request]}
    del forged[PLACES_KEY]
    with pytest.raises(CodeModeProtocolError, match="shows other requests"):
        code_mode.resume_sync(forged, {"approved": True})


def test_18_messages_for_a_page_show_it_as_text():
    interrupt, _, _ = paused([])
    (message,) = in_a_browser(to_approval_messages(interrupt))
    call = message["content"][0]
    assert call["input"]["id"] == str(ORDER)
    assert "/input/id" in call[PLACES_KEY]
    held = {
        "type": "tool-result",
        "toolCallId": "c",
        "output": {"type": "json", "value": in_a_browser(interrupt.to_dict())},
    }
    (replaced,) = replace_interrupt_result([{"role": "tool", "content": [held]}], interrupt, 1)
    assert replaced["content"][0]["output"] == {"type": "json", "value": 1}


def test_18_callbacks_and_rules_see_it():
    seen: list[Any] = []

    def rule(value: Any) -> bool:
        return bool(seen.append(value["id"])) or True

    def ask(request: Any) -> str:
        seen.append(request.input["id"])
        return "approved"

    tools = refunding(seen, needs_approval=rule)
    run(f"await tools.refund({{ id: {ORDER}n }})", tools, options={"approval": {"on_approval_required": ask}})
    assert seen == [ORDER, ORDER, {"id": ORDER}]


def test_18_a_recorded_answer_is_replayed_exactly():
    ran: list[Any] = []
    tools = [*refunding(ran), giving([ORDER, 2**53])]
    code_mode = create_code_mode_tool(tools, PAUSING)
    js = "const [id, edge] = await tools.give({}); await tools.refund({ id }); return [id, typeof edge, id + 1n]"
    interrupt = code_mode.execute_sync({"js": js})
    assert code_mode.resume_sync(interrupt, {"approved": True}) == [ORDER, "number", ORDER + 1]
    assert code_mode.resume_sync(interrupt, {"approved": True}) == [ORDER, "number", ORDER + 1]


@given(values)
def test_18_texts_and_places_give_the_same_value_back(value):
    whole = {"input": value, "payload": {"kind": "k"}}
    sent = with_texts(whole)
    assert without_texts(json.loads(json.dumps(sent))) == whole
    assert all(abs(one) <= 2**53 for one in _integers(sent))
    assert integers_as_in(value, json.loads(json.dumps(sent))["input"]) == value


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _integers(item)]
    if isinstance(value, list):
        return [found for item in value for found in _integers(item)]
    return [value] if isinstance(value, int) else []


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=30))
def test_18_a_browser_changes_nothing_that_is_compared(shown):
    sent = with_texts({"input": shown})
    back = without_texts(in_a_browser(sent))
    assert same_json(back, {"input": shown})
    assert same_json({"input": shown}, back)


@pytest.mark.parametrize(
    ("one", "other"), [(ORDER, ORDER + 1), (ORDER, float(ORDER)), (ORDER, str(ORDER)), (2**53, 2**53 + 1)]
)
def test_18_neighbours_are_not_the_same(one, other):
    assert not same_json([one], [other])
    assert not same_json([other], [one])


def test_18_host_json_is_read_and_written_exactly():
    assert decode_json(encode_json([ORDER, -LONGEST], what="x")) == [ORDER, -LONGEST]
    with pytest.raises(CodeModeSerializationError, match="1000 digits"):
        encode_json({"a": LONGEST + 1}, what="x")


def test_18_mixing_is_the_languages_own_error_and_catchable():
    js = "const { id } = await tools.give({}); try { return id + 1 } catch (error) { return [error.name, id + 1n] }"
    assert run(js, [giving({"id": ORDER})]) == ["TypeError", ORDER + 1]


def test_18_a_wrong_input_is_still_told_of():
    take = Tool("t", execute=lambda _: 1, input_schema={"type": "object", "properties": {"a": {"type": "string"}}})
    with pytest.raises(CodeModeToolError, match="expected string"):
        run("const a = 2n ** 64n; await tools.t({ a })", [take])
