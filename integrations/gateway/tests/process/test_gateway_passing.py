"""A gateway as a process over a real server: what is passed through, what the server asks, what of it is remembered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.tool_history import output_schema_inference, tool_pins
from gateway_clients import USUAL_ERAS, Era, client_over_stdio
from in_loop import in_loop
from mcp import Client
from mcp.client import stdio
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
SERVER = Path(__file__).parents[4] / "tests" / "support" / "mcp_servers" / "passing_server.py"


def started(folder: Path, era: Era = "auto", *, pin: str = "warn", **options: Any) -> Any:
    """Return a client of a gateway that keeps everything in this folder, over one server."""
    said = folder / "description"
    if not said.exists():
        said.write_text("Do it.", encoding="utf-8")
    server = {**GATEWAYS.entry(str(SERVER), str(said)), "codemode": {"pin": pin}}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"notes": server}}), encoding="utf-8")
    environment = {"XDG_STATE_HOME": str(folder / "state")}
    return client_over_stdio(
        ["-m", "codemode", "mcp", "--config", str(config)],
        era,
        python=GATEWAYS.python,
        environment=environment,
        **options,
    )


async def run(client: Client, call: str) -> dict[str, Any]:
    code = f'import * as notes from "@codemode/servers/notes"; globalThis.__codemode_result__ = {call};'
    asked = {"code": code, "requestedCapabilities": ["notes"]}
    result = await client.call_tool("codemode_run", asked)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.parametrize("era", USUAL_ERAS)
@in_loop
async def test_prompts_resources_and_questions_reach_a_client(tmp_path: Path, era: Era) -> None:
    asked: list[str] = []
    updated = asyncio.Event()
    logged: asyncio.Queue[Any] = asyncio.Queue()

    async def person(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def heard(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and message.params.uri == "notes://today":
            updated.set()
        elif isinstance(message, types.LoggingMessageNotification):
            logged.put_nowait((message.params.level, message.params.logger, message.params.data))

    options = {"elicitation_callback": person, "message_handler": heard, "log_level": "notice"}
    async with started(tmp_path, era, **options) as client:
        async with asyncio.timeout(60):
            while not (prompts := (await client.list_prompts()).prompts):
                pass  # a list waits ten seconds for a server, which a busy machine may start for longer
        assert [one.name for one in prompts] == ["notes_review"]
        (message,) = (await client.get_prompt("notes_review", {"x": "1"})).messages
        assert message.content == types.TextContent(text="Review {'x': '1'}")
        assert [one.uri for one in (await client.list_resources()).resources] == ["notes://today"]
        (content,) = (await client.read_resource("notes://days/3")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "read notes://days/3"
        reference = types.ResourceTemplateReference(uri="notes://days/{day}")
        given = await client.complete(reference, {"name": "day", "value": "2"})
        assert given.completion.values == ["21"]
        assert (await run(client, "await notes.greet({})"))["result"] == "accept Ada"
        if era == "legacy":
            level = types.SetLevelRequestParams(level="notice")
            await client.session.send_request(types.SetLevelRequest(params=level), types.EmptyResult)
            params = types.SubscribeRequestParams(uri="notes://today")
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
            await run(client, "await notes.touch({})")
            await asyncio.wait_for(updated.wait(), 60)
        else:
            async with client.listen(resource_subscriptions=["notes://today"]) as stream:
                await run(client, "await notes.touch({})")
                await asyncio.wait_for(anext(stream), 60)
        said = await asyncio.wait_for(logged.get(), 60)
        assert said == ("notice", "notes.hand", {"touched": "notes://today"})
    assert asked == ["[notes] Who are you?"]


@in_loop
async def test_what_tools_give_is_learned_without_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "PROCESS_TERMINATION_TIMEOUT", 60.0)  # after two seconds it is killed while it writes
    async with started(tmp_path) as client:
        first = await run(client, "JSON.parse(await notes.list_issues({})).length")
        assert (first["result"], first.get("diagnostics", [])) == (2, [])
    assert b"private" not in (tmp_path / "state" / "codemode" / output_schema_inference.FILE_NAME).read_bytes()
    async with started(tmp_path) as client:
        declared = (await run(client, "1"))["declarations"]
    assert "/* observed */ string" in declared
    assert "{ number: number; title: string }[]" in declared


def told(response: dict[str, Any]) -> bool:
    return any("since they were first used" in one["message"] for one in response.get("diagnostics", []))


@pytest.mark.full
@in_loop
async def test_tools_that_change_are_kept_away_until_a_person_has_seen_how(tmp_path: Path) -> None:
    state = tmp_path / "state" / "codemode"
    async with started(tmp_path, pin="block") as client:
        assert (await run(client, "await notes.touch({})"))["result"] == "touched"
        (tmp_path / "description").write_text("Do something else.", encoding="utf-8")
    async with started(tmp_path, pin="block") as client:
        async with asyncio.timeout(60):
            while not told(blocked := await run(client, "notes.touch ? await notes.touch({}) : 2")):
                pass  # the list that was kept is the old one until the server has started
        assert "greet" not in blocked.get("declarations", "")
        (shown,) = tool_pins.ToolPins(state).list_server_pins()
        assert [one.tool for one in shown.differences] == ["greet", "list_issues", "touch"]
        assert tool_pins.ToolPins(state).approve_current_tools("notes", shown.token) == 3
        last = await run(client, "await notes.touch({})")
        assert (last["result"], told(last)) == ("touched", False)
