"""The whole way over the tools of a real MCP server, a process on stdio: search, describe, execute, invoke, resume."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp_types import Tool as McpTool
from pausing import OK, through_json
from waiting import within
from warm_commands import GATEWAYS

from codemode import CodeCallToolset, CodeModeToolError, Interrupt, Tool, create_code_call_tools

pytestmark = pytest.mark.usefixtures("warm_gateways")
SERVER = Path(__file__).parent / "hosts" / "mcp_parcels.py"


@asynccontextmanager
async def parcels() -> AsyncIterator[Client]:
    parameters = StdioServerParameters(**GATEWAYS.entry(str(SERVER)))
    async with Client(parameters) as client:
        yield client


def as_tool(client: Client, one: McpTool) -> Tool:
    """Return a tool of the server as one of ours, with all that it says of itself."""
    hints = {} if one.annotations is None else one.annotations.model_dump(by_alias=True, exclude_none=True)
    wraps = list((one.output_schema or {}).get("properties", ())) == ["result"]

    async def call(value: dict[str, Any] | None) -> Any:
        result = await client.call_tool(one.name, value or {})
        if result.is_error:
            raise CodeModeToolError("".join(getattr(part, "text", "") for part in result.content), code="MCP_TOOL")
        given: Any = result.structured_content
        return given["result"] if wraps else given

    return Tool(
        one.name,
        execute=call,
        description=one.description or "",
        input_schema=one.input_schema,
        output_schema=one.output_schema["properties"]["result"] if wraps and one.output_schema else one.output_schema,
        annotations=hints,
        metadata=one.meta or {},
        needs_approval=bool(hints.get("destructiveHint")),
    )


def over(work: Callable[[CodeCallToolset, Client], Awaitable[None]], **options: Any) -> None:
    """Run work on CodeCall over the tools that the server lists."""

    async def whole() -> None:
        async with parcels() as client:
            listed = await client.list_tools()
            tools = [as_tool(client, one) for one in listed.tools]
            await work(create_code_call_tools(tools, options), client)

    within(whole())


ALL = {"direct_calls": {"enabled": True}, "settings": {"approval": {"mode": "interrupt"}}}


def test_a_model_searches_describes_executes_and_invokes():
    async def work(code_call: CodeCallToolset, _client: Client) -> None:
        found = await code_call.call("codecall_search", {"query": "weigh a parcel"})
        assert found["tools"][0] | {"score": 1} == {
            "name": "parcels.weigh", "description": "Weigh a parcel, in grams.", "appId": "post", "score": 1,
        }  # fmt: skip
        assert found["totalAvailableTools"] == 3
        described = await code_call.call("codecall.describe", {"tools": ["parcels.weigh", "admin.reset"]})
        assert described["notFound"] == ["admin.reset"]
        definition = described["tools"][0]
        assert definition["inputSchema"]["required"] == ["parcel"]
        assert definition["outputSchema"]["type"] == "integer"
        assert definition["annotations"] == {"readOnlyHint": True}
        first = definition["usageExamples"][0]
        assert first["description"] == "The first parcel"
        # Each example runs as it stands.
        assert (await code_call.execute({"script": first["code"]})) == {"status": "ok", "result": 400}
        script = """
          const all = await parcels.list({});
          const grams = await Promise.all(all.map(({ id }) => callTool("parcels.weigh", { parcel: id })));
          const { outputSchema } = getTool("parcels.weigh");
          return { grams, type: outputSchema.type, reset: typeof getTool("admin.reset") };
        """
        answer = await code_call.execute({"script": script})
        assert answer == {"status": "ok", "result": {"grams": [400, 2500], "type": "integer", "reset": "undefined"}}
        invoked = await code_call.invoke({"tool": "parcels.weigh", "input": {"parcel": "p2"}})
        assert invoked == {"status": "ok", "result": 2500}

    over(work, **ALL)


def test_what_the_servers_tools_say_of_themselves_is_heeded():
    async def work(code_call: CodeCallToolset, _client: Client) -> None:
        listed = [tool.name for tool in code_call.list_tools()]
        assert listed[-1] == "labels.print"
        assert "admin.reset" not in listed
        for filters, names in (
            ({"appIds": ["desk"]}, ["labels.print"]),
            ({"tags": ["read"], "includeOpenApi": False}, ["parcels.weigh"]),
        ):
            found = await code_call.search({"query": "print, list or weigh a parcel", "filter": filters})
            assert [one["name"] for one in found["tools"]] == names

    over(work, **ALL)


def test_errors_of_the_server_and_of_its_schemas_have_their_codes():
    async def work(code_call: CodeCallToolset, _client: Client) -> None:
        unknown = await code_call.execute({"script": 'return await callTool("parcels.weigh", { parcel: "p9" })'})
        assert (unknown["status"], unknown["error"]["code"]) == ("tool_error", "MCP_TOOL")
        wrong = await code_call.invoke({"tool": "parcels.weigh", "input": {"parcel": 9}})
        assert (wrong["status"], wrong["error"]["code"]) == ("tool_error", "VALIDATION")
        outside = await code_call.execute({"script": 'return await callTool("admin." + "reset", {})'})
        assert (outside["status"], outside["error"]["code"]) == ("tool_error", "UnknownTool")

    over(work, **ALL)


def test_a_person_approves_what_the_server_calls_destructive_and_it_runs_once():
    async def work(code_call: CodeCallToolset, client: Client) -> None:
        script = 'return await callTool("labels.print", { parcel: "p1", copies: 2 })'
        printed = []
        for paused in (
            await code_call.execute({"script": script}),
            await code_call.invoke({"tool": "labels.print", "input": {"parcel": "p1", "copies": 2}}),
        ):
            assert isinstance(paused, Interrupt)
            assert paused.requests[0].tool_name == "labels.print"
            kept = through_json(paused)
            first = await code_call.resume(kept, OK)
            assert await code_call.resume(kept, OK) == first
            assert first["status"] == "ok"
            printed.append(first["result"]["printed"])
        assert printed == [2, 4]
        again = await client.call_tool("labels.print", {"parcel": "p2"})
        assert (again.structured_content or {})["printed"] == 5

    over(work, **ALL)


def test_update_follows_the_server():
    async def work(code_call: CodeCallToolset, client: Client) -> None:
        heard: list[dict[str, Any]] = []
        code_call.on_tools_changed(heard.append)
        listed = [one for one in (await client.list_tools()).tools if one.name != "labels.print"]
        code_call.update([as_tool(client, one) for one in listed])
        assert heard[0]["removed"] == ["labels.print"]
        assert (await code_call.search({"query": "print a label"}))["totalAvailableTools"] == 2
        assert (await code_call.invoke({"tool": "labels.print"}))["error"]["code"] == "UnknownTool"

    over(work, **ALL)
