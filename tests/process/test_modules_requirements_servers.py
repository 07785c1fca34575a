"""M16 to M31: discovery, server modules, names, declarations, errors. A test for each item."""

from __future__ import annotations

import re
from typing import Any

from module_servers import answer, github, over, raises, result_of

from codemode import ModuleServer, Tool
from codemode.errors import CodeModeAuthenticationError

SET = "globalThis.__codemode_result__ = "
DISCOVERY = 'import * as discovery from "@codemode/discovery";'
ERRORS = 'import * as errors from "@codemode/errors";'
OWN = "[Object.keys(discovery), Object.keys(errors)]"
GITHUB = 'import * as gh from "@codemode/servers/github";'


def asked(expression: str, *servers: Any) -> Any:
    return result_of(f"{DISCOVERY}{SET}{expression};", over(*servers))


def thrown(call: str, *servers: Any) -> Any:
    """What a program reads of the error of a call: its class, and its own fields."""
    code = f"""
    {GITHUB}{ERRORS}{DISCOVERY}
    try {{ await {call}; globalThis.__codemode_result__ = "no error"; }} catch (error) {{
      const kinds = Object.keys(errors).filter((name) => error instanceof errors[name]);
      const isError = error instanceof Error;
      globalThis.__codemode_result__ = {{ kinds, isError, ...JSON.parse(JSON.stringify(error)) }};
    }}"""
    return result_of(code, over(*servers))


