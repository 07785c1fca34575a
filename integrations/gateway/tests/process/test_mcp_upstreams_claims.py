"""What a server says of its tools spares a question only while it says so: lists may be old, servers may change."""

import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import GatewayConfig, ServerConfig, UpstreamHooks, connect
from codemode_gateway.approvals.remembered_answers import (
    RememberedAnswers,
    ToolIdentity,
    compute_definition_digest,
    create_approval_hook,
)
from codemode_gateway.gateway.principals import LOCAL, CallOrigin
from in_loop import in_loop
from suite import full_only
from waiting import within

from codemode import CallContext, create_modules_tool

SCRIPT = Path(__file__).parents[4] / "tests" / "support" / "mcp_servers" / "changing_server.py"
READS, DESTROYS, SAYS_NOTHING = {"readOnlyHint": True}, {"destructiveHint": True}, None
WIPE = 'import { wipe } from "@codemode/servers/s";\nglobalThis.__codemode_result__ = await wipe({});'
CHANGE = WIPE.replace("{ wipe }", "{ change, wipe }").replace("await wipe", "(await change({}), await wipe({})); void")


def says(folder: Path, name: str, annotations: Any, description: str = "Wipes.") -> None:
    listed = [
        {"name": "wipe", "description": description, "inputSchema": {"type": "object"}, "annotations": annotations},
        {"name": "change", "inputSchema": {"type": "object"}, "annotations": READS},
    ]
    (folder / name).write_text(json.dumps([one for one in listed if one.get("annotations") or one["name"] == "wipe"]))


def server(folder: Path, **settings: Any) -> ServerConfig:
    return ServerConfig("s", "stdio", command=sys.executable, args=(str(SCRIPT), str(folder)), **settings)


async def ran(config: ServerConfig, folder: Path, code: str, remembered: RememberedAnswers) -> Any:
    hooks = UpstreamHooks(get_approval_rule=create_approval_hook(remembered))
    async with connect(GatewayConfig((config,)), hooks=hooks, cache_folder=folder / "lists") as connected:
        tool = create_modules_tool(
            connected, settings={"approval": {"mode": "interrupt"}, "continuation": {"keys": "k" * 32}}
        )
        return await tool.execute(
            {"code": code}, call=CallContext(tool_call_id="one", context=CallOrigin(LOCAL, "one"))
        )


def calls(folder: Path) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if line == "call wipe"]


@pytest.mark.parametrize("after", [DESTROYS, SAYS_NOTHING, {"readOnlyHint": True, "destructiveHint": True}])
@pytest.mark.parametrize("policy", ["declared", *full_only("writes")])
def test_a_list_kept_from_before_spares_no_question_that_its_server_would_not(tmp_path, after, policy):
    remembered = RememberedAnswers()

    async def work():
        config = server(tmp_path, approval=policy)
        says(tmp_path, "tools.json", READS)
        assert (await ran(config, tmp_path, WIPE, remembered))["result"] == "done"
        says(tmp_path, "tools.json", after)
        first = await ran(config, tmp_path, WIPE, remembered)
        assert [one["code"] for one in first["diagnostics"]][-1] == "TOOLS_CHANGED"
        assert (await ran(config, tmp_path, WIPE, remembered)).requests[0].tool_name == "s.wipe"
        assert len(calls(tmp_path)) == 1

    within(work())


def test_a_server_that_changes_while_a_program_runs_spares_no_question_from_then_on(tmp_path):
    async def work():
        says(tmp_path, "tools.json", READS)
        says(tmp_path, "after.json", DESTROYS)
        response = await ran(server(tmp_path), tmp_path, CHANGE, RememberedAnswers())
        assert [one["code"] for one in response["diagnostics"]][-1] == "TOOLS_CHANGED"
        assert calls(tmp_path) == []

    within(work())


@pytest.mark.parametrize("policy", ["declared", "always"])
def test_what_holds_always_is_of_the_tool_as_its_server_has_it_now(tmp_path, policy):
    async def work():
        config = server(tmp_path, approval=policy)
        says(tmp_path, "tools.json", DESTROYS)
        remembered = RememberedAnswers(tmp_path)
        told = await ran(config, tmp_path, WIPE, remembered)
        known = remembered.get_displayed_tool(told.requests[0].tool_call_id)
        assert known is not None
        await remembered.remember(LOCAL, known, "always")
        assert (await ran(config, tmp_path, WIPE, RememberedAnswers(tmp_path)))["result"] == "done"
        says(tmp_path, "tools.json", DESTROYS, "Wipes all that there is.")
        asked = await ran(config, tmp_path, WIPE, RememberedAnswers(tmp_path))
        assert asked.requests[0].tool_name == "s.wipe"
        assert len(calls(tmp_path)) == 1

    within(work())


def test_where_nobody_is_asked_whatever_a_server_says_it_is_not_asked_either(tmp_path):
    async def work():
        config = server(tmp_path, approval="never")
        says(tmp_path, "tools.json", READS)
        await ran(config, tmp_path, WIPE, RememberedAnswers())
        says(tmp_path, "tools.json", DESTROYS)
        assert (await ran(config, tmp_path, WIPE, RememberedAnswers()))["result"] == "done"

    within(work())


@in_loop
async def test_one_server_under_another_configuration_is_another_server(tmp_path):
    tool = types.Tool(name="wipe", input_schema={"type": "object"}, annotations=types.ToolAnnotations())
    config = server(tmp_path)
    remembered = RememberedAnswers(tmp_path)
    others = [
        ServerConfig("s", "stdio", command="other", args=config.args),
        ServerConfig("s", "stdio", command=config.command, args=(*config.args, "/")),
        ServerConfig("s", "stdio", command=config.command, args=config.args, cwd="/"),
        ServerConfig("s", "stdio", command=config.command, args=config.args, env={"DATABASE": "production"}),
        ServerConfig("s", "http", url="https://a.example/mcp"),
        ServerConfig("s", "http", url="https://a.example/mcp", headers={"account": "2"}),
    ]
    asks = [await _question(remembered, one, tool) for one in [config, *others]]
    assert all(asks)
    known = remembered.get_displayed_tool("call")
    assert known == ToolIdentity("s", "wipe", compute_definition_digest(tool, others[-1]))
    await remembered.remember(LOCAL, known, "always")
    assert [await _question(remembered, one, tool) for one in [config, *others]] == [True] * 6 + [False]


async def _question(remembered: RememberedAnswers, config: ServerConfig, tool: types.Tool) -> bool:
    class Context:
        context = CallOrigin(LOCAL, "one")
        tool_call_id = "call"

    needs: Any = create_approval_hook(remembered)(config, tool)
    return await needs({}, Context())
