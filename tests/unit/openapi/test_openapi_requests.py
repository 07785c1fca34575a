"""How inputs become requests: styles of parameters, kinds of bodies, and values that are not sent."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_world import BASE_URL, World, operation, spec_of
from suite import each_row

from codemode import CodeModeToolError, MediaContent

COLOURS = ["blue", "black & white"]
POINT = {"R": 100, "G": 200}


def sent(parameter: tuple[Any, ...], value: Any, path: str = "/a") -> Any:
    world = World(spec_of({path: {"get": operation("get", [parameter])}}))
    world.call("get", {parameter[0]: value})
    return world.requests[0]


@each_row(
    "style, explode, value, query",
    [
        ("form", True, "a/b?&=ü", "p=a%2Fb%3F%26%3D%C3%BC"),
        ("form", True, COLOURS, "p=blue&p=black%20%26%20white"),
        ("form", False, COLOURS, "p=blue,black%20%26%20white"),
        ("form", True, POINT, "R=100&G=200"),
        ("form", False, POINT, "p=R,100,G,200"),
        ("spaceDelimited", False, COLOURS, "p=blue%20black%20%26%20white"),
        ("pipeDelimited", False, [1, 2], "p=1%7C2"),
        ("deepObject", True, {"a": {"b": [1, True]}}, "p%5Ba%5D%5Bb%5D%5B0%5D=1&p%5Ba%5D%5Bb%5D%5B1%5D=true"),
        ("form", True, True, "p=true"),
        ("form", True, 1.5, "p=1.5"),
        (None, None, [1, 2], "p=1&p=2"),
    ],
)
def test_query_parameters_have_their_style(style: Any, explode: Any, value: Any, query: str):
    more = {key: one for key, one in (("style", style), ("explode", explode)) if one is not None}
    assert sent(("p", "query", {}, more), value).url.query.decode() == query


@each_row(
    "style, explode, value, path",
    [
        ("simple", False, "a/b", "a%2Fb"),
        ("simple", False, [3, 4], "3,4"),
        ("simple", True, POINT, "R=100,G=200"),
        ("simple", False, POINT, "R,100,G,200"),
        ("label", False, [3, 4], ".3,4"),
        ("label", True, POINT, ".R=100.G=200"),
        ("matrix", False, [3, 4], ";p=3,4"),
        ("matrix", True, [3, 4], ";p=3;p=4"),
        ("matrix", False, "x", ";p=x"),
        ("matrix", True, POINT, ";R=100;G=200"),
    ],
)
def test_path_parameters_have_their_style(style: str, explode: bool, value: Any, path: str):
    request = sent(("p", "path", {}, {"style": style, "explode": explode}), value, "/a/{p}/b")
    assert request.url.raw_path.decode() == f"/v1/a/{path}/b"


def test_headers_cookies_and_json_parameters_are_sent():
    parameters = [("X-Ids", "header", {}), ("session", "cookie", {}), ("filter", "query", {})]
    found = operation("get", parameters)
    found["parameters"][2] = {"name": "filter", "in": "query", "content": {"application/json": {"schema": {}}}}
    world = World(spec_of({"/a": {"get": found}}))
    world.call("get", {"X-Ids": [1, 2], "session": "s; x", "filter": {"a": [1]}})
    request = world.requests[0]
    assert (request.headers["x-ids"], request.headers["cookie"]) == ("1,2", "session=s%3B%20x")
    assert request.url.query.decode() == "filter=%7B%22a%22%3A%5B1%5D%7D"


def test_fixed_queries_and_fragments_of_a_path_are_kept_apart():
    world = World(
        spec_of({"/a?kind=x": {"get": operation("get", [("q", "query")])}, "/#Target=A": {"post": operation("post")}})
    )
    world.call("get", {"q": "1"})
    world.call("post")
    assert [str(one.url) for one in world.requests] == [f"{BASE_URL}/a?kind=x&q=1", f"{BASE_URL}/"]


@each_row("value", [".", "..", "../admin", "a/../b", "..\\admin", "%2e%2e", "..%2f..", "..;x", "", "a\x00"])
def test_a_value_that_would_lead_to_another_path_is_not_sent(value: str):
    world = World(spec_of({"/a/{p}": {"get": operation("get", [("p", "path")])}}))
    with pytest.raises(CodeModeToolError, match=r"path"):
        world.call("get", {"p": value})
    assert world.requests == []


def test_two_values_cannot_make_a_dot_segment_together():
    world = World(spec_of({"/a/{p}{q}/b": {"get": operation("get", [("p", "path"), ("q", "path")])}}))
    with pytest.raises(CodeModeToolError, match="not sent"):
        world.call("get", {"p": ".", "q": "."})


@each_row("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00", " a", "ok \u2603"])
def test_a_header_with_a_line_break_is_not_sent(value: str):
    world = World(spec_of({"/a": {"get": operation("get", [("X-Note", "header")])}}))
    with pytest.raises(CodeModeToolError, match="X-Note: a header cannot carry"):
        world.call("get", {"X-Note": value})
    assert world.requests == []


def body_sent(schema: Any, value: Any, media_type: str, encoding: Any = None) -> Any:
    found = operation("send", [], schema, media_type=media_type)
    if encoding:
        found["requestBody"]["content"][media_type]["encoding"] = encoding
    world = World(spec_of({"/a": {"post": found}}))
    world.call("send", value)
    return world.requests[0]


FIELDS = {"type": "object", "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "object"}}}


@each_row(
    "media_type, schema, value, content",
    [
        ("application/json", FIELDS, {"a": "ü", "b": [1]}, '{"a":"ü","b":[1]}'),
        ("application/merge-patch+json", FIELDS, {"a": None}, '{"a":null}'),
        ("application/json", {"type": "array"}, {"body": [1, 2]}, "[1,2]"),
        ("application/x-www-form-urlencoded", FIELDS, {"a": "x y&", "b": [1, 2]}, "a=x%20y%26&b=1&b=2"),
        ("text/plain", {"type": "string"}, {"body": "plain"}, "plain"),
        ("application/xml", {"type": "object"}, {"body": "<a/>"}, "<a/>"),
        ("application/octet-stream", {}, {"body": "bytes"}, "bytes"),
    ],
)
def test_bodies_are_written_as_their_media_type(media_type: str, schema: Any, value: Any, content: str):
    request = body_sent(schema, value, media_type)
    assert request.content.decode() == content
    assert request.headers["content-type"].split(";")[0] == media_type


def test_a_form_has_the_styles_of_its_encoding():
    encoding = {"c": {"style": "deepObject"}, "b": {"explode": False}, "a": {"contentType": "application/json"}}
    request = body_sent(FIELDS, {"a": [1], "b": [1, 2], "c": {"x": 1}}, "application/x-www-form-urlencoded", encoding)
    assert request.content == b"a=%5B1%5D&b=1,2&c%5Bx%5D=1"


def test_a_multipart_body_has_files_texts_and_json():
    schema = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "note": {"type": "string"},
            "more": {"type": "object"},
        },
    }
    found = operation("send", [], schema, media_type="multipart/form-data")
    world = World(spec_of({"/a": {"post": found}}))
    image = MediaContent(b"\x89PNG", "image/png", name='a"\r\nb/c.png')
    from codemode.openapi.calls import create_relative_request

    plain = create_relative_request(
        world.tools["send"].metadata["openapi"], {"file": image, "note": "n", "more": {"a": 1}}
    )
    assert plain.files == [
        ("file", ("a___b_c.png", b"\x89PNG", "image/png")),
        ("note", (None, b"n", None)),
        ("more", (None, b'{"a":1}', "application/json")),
    ]
    world.call("send", {"note": "n"})
    assert world.requests[0].headers["content-type"].startswith("multipart/form-data; boundary=")


def test_an_optional_body_without_values_is_not_sent():
    found = operation("send", [("id", "path")], FIELDS)
    found["requestBody"]["required"] = False
    world = World(spec_of({"/a/{id}": {"post": found}}))
    world.call("send", {"id": "1"})
    assert (world.requests[0].content, "content-type" in world.requests[0].headers) == (b"", False)


def test_properties_beyond_the_declared_ones_go_into_an_open_body():
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": True}
    assert body_sent(schema, {"a": 1, "zzz": 2}, "application/json").content == b'{"a":1,"zzz":2}'
    with pytest.raises(CodeModeToolError, match="zzz"):
        body_sent({"type": "object", "properties": {"a": {}}}, {"zzz": 2}, "application/json")


def test_requests_stay_below_the_base_url_and_keep_the_clients_headers():
    request = sent(("q", "query"), "x")
    assert str(request.url) == f"{BASE_URL}/a?q=x"
    assert request.headers["authorization"].startswith("Bearer tok-")