def test_discovery_exports_the_listed_functions():
    found = asked("[Object.keys(discovery), discovery.specVersion]")
    assert found[0] == sorted(["specVersion", "listServers", "describeServer", "listTools", "getTool", "searchTools"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", found[1])


def test_discovery_lists_the_servers():
    servers = asked("await discovery.listServers()")
    assert [(one["serverId"], one["serverName"]) for one in servers] == [
        ("github", "GitHub"),
        ("google-drive", "Drive"),
    ]
    assert servers[0]["capabilities"] == ["tools"]
    assert "description" not in servers[0]
    for server_id in ("google-drive", "Google  Drive!"):
        assert (asked(f"await discovery.describeServer('{server_id}')"))["serverId"] == "google-drive"
    described = asked("await discovery.describeServer('github')")
    assert described.items() >= {"serverId": "github", "description": "Code and issues.", "version": "2.1.0"}.items()
    assert "get_user" in described["declaration"]


def test_discovery_shows_tools_at_each_level_of_detail():
    by_detail = asked(
        "[await discovery.listTools('github', { detail: 'name' }), await discovery.listTools('github'),"
        " await discovery.listTools('github', { detail: 'full' })]"
    )
    name, description, full = ({one["toolName"]: one for one in tools}["get_user"] for tools in by_detail)
    assert name == {"toolName": "get_user", "exportName": "get_user"}
    assert description == {**name, "description": "Look a user up.", "annotations": {"readOnlyHint": True}}
    assert full["inputSchema"]["required"] == ["login"]
    assert full["outputSchema"]["required"] == ["login", "id"]
    one = asked("await discovery.getTool('github', 'create-issue')")
    assert (one["toolName"], one["exportName"]) == ("create-issue", "create_issue")
    assert "declaration" in one
    wrong = thrown("discovery.listTools('github', { detail: 'everything' })")
    assert wrong["kinds"] == ["CodemodeError", "SchemaValidationError"]


def test_discovery_searches_tools():
    found = asked("await discovery.searchTools('open an issue')")
    assert set(found) == {"query", "results"}
    assert found["query"] == "open an issue"
    assert (
        found["results"][0].items()
        >= {"serverId": "github", "toolName": "create-issue", "exportName": "create_issue"}.items()
    )
    found = asked("await discovery.searchTools('issue', { detail: 'name', limit: 1, serverId: 'github' })")
    assert found["results"] == [{"serverId": "github", "toolName": "create-issue", "exportName": "create_issue"}]
    assert (asked("await discovery.searchTools('issue', { serverId: 'google-drive' })"))["results"] == []


def test_declarations_cover_every_export():
    run = over()
    text = run.declarations()
    for path, names in {
        "github": [
            "get_user",
            "create_issue",
            "ping",
            "sum",
            "broken",
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
    for module, names in zip(
        ("discovery", "errors"), result_of(f"{DISCOVERY}{ERRORS}{SET}{OWN};", over()), strict=True
    ):
        (own,) = re.findall(rf'declare module "@codemode/{module}" {{\n(.*?)\n}}', text, re.DOTALL)
        assert sorted(re.findall(r"export (?:class|const|function) (\w+)", own)) == names
    response = answer(SET + "1;", over(max_description_characters=1200), requestedCapabilities=["github"])
    assert "get_user" in response["declarations"]


def test_import_paths_are_built_from_server_names():
    ids = ("My Server", "my--server", "--MY server--", "ünï", "...", "a.b")
    servers = [ModuleServer(one, [Tool("t", execute=lambda _: 1)]) for one in ids]
    listed = asked("(await discovery.listServers()).map((one) => one.serverId)", *servers)
    assert listed[:3] == ["my-server", "my-server--2", "my-server--3"]
    assert listed[3] == "n"
    assert re.fullmatch(r"[a-z0-9-]+", listed[4])
    assert listed[5] == "a-b"
    for path in listed:
        program = f'import {{ __meta__, t }} from "@codemode/servers/{path}"; await t();{SET}__meta__.serverId;'
        assert result_of(program, over(*servers)) == path


def test_modules_export_functions_and_meta():
    code = f"{GITHUB}{SET}[Object.keys(gh), gh.__meta__, gh.ping.constructor.name, String(gh[Symbol.toStringTag])];"
    names, meta, kind, tag = result_of(code, over())
    assert names == sorted(names)
    assert {"__meta__", "create_issue", "get_user", "ping"} <= set(names)
    assert (meta["serverId"], meta["serverName"], meta["serverVersion"]) == ("github", "GitHub", "2.1.0")
    assert {"toolName": "create-issue", "exportName": "create_issue", "description": "Open an issue."} in meta["tools"]
    assert kind.endswith("Function")
    assert tag == "Module"


def test_inputs_are_validated_before_a_call():
    did: list[Any] = []
    calls = "await gh.get_user({ login: 'ana' }), await gh.ping(), await gh.ping({}), await gh.sum([1, 2])"
    code = f"{GITHUB}{SET}[{calls}];"
    assert result_of(code, over(github(did))) == [{"login": "ana", "id": 3}, "pong", "pong", 3]
    assert (thrown("gh.sum({})"))["kinds"] == ["CodemodeError", "SchemaValidationError"]


def test_outputs_are_unwrapped_by_their_rules():
    calls = "await gh.both(), await gh.text(), await gh.image(), await gh.two(), await gh.get_user({ login: 'a' })"
    code = f"{GITHUB}{SET}[{calls}];"
    both, text, image, two, user = result_of(code, over())
    assert both == 0
    assert text == '{"not": "parsed"}'
    assert image["content"] == [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    assert [one["text"] for one in two["content"]] == ["a", "b"]
    assert user == {"login": "a", "id": 1}
    description = over(github()).description
    assert "structured content" in description
    assert "base64" in description


def test_tool_names_become_identifiers():
    code = """
    import * as drive from "@codemode/servers/google-drive";
    globalThis.__codemode_result__ = [
      drive.__meta__.tools.map((one) => [one.toolName, one.exportName]), await drive._123go(), await drive.then_()];"""
    tools, *values = result_of(code, over())
    assert dict(map(tuple, tools)) == {
        "123go": "_123go",
        "class": "class_",
        "list-files": "list_files",
        "list.files": "list_files__2",
        "then": "then_",
    }
    assert values == ["123go", "then"]


def test_declarations_handle_the_listed_schemas():
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
    text = over(ModuleServer("s", [Tool("t", execute=lambda _: 1, input_schema=schema)])).declarations("s")
    for part in ('"a" | "b" | 1', '"x"', "string | number", "string | null", "boolean", "unknown"):
        assert part in text, part
    assert re.search(r"\[\s*string\??,\s*number\??", text)


def test_annotations_of_tools_are_declared():
    run = over(github())
    assert re.search(r"@annotations .*read-only", run.declarations("github"))
    assert re.search(r"@annotations .*non-destructive", run.declarations("github"))
    tool = asked("await discovery.getTool('github', 'create-issue')")
    assert tool["annotations"] == {"destructiveHint": False, "idempotentHint": False}


def test_failures_are_instances_of_their_error_class():
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
    assert result_of(code, over()) == [[f"{name}Error" for name in names], True, True, True]


def test_a_wrong_input_is_a_schema_validation_error():
    did: list[Any] = []
    error = thrown("gh.create_issue({ title: 'x', labels: ['a', 7] })", github(did))
    assert did == []
    assert error["kinds"] == ["CodemodeError", "SchemaValidationError"]
    assert (error["toolName"], error["exportName"], error["path"]) == ("create-issue", "create_issue", "/labels/1")
    assert "string" in str(error["expected"])
    assert "number" in str(error["received"])
    assert error["example"] == {"title": "It is broken"}
    error = thrown("gh.get_user()", github(did))
    assert error["kinds"] == ["CodemodeError", "SchemaValidationError"]
    assert set(error["example"]) == {"login"}


def test_every_error_has_a_hint():
    locked = raises(CodeModeAuthenticationError("sign in first"))
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
        error = thrown(call, *servers)
        assert expected in error["kinds"], (call, error)
        assert error["isError"], call
        assert error["hint"].strip(), call
        assert error["name"] == expected, call
        assert error["message"].strip(), call
    assert "get_user" in str(thrown("discovery.getTool('github', 'get_usr')"))
    assert "no such branch" in (thrown("gh.fails()"))["message"]
    assert "quota exceeded" in (thrown("gh.broken()"))["message"]
