"""Load, index and call a generated OpenAPI document: ``python -m benchmarks.openapi [operations]``.

Prints the seconds and the memory of each step, as JSON. Two shapes of the document's size: 20,000 operations to be
indexed for a search, 1,000 until the end of a first program of codeMode, exec and modules.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

import httpx

from codemode import ModuleServer, create_code_mode_tool, create_exec_wait_tools, create_modules_tool
from codemode.openapi import load_spec, openapi_tools

NOUNS = ("invoice", "order", "customer", "shipment", "ticket", "account", "payment", "refund", "project", "comment")


def generated_spec(operations: int) -> dict[str, Any]:
    """Return a document with so many operations: five of each resource, which share component schemas."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for number in range(-(-operations // 5)):
        noun = f"{NOUNS[number % len(NOUNS)]}{number}"
        name = noun.capitalize()
        schemas[name] = {
            "type": "object",
            "description": f"A {noun}.",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer"},
                "state": {"type": "string", "enum": ["open", "closed"]},
                "parent": {"$ref": f"#/components/schemas/{name}"},
                "related": {"type": "array", "items": {"$ref": f"#/components/schemas/{_neighbour(number)}"}},
                "note": {"type": "string", "maxLength": 4000, "description": f"What people say of this {noun}."},
            },
        }
        one = {"200": _json({"$ref": f"#/components/schemas/{name}"})}
        key = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
        body = {"required": True, **_json({"$ref": f"#/components/schemas/{name}"})}
        listed = {"200": _json({"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}})}
        query = [
            _query("page", "integer"),
            _query("per_page", "integer"),
            _query("state", "string"),
        ]
        tags = [NOUNS[number % len(NOUNS)]]
        paths[f"/{noun}s"] = {
            "get": _operation(f"{noun}s/list", f"List {noun}s", tags, listed, parameters=query),
            "post": _operation(f"{noun}s/create", f"Create a {noun}", tags, one, requestBody=body),
        }
        paths[f"/{noun}s/{{id}}"] = {
            "parameters": [key],
            "get": _operation(f"{noun}s/get", f"Get a {noun}", tags, one),
            "put": _operation(f"{noun}s/replace", f"Replace a {noun}", tags, one, requestBody=body),
            "delete": _operation(f"{noun}s/delete", f"Delete a {noun}", tags, {"204": {"description": "gone"}}),
        }
    return {"openapi": "3.1.0", "info": {"title": "Generated"}, "paths": paths, "components": {"schemas": schemas}}


def _neighbour(number: int) -> str:
    before = max(number - 1, 0)
    return f"{NOUNS[before % len(NOUNS)]}{before}".capitalize()


def _json(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _query(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": f"The {name} of the list.", "schema": {"type": kind}}


def _operation(name: str, summary: str, tags: list[str], responses: Any, **more: Any) -> dict[str, Any]:
    description = f"{summary}, with all that its owner may see. Needs the scope read."
    return {
        "operationId": name,
        "summary": summary,
        "description": description,
        "tags": tags,
        "responses": responses,
        **more,
    }


def answer(request: httpx.Request) -> httpx.Response:
    """Answer as the generated API would."""
    return httpx.Response(200, json={"id": 1, "state": "open"})


async def measure(operations: int, *, searches: bool) -> dict[str, Any]:
    """Return the seconds of each step, and the most memory that the process has had."""
    text = json.dumps(generated_spec(operations))
    before, found = _megabytes(), dict[str, Any](operations=operations, document_megabytes=len(text) / 1e6)
    start = time.perf_counter()
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="https://api.example.com")
    tools = openapi_tools(await load_spec(text), client=client)
    found["tools_seconds"] = time.perf_counter() - start
    code_mode = create_code_mode_tool(tools)
    assert code_mode.description
    found["described_seconds"] = time.perf_counter() - start
    call = "return (await tools.invoice0s_get({ id: 1 })).state;"
    assert await code_mode.execute({"js": call}) == "open"
    found["first_program_seconds"] = time.perf_counter() - start
    if searches:
        js = {"js": "return (await tools.$search('replace a shipment')).map((one) => one.name);"}
        assert "replace" in (await code_mode.execute(js))[0]
        found["indexed_seconds"] = time.perf_counter() - start
    else:
        found |= await measure_others(text, client)
    found["megabytes_before"], found["most_megabytes"] = before, _megabytes()
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}


async def measure_others(text: str, client: httpx.AsyncClient) -> dict[str, float]:
    """Return the seconds until the end of a first program of exec and of ``codemode.run``, from the text on."""
    start = time.perf_counter()
    pair = create_exec_wait_tools(openapi_tools(await load_spec(text), client=client))
    assert pair.exec.description
    ended = await pair.exec.execute({"code": "return (await tools.invoice0s_get({ id: 1 })).state;"})
    assert ended["value"] == "open", ended
    exec_seconds = time.perf_counter() - start
    start = time.perf_counter()
    run = create_modules_tool([ModuleServer("api", openapi_tools(await load_spec(text), client=client))])
    assert run.description
    code = (
        'import { invoice0s_get } from "@codemode/servers/api"; export default (await invoice0s_get({ id: 1 })).state;'
    )
    ended = await run.execute({"code": code})
    assert ended["result"] == "open", ended
    return {"exec_first_program_seconds": exec_seconds, "modules_first_program_seconds": time.perf_counter() - start}


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(json.dumps(asyncio.run(measure(count, searches=count > 1_000 or "--search" in sys.argv))))
