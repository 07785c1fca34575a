"""What operations become: names, inputs, outputs, choices; and what malformed ones cost."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openapi_world import operation, spec_of, tools_of
from suite import each_row

from codemode import (
    CodeModeProtocolError,
    ExecWaitTools,
    ModuleServer,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.openapi import openapi_tools
from codemode.tools.prepared import prepare_tool


def input_of(document: dict[str, Any], name: str) -> Any:
    return prepare_tool({tool.name: tool for tool in tools_of(document)}[name]).input_json_schema


def output_of(document: dict[str, Any], name: str) -> Any:
    return prepare_tool({tool.name: tool for tool in tools_of(document)}[name]).output_json_schema


@each_row(
    "operation_id, method, path, name",
    [
        ("issues/list-for-repo", "get", "/x", "issues_list_for_repo"),
        ("", "get", "/repos/{owner}/issues", "get_repos_owner_issues"),
        ("then", "get", "/x", "_then"),
        ("2fa", "post", "/x", "_2fa"),
        ("$search", "get", "/x", "search"),
        ("取得", "get", "/", "get"),
    ],
)
def test_tools_are_named_by_the_operation(operation_id: str, method: str, path: str, name: str):
    found = {"operationId": operation_id, "responses": {}}
    assert [tool.name for tool in tools_of(spec_of({path: {method: found}}))] == [name]


def test_a_second_operation_of_a_name_gets_a_suffix_and_is_reported_once():
    tools = tools_of(spec_of({f"/{n}": {"get": {"operationId": "same"}} for n in range(3)}))
    assert [tool.name for tool in tools] == ["same", "same_2", "same_3"]
    assert tools.problems == ("operations with equal names got a suffix: same_2, same_3",)


def test_thousands_of_operations_of_one_name_are_named_at_once():
    paths = {f"/{n}": {"get": {"operationId": "same"}} for n in range(5_000)}
    assert tools_of(spec_of({**paths, "/x": {"get": {"operationId": "same_2"}}}))[-1].name == "same_2_2"


def test_tools_of_one_tag_stand_together_and_tags_are_searchable():
    paths = {f"/{n}": {"get": {"operationId": f"o{n}", "tags": [tag]}} for n, tag in enumerate("abab")}
    tools = tools_of(spec_of(paths))
    assert [tool.name for tool in tools] == ["o0", "o2", "o1", "o3"]
    assert tools[0].metadata["codecall"]["tags"] == ["a"]


@each_row(
    "path, item",
    [
        ("/bad", {"get": 7}),
        ("no-slash", {"get": {}}),
        ("/a/../admin", {"get": {}}),
        ("/a/%2e%2e/admin", {"get": {}}),
        ("//evil.example/x", {"get": {}}),
        ("/a\\b", {"get": {}}),
        ("/a\r\nHost: evil", {"get": {}}),
    ],
)
def test_a_bad_operation_is_left_out_with_a_reason_and_costs_no_other(path: str, item: Any):
    tools = tools_of(spec_of({path: item, "/good": {"get": {"operationId": "good"}}}))
    assert [tool.name for tool in tools] == ["good"]
    assert len(tools.problems) == 1
    assert "left out" in tools.problems[0]


def test_malformed_parts_of_an_operation_are_left_out_alone():
    found: dict[str, Any] = {
        "operationId": "odd", "summary": 5, "tags": "none",
        "parameters": [None, {"name": 3}, {"name": "q", "in": "query"}, {"$ref": "#/nowhere"}],
        "requestBody": {"content": []}, "responses": {"200": None, "x": 4},
    }  # fmt: skip
    assert input_of(spec_of({"/a": {"get": found}}), "odd")["properties"] == {"q": {}}


def test_parameters_and_body_are_one_input_with_prefixes_where_names_collide():
    body = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "note": {"type": "string"}},
        "required": ["note"],
    }
    document = spec_of({"/a/{id}": {"put": operation("put", [("id", "path"), ("id", "query"), ("q", "query")], body)}})
    schema = input_of(document, "put")
    assert list(schema["properties"]) == ["id", "query_id", "q", "body_id", "note"]
    assert schema["required"] == ["id", "note"]
    assert schema["additionalProperties"] is False


@each_row(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "string"},
    ],
)
def test_a_body_that_is_no_plain_object_is_one_property(schema: Any):
    assert input_of(spec_of({"/a": {"post": operation("send", [], schema)}}), "send")["properties"] == {"body": schema}


def test_members_of_all_of_are_one_object():
    base = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    schema = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"b": {"type": "integer"}}}]}
    document = spec_of({"/a": {"post": operation("send", [], schema)}}, schemas={"Base": base})
    assert input_of(document, "send")["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}


def test_defaults_are_told_and_not_filled_in():
    body = {"type": "object", "properties": {"state": {"type": "string", "default": "open"}}}
    found = operation("change", [("page", "query", {"type": "integer", "default": 1})], body)
    tool = tools_of(spec_of({"/a": {"patch": found}}))[0]
    assert prepare_tool(tool).validate_input({}).value == {}
    properties: Any = prepare_tool(tool).input_json_schema
    assert properties["properties"]["state"]["description"] == 'Default: "open"'


def test_credentials_and_the_headers_of_connections_are_no_inputs():
    names = ["Authorization", "Content-Length", "Host", "Cookie", "Bad Name", "X\r\nY", "X-Fine"]
    found = operation("get", [*((name, "header") for name in names), ("api_key", "query"), ("key", "query")])
    document = spec_of({"/a": {"get": found}})
    document["components"]["securitySchemes"] = {"k": {"type": "apiKey", "in": "query", "name": "api_key"}}
    assert list(input_of(document, "get")["properties"]) == ["key", "X-Fine"]


def test_references_in_circles_stay_references():
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    }
    schemas = {"Tree": tree, "Loop": {"$ref": "#/components/schemas/Loop"}}
    document = spec_of({"/a": {"get": operation("get", answer={"$ref": "#/components/schemas/Tree"})}}, schemas=schemas)
    assert output_of(document, "get")["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    looped = spec_of({"/a": {"get": operation("get", answer={"$ref": "#/components/schemas/Loop"})}}, schemas=schemas)
    assert prepare_tool(tools_of(looped)[0]).validate_output({"any": 1}) == {"any": 1}


def test_a_reference_to_another_document_is_never_fetched_and_accepts_anything():
    document = spec_of({"/a": {"get": operation("get", answer={"$ref": "https://evil.example/s.json#/X"})}})
    assert output_of(document, "get") == {"description": "not described here: https://evil.example/s.json#/X"}


def test_a_schema_without_end_is_cut_and_still_compiles():
    names = [f"S{number}" for number in range(900)]
    properties = [
        {f"p{m}": {"$ref": f"#/components/schemas/S{(n * 7 + m) % 900}"} for m in range(40)} for n in range(900)
    ]
    schemas = {name: {"type": "object", "properties": one} for name, one in zip(names, properties, strict=True)}
    document = spec_of({"/a": {"get": operation("get", answer={"$ref": "#/components/schemas/S0"})}}, schemas=schemas)
    assert "p39" in output_of(document, "get")["$defs"]["S0"]["properties"]


def test_a_schema_cannot_declare_content_of_its_own():
    answer = {"type": "object", "x-codemode": "content", "$id": "https://evil.example", "properties": {"a": {}}}
    document = spec_of({"/a": {"get": operation("get", answer=answer)}})
    assert output_of(document, "get") == {"type": "object", "properties": {"a": {}}}


def test_the_output_is_the_union_of_the_success_responses():
    json_of = {"application/json": {"schema": {"type": "integer"}}}
    responses: Any = {
        "200": {"content": json_of},
        "204": {},
        "201": {"content": {"text/csv": {}}},
        "404": {"content": json_of},
    }
    schema = output_of(spec_of({"/a": {"get": {"operationId": "get", "responses": responses}}}), "get")
    assert schema == {"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "string"}]}
    fallback = spec_of({"/a": {"get": {"operationId": "get", "responses": {"default": {"content": json_of}}}}})
    assert output_of(fallback, "get") == {"type": "integer"}
    assert output_of(spec_of({"/a": {"get": {"operationId": "get"}}}), "get") is None


@each_row(
    "include, exclude, names",
    [
        (["issues/*"], [], ["issues_list", "issues_get"]),
        (["issues_get", "repos/get"], [], ["issues_get", "repos_get"]),
        (["GET /repos"], [], ["repos_get"]),
        (["tag:admin"], [], ["repos_get"]),
        ([], ["issues/*"], ["repos_get"]),
        (["*"], ["*get"], ["issues_list"]),
    ],
)
def test_include_and_exclude_choose(include: list[str], exclude: list[str], names: list[str]):
    found = {"/issues": ("issues/list", []), "/issues/1": ("issues/get", []), "/repos": ("repos/get", ["admin"])}
    document = spec_of({path: {"get": {"operationId": name, "tags": tags}} for path, (name, tags) in found.items()})
    assert sorted(tool.name for tool in tools_of(document, include=include, exclude=exclude)) == sorted(names)


def test_a_pattern_that_fits_nothing_is_reported():
    document = spec_of({"/a": {"get": {"operationId": "a"}}})
    assert tools_of(document, include=["a", "issue/*"]).problems == ("the pattern 'issue/*' matches no operation",)
    with pytest.raises(ValueError, match="include must be a list"):
        tools_of(document, include="a")


def test_methods_say_what_is_harmless():
    methods = ("get", "head", "put", "delete", "post", "patch")
    tools = tools_of(spec_of({"/a": {method: {"operationId": method} for method in methods}}), needs_approval="unsafe")
    found = {tool.name: (tool.annotations, tool.needs_approval) for tool in tools}
    read_only = {"readOnlyHint": True, "idempotentHint": True}
    assert found["get"] == found["head"] == (read_only, False)
    assert found["put"] == ({"idempotentHint": True}, True)
    assert found["delete"] == ({"idempotentHint": True, "destructiveHint": True}, True)
    assert found["post"] == found["patch"] == ({}, True)


def test_a_function_of_the_operation_decides_about_approval():
    document = spec_of({"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b"}}})
    tools = tools_of(document, needs_approval=lambda one: one.path == "/b")
    assert [tool.needs_approval for tool in tools] == [False, True]


def test_servers_of_the_document_are_not_used_by_themselves():
    document = {**spec_of({"/a": {"get": {}}}), "servers": [{"url": "https://evil.example"}]}
    with pytest.raises(ValueError, match=r"no server is chosen.*https://evil\.example"):
        openapi_tools(document, client=httpx.AsyncClient())
    for wrong in ("ftp://a.example", "/relative", "https://a.example/?key=1"):
        with pytest.raises(ValueError, match="base_url must be"):
            openapi_tools(document, client=httpx.AsyncClient(), base_url=wrong)


def test_nothing_is_compiled_before_it_is_used():
    tools = tools_of(spec_of({f"/{n}": {"get": operation(f"get{n}", [("q", "query")])} for n in range(40)}))
    code_mode = create_code_mode_tool(tools, {"execution_policy": {"max_description_characters": 1_000}})
    assert "There are 40 tools" in code_mode.description
    assert [one["name"] for one in code_mode.catalog.search("q")][:1] == ["get0"]
    assert not any("input" in vars(tool.schemas) for tool in tools)


def test_exec_and_modules_compile_no_operation_of_many_before_it_is_used():
    tools = tools_of(spec_of({f"/{n}": {"get": operation(f"get{n}", [("q", "query")])} for n in range(40)}))
    pair, run = create_exec_wait_tools(tools), create_modules_tool([ModuleServer("api", tools)])
    assert "host:core:get39" in pair.exec.description
    assert "@codemode/servers/api" in run.description
    assert not any({"input", "output"} & vars(tool.schemas).keys() for tool in tools)
    few = create_exec_wait_tools(tools[:2])
    assert "q?: string" in few.exec.description  # few are described with their types


def definitions_of(kind: str, summary: str = "") -> dict[str, tuple[str, str]]:
    schemas = {"Größe": {"properties": {"in": {"$ref": "#/components/schemas/Unit"}}}, "Unit": {"type": kind}}
    item = operation("get", [], None, {"$ref": "#/components/schemas/Größe"})
    document = spec_of({"/a": {"get": item}, "/b": {"get": {"operationId": "other", "summary": summary}}}, schemas)
    return {one.name: prepare_tool(one).schema_texts for one in tools_of(document)}


def test_a_definition_changes_with_what_it_refers_to_and_with_nothing_else():
    before = definitions_of("string")
    assert definitions_of("string") == before
    assert definitions_of("integer")["get"] != before["get"]
    assert definitions_of("integer")["other"] == before["other"]
    assert definitions_of("string", "more")["get"] == before["get"]


def test_a_definition_with_very_many_parts_changes_with_the_document():
    def definition(last: str) -> tuple[str, str]:
        schemas: dict[str, Any] = {f"L{n}": {"items": {"$ref": f"#/components/schemas/L{n + 1}"}} for n in range(400)}
        schemas["L400"] = {"type": last}
        document = spec_of({"/a": {"get": operation("get", [], None, {"$ref": "#/components/schemas/L0"})}}, schemas)
        return prepare_tool(tools_of(document)[0]).schema_texts

    assert definition("string") == definition("string") != definition("integer")


def test_a_program_does_not_go_on_after_a_definition_has_changed():
    def pair(kind: str) -> ExecWaitTools:
        document = spec_of({"/a": {"get": operation("get", [], None, {"type": kind})}})
        return create_exec_wait_tools(tools_of(document))

    given = pair("string").catalog.catalog_digest_data
    pair("string").catalog.require_same_catalog(given)
    with pytest.raises(CodeModeProtocolError, match="the catalog has changed"):
        pair("integer").catalog.require_same_catalog(given)


def test_members_that_hold_each_other_many_times_over_are_read_once():
    def level(depth: int) -> dict[str, Any]:
        refs = [{"$ref": f"#/components/schemas/L{(depth + 1) % 30}"}] * 20
        return {"allOf": [*refs, {"properties": {f"p{depth}": {"type": "string"}}}]}

    schemas = {f"L{depth}": level(depth) for depth in range(30)}
    document = spec_of({"/a": {"post": operation("send", [], {"$ref": "#/components/schemas/L0"})}}, schemas=schemas)
    assert len(input_of(document, "send")["properties"]) == 30
