"""Declarations of tools with unusual names against the TypeScript compiler, and calls of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_declarations_tsc import FakeTool
from typescript_compiler import TypeScriptCompiler

from codemode.signatures.declarations import format_tool_declarations
from codemode.signatures.examples import create_example_program

NAMES = [
    "constructor", "prototype", "toJSON", "toString", "valueOf", "toLocaleString", "__proto__", "hasOwnProperty",
    "name", "call", "length", "arguments", "class", "return",
    "abstract", "a-b", "a.b", '"', "日本", "0", "then.x", "new",
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}

pytestmark = pytest.mark.node


def test_declarations_of_unusual_names_compile_and_can_be_called(compiler: TypeScriptCompiler) -> None:
    tools = [FakeTool(name, input_json_schema=SCHEMA, output_json_schema={"type": "string"}) for name in NAMES]
    lines = [format_tool_declarations(tools), "async function program(): Promise<string[]> {"]
    calls = [f"await tools[{json.dumps(name)}]({{ a: 1 }})" for name in NAMES]
    calls += [f"await tools.{name}({{ a: 1 }})" for name in NAMES if name.isidentifier()]
    lines += [
        f"  return [{', '.join(calls)}];",
        "}",
        "async function example() {",
        create_example_program([replace(tool, annotations={"readOnlyHint": True}) for tool in tools[:3]]),
        "}",
    ]
    assert compiler("\n".join([*lines, "export {};"])) == ""
