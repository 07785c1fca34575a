"""One JSON Schema feature at a time, as the exact text that the model reads."""

from __future__ import annotations

import re
from typing import Any

from plain_tool import PlainTool, returning
from suite import each_row

from codemode.signatures.declarations import format_tool_declarations

STRING, NUMBER = {"type": "string"}, {"type": "number"}
POINT = {"type": "object", "properties": {"x": NUMBER, "y": NUMBER}, "required": ["x", "y"]}
POINT_TEXT = "{ x: number; y: number }"


def type_of(schema: Any) -> str:
    text = format_tool_declarations([returning(schema)])
    found = re.search(r"^  it\(input\?: unknown\): Promise<(.*)>;$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, text
    return found[1].replace("\n  ", "\n")


@each_row(
    "schema, expected",
    [
        (True, "unknown"),
        (False, "never"),
        ({}, "unknown"),
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"const": 'a"b'}, '"a\\"b"'),
        ({"const": {"a": [1]}}, "{ a: [1] }"),
        ({"const": {}}, "Record<string, never>"),
        ({"enum": ["a", 1, True, None]}, '"a" | 1 | true | null'),
        ({"enum": ["a", "a"]}, '"a"'),
        ({"enum": []}, "never"),
        ({"type": "string", "enum": ["a", 2]}, '"a"'),
        ({"anyOf": [STRING, {"anyOf": [NUMBER, STRING]}]}, "string | number"),
        ({"anyOf": [STRING, {}]}, "unknown"),
        ({"type": "string", "anyOf": [{"enum": [1]}, {"title": "Any other"}]}, "string"),
        ({"oneOf": [STRING, {"type": "array", "items": STRING}]}, "string | string[]"),
        ({"allOf": [POINT, {"type": "object", "properties": {"z": NUMBER}}]}, POINT_TEXT + " & { z?: number }"),
        (
            {"allOf": [{"anyOf": [STRING, NUMBER]}, {"anyOf": [NUMBER, {"type": "null"}]}]},
            "(string | number) & (number | null)",
        ),
        ({"type": "string", "allOf": [{"minLength": 1}]}, "string"),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
        ({"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 2, "maxItems": 2}, "[string, number]"),
        ({"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 1, "items": False}, "[string, number?]"),
        ({"type": "array", "items": [STRING], "additionalItems": NUMBER, "minItems": 1}, "[string, ...number[]]"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({"type": "object", "additionalProperties": False}, "Record<string, never>"),
        ({"type": "object", "additionalProperties": NUMBER}, "Record<string, number>"),
        ({"type": "object", "additionalProperties": POINT}, f"{{ [key: string]: {POINT_TEXT} }}"),
        ({"type": "object", "required": ["a"]}, "{ a: unknown }"),
        (
            {
                "type": "object",
                "propertyNames": {"enum": ["a", "b"]},
                "additionalProperties": NUMBER,
                "required": ["b"],
            },
            "{ a?: number; b: number }",
        ),
        (
            {"type": "object", "propertyNames": {"$ref": "#/$defs/K"}, "$defs": {"K": {"const": "k"}}},
            "{ k?: unknown }",
        ),
        (
            {"type": "object", "propertyNames": {"$ref": "#/$defs/K"}, "$defs": {"K": {"pattern": "^k"}}},
            "Record<string, unknown>",
        ),
        ({**POINT, "additionalProperties": True}, "{ x: number; y: number; [key: string]: unknown }"),
        (
            {"properties": {"a": STRING}, "additionalProperties": NUMBER},
            "{ a?: string; [key: string]: number | string | undefined }",
        ),
        (
            {"type": "object", "patternProperties": {"^x*/": NUMBER}},
            "{ /* keys match ^x*\\/ */ [key: string]: number }",
        ),
        ({"type": "object", "properties": {"a-b": STRING, "new": STRING}}, '{ "a-b"?: string; "new"?: string }'),
        ({"$ref": "#/$defs/A", "$defs": {"A": POINT}}, POINT_TEXT),
    ],
)
def test_type(schema: Any, expected: str) -> None:
    assert type_of(schema) == expected


@each_row(
    "schema, reason",
    [
        ({"not": STRING}, "TypeScript cannot express: not"),
        ({"if": {}, "then": {}}, "TypeScript cannot express: if, then"),
        ({"$ref": "https://example.com/x*/y"}, "unresolved $ref https://example.com/x*\\/y"),
        ({"$ref": "#/nowhere"}, "unresolved $ref #/nowhere"),
        ({"$ref": "#"}, "refers to itself"),
        ({"type": "file"}, "no JSON Schema type: file"),
        ("string", "not a JSON Schema"),
    ],
)
def test_what_cannot_be_said_is_unknown_with_the_reason(schema: Any, reason: str) -> None:
    text = format_tool_declarations([returning(schema)])
    assert f"/* {reason} */ unknown" in text


def test_documented_properties() -> None:
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10, "description": "How many"},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "uniqueItems": True},
            "old": {"type": "string", "deprecated": True, "examples": ["a */ b"]},
        },
    }
    assert type_of(schema).split("\n") == [
        "{",
        "  /** How many @integer @minimum 1 @maximum 50 @default 10 */",
        "  limit?: number;",
        "  /** @format date */",
        "  since?: string | null;",
        "  /** @uniqueItems @items maxLength 9 */",
        "  tags?: string[];",
        '  /** @deprecated @example "a *\\/ b" */',
        "  old?: string;",
        "}",
    ]


