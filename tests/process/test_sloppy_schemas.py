"""Sloppy schemas cost no call and no declaration, on every surface, in every plugin and behind a gateway."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from agents import FunctionTool
from codemode_gateway import connect
from langchain_core.tools import StructuredTool
from mcp_servers.configured import odd, of
from pydantic_ai import Tool as PydanticAITool
from waiting import within

from codemode import (
    CallContext,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": 5},
        "cursor": {"type": "string", "default": None},
        "limit": {"type": "integer", "minimum": 1, "default": 0},
        "lang": {"type": "string", "nullable": True},
        "shape": {"$ref": "#/$defs/Gone"},
        "kind": {"type": "any"},
    },
    "required": ["q", None],
    "items": None,
}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "shape": {"$ref": "#/$defs/Gone"},
        "lang": {"type": "string", "nullable": True},
    },
    "required": None,
}
CALL = "const lang = null; return await CALL({ q: 'x', lang, shape: { a: 1 } });"
GIVEN = {"q": "x", "lang": None, "shape": {"a": 1}}
DECLARED = (
    "q: string",
    "cursor?: string",
    "limit?: number",
    "lang?: string | null",
    "shape?: unknown",
    "kind?: unknown",
)


def echo() -> Tool:
    return Tool("t", execute=lambda given: given, input_schema=INPUT, output_schema=OUTPUT)


def not_declared_in(text: str) -> list[str]:
    return [one for one in DECLARED if one not in text]


def test_on_code_mode_exec_and_code_call(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "codemode"):
        code_mode = create_code_mode_tool([echo()])
        assert code_mode.execute_sync({"js": CALL.replace("CALL", "tools.t")}) == GIVEN
        assert not_declared_in(code_mode.description) == []
        pair = create_exec_wait_tools([echo()], {"waitTimeoutMs": 20_000})
        assert pair.exec.execute_sync({"code": CALL.replace("CALL", "tools.t")})["value"] == GIVEN
        call = create_code_call_tools([echo()])
        code = "const lang = null; return await callTool('t', { q: 'x', lang, shape: { a: 1 } })"
        assert call.execute_sync({"script": code})["result"] == GIVEN
    assert any("'t'" in one and '"type": "any" at properties.kind' in one for one in caplog.messages)


def test_in_a_module():
    run = create_modules_tool([ModuleServer("shop", [echo()])])
    answer = run.execute_sync({"code": f'import {{ t }} from "@codemode/servers/shop";\n{MODULE}'})
    assert answer["result"] == GIVEN
    assert not_declared_in(run.declarations("shop")) == []


MODULE = "globalThis.__codemode_result__ = await t({ q: 'x', lang: [null][0], shape: { a: 1 } });"


def langchain() -> Any:
    async def take(**given: Any) -> dict[str, Any]:
        return given

    return StructuredTool(name="t", description="d", args_schema=INPUT, coroutine=take)


def openai() -> Any:
    async def take(_: Any, text: str) -> Any:
        return text

    return FunctionTool("t", "d", INPUT, take, strict_json_schema=False)


def pydantic_ai() -> Any:
    async def take(**given: Any) -> dict[str, Any]:
        return given

    return PydanticAITool.from_schema(take, name="t", description="d", json_schema=INPUT)


@pytest.mark.parametrize("make", [langchain, openai, pydantic_ai])
def test_with_tools_of_a_framework(make: Any):
    code_mode = create_code_mode_tool([make()])
    value = code_mode.execute_sync({"js": CALL.replace("CALL", "tools.t")}, call=CallContext(tool_call_id="c"))
    assert value in (GIVEN, '{"q": "x", "lang": null, "shape": {"a": 1}}')
    assert not_declared_in(code_mode.description) == []


def test_behind_a_gateway_and_with_its_tools_in_code_mode():
    settings = {"tools": [{"name": "t", "inputSchema": INPUT, "outputSchema": OUTPUT}]}
    settings["answers"] = {"tools/call": {"result": {"content": [], "structuredContent": GIVEN}}}

    async def work() -> tuple[Any, Any, str, str]:
        async with connect(of(odd(settings))) as connected:
            code = f'import {{ t }} from "@codemode/servers/odd";\n{MODULE}'
            run = create_modules_tool(connected)
            answer = await run.execute({"code": code})
            code_mode = create_code_mode_tool(await connected.tools())
            value = await code_mode.execute({"js": CALL.replace("CALL", "tools.odd_t")})
            return answer["result"], value, run.declarations("odd"), code_mode.description

    *values, declarations, description = within(work())
    assert values == [GIVEN, GIVEN]
    assert not_declared_in(declarations) == not_declared_in(description) == []
