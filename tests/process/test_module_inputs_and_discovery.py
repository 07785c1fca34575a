"""Servers' modules and discovery in a real run: what tools get of an input, and what a program is told of tools."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import within

from codemode import ModuleServer, Tool, create_modules_tool

QUERY = {"type": "object", "properties": {"query": {"type": "string", "default": "all"}}}
OLD = {"type": "object", "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}}


def tool(name: str, schema: Any, **more: Any) -> Tool:
    return Tool(name, execute=lambda value: {"got": value}, input_schema=schema, **more)


SERVERS = [
    ModuleServer(
        "Git Hub",
        [
            tool("absent", None),
            tool("empty", {}),
            tool("object", QUERY, description="Asks.", annotations={"readOnlyHint": True}),
            tool("list", {"type": "array", "items": {"type": "string"}}),
            tool("text", {"type": "string"}),
            tool("old-one", OLD),
            tool("broken", {"type": "object", "properties": None}),
        ],
        description="Code hosting.",
        version="1.2",
        capabilities=["tools"],
    ),
    ModuleServer("git-hub", [tool("send", QUERY)]),
]
RUN = create_modules_tool(SERVERS)


def result_of(code: str) -> Any:
    response = within(RUN.execute({"code": code}))
    assert response["diagnostics"] == []
    return response["result"]


def gives(expression: str) -> Any:
    return result_of(
        'import * as hub from "@codemode/servers/git-hub"; import * as d from "@codemode/discovery";\n'
        f"globalThis.__codemode_result__ = {expression};"
    )


@pytest.mark.parametrize("name", ["absent", "empty", "object", "broken"])
def test_none_and_an_empty_object_are_the_same_to_a_tool_that_takes_either(name: str):
    filled = {"query": "all"} if name == "object" else {}
    assert gives(f"[await hub.{name}(), await hub.{name}({{}})]") == [{"got": filled}] * 2


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_what_says_nothing_of_its_input_takes_anything(name: str):
    given = '[null, 3, "text", [1], {"a": 1}]'
    assert gives(f"await Promise.all({given}.map((one) => hub.{name}(one)))") == [
        {"got": one} for one in (None, 3, "text", [1], {"a": 1})
    ]


def test_an_input_may_be_something_else_than_an_object():
    assert gives('[await hub.list(["a"]), await hub.text("b")]') == [{"got": ["a"]}, {"got": "b"}]
    assert gives("await hub.list({}).catch((error) => typeof error.message)") == "string"


def test_a_schema_of_an_older_draft_is_checked_as_that_draft_has_it():
    assert gives('await hub.old_one({ pair: ["a", 1] })') == {"got": {"pair": ["a", 1]}}
    assert gives("await hub.old_one({ pair: [1] }).catch(() => 'refused')") == "refused"


def test_servers_are_listed_and_described():
    assert gives("[await d.listServers(), d.specVersion.split('.').length]") == [
        [
            {"serverId": "git-hub", "serverName": "Git Hub", "capabilities": ["tools"]},
            {"serverId": "git-hub--2", "serverName": "git-hub"},
        ],
        3,
    ]
    told = gives('await d.describeServer("Git Hub")')
    assert (told["description"], told["version"]) == ("Code hosting.", "1.2")
    assert told["declaration"] == RUN.declarations("Git Hub")


def test_tools_are_described_at_each_level():
    named = {"toolName": "object", "exportName": "object"}
    described = {**named, "description": "Asks.", "annotations": {"readOnlyHint": True}}
    find = ".find((one) => one.toolName === 'object')"
    assert gives(f'(await d.listTools("git-hub", {{ detail: "name" }})){find}') == named
    assert gives(f'(await d.listTools("git-hub")){find}') == described
    assert gives(f'(await d.listTools("git-hub", {{ detail: "full" }})){find}') == {**described, "inputSchema": QUERY}
    told = gives('await d.getTool("git-hub", "object")')
    assert {key: told[key] for key in (*described, "inputSchema")} == {**described, "inputSchema": QUERY}
    assert "export function object(input?: {" in told["declaration"]


def test_tools_are_searched_on_all_servers_or_one():
    assert gives('await d.searchTools("send", { detail: "name" })') == {
        "query": "send",
        "results": [{"serverId": "git-hub--2", "toolName": "send", "exportName": "send"}],
    }
    assert gives('(await d.searchTools("send", { serverId: "git-hub" })).results') == []
    assert gives('(await d.searchTools("old one", { limit: 1 })).results[0].exportName') == "old_one"


def refusal(expression: str) -> Any:
    return result_of(
        'import * as d from "@codemode/discovery"; import * as e from "@codemode/errors";\n'
        f"const error = await {expression}.catch((error) => error);\n"
        "const is = Object.keys(e).filter((name) => error instanceof e[name]);\n"
        "globalThis.__codemode_result__ = { ...error, is };"
    )


def test_wrong_arguments_are_a_schema_validation_error():
    told = refusal('d.listTools("git-hub", { detail: "all" })')
    assert told["is"] == ["CodemodeError", "SchemaValidationError"]
    assert (told["toolName"], told["exportName"], told["path"]) == ("listTools", "listTools", "/1/detail")
    assert told["expected"] == "detail to be one of name, description, full"
    assert told["received"] == "'all'"
    assert told["hint"].startswith("Call it as listTools(")


def test_names_that_lead_nowhere_say_what_is_near():
    told = refusal('d.describeServer("git-hbu")')
    assert told["is"] == ["CodemodeError", "ServerNotFoundError"]
    assert (told["serverId"], told["hint"]) == ("git-hbu", 'Use "git-hub".')
    told = refusal('d.getTool("git-hub", "objct")')
    assert told["is"] == ["CodemodeError", "ToolNotFoundError"]
    assert (told["serverId"], told["toolName"], told["hint"]) == ("git-hub", "objct", 'Use "object".')
    told = refusal('d.getTool("git-hub", "send")')
    assert told["hint"] == 'Use the server "git-hub--2".'
