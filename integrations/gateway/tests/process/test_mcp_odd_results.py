"""Servers whose results are odd: programs get what came, and the reason of a failure, over both transports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import connect
from mcp_servers.configured import of, scripted, scripted_over_http
from waiting import within

from codemode import ToolSource, create_exec_wait_tools, create_modules_tool

TEXT = {"type": "text", "text": "said"}
REASON = {"error": "quota exceeded", "retryAfter": 30}

# Of each tool: what its server answers, and what the program gets; of a failure its message.
RESULTS: Mapping[str, tuple[Any, Any]] = {
    "content_object": ({"content": TEXT}, "said"),
    "content_text": ({"content": "said"}, "said"),
    "content_value": ({"content": {"rows": 2}}, {"rows": 2}),
    "tool_result": ({"toolResult": {"rows": 2}}, {"rows": 2}),
    "own_fields": ({"rows": 2}, {"rows": 2}),
    "nothing": ({}, {"content": []}),
    "nothing_at_all": (None, {"content": []}),
    "array": ([TEXT], "said"),
    "text": ("said", "said"),
    "fails_structured": ({"content": [], "structuredContent": REASON, "isError": True}, json.dumps(REASON)),
    "fails_resource": (
        {"content": [{"type": "resource", "resource": {"uri": "e:1", "text": "no disk"}}], "isError": True},
        "no disk",
    ),
    "fails_text": ({"content": "no disk", "isError": True}, "no disk"),
}
CALL = "(error) => error.message"
SCRIPT = {
    "pages": {"first": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in RESULTS]}},
    "results": {name: raw for name, (raw, _) in RESULTS.items()},
}


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_program_gets_what_came(tmp_path: Path, transport: str):
    calls = ", ".join(f"{name}: await odd.{name}({{}}).catch({CALL})" for name in RESULTS)
    code = f'import * as odd from "@codemode/servers/odd";\nglobalThis.__codemode_result__ = {{ {calls} }};'
    file = tmp_path / "odd.json"

    async def main(server: Any) -> Any:
        async with connect(of(server)) as connected:
            return await create_modules_tool(connected).execute({"code": code})

    serving = nullcontext(scripted(file, SCRIPT)) if transport == "stdio" else scripted_over_http(file, SCRIPT)
    with serving as server:
        answer = within(main(server))
    assert answer["result"] == {name: given for name, (_, given) in RESULTS.items()}, answer["diagnostics"]


class Session:
    """A session of exec and wait that lists and answers as the script says."""

    async def list_tools(self, cursor: str | None = None) -> Any:
        return SCRIPT["pages"][cursor or "first"]

    async def call_tool(self, name: str, _arguments: dict[str, Any]) -> Any:
        return SCRIPT["results"][name]


def test_a_program_of_exec_and_wait_gets_what_came(pool: Any):
    calls = ", ".join(f"{name}: await MCP.hub.{name}({{}}).catch({CALL})" for name in RESULTS)
    pair = create_exec_wait_tools([ToolSource(Session(), source="mcp", owner="hub")], pool=pool)

    async def main() -> Any:
        try:
            return await pair.exec.execute({"code": f"return {{ {calls} }}"})
        finally:
            await pair.aclose()

    result = within(main())
    assert result["value"] == {name: given for name, (_, given) in RESULTS.items()}, result
