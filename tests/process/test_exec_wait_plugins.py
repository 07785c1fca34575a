"""What the plugins of frameworks ask of the pair: runs that end with an agent's, tools of servers as they make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from resting_surface import Slow

from codemode import CallContext, Interrupt, MediaContent, Tool, ToolSource, create_exec_wait_tools
from codemode.plugins import split_content


@pytest.mark.parametrize("warm", [4, 0])
def test_only_runs_with_calls_in_flight_end(within, pool, warm):
    slow, gated = Slow(), Tool("gated", execute=lambda value, _: value, needs_approval=True)
    pair = create_exec_wait_tools([slow.tool, gated], {"maxWarmRuns": warm}, pool=pool)

    async def started(code: str) -> str:
        return (await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s")))["runId"]

    async def main():
        try:
            idle = await started("await yield_control(); return 1")
            asking = await started("const g = tools.gated(1); await yield_control(); return g")
            busy = await started("const s = tools.slow('a'); await yield_control(); return s")
            ended = [await pair.abort(conversation_id="other", only_in_flight=True)]
            ended += [await pair.abort(conversation_id="s", only_in_flight=True) for _ in range(2)]
            after = [
                await pair.wait.execute({"runId": one}, call=CallContext(conversation_id="s"))
                for one in (idle, asking, busy)
            ]
        finally:
            await pair.aclose()
        return ended, after

    ended, (idle, asking, busy) = within(main())
    assert ended == [0, 1, 0]
    assert idle["value"] == 1
    assert isinstance(asking, Interrupt)
    assert busy["code"] == "aborted"
    assert slow.cancelled == ["a"]


def test_results_with_media_content_split_into_json_and_media(within, pool):
    picture = MediaContent(b"\x89PNG", "image/png", name="p.png")

    async def main():
        pair = create_exec_wait_tools({"pic": lambda: picture}, pool=pool)
        try:
            code = "const pic = await tools.pic(); content(pic); return {pic}"
            return await pair.exec.execute({"code": code})
        finally:
            await pair.aclose()

    result = within(main())
    assert result["value"] == {"pic": picture}
    assert result["output"] == [{"type": "content", "value": picture}]
    plain, media = split_content(result)
    assert media == [picture]
    description = {"content": 1, **picture.description}
    assert json.loads(json.dumps(plain))["value"] == {"pic": description}
    assert plain["output"] == [{"type": "content", "value": description}]


class Session:
    """A server with one tool and one resource."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def get_server_capabilities(self) -> Any:
        return SimpleNamespace(resources=SimpleNamespace(), prompts=None)

    async def list_tools(self) -> Any:
        return [SimpleNamespace(name="close_issue", description="", inputSchema={"type": "object"})]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.calls.append((name, arguments))
        return SimpleNamespace(content=[], structuredContent={"closed": True}, isError=False)

    async def list_resources(self) -> Any:
        return []

    async def read_resource(self, uri: str) -> Any:
        self.calls.append(uri)
        return {"contents": [{"uri": uri, "text": "text"}]}


def test_a_plugin_gates_and_sees_every_call_of_a_server(within, pool):
    session, seen = Session(), []

    def adapt(tool: Tool, tool_id: str) -> Tool:
        async def execute(value: Any, context: Any) -> Any:
            seen.append((tool_id, value))
            return await tool.execute(value, context)

        return replace(tool, execute=execute, needs_approval=tool_id.endswith("close_issue"))

    source = ToolSource(session, "mcp", "tracker", adapt=adapt)
    pair = create_exec_wait_tools([source], pool=pool)
    code = """const read = await MCP.tracker.resources.read("file:///a");
        return [read, await MCP.tracker.closeIssue({number: 3})]"""

    async def main():
        try:
            asked = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
            before = [*session.calls]
            result = await pair.resume(asked, {"approved": True}, call=CallContext(conversation_id="s"))
        finally:
            await pair.aclose()
        return asked, before, result

    asked, before, result = within(main())
    assert (asked.tool_name, asked.input) == ("mcp:tracker:close_issue", {"number": 3})
    assert before == ["file:///a"]
    assert result["value"] == [{"contents": [{"uri": "file:///a", "text": "text"}]}, {"closed": True}]
    assert [one for one, _ in seen] == ["mcp:tracker:resources/read", "mcp:tracker:close_issue"]
    assert session.calls == ["file:///a", ("close_issue", {"number": 3})]