def test_a_tuple_says_its_length_only_once() -> None:
    pair = {"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}
    assert type_of({"type": "object", "properties": {"at": pair}}) == "{ at?: [number, number] }"


def test_small_objects_take_one_line_and_large_ones_do_not() -> None:
    fitting = {"type": "object", "properties": {f"property{i}": STRING for i in range(5)}}
    assert type_of(fitting).count("\n") == 0
    assert len(type_of(fitting)) <= 120
    wider = {"type": "object", "properties": {f"property{i}": STRING for i in range(6)}}
    assert type_of(wider).count("\n") == 7


def test_recursion_becomes_a_named_alias() -> None:
    tree = {
        "type": "object",
        "title": "tree node",
        "properties": {"value": NUMBER, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["value"],
    }
    assert format_tool_declarations([returning(tree)]) == (
        "type TreeNode = { value: number; children?: TreeNode[] };\n\n"
        "declare const tools: {\n  it(input?: unknown): Promise<TreeNode>;\n};"
    )


def test_mutual_recursion_needs_one_alias() -> None:
    a = {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}
    b = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}
    text = format_tool_declarations([returning({"$ref": "#/$defs/A", "$defs": {"A": a, "B": b}})])
    assert text.startswith("type A = { b?: { a?: A } };\n")


def test_shared_definitions_are_emitted_once_across_tools() -> None:
    schema = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Point"}}, "$defs": {"Point": POINT}}
    text = format_tool_declarations([PlainTool(name, output_json_schema=schema) for name in ("a", "b", "c")])
    assert text.count(POINT_TEXT) == 1
    assert text.count("{ at?: Point }") == 3


def test_different_definitions_of_one_name_stay_apart() -> None:
    def schema(inner: Any) -> Any:
        properties = {name: {"$ref": "#/$defs/Item"} for name in "ab"}
        return {"type": "object", "properties": properties, "$defs": {"Item": inner}}

    other = {"type": "object", "properties": {"name": STRING}}
    text = format_tool_declarations(
        [PlainTool("p", output_json_schema=schema(POINT)), PlainTool("q", output_json_schema=schema(other))]
    )
    assert f"type Item = {POINT_TEXT};" in text
    assert "type Item2 = { name?: string };" in text
    assert "Promise<{ a?: Item; b?: Item }>" in text
    assert "Promise<{ a?: Item2; b?: Item2 }>" in text


def test_same_name_and_text_but_other_inner_definitions_stay_apart() -> None:
    def schema(inner: Any) -> Any:
        outer = {"type": "object", "properties": {"i": {"$ref": "#/$defs/Inner"}, "j": {"$ref": "#/$defs/Inner"}}}
        properties = {name: {"$ref": "#/$defs/Outer"} for name in "ab"}
        return {"type": "object", "properties": properties, "$defs": {"Outer": outer, "Inner": inner}}

    other = {"type": "object", "properties": {"name": STRING}}
    text = format_tool_declarations(
        [PlainTool("p", output_json_schema=schema(POINT)), PlainTool("q", output_json_schema=schema(other))]
    )
    assert "type Outer = { i?: Inner; j?: Inner };" in text
    assert "type Outer2 = { i?: Inner2; j?: Inner2 };" in text


def test_small_definitions_are_written_out() -> None:
    properties = {name: {"$ref": "#/$defs/Color"} for name in "ab"}
    schema = {"type": "object", "properties": properties, "$defs": {"Color": {"enum": ["red", "blue"]}}}
    assert format_tool_declarations([returning(schema)]).count('"red" | "blue"') == 2


def test_an_inlined_definition_keeps_its_description() -> None:
    described = {**POINT, "description": "Where it is."}
    schema = {"type": "object", "properties": {"at": {"$ref": "#/$defs/P"}}, "$defs": {"P": described}}
    assert "/** Where it is. */" in type_of(schema)


def test_names_that_the_text_relies_on_are_not_shadowed() -> None:
    properties = {f"{name}{i}": {"$ref": f"#/$defs/{name}"} for name in ("Promise", "Record") for i in range(2)}
    schema = {
        "type": "object",
        "properties": properties,
        "$defs": {"Promise": POINT, "Record": {**POINT, "title": "R"}},
    }
    text = format_tool_declarations([returning(schema)])
    assert "type Promise2 =" in text
    assert "type Promise =" not in text
    assert "type Record =" not in text
