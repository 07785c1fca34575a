"""A server that tells its secret wherever it can say anything: no client, model, person or file gets it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import Gateway, load_config
from codemode_gateway.gateway import workspaces
from codemode_gateway.passthrough import proxy
from gateway_clients import ERAS, Era, client_of
from in_loop import in_loop
from mcp.shared.exceptions import MCPError
from waiting import WAIT_SECONDS
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
SERVER = Path(__file__).parents[4] / "tests" / "support" / "mcp_servers" / "telling_server.py"
SECRET = "sk-very-secret-0123456789"
FORMS = (SECRET, base64.b64encode(f"key:{SECRET}".encode()).decode())
CODE = 'import { ask } from "@codemode/servers/told"; globalThis.__codemode_result__ = await ask({});'


def kept_in(folder: Path) -> list[str]:
    return [one.read_text("utf-8", "replace") for one in folder.rglob("*") if one.is_file()]


@pytest.mark.parametrize("era", ERAS)
@in_loop
async def test_a_secret_that_a_server_tells_reaches_nobody(
    tmp_path: Path, era: Era, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A list waits for a server for a moment, in which a busy machine may not start it.
    monkeypatch.setattr(workspaces, "LISTING_TIMEOUT_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(proxy, "LIST_TIMEOUT_SECONDS", WAIT_SECONDS)
    seen: list[str] = []

    async def person(_ctx: Any, params: Any) -> Any:
        seen.append(params.model_dump_json())
        return types.ElicitResult(action="accept", content={"a": "1"} if params.mode == "form" else None)

    async def model(_ctx: Any, params: Any) -> Any:
        seen.append(params.model_dump_json())
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="x"), model="m")

    server = {**GATEWAYS.entry(str(SERVER)), "env": {"API_TOKEN": SECRET}}
    config = load_config({"mcpServers": {"told": server}}, state_folder=tmp_path)
    caplog.set_level("DEBUG")
    async with (
        Gateway(config) as gateway,
        client_of(gateway, era, elicitation_callback=person, sampling_callback=model) as client,
    ):
        reference = types.PromptReference(name="told_p")
        for work in (
            client.list_tools(),
            client.list_prompts(),
            client.get_prompt("told_p", {}),
            client.list_resources(),
            client.list_resource_templates(),
            client.read_resource("x://env"),
            client.complete(reference, {"name": "a", "value": ""}),
            client.call_tool("codemode_run", {"code": CODE}),
        ):
            try:
                seen.append((await work).model_dump_json())
            except MCPError as error:
                seen.append(str(error))
    assert len(seen) == 11
    assert sum("[secret]" in one for one in seen) == 11
    for text in (*seen, *kept_in(tmp_path), caplog.text):
        assert not any(form in text for form in FORMS)
