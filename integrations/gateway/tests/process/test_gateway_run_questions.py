"""``codemode mcp run`` answers no question of a server in place of its user."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
ASKING = """\
import asyncio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server


FORM = {"type": "object", "properties": {"decision": {"type": "string"}}}


async def list_tools(ctx, params):
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("form", "page")]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx, params):
    if params.name == "form":
        answer = await ctx.session.elicit_form("Allow this call?", FORM, related_request_id=ctx.request_id)
    else:
        answer = await ctx.session.elicit_url("Pay", "https://shop.example/pay", "1", related_request_id=ctx.request_id)
    return types.CallToolResult(content=[types.TextContent(text=answer.action)])


async def main():
    server = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


asyncio.run(main())
"""
PROGRAM = """\
import { form, page } from "@codemode/servers/shop";
globalThis.__codemode_result__ = [await form({}), await page({})];
"""
BOUND_SECONDS = 120


def command(folder: Path, *options: str) -> list[str]:
    (folder / "server.py").write_text(ASKING)
    (folder / "program.js").write_text(PROGRAM)
    entry = {**GATEWAYS.entry(str(folder / "server.py")), "codemode": {"approval": {"*": "always"}}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    run = [*GATEWAYS.python, "-m", "codemode", "mcp", "run", str(folder / "program.js")]
    return [*run, "--config", str(folder / "mcp.json"), *options]


def test_approve_all_approves_calls_and_declines_what_a_server_asks(tmp_path: Path):
    done = subprocess.run(
        command(tmp_path, "--approve", "all"), env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False,
    )  # fmt: skip
    form, page = json.loads(done.stdout)["result"]
    assert "decline" in str(form), done.stderr
    assert "decline" in str(page), done.stderr
    assert "[shop] Allow this call?\ndeclined: forms of servers are not supported here" in done.stderr
    assert "[shop] opens shop.example\nhttps://shop.example/pay\ndeclined: only a person" in done.stderr
