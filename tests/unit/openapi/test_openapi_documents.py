"""Reading OpenAPI documents: sources, versions, bounds."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from suite import each_row

from codemode.openapi import SpecError, load_spec
from codemode.openapi.spec import parse_spec, parse_yaml

DOCUMENT: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "Shop"}, "paths": {"/orders": {"get": {}}}}
YAML = """\
openapi: 3.0.3
info: {title: Shop, version: 1.0}
paths:
  /orders:
    get:
      responses:
        200: {description: no}
"""


def loaded(source: Any, **settings: Any) -> Any:
    return asyncio.run(load_spec(source, **settings)).document


def test_a_document_is_read_from_an_object_a_path_and_text(tmp_path: Path):
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    for source in (DOCUMENT, file, str(file), json.dumps(DOCUMENT), f"\ufeff{json.dumps(DOCUMENT, indent=1)}"):
        assert loaded(source) == DOCUMENT, source


def test_yaml_is_read_as_openapi_asks_for_it():
    document = loaded(YAML)
    assert document["paths"]["/orders"]["get"]["responses"] == {"200": {"description": "no"}}
    assert document["info"]["version"] == 1.0


def test_aliases_and_merge_keys_of_yaml_are_read():
    text = "base: &base {a: 1, b: 2}\nmine: {<<: *base, b: 3}\nlist: [*base, 2020-01-01, ~, 1e3]"
    value = parse_yaml(text, max_values=100, max_depth=10)
    assert value["mine"] == {"a": 1, "b": 3}
    assert value["list"] == [{"a": 1, "b": 2}, "2020-01-01", None, 1000.0]


@each_row(
    "text, reason",
    [
        ("a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 9}]\n" for n in range(9)), "values"),
        ("a: &a {" + "".join(f"k{n}: 1, " for n in range(99)) + "}\nb: [" + "{<<: *a}, " * 200 + "]", "values"),
        ("[" * 300 + "]" * 300, "levels"),
        ("a: *nowhere", "alias"),
        ("? [a]\n: b", "not text"),
        ("a: [", "while parsing"),
    ],
)  # fmt: skip
def test_hostile_yaml_is_refused(text: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text, max_values=10_000, max_depth=200)


@each_row(
    "document, reason",
    [
        ({"swagger": "2.0", "paths": {}}, "Swagger 2.0 document.*convert"),
        ({"paths": {}}, "no `openapi` version"),
        ({"openapi": "4.0.0", "paths": {}}, "version '4.0.0'"),
        ({"openapi": "3.1.0"}, "no `paths`"),
    ],
)
def test_what_is_no_openapi_3_is_refused_by_name(document: Any, reason: str):
    with pytest.raises(SpecError, match=reason):
        loaded(document)


@each_row(
    "raw, reason",
    [
        (b"\xff\xfe{}", "UTF-8"),
        (b"[1]", "expected an object"),
        (b'{"openapi": "3.1.0", "paths":' + b'{"a":' * 300 + b"1" + b"}" * 301, "levels"),
        (b'{"openapi": "3.1.0", "paths"', "neither as JSON nor as YAML"),
    ],
)
def test_text_that_is_no_document_is_refused_with_the_reason(raw: bytes, reason: str):
    with pytest.raises(SpecError, match=reason):
        parse_spec(raw, "shop.json")


def test_too_many_bytes_are_refused(tmp_path: Path):
    file = tmp_path / "large.json"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    for source in (file, json.dumps(DOCUMENT)):
        with pytest.raises(SpecError, match="larger than 20 bytes"):
            loaded(source, max_bytes=20)


def test_a_missing_file_names_its_whole_path_and_what_may_be_given():
    path = re.escape(str(Path.cwd() / "nothing.yaml"))
    with pytest.raises(SpecError, match=rf"^{path} cannot be read: No such file.*URL"):
        loaded("nothing.yaml")


def fetched(handler: Any, url: str = "https://api.example.com/openapi.json?key=s3cr3t-key") -> Any:
    async def run() -> Any:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler), headers={"x-key": "k"}) as client:
            return (await load_spec(url, client=client)).document

    return asyncio.run(run())


def test_a_document_is_fetched_along_redirects_within_the_origin():
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        if request.url.path == "/openapi.json":
            return httpx.Response(302, headers={"location": "/v2/spec"})
        return httpx.Response(200, json=DOCUMENT)

    assert fetched(handler) == DOCUMENT
    assert seen[1] == "https://api.example.com/v2/spec"


def test_a_document_is_not_fetched_from_another_origin():
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return httpx.Response(302, headers={"location": "https://evil.example/spec?token=abc"})

    with pytest.raises(SpecError, match=r"redirects to https://evil\.example, where credentials may not go") as caught:
        fetched(handler)
    assert seen == ["api.example.com"]
    assert "s3cr3t" not in str(caught.value)


def test_an_error_of_the_server_is_told_without_the_query():
    with pytest.raises(SpecError, match=r"https://api\.example\.com/openapi\.json could not be loaded: .* 500"):
        fetched(lambda _request: httpx.Response(500))


def test_servers_are_listed_with_the_defaults_of_their_variables():
    server = {
        "url": "https://{region}.example.com/{v}",
        "variables": {"region": {"default": "eu"}, "v": {"default": "v1"}},
    }
    spec = asyncio.run(load_spec({**DOCUMENT, "servers": [server, 7, {"url": "/here"}]}))
    assert spec.servers == ("https://eu.example.com/v1", "/here")
    loaded_from = parse_spec(
        json.dumps({**DOCUMENT, "servers": [{"url": "/v2"}]}).encode(), "https://a.example/x/openapi.json"
    )
    assert loaded_from.servers == ("https://a.example/v2",)
