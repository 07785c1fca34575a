"""Tools of public servers, called with their required fields alone: a stub gets each call, and none is refused here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from codemode_gateway import connect, load_config
from mcp_servers.configured import of, scripted
from public_servers import node_server, python_server, require_servers
from waiting import within

from codemode import create_modules_tool

DATA = Path(__file__).parents[4] / "tests" / "data"
RECORDED = ("mcp_tools_sample.json", "mcp_tools_recorded.json")
TEXTS = (
    "text", "PROJ-1", "PROJ", "2026-01-31", "2026-01-31T12:00:00Z", "12:00:00", "https://example.com", "1", "/tmp/x",
    "a@example.com", "2f7c1e52-8d3a-4b1e-9a55-0c1b7e0f2d11",
)  # fmt: skip
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return the tools of each server by a name that a configuration may give it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in RECORDED:
        for server, tools in json.loads((DATA / file).read_text(encoding="utf-8"))["servers"].items():
            found[re.sub(r"[^a-z0-9]+", "-", server.lower()).strip("-")] = tools
    return found


def smallest(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a value for a schema, an object with its required fields alone."""
    if not isinstance(schema, dict) or not schema:
        return "text"
    if "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return smallest(found, root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return smallest(schema[key][0], root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        fields = schema.get("properties", {})
        return {name: smallest(fields.get(name, {}), root) for name in schema.get("required", ())}
    if kind == "array":
        return [smallest(schema.get("items", {}), root) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    if kind == "string":
        fits = jsonschema.Draft202012Validator({**schema, "$schema": ""}, format_checker=FORMATS)
        return next(text for text in TEXTS if fits.is_valid(text))
    return {"boolean": True, "null": None}[kind]


def required_fields(tool: Mapping[str, Any]) -> Any:
    schema = tool["inputSchema"]
    given = smallest({"type": "object", **schema}, schema)
    jsonschema.validate(given, schema)  # of the test's own making, so the tool's schema must accept it
    return given


def script(tools: list[dict[str, Any]], calls: Path) -> dict[str, Any]:
    """Return what the stub of a server lists and answers."""
    schemas = {one["name"]: one["outputSchema"] for one in tools if "outputSchema" in one}
    results = {name: {"content": [], "structuredContent": smallest(one, one)} for name, one in schemas.items()}
    return {"pages": {"first": {"tools": tools}}, "results": results, "calls": str(calls)}


def program(server: str, inputs: Mapping[str, Any]) -> str:
    return f"""\
import * as server from "@codemode/servers/{server}";
const exports = Object.fromEntries(server.__meta__.tools.map((one) => [one.toolName, one.exportName]));
const refused = {{}};
for (const [name, input] of Object.entries({json.dumps(inputs)})) {{
  await server[exports[name]](input).catch((error) => {{ refused[name] = error.message; }});
}}
globalThis.__codemode_result__ = refused;"""


def test_no_tool_is_refused_that_is_called_with_its_required_fields_alone(tmp_path: Path):
    lists = recorded()
    assert {"mcp-atlassian", "notion"} <= lists.keys()
    assert any("github" in name for name in lists)
    servers = [
        scripted(tmp_path / f"{name}.json", script(tools, tmp_path / f"{name}.calls")) for name, tools in lists.items()
    ]
    inputs = {name: {one["name"]: required_fields(one) for one in tools} for name, tools in lists.items()}

    async def main() -> dict[str, Any]:
        async with connect(of(*servers)) as connected:
            run = create_modules_tool(connected, {"limits": {"max_tool_calls": 200}})
            return {name: await run.execute({"code": program(name, inputs[name])}) for name in lists}

    answers = within(main())
    for name, tools in lists.items():
        assert answers[name]["result"] == {}, (name, answers[name]["result"], answers[name]["diagnostics"])
        lines = (tmp_path / f"{name}.calls").read_text(encoding="utf-8").splitlines()
        sent = {call["name"]: call["arguments"] for call in map(json.loads, lines)}
        assert sent.keys() == inputs[name].keys(), name
        for tool in tools:
            arguments, given = sent[tool["name"]], inputs[name][tool["name"]]
            jsonschema.validate(arguments, tool["inputSchema"])  # nothing is filled in that the server refuses
            assert {field: arguments[field] for field in given} == given, (name, tool["name"])


@pytest.mark.full
def test_every_public_server_starts_and_is_used_whole(tmp_path: Path):
    require_servers()
    (tmp_path / "repository").mkdir()
    entries = {
        "git": python_server("git"),
        "time": python_server("time"),
        "fetch": python_server("fetch"),
        "everything": node_server("everything"),
        "filesystem": node_server("filesystem", str(tmp_path)),
        "memory": node_server("memory", MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl")),
    }

    async def main() -> Any:
        async with connect(load_config({"mcpServers": entries}, state_folder=tmp_path / "state")) as connected:
            run = create_modules_tool(connected)
            await run.refresh()
            return run.listing_failures, {one.server_id: (len(one.tools), one.left_out) for one in run.catalog.servers}

    failures, listed = within(main())
    assert failures == {}
    assert listed.keys() == entries.keys()
    for name, (tools, left_out) in listed.items():
        assert (tools > 0, left_out) == (True, ()), name
