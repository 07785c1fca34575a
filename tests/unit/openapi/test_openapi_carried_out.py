"""Requests that the server accepted and whose result cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from openapi_world import operation, spec_of, tools_of
from suite import each_row

from codemode import CodeModeToolError, create_code_mode_tool

DOCUMENT = spec_of({"/a": {method: operation(method) for method in ("get", "post", "put")}})
JSON = {"content-type": "application/json"}


class _Bytes(httpx.AsyncByteStream):
    def __init__(self, data: bytes, error: Exception | None = None) -> None:
        self._data = data
        self._error = error

    async def __aiter__(self) -> Any:
        yield self._data
        if self._error is not None:
            raise self._error


def redirect_to(location: str, status: int = 303) -> httpx.Response:
    return httpx.Response(status, headers={"location": location})


def call_and_get_error(method: str, *answers: httpx.Response | Exception) -> CodeModeToolError:
    pending = [*answers]

    def handler(_request: httpx.Request) -> httpx.Response:
        answer = pending.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    code_mode = create_code_mode_tool(tools_of(DOCUMENT, handler, max_response_bytes=1_000))
    with pytest.raises(CodeModeToolError) as caught:
        asyncio.run(code_mode.execute(f"await tools.{method}({{}})"))
    return caught.value


def large(status: int) -> httpx.Response:
    return httpx.Response(status, headers=JSON, stream=_Bytes(b"[%s1]" % (b"1," * 2_000)))


def broken_gzip() -> httpx.Response:
    return httpx.Response(201, headers={**JSON, "content-encoding": "gzip"}, stream=_Bytes(b"no gzip"))


def cut_off() -> httpx.Response:
    return httpx.Response(201, headers=JSON, stream=_Bytes(b"[1,", httpx.ReadError("cut off")))


@each_row(
    "method, answers, status, reason",
    [
        ("post", lambda: [large(201)], 201, "the answer is larger than 1000 bytes"),
        ("put", lambda: [large(200)], 200, "the answer is larger than 1000 bytes"),
        ("post", lambda: [broken_gzip()], 201, "the answer is compressed in a way that cannot be read"),
        ("post", lambda: [cut_off()], 201, "ReadError"),
        ("post", lambda: [redirect_to("https://b.example/x")], 303, "it redirects to https://b.example, where"),
        ("post", lambda: [redirect_to("/v1/a") for _ in range(6)], 303, "it redirects more than 5 times"),
        ("post", lambda: [redirect_to("/v1/b"), httpx.Response(404)], 303, "the last answer has the status 404"),
        ("put", lambda: [redirect_to("/v1/b"), httpx.Response(503)], 303, "the last answer has the status 503"),
        ("post", lambda: [redirect_to("/v1/b"), large(500)], 303, "the answer is larger than 1000 bytes"),
        ("post", lambda: [redirect_to("/v1/b"), httpx.ConnectError("x")], 303, "no connection after a redirect"),
        ("post", lambda: [httpx.Response(303)], 303, "the last answer has the status 303"),
        ("post", lambda: [redirect_to("/v1/b", 307), large(201)], 201, "the answer is larger than 1000 bytes"),
    ],
)
def test_an_accepted_request_without_a_readable_result_was_carried_out(
    method: str, answers: Any, status: int, reason: str
):
    error = call_and_get_error(method, *answers())
    outcome = f"{method.upper()} /a was carried out (the server answered {status}): do not repeat it"
    assert f"{outcome}; its result cannot be read: {reason}" in error.message
    assert [call["status"] for call in error.calls] == ["unknown"]


@each_row("status", [301, 302])
def test_a_redirect_that_may_mean_something_else_leaves_the_outcome_open(status: int):
    error = call_and_get_error("post", redirect_to("/v1/b", status), httpx.Response(404))
    outcome = f"POST /a may have been carried out (the server answered {status}): look before you repeat it"
    assert outcome in error.message
    assert [call["status"] for call in error.calls] == ["unknown"]


@each_row(
    "method, answers, message",
    [
        ("get", lambda: [large(200)], "GET /a failed: the answer is larger than 1000 bytes"),
        ("get", lambda: [redirect_to("/v1/b"), httpx.Response(404)], "GET /a failed: 404 Not Found"),
        ("post", lambda: [large(400)], "POST /a failed: the answer is larger than 1000 bytes"),
        ("post", lambda: [redirect_to("https://b.example", 307)], "POST /a failed: it redirects to"),
        ("put", lambda: [redirect_to("https://b.example", 302)], "PUT /a failed: it redirects to"),
        ("post", lambda: [redirect_to("/v1/b", 308), httpx.Response(404)], "POST /a failed: 404 Not Found"),
    ],
)
def test_a_request_that_was_not_accepted_failed(method: str, answers: Any, message: str):
    error = call_and_get_error(method, *answers())
    assert message in error.message
    assert [call["status"] for call in error.calls] == ["rejected"]
