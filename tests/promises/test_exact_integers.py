"""Integers beyond 2^53 cross exactly, both ways, and what is the language's own stays so."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pytest
from exact_programs import ECHO, LONGEST, ORDER, giving, run, values
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode import CodeModeError, CodeModeToolError, Tool
from codemode.data.json_values import decode_json, encode_json
from codemode.errors import CodeModeSerializationError
from codemode.interrupts.interrupt import is_same_json

EDGES = [sign * (2**53 + step) for sign in (1, -1) for step in (-2, -1, 0, 1, 2)]


BOXES = ["Object(%s)", "{ a: Object(%s) }.a", "[Object(%s)][0]", "Object.setPrototypeOf(Object(%s), null)"]


@each_row("box", [*BOXES, "{ toJSON() { return Object(%s) } }"])
@each_row("value", [0, -7, ORDER])
def test_a_bigint_in_an_object_leaves_as_the_integer_that_it_is(box, value):
    boxed = f"({box % f'{value}n'})"
    assert run(f"return {boxed}") == value
    assert run(f"return await tools.echo([{boxed}, 1, {{ a: Object(true) }}])", [ECHO]) == [value, 1, {"a": True}]


def test_what_an_object_says_of_itself_is_heard_and_its_own_errors_pass():
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


def test_an_integer_arrives_as_a_bigint_beyond_2_to_the_53_and_as_a_number_up_to_it():
    js = "return (await tools.give({})).map((one) => [typeof one, String(one)])"
    told = run(js, [giving(EDGES)])
    assert told == [["bigint" if abs(one) > 2**53 else "number", str(one)] for one in EDGES]


@pytest.mark.parametrize("number", [1e21, 1.5e300, float(ORDER), -1e20, 0.1, 12345678901234567.0, 1e15])
def test_a_float_stays_a_number_and_the_same(number):
    js = f"const n = await tools.give({{}}); return [typeof n, n === {number!r}, n]"
    assert run(js, [giving(number)]) == ["number", True, as_numbers_leave(number)]


@pytest.mark.parametrize("value", [ORDER, -ORDER, LONGEST, -LONGEST, {"a": [{"b": ORDER}]}, [[ORDER] * 3, str(ORDER)]])
def test_what_a_tool_gives_is_what_the_program_returns_and_sends(value):
    assert run("return await tools.give({})", [giving(value)]) == value
    assert run("return await tools.echo(await tools.give({}))", [giving(value), ECHO]) == value


def test_a_bigint_leaves_as_an_integer_however_small_or_deep():
    js = "return tools.echo({ a: 10n, b: [-(2n ** 70n), { c: 0n }], d: new BigInt64Array([5n]) })"
    assert run(js, [ECHO]) == {"a": 10, "b": [-(2**70), {"c": 0}], "d": {"0": 5}}
    assert run("return 10n ** 30n") == 10**30
    assert run("return tools.echo(7n)", [ECHO]) == 7


def test_console_and_details_take_bigints():
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


def test_numbers_leave_as_the_language_writes_them():
    assert run("return [2 ** 60, -(2 ** 62), 1e20]") == [1152921504606847000, -4611686018427388000, 10**20]
    assert run("return [NaN, Infinity, 1e21, -0, 2 ** 53]") == [None, None, 1e21, 0, 2**53]


@pytest.mark.parametrize("js", ["return 10n ** 1000n", "return { a: [-(10n ** 1000n)] }", "return 1n << 100000n"])
def test_more_digits_than_the_host_takes_are_refused(js):
    with pytest.raises(CodeModeSerializationError, match="1000 digits"):
        run(js)
    js = f"try {{ {js.replace('return', 'await tools.echo(')}) }} catch (error) {{ return error.name }}"
    assert run(js, [ECHO]) == "RangeError"


@pytest.mark.parametrize("digits", [4300, 0, 100_000])
def test_the_limit_of_digits_ignores_the_limit_of_the_process(digits):
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


@settings(max_examples=rounds(20, 150), deadline=None)
@given(st.lists(values, max_size=4))
def test_every_json_value_comes_back_as_it_was(value):
    expected = as_numbers_leave(value)
    js = "const v = await tools.give({}); return [v, await tools.echo(v)]"
    assert run(js, [giving(value), ECHO]) == [expected] * 2


# --- what stays the language's own ---


def test_the_language_keeps_its_own_errors_and_gives_away_no_raw_json():
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


def test_what_a_program_runs_while_it_is_read_runs_once():
    js = """
    let reads = 0;
    const input = { get a() { reads++; return 1n }, b: { toJSON() { reads++; return { c: 2n ** 64n } } } };
    const sent = await tools.echo(input);
    return [sent, reads, typeof input.a];
    """
    assert run(js, [ECHO]) == [{"a": 1, "b": {"c": 2**64}}, 2, "bigint"]


def test_a_patched_program_cannot_change_what_crosses():
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


def test_a_json_of_the_programs_own_keeps_its_keys():
    value = {"__proto__": {"constructor": ORDER}, "toJSON": ORDER, "10": 1, "2": ORDER, "": [ORDER]}
    assert run("return await tools.give({})", [giving(value)]) == value


def test_large_outputs_with_long_integers_fit_the_default_limits():
    rows = [
        {"id": ORDER + index, "name": f"row {index}", "tags": ["a", "b"], "price": index / 4} for index in range(25_000)
    ]
    js = "const rows = await tools.give({}); return rows.filter((row) => row.id % 10000n === 0n)"
    told = run(js, [giving(rows)])
    assert told == [row for row in rows if row["id"] % 10_000 == 0]


def test_deep_values_with_integers_cross():
    value: Any = ORDER
    for _ in range(500):
        value = [value]
    assert run("return await tools.give({})", [giving(value)]) == value


@pytest.mark.parametrize(
    ("one", "other"), [(ORDER, ORDER + 1), (ORDER, float(ORDER)), (ORDER, str(ORDER)), (2**53, 2**53 + 1)]
)
def test_integers_next_to_each_other_stay_apart(one, other):
    assert not is_same_json([one], [other])
    assert not is_same_json([other], [one])


def test_host_json_is_read_and_written_exactly():
    assert decode_json(encode_json([ORDER, -LONGEST], what="x")) == [ORDER, -LONGEST]
    with pytest.raises(CodeModeSerializationError, match="1000 digits"):
        encode_json({"a": LONGEST + 1}, what="x")


def test_mixing_is_the_languages_own_error_and_catchable():
    js = "const { id } = await tools.give({}); try { return id + 1 } catch (error) { return [error.name, id + 1n] }"
    assert run(js, [giving({"id": ORDER})]) == ["TypeError", ORDER + 1]


def test_a_wrong_input_is_still_told_of():
    take = Tool("t", execute=lambda _: 1, input_schema={"type": "object", "properties": {"a": {"type": "string"}}})
    with pytest.raises(CodeModeToolError, match="expected string"):
        run("const a = 2n ** 64n; await tools.t({ a })", [take])
