"""Saved programs at the gateway: each user's own, in its store; and `codemode mcp programs`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import Gateway
from codemode_gateway.cli.commands import main
from test_gateway_calls import program, run, text_of

from codemode import ProgramLibrary
from codemode.cli.exits import UsageError
from codemode.stores import ALL_TENANTS, SqliteInterruptStore

BODY = 'import { add } from "@codemode/servers/sums";\nreturn await add({ a: input.a, b: 1 })'
SAVE = {
    "code": 'import { $save } from "@codemode/saved";\n'
    f'export const result = await $save({{ name: "inc", description: "Adds one.", program: {json.dumps(BODY)} }});'
}
CALL = {"code": 'import { inc } from "@codemode/saved";\nexport const result = await inc({ a: 4 });'}


async def decided(client: Any, gateway: Gateway, result: Any) -> Any:
    waiting = text_of(result)["waiting"]
    asked = waiting["calls"][0]
    assert (asked["serverId"], asked["toolName"], asked["asks"]) == ("saved", "$save", "approval")
    store = gateway.store
    (record,) = (await store.list(tenant=ALL_TENANTS, state="waiting")).records
    assert record.requests[0].input["tools"] == ["sums.add"]
    await store.decide({record.requests[0].interrupt_id: {"approved": True}}, actor="ann", tenant=record.tenant)
    for _ in range(100):  # each waits for as long as the gateway does
        answer = text_of(await client.call_tool("codemode_run", {"resume": waiting["id"]}))
        if "waiting" not in answer:
            return answer
    raise AssertionError(answer)


def test_a_user_saves_a_program_and_calls_it(tmp_path: Path):
    async def use(client: Any, gateway: Gateway) -> None:
        answer = await decided(client, gateway, await client.call_tool("codemode_run", SAVE))
        assert answer["result"] == {"name": "inc", "version": 1}
        assert text_of(await client.call_tool("codemode_run", CALL))["result"] == 5
        (listed,) = (await client.list_tools()).tools
        assert "inc(input?: unknown)" in listed.description
        (kept,) = await gateway.store.programs.load_all_programs()
        assert (kept.owner, kept.current.tools.keys()) == ("local", {"sums.add"})
        other = ProgramLibrary(gateway.store, owner="somebody else")
        assert await other.list() == []

    run(tmp_path, "legacy", use, library=True, approval_wait_ms=100)


def test_without_the_setting_there_is_no_library(tmp_path: Path):
    async def use(client: Any, _: Gateway) -> None:
        assert text_of(await client.call_tool("codemode_run", program("typeof saved")))["result"] == "undefined"
        assert "there is no module" in str(text_of(await client.call_tool("codemode_run", CALL)))

    run(tmp_path, "legacy", use)


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    path = tmp_path / "programs.sqlite"

    async def saved() -> None:
        store = SqliteInterruptStore(path)
        for owner in ("ann", "bob"):
            await ProgramLibrary(store, owner=owner).save("report", f"return '{owner}'", description="Reports.")
        await ProgramLibrary(store, owner="bob").save("report", "return 'bob 2'")
        await store.aclose()

    asyncio.run(saved())
    config = tmp_path / "mcp.json"
    config.write_text('{"mcpServers": {}}')

    def typed(*arguments: str) -> str:
        given = ["--config", str(config), "programs", "--store", f"sqlite:///{path}", *arguments]
        assert main(given) == 0
        return capsys.readouterr().out

    return typed


def test_the_command_lists_and_shows_programs(command: Any):
    text = command()
    assert "2 saved programs" in text
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [["ann", "report", "1"], ["bob", "report", "2"]]
    assert [one["owner"] for one in json.loads(command("list", "--json"))["programs"]] == ["ann", "bob"]
    shown = command("show", "report", "--user", "bob")
    assert "-return 'bob'" in shown
    assert "+return 'bob 2'" in shown
    versions = json.loads(command("show", "report", "--user", "bob", "--json"))["versions"]
    assert [one["version"] for one in versions] == [2, 1]


def test_the_command_disables_a_program_of_one_user(command: Any):
    with pytest.raises(UsageError, match="--user with one of ann, bob"):
        command("disable", "report")
    assert "disabled saved.report of ann" in command("disable", "report", "--user", "ann")
    assert [line.split()[4] for line in command().splitlines()[1:3]] == ["disabled", "in"]
    assert "enabled saved.report of ann" in command("enable", "report", "--user", "ann")
    with pytest.raises(UsageError, match="no saved program other"):
        command("show", "other")
