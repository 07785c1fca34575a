"""What calls give: results, errors, retries, redirects; and what never reaches a program."""

from __future__ import annotations

import gzip
import json
import time
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from openapi_world import TOKEN, World, client_of, operation, spec_of, tools_of
from suite import each_row

from codemode import CodeModeError, CodeModeToolError, create_code_mode_tool
from codemode.errors import CodeModeHttpError
from codemode.openapi import calls, openapi_tools

GET = spec_of({"/a": {"get": operation("get", [("page", "query", {"type": "integer"})])}})
POST = spec_of({"/a": {"post": operation("post")}})


@each_row(
    "headers, content, value",
    [
        ({"content-type": "application/json"}, b'{"a": [1, null]}', {"a": [1, None]}),
        ({"content-type": "application/vnd.api+json; charset=utf-8"}, b"[]", []),
        ({}, b'{"a": 1}', {"a": 1}),
        ({"content-type": "application/json"}, b"<html>", "<html>"),
        ({"content-type": "text/plain; charset=latin-1"}, b"\xfc", "ü"),
        ({"content-type": "text/plain; charset=nonsense"}, b"x", "x"),
        ({"content-type": "application/json"}, b"", None),
    ],
)
def test_results_are_read_by_their_media_type(headers: Any, content: bytes, value: Any):
    assert World(GET, httpx.Response(200, headers=headers, content=content)).call("get") == value


def test_a_binary_result_is_content_where_programs_have_it_and_base64_elsewhere():
    headers = {"content-type": "image/png", "content-disposition": 'attachment; filename="../../a.png"'}
    response = httpx.Response(200, headers=headers, content=b"\x89PNG")
    found = World(GET, response).call("get")
    assert (found["mimeType"], found["name"], found["base64"]) == ("image/png", "a.png", "iVBORw==")


def test_the_links_of_a_list_are_inputs_of_the_next_call():
    document = spec_of({"/a": {"get": operation("get", [("page", "query", {"type": "integer"}), ("q", "query")])}})
    success = document["paths"]["/a"]["get"]["responses"]["200"]
    success["headers"] = {"link": {}}
    success["content"]["application/json"]["schema"] = {"type": "array"}
    link = '<https://api.example.com/v1/a?page=2&odd=1>; rel="next", <https://evil.example/x?page=9>; rel=last, <bad'
    found = World(document, httpx.Response(200, json=[1], headers={"link": link})).call("get", {"q": "x"})
    assert found["items"] == [1]
    assert found["links"]["next"]["input"] == {"q": "x", "page": 2}
    assert found["links"]["last"] == {"url": "https://evil.example/x?page=9"}


@each_row(
    "body, message",
    [
        ({"message": "Not Found"}, "GET /a failed: 404 Not Found: Not Found"),
        ({"error": {"message": "no"}}, "GET /a failed: 404 Not Found: no"),
        ({"errors": [{"message": "bad"}]}, "GET /a failed: 404 Not Found: bad"),
        ({"detail": "gone"}, "GET /a failed: 404 Not Found: gone"),
        ({"x": 1}, 'GET /a failed: 404 Not Found: {"x":1}'),
        ({}, "GET /a failed: 404 Not Found"),
    ],
)
def test_an_error_has_status_body_and_what_the_api_says(body: Any, message: str):
    with pytest.raises(CodeModeHttpError) as caught:
        World(GET, httpx.Response(404, json=body)).call("get")
    assert caught.value.message == message
    assert caught.value.details == {"status": 404, "body": body}


def test_a_large_error_body_is_shortened():
    body = {"message": "m" * 9_000, "rows": [*range(5_000)], "code": 7}
    with pytest.raises(CodeModeHttpError) as caught:
        World(GET, httpx.Response(400, json=body)).call("get")
    assert caught.value.details["body"]["code"] == 7
    assert len(json.dumps(caught.value.details)) < 5_000


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(calls.asyncio, "sleep", sleep)
    return found


@each_row("status", [429, 503])
def test_an_idempotent_call_waits_as_the_api_says_and_tries_again(waits: list[float], status: int):
    waits.clear()
    world = World(GET, httpx.Response(status, headers={"retry-after": "2"}), httpx.Response(200, json=1))
    assert world.call("get") == 1
    assert (waits, len(world.requests)) == ([2.0], 2)


def test_a_call_that_is_not_idempotent_is_never_repeated(waits: list[float]):
    world = World(POST, httpx.Response(429, headers={"retry-after": "1"}))
    with pytest.raises(CodeModeHttpError) as caught:
        world.call("post")
    assert (caught.value.details["retryAfterMs"], len(world.requests), waits) == (1_000, 1, [])


@each_row("headers", [{"retry-after": "60"}, {}, {"retry-after": "soon"}])
def test_an_api_that_wants_too_long_or_says_nothing_is_not_waited_for(waits: list[float], headers: Any):
    world = World(GET, httpx.Response(503, headers=headers))
    with pytest.raises(CodeModeHttpError):
        world.call("get")
    assert (len(world.requests), waits) == (1, [])


def test_waiting_ends_after_some_attempts(waits: list[float]):
    world = World(GET, httpx.Response(429, headers={"retry-after": "0"}))
    with pytest.raises(CodeModeHttpError):
        world.call("get")
    assert len(world.requests) == 4


