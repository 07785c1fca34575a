"""The cost of fetch headers and long URLs is bounded: headers are counted, capped and joined once."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import pytest

from codemode import run_code_mode_sync
from codemode.errors import CodeModeFetchError
from codemode.fetch.fetcher import MAX_HEADER_CHARACTERS, MAX_HEADERS, parse_fetch_request
from codemode.fetch.urls import MAX_URL_CHARACTERS, UrlError, parse_url, resolve_redirect_url

ORIGIN = "https://example.com"


class Response:
    """A response as a custom fetch may give it."""

    status_code = 200
    reason_phrase = "OK"
    url = ORIGIN + "/"

    def __init__(self, headers: Any, body: bytes = b"") -> None:
        self.headers = headers
        self._body = body

    async def aiter_bytes(self):
        yield self._body


def request(headers: list[list[str]], url: str = ORIGIN) -> str:
    return json.dumps({"url": url, "method": "GET", "headers": headers})


def fetching(js: str, headers: Any, body: bytes = b"") -> Any:
    async def fetch(_url: str, **_how: Any) -> Response:
        return Response(headers, body)

    policy = {"fetch": fetch, "allowed_origins": [ORIGIN], "refuse_private_addresses": False}
    return run_code_mode_sync(js, [], options={"fetch_policy": policy})


def test_event_loop_repeated_request_headers_are_capped_before_the_url_is_parsed():
    read = parse_fetch_request(request([["X-A", "1"], ["x-b", "2"], ["x-a", " 3 "]]))
    assert read.headers == {"x-a": "1, 3", "x-b": "2"}
    assert len(parse_fetch_request(request([["x-a", ""]] * MAX_HEADERS)).headers["x-a"]) == 2 * (MAX_HEADERS - 1)
    for count in (MAX_HEADERS + 1, 50_000):
        with pytest.raises(CodeModeFetchError, match="headers"):
            parse_fetch_request(request([["x-a", "1"]] * count, url="nothing that is a URL"))
    with pytest.raises(CodeModeFetchError, match="headers"):
        parse_fetch_request(request([["x-a", "1" * MAX_HEADER_CHARACTERS]], url="nothing that is a URL"))


def test_event_loop_too_many_headers_raise_in_the_program():
    js = """
        const headers = Array.from({ length: 40_000 }, () => ["x-a", "1"]);
        try { await fetch("https://example.com", { headers }) } catch (error) { return error.name }
    """
    assert fetching(js, []) == "CodeModeFetchError"


def test_event_loop_a_response_of_endless_headers_is_refused():
    seen = itertools.count()
    endless = (("x-a", str(next(seen))) for _ in iter(int, 1))
    js = "try { await fetch('https://example.com') } catch (error) { return error.message }"
    assert "headers" in fetching(js, endless)
    assert next(seen) == MAX_HEADERS + 1


def test_event_loop_repeated_response_headers_are_joined():
    js = (
        "const { headers } = await fetch('https://example.com'); return [headers.get('x-a'), headers.get('set-cookie')]"
    )
    assert fetching(js, [("X-A", "1"), (b"x-a", b"2"), ("Set-Cookie", "s")]) == ["1, 2", None]


def test_event_loop_a_large_response_is_written_in_a_thread(monkeypatch):
    from codemode.fetch import fetcher as fetch

    threads: list[str] = []
    encode = fetch.encode_json
    monkeypatch.setattr(
        fetch, "encode_json", lambda *a, **k: (threads.append(threading.current_thread().name), encode(*a, **k))[1]
    )
    js = "return (await (await fetch('https://example.com')).text()).length"
    assert fetching(js, [], b"x" * 200_000) == 200_000
    assert threads == ["codemode-check"]


@pytest.mark.parametrize("character", ["\u00e9", "%", " ", '"', "/..", "/."])
def test_event_loop_long_urls_are_encoded_in_one_pass(character):
    text = ORIGIN + "/" + character * ((MAX_URL_CHARACTERS - 100) // 6)
    url = parse_url(text)
    assert str(parse_url(str(url))) == str(url)
    assert parse_url(ORIGIN + "/a%b%2fc?d%e%2f=\u00e9").target == "/a%25b%2fc?d%25e%2f=%C3%A9"


def test_event_loop_long_hosts_and_locations_are_refused_at_once():
    with pytest.raises(UrlError, match="host"):
        parse_url("https://" + "\u00e9" * 10_000 + "/")
    with pytest.raises(UrlError, match="longer"):
        resolve_redirect_url(parse_url(ORIGIN), "/a" * 10_000_000)
