"""Validators, checks and declarations of tools take integers as they are."""

from __future__ import annotations

from typing import Any

import pytest
from exact_programs import ECHO, ORDER, run
from pydantic import BaseModel

from codemode import Tool, create_code_mode_tool
from codemode.errors import CodeModeSyntaxError
from codemode.signatures.declarations import format_tool_declarations
from codemode.tools.prepared import prepare_tool


class Order(BaseModel):
    id: int
    cents: float = 0.0


SCHEMAS: list[Any] = [
    Order,
    {"type": "object", "properties": {"id": {"type": "integer"}, "cents": {"type": "number"}}, "required": ["id"]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["pydantic", "json schema"])
def test_validators_take_long_integers(schema):
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
def test_no_number_of_digits_breaks_a_check(rules, caplog):
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


def test_a_literal_that_a_number_would_round_is_refused_before_anything_runs():
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
def test_a_rounded_literal_in_other_digits_or_with_a_sign_is_refused(written):
    take = Tool("take", execute=lambda order: order["id"], input_schema=SCHEMAS[1])
    with pytest.raises(CodeModeSyntaxError, match="a number does not hold exactly") as refused:
        run(f"return await tools.take({{ id: {written} }})", [take])
    advice = refused.value.message.rpartition("write ")[2]
    assert run(f"return await tools.take({{ id: {advice} }})", [take]) == int(written, 0)


def test_literals_in_other_digits_are_what_the_engine_takes_them_for():
    take = Tool(
        "take", execute=lambda order: order["id"], input_schema={"properties": {"id": {"enum": [8, 255, 2**53]}}}
    )
    for written, value in [("010", 8), ("0xff", 255), ("0B1000", 8), ("+8", 8), ("08", 8), ("0x20000000000000", 2**53)]:
        assert run(f"return await tools.take({{ id: {written} }})", [take]) == value


def test_literals_that_are_exact_or_for_no_integer_are_not_refused():
    take = Tool("take", execute=lambda order: order, input_schema=SCHEMAS[1])
    js = f"""
    const first = await tools.take({{ id: {ORDER}n }});
    return [first, await tools.take({{ id: 1e18 }}), await tools.take({{ id: 1, cents: {ORDER} }})];
    """
    assert run(js, [take]) == [{"id": ORDER}, {"id": 10**18}, {"id": 1, "cents": 1180591620717411300}]


def test_declarations_and_the_description_name_bigint():
    schema = {
        "type": "object",
        "properties": {
            "small": {"type": "integer"},
            "large": {"type": "integer", "maximum": 2**64},
            "one": {"const": ORDER},
        },
    }
    declared = format_tool_declarations([prepare_tool(Tool("t", execute=None, output_schema=schema))])
    assert "small?: number;" in declared
    assert "large?: number | bigint;" in declared
    assert f"one?: {ORDER}n" in declared
    assert "BigInt" in create_code_mode_tool([ECHO]).description
