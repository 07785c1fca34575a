"""M16 to M31 and M33 to M37: discovery, server modules, names, declarations, errors. A test for each item."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from in_loop import in_loop
from required_servers import codes, drive, github, giving, respond, result_of

from codemode import CodeModeAuthenticationError, ModuleServer, Tool, create_run_tool

SET = "globalThis.__codemode_result__ = "
DISCOVERY = 'import * as discovery from "@codemode/discovery";'
ERRORS = 'import * as errors from "@codemode/errors";'
OWN = "[Object.keys(discovery), Object.keys(errors)]"
GITHUB = 'import * as gh from "@codemode/servers/github";'


async def asked(expression: str, *servers: Any) -> Any:
    return await result_of(f"{DISCOVERY}{SET}{expression};", *servers)


async def thrown(call: str, *servers: Any, **more: Any) -> Any:
    """What a program reads of the error of a call: its class, and its own fields."""
    code = f"""
    {GITHUB}{ERRORS}{DISCOVERY}
    try {{ await {call}; globalThis.__codemode_result__ = "no error"; }} catch (error) {{
      const kinds = Object.keys(errors).filter((name) => error instanceof errors[name]);
      const isError = error instanceof Error;
      globalThis.__codemode_result__ = {{ kinds, isError, ...JSON.parse(JSON.stringify(error)) }};
    }}"""
    return await result_of(code, *servers, **more)


@in_loop
async def test_m16_discovery_exports():
    found = await asked("[Object.keys(discovery), discovery.specVersion]")
    assert found[0] == sorted(["specVersion", "listServers", "describeServer", "listTools", "getTool", "searchTools"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", found[1])


@in_loop
async def test_m17_servers():
    servers = await asked("await discovery.listServers()")
    assert [(one["serverId"], one["serverName"]) for one in servers] == [
        ("github", "GitHub"),
        ("google-drive", "Drive"),
    ]
    assert servers[0]["capabilities"] == ["tools"]
    assert "description" not in servers[0]
    for server_id in ("google-drive", "Google  Drive!"):
        assert (await asked(f"await discovery.describeServer('{server_id}')"))["serverId"] == "google-drive"
    described = await asked("await discovery.describeServer('github')")
    assert described.items() >= {"serverId": "github", "description": "Code and issues.", "version": "2.1.0"}.items()
    assert "get_user" in described["declaration"]


@in_loop
async def test_m18_and_m19_tools_by_detail():
    by_detail = await asked(
        "[await discovery.listTools('github', { detail: 'name' }), await discovery.listTools('github'),"
        " await discovery.listTools('github', { detail: 'full' })]"
    )
    name, description, full = ({one["toolName"]: one for one in tools}["get_user"] for tools in by_detail)
    assert name == {"toolName": "get_user", "exportName": "get_user"}
    assert description == {**name, "description": "Look a user up.", "annotations": {"readOnlyHint": True}}
    assert full["inputSchema"]["required"] == ["login"]
    assert full["outputSchema"]["required"] == ["login", "id"]
    one = await asked("await discovery.getTool('github', 'create-issue')")
    assert (one["toolName"], one["exportName"]) == ("create-issue", "create_issue")
    assert "declaration" in one
    wrong = await thrown("discovery.listTools('github', { detail: 'everything' })")
    assert wrong["kinds"] == ["CodemodeError", "SchemaValidationError"]


@in_loop
async def test_m20_search():
    found = await asked("await discovery.searchTools('open an issue')")
    assert set(found) == {"query", "results"}
    assert found["query"] == "open an issue"
    assert (
        found["results"][0].items()
        >= {"serverId": "github", "toolName": "create-issue", "exportName": "create_issue"}.items()
    )
    found = await asked("await discovery.searchTools('issue', { detail: 'name', limit: 1, serverId: 'github' })")
    assert found["results"] == [{"serverId": "github", "toolName": "create-issue", "exportName": "create_issue"}]
    assert (await asked("await discovery.searchTools('issue', { serverId: 'google-drive' })"))["results"] == []


@in_loop
async def test_m21_declarations_cover_every_export():
    run = create_run_tool([github(), drive()])
    text = run.declarations()
    for path, names in {
        "github": [
            "get_user",
            "create_issue",
            "ping",
            "sum",
            "broken",
            "slow",
            "text",
            "image",
            "both",
            "two",
            "fails",
        ],
        "google-drive": ["list_files", "list_files__2", "_123go", "class_", "then_"],
    }.items():
        own = run.declarations(path)
        assert f'declare module "@codemode/servers/{path}"' in own
        assert own.strip() in text
        assert all(re.search(rf"\b{name}\b", own) for name in [*names, "__meta__"])
    for module, names in zip(("discovery", "errors"), await result_of(f"{DISCOVERY}{ERRORS}{SET}{OWN};"), strict=True):
        (own,) = re.findall(rf'declare module "@codemode/{module}" {{\n(.*?)\n}}', text, re.DOTALL)
        assert sorted(re.findall(r"export (?:class|const|function) (\w+)", own)) == names
    response = await respond(SET + "1;", requestedCapabilities=["github"], options={"max_description_characters": 1200})
    assert "get_user" in response["declarations"]


@in_loop
async def test_m22_paths():
    ids = ("My Server", "my--server", "--MY server--", "ünï", "...", "a.b")
    servers = [ModuleServer(one, [Tool("t", execute=lambda _: 1)]) for one in ids]
    listed = await asked("(await discovery.listServers()).map((one) => one.serverId)", *servers)
    assert listed[:3] == ["my-server", "my-server--2", "my-server--3"]
    assert listed[3] == "n"
    assert re.fullmatch(r"[a-z0-9-]+", listed[4])
    assert listed[5] == "a-b"
    for path in listed:
        assert (
            await result_of(
                f'import {{ __meta__, t }} from "@codemode/servers/{path}"; await t();{SET}__meta__.serverId;', *servers
            )
            == path
        )


@in_loop
async def test_m23_exports_and_meta():
    code = f"{GITHUB}{SET}[Object.keys(gh), gh.__meta__, gh.ping.constructor.name, String(gh[Symbol.toStringTag])];"
    names, meta, kind, tag = await result_of(code)
    assert names == sorted(names)
    assert {"__meta__", "create_issue", "get_user", "ping"} <= set(names)
    assert (meta["serverId"], meta["serverName"], meta["serverVersion"]) == ("github", "GitHub", "2.1.0")
    assert {"toolName": "create-issue", "exportName": "create_issue", "description": "Open an issue."} in meta["tools"]
    assert kind.endswith("Function")
    assert tag == "Module"


@in_loop
async def test_m24_inputs():
    did: list[Any] = []
    calls = "await gh.get_user({ login: 'ana' }), await gh.ping(), await gh.ping({}), await gh.sum([1, 2])"
    code = f"{GITHUB}{SET}[{calls}];"
    assert await result_of(code, github(did)) == [{"login": "ana", "id": 3}, "pong", "pong", 3]
    assert (await thrown("gh.sum({})"))["kinds"] == ["CodemodeError", "SchemaValidationError"]


@in_loop
async def test_m25_outputs():
    calls = "await gh.both(), await gh.text(), await gh.image(), await gh.two(), await gh.get_user({ login: 'a' })"
    code = f"{GITHUB}{SET}[{calls}];"
    both, text, image, two, user = await result_of(code)
    assert both == 0
    assert text == '{"not": "parsed"}'
    assert image["content"] == [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    assert [one["text"] for one in two["content"]] == ["a", "b"]
    assert user == {"login": "a", "id": 1}
    description = create_run_tool([github()]).description
    assert "structured content" in description
    assert "base64" in description


@in_loop
async def test_m26_identifiers():
    code = """
    import * as drive from "@codemode/servers/google-drive";
    globalThis.__codemode_result__ = [
      drive.__meta__.tools.map((one) => [one.toolName, one.exportName]), await drive._123go(), await drive.then_()];"""
    tools, *values = await result_of(code)
    assert dict(map(tuple, tools)) == {
        "123go": "_123go",
        "class": "class_",
        "list-files": "list_files",
        "list.files": "list_files__2",
        "then": "then_",
    }
    assert values == ["123go", "then"]


def test_m27_declarations_handle():
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b", 1]},
            "fixed": {"const": "x"},
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "maybe": {"type": "string", "nullable": True},
            "tree": {"$ref": "#/$defs/node"},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "patterns": {"type": "object", "patternProperties": {"^x": {"type": "number"}}},
            "odd": {"$ref": "https://example.com/elsewhere"},
        },
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    }
    text = create_run_tool([ModuleServer("s", [Tool("t", execute=lambda _: 1, input_schema=schema)])]).declarations("s")
    for part in ('"a" | "b" | 1', '"x"', "string | number", "string | null", "boolean", "unknown"):
        assert part in text, part
    assert re.search(r"\[\s*string\??,\s*number\??", text)


@in_loop
async def test_m28_annotations():
    run = create_run_tool([github()])
    assert re.search(r"readOnlyHint\W+true", run.declarations("github"))
    assert re.search(r"destructiveHint\W+false", run.declarations("github"))
    tool = await asked("await discovery.getTool('github', 'create-issue')")
    assert tool["annotations"] == {"destructiveHint": False, "idempotentHint": False}


@in_loop
async def test_m29_error_classes():
    names = [
        "Authentication",
        "Codemode",
        "SandboxLimit",
        "SchemaValidation",
        "ServerNotFound",
        "ToolCall",
        "ToolNotFound",
    ]
    code = f"""{ERRORS}{SET}[Object.keys(errors),
      Object.values(errors).every((One) => [One, Object.getPrototypeOf(One)].includes(errors.CodemodeError)
        || One.prototype instanceof errors.CodemodeError),
      errors.AuthenticationError.prototype instanceof errors.ToolCallError,
      errors.CodemodeError.prototype instanceof Error];"""
    assert await result_of(code) == [[f"{name}Error" for name in names], True, True, True]


@in_loop
async def test_m30_schema_validation():
    did: list[Any] = []
    error = await thrown("gh.create_issue({ title: 'x', labels: ['a', 7] })", github(did))
    assert did == []
    assert error["kinds"] == ["CodemodeError", "SchemaValidationError"]
    assert (error["toolName"], error["exportName"], error["path"]) == ("create-issue", "create_issue", "/labels/1")
    assert "string" in str(error["expected"])
    assert "number" in str(error["received"])
    assert error["example"] == {"title": "It is broken"}
    error = await thrown("gh.get_user()", github(did))
    assert error["kinds"] == ["CodemodeError", "SchemaValidationError"]
    assert set(error["example"]) == {"login"}


@in_loop
async def test_m31_every_error_has_a_hint():
    def locked(_: Any) -> None:
        raise CodeModeAuthenticationError("sign in first")

    servers = [github(), ModuleServer("vault", [Tool("open", execute=locked)])]
    vault = 'import("@codemode/servers/vault").then((vault) => vault.open())'
    calls = {
        "gh.create_issue({})": "SchemaValidationError",
        "gh.broken()": "ToolCallError",
        "gh.fails()": "ToolCallError",
        vault: "AuthenticationError",
        "discovery.getTool('github', 'get_usr')": "ToolNotFoundError",
        "discovery.listTools('githb')": "ServerNotFoundError",
        "discovery.searchTools(1)": "SchemaValidationError",
        "import('@codemode/servers/nope')": "ServerNotFoundError",
    }
    for call, expected in calls.items():
        error = await thrown(call, *servers)
        assert expected in error["kinds"], (call, error)
        assert error["isError"], call
        assert error["hint"].strip(), call
        assert error["name"] == expected, call
        assert error["message"].strip(), call
    assert "get_user" in str(await thrown("discovery.getTool('github', 'get_usr')"))
    assert "no such branch" in (await thrown("gh.fails()"))["message"]
    assert "quota exceeded" in (await thrown("gh.broken()"))["message"]


class Changing:
    """A server whose tools change, as a gateway has it."""

    server_id, name, version, description, capabilities = "changing", "Changing", None, None, ()

    def __init__(self) -> None:
        self.revision = 1
        self.listed = 0
        self.names = ["first"]

    async def tools(self) -> list[Tool]:
        self.listed += 1
        await asyncio.sleep(0)
        return [giving(name, name) for name in self.names]


@in_loop
async def test_m33_changed_tools_are_seen_by_the_next_run_alone():
    server = Changing()

    def change(_: Any) -> str:
        server.names, server.revision = ["first", "second"], 2
        return "changed"

    run = create_run_tool([server, ModuleServer("host", [Tool("change", execute=change)])])
    code = """
    import * as one from "@codemode/servers/changing";
    import { change } from "@codemode/servers/host";
    const before = Object.keys(one);
    await change();
    const again = await import("@codemode/servers/changing");
    globalThis.__codemode_result__ = [before, Object.keys(one), Object.keys(again)];
    """
    response = await run.execute({"code": code})
    assert response["result"] == [["__meta__", "first"]] * 3
    response = await run.execute(
        {"code": f'import {{ second }} from "@codemode/servers/changing";{SET}await second();'}
    )
    assert response["result"] == "second"
    assert codes(response) in ([], ["TOOLS_CHANGED"])
    assert server.listed == 2
    await run.execute({"code": 'import { change } from "@codemode/servers/host";'})
    assert server.listed == 2


@in_loop
async def test_m34_several_servers_and_a_failing_call():
    code = """
    import { broken, ping } from "@codemode/servers/github";
    import { list_files as list } from "@codemode/servers/google-drive";
    import { ToolCallError } from "@codemode/errors";
    const [bad, good] = await Promise.allSettled([broken(), ping()]);
    globalThis.__codemode_result__ = [bad.reason instanceof ToolCallError, good.value, await list()];
    """
    assert await result_of(code) == [True, "pong", "list-files"]


@in_loop
async def test_m35_calls_at_once():
    gate = asyncio.Barrier(3) if hasattr(asyncio, "Barrier") else None

    async def together(_: Any) -> str:
        assert gate is not None
        await asyncio.wait_for(gate.wait(), 10)
        return "met"

    code = """
    import { together } from "@codemode/servers/s";
    globalThis.__codemode_result__ = await Promise.all([together(), together(), together()]);"""
    assert await result_of(code, ModuleServer("s", [Tool("together", execute=together)])) == ["met"] * 3


@pytest.mark.parametrize(
    "attempt",
    [
        "gh.ping = () => 'mine'",
        "Object.defineProperty(gh, 'ping', { value: 1 })",
        "delete gh.ping",
        "Object.setPrototypeOf(gh, {})",
        "gh.added = 1",
        "gh.__meta__.serverId = 'x'",
        "gh.__meta__.tools[0].toolName = 'x'",
        "gh.ping.call = 1",
        "errors.ToolCallError.prototype.name = 'x'",
        "errors.CodemodeError = Error",
        "discovery.listTools = 1",
        "Array.prototype.map = 1",
        "Object.prototype.polluted = 1",
        "URL.prototype.href = 1",
        "globalThis.setTimeout = 1",
        "Object.defineProperty(globalThis, '__codemode_result__', { get() { return 1; } })",
        "console.log = 1",
    ],
)
@in_loop
async def test_m36_nothing_can_be_tampered_with(attempt: str):
    code = f"""{GITHUB}{ERRORS}{DISCOVERY}
    let threw = false;
    try {{ {attempt}; }} catch (error) {{ threw = error instanceof TypeError; }}
    globalThis.__codemode_result__ = [threw, await gh.ping(), gh.__meta__.serverId, ({{}}).polluted === undefined];"""
    assert await result_of(code) == [True, "pong", "github", True]


@in_loop
async def test_m36_answers_are_data():
    answers = ({"__proto__": {"polluted": 1}, "constructor": 1}, {"then": "no function"}, "</script>", [None])
    for answer in answers:
        server = ModuleServer("s", [giving("answer", answer)])
        assert await result_of(f'import {{ answer }} from "@codemode/servers/s";{SET}await answer();', server) == answer


@in_loop
async def test_m37_version():
    assert await asked("discovery.specVersion") == "1.0.0"