def test_a_date_of_retry_after_is_read():
    response = httpx.Response(503, headers={"retry-after": formatdate(time.time() + 3_600, usegmt=True)})
    with pytest.raises(CodeModeHttpError) as caught:
        World(GET, response).call("get")
    assert 3_500_000 < caught.value.details["retryAfterMs"] <= 3_600_000


@each_row("status, method", [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_redirects_within_the_origin_are_followed(status: int, method: str):
    world = World(POST, httpx.Response(status, headers={"location": "/v1/b"}), httpx.Response(200, json=1))
    assert world.call("post") == 1
    assert [(one.method, one.url.path) for one in world.requests] == [("POST", "/v1/a"), (method, "/v1/b")]


@each_row(
    "location",
    [
        "https://evil.example/x?t=secret",
        "http://api.example.com/v1/b",
        "//evil.example",
        "https://api.example.com:444/",
    ],
)
def test_a_redirect_to_another_origin_is_not_followed(location: str):
    world = World(GET, httpx.Response(302, headers={"location": location}))
    with pytest.raises(CodeModeToolError, match=r"redirects to .* where credentials may not go") as caught:
        world.call("get")
    assert len(world.requests) == 1
    assert "secret" not in str(caught.value)


def test_redirects_in_a_circle_end():
    world = World(GET, httpx.Response(302, headers={"location": "/v1/a"}))
    with pytest.raises(CodeModeToolError, match="redirects more than 5 times"):
        world.call("get")


class _Bytes(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> Any:
        for start in range(0, len(self._data), 1 << 14):
            yield self._data[start : start + (1 << 14)]


@each_row("data, headers", [(b"x" * 5_000, {}), (gzip.compress(b"x" * 50_000_000), {"content-encoding": "gzip"})])
def test_a_huge_answer_is_cut_off(data: bytes, headers: Any):
    def handler(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=headers, stream=_Bytes(data))

    tools = tools_of(GET, handler, max_response_bytes=4_000)
    with pytest.raises(CodeModeError, match="larger than 4000 bytes"):
        create_code_mode_tool(tools).execute_sync({"js": "return await tools.get()"})


@each_row(
    "raised, message",
    [
        (httpx.ConnectError, "no connection; nothing was sent"),
        (httpx.ReadTimeout, "POST /a got no answer (ReadTimeout); it may have happened all the same"),
    ],
)
def test_a_call_without_an_answer_says_whether_it_may_have_happened(raised: Any, message: str):
    def handler(_request: httpx.Request) -> httpx.Response:
        raise raised(f"https://user:{TOKEN}@api.example.com")

    with pytest.raises(CodeModeToolError) as caught:
        create_code_mode_tool(tools_of(POST, handler)).execute_sync({"js": "return await tools.post()"})
    assert message in caught.value.message
    assert TOKEN not in f"{caught.value}{caught.value.details}{caught.value.__cause__}"


def test_an_api_that_echoes_credentials_does_not_give_them_to_programs():
    def handler(request: httpx.Request) -> httpx.Response:
        echoed = {"seen": dict(request.headers), "token": TOKEN, "url": str(request.url)}
        return httpx.Response(200 if request.url.query else 400, json=echoed, headers={"link": TOKEN})

    code_mode = create_code_mode_tool(tools_of(GET, handler))
    js = "const e = await tools.get().catch((e) => e); return [await tools.get({ page: 1 }), e.message, e];"
    value = code_mode.execute_sync({"js": js})
    assert TOKEN not in json.dumps(value)
    assert value[0]["token"] == "[secret]"


def test_parameters_of_the_client_are_added_to_the_query_and_hidden_from_results():
    client = {"params": {"api_key": "p-0123456789"}}
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json={"url": str(request.url), "next_token": "page-token-2"})

    document = spec_of({"/a": {"get": operation("get", [("q", "query"), ("token", "query"), ("api_key", "query")])}})
    tools = openapi_tools(document, client=client_of(handler, **client))
    code_mode = create_code_mode_tool(tools)
    assert "api_key" not in code_mode.description
    value = code_mode.execute_sync({"js": "return await tools.get({ q: 'a,b c', token: 'page-token-2' })"})
    assert seen == ["https://api.example.com/v1/a?q=a%2Cb%20c&token=page-token-2&api_key=p-0123456789"]
    assert "p-0123456789" not in value["url"]
    assert value["next_token"] == "page-token-2"  # what the program itself has sent is no secret of the client's


def test_a_header_that_the_client_sets_is_no_input():
    document = spec_of({"/a": {"get": operation("get", [("X-Api-Key", "header"), ("X-Mine", "header")])}})
    tools = openapi_tools(document, client=client_of(lambda _r: httpx.Response(200), headers={"X-Api-Key": "k" * 20}))
    assert list(tools[0].metadata["openapi"].input_schema()["properties"]) == ["X-Mine"]


def test_a_head_request_tells_by_its_end_whether_there_is_something():
    document = spec_of({"/a": {"head": {"operationId": "look", "responses": {"200": {}}}}})
    assert World(document, httpx.Response(200, headers={"content-length": "7"})).call("look") is None
    with pytest.raises(CodeModeHttpError, match="HEAD /a failed: 404"):
        World(document, httpx.Response(404)).call("look")


def test_an_answer_that_is_neither_a_result_nor_an_error_is_told_with_its_status():
    with pytest.raises(CodeModeHttpError, match="GET /a failed: 304 Not Modified") as caught:
        World(GET, httpx.Response(304)).call("get")
    assert caught.value.details == {"status": 304}
