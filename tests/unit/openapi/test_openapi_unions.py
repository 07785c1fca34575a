"""Schemas that name their type in a union or in `allOf`: files of multipart bodies, and parameters in links."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from openapi_world import World, operation, spec_of, tools_of
from suite import each_row

from codemode import MediaContent, Tool, create_code_mode_tool

FILE: dict[str, Any] = {"type": "string", "format": "binary"}
MEDIA: dict[str, Any] = {"type": "string", "contentMediaType": "application/octet-stream"}
NULL: dict[str, Any] = {"type": "null"}
REFERENCE: dict[str, Any] = {"$ref": "#/components/schemas/F"}
INTEGER_OR_NULL: dict[str, Any] = {"anyOf": [{"type": "integer"}, NULL]}
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
INTEGERS: dict[str, Any] = {"type": "array", "items": INTEGER_OR_NULL}


def upload(schema: dict[str, Any], value: str) -> str:
    """Return the body that a program's upload sends."""
    sent: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.read())
        return httpx.Response(200, json={})

    body = {"type": "object", "properties": {"file": schema}}
    document = spec_of({"/a": {"post": operation("send", [], body, media_type="multipart/form-data")}}, {"F": FILE})
    read = Tool("read_file", execute=lambda _value, _context: MediaContent(b"DATA", "text/plain"))
    code_mode = create_code_mode_tool([*tools_of(document, handler), read])
    asyncio.run(code_mode.execute(f"const file = await tools.read_file(); await tools.send({{ file: {value} }})"))
    return sent[0].decode()


@each_row(
    "schema, value, files",
    [
        (FILE, "file", 1),
        (REFERENCE, "file", 1),
        ({"anyOf": [FILE, NULL]}, "file", 1),
        ({"anyOf": [MEDIA, NULL]}, "file", 1),
        ({"anyOf": [FILE, NULL]}, "null", 0),
        ({"oneOf": [REFERENCE, NULL]}, "file", 1),
        ({"allOf": [REFERENCE], "description": "a file"}, "file", 1),
        ({"anyOf": [{"allOf": [REFERENCE]}, NULL]}, "file", 1),
        ({**FILE, "nullable": True}, "null", 0),
        ({"type": ["string", "null"], "format": "binary"}, "null", 0),
        ({"type": "array", "items": REFERENCE}, "[file, file]", 2),
        ({"type": "array", "items": {"anyOf": [FILE, NULL]}}, "[file, null]", 1),
        ({"anyOf": [{"type": "array", "items": FILE}, NULL]}, "[file, file]", 2),
        ({"anyOf": [{"type": "array", "items": FILE}, NULL]}, "null", 0),
        ({"anyOf": [REFERENCE, {"type": "array", "items": REFERENCE}]}, "[file, file]", 2),
        ({"anyOf": [REFERENCE, {"type": "array", "items": REFERENCE}]}, "file", 1),
    ],
)
def test_a_part_of_a_multipart_body_takes_a_file(schema: dict[str, Any], value: str, files: int):
    assert upload(schema, value).count("DATA") == files


@each_row("schema", [{"anyOf": [FILE, {"type": "integer"}]}, {"anyOf": [{"type": "integer"}, NULL]}, INTEGERS])
def test_a_part_that_takes_numbers_stays_as_the_document_says(schema: dict[str, Any]):
    body = {"type": "object", "properties": {"file": schema}}
    document = spec_of({"/a": {"post": operation("send", [], body, media_type="multipart/form-data")}})
    assert tools_of(document)[0].metadata["openapi"].input_schema()["properties"]["file"] == schema


def test_a_schema_that_refers_to_itself_is_no_file():
    circle = {"anyOf": [{"$ref": "#/components/schemas/C"}] * 100}
    body = {"type": "object", "properties": {"file": {"$ref": "#/components/schemas/C"}}}
    document = spec_of({"/a": {"post": operation("send", [], body, media_type="multipart/form-data")}}, {"C": circle})
    schema = tools_of(document)[0].metadata["openapi"].input_schema()
    assert schema["properties"]["file"] == {"$ref": "#/$defs/C"}


def get_next_input(parameters: list[Any], query: str) -> dict[str, Any]:
    document = spec_of({"/a": {"get": operation("get", parameters, answer={"type": "array"})}})
    document["paths"]["/a"]["get"]["responses"]["200"]["headers"] = {"Link": {}}
    link = {"link": f'</v1/a?{query}>; rel="next"'}
    return World(document, httpx.Response(200, json=[], headers=link)).call("get")["links"]["next"]["input"]


@each_row(
    "schema, query, value",
    [
        (INTEGER_OR_NULL, "q=2", 2),
        ({"type": ["integer", "null"]}, "q=2", 2),
        ({"allOf": [{"type": "boolean"}]}, "q=true", True),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "q=2", "2"),
        ({"type": "string"}, "q=2", "2"),
        ({}, "q=2", "2"),
        ({"type": "integer"}, "q=x", "x"),
        ({"type": "integer"}, "q=1&q=2", 2),
        (STRINGS, "q=a&q=2", ["a", "2"]),
        (STRINGS, "q=a", ["a"]),
        ({"anyOf": [STRINGS, NULL]}, "q=a", ["a"]),
        (INTEGERS, "q=1&q=2", [1, 2]),
        ({"anyOf": [STRINGS, {"type": "string"}]}, "q=a", "a"),
        ({"anyOf": [STRINGS, {"type": "string"}]}, "q=a&q=b", ["a", "b"]),
    ],
)
def test_the_input_of_a_link_has_the_types_of_the_parameters(schema: dict[str, Any], query: str, value: Any):
    assert get_next_input([("q", "query", schema)], query) == {"q": value}


@each_row("style, query", [("form", "q=1,2"), ("spaceDelimited", "q=1%202"), ("pipeDelimited", "q=1%7C2")])
def test_the_input_of_a_link_has_the_items_of_a_delimited_list(style: str, query: str):
    parameter = ("q", "query", INTEGERS, {"style": style, "explode": False})
    assert get_next_input([parameter], query) == {"q": [1, 2]}


def test_the_input_of_a_link_keeps_repeated_and_optional_parameters():
    parameters = [("tags", "query", STRINGS), ("page", "query", INTEGER_OR_NULL)]
    assert get_next_input(parameters, "tags=a&tags=b&page=2") == {"tags": ["a", "b"], "page": 2}
