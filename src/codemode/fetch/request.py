"""One guest fetch as a checked value: URL, method, headers, body. Pure; knows no policy and no client."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..data.json_values import decode_json
from ..errors import CodeModeFetchError, CodeModeProtocolError
from .urls import Url, UrlError, follow_location, parse_url

MAX_HEADERS = 256
MAX_HEADER_CHARACTERS = 65_536
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE", "TRACK"})
# They frame the message or belong to the connection.
_CONNECTION_HEADERS = (
    "accept-encoding connection content-length expect host http2-settings keep-alive te trailer transfer-encoding"
    " upgrade via"
)
# They make a server act on another method, path or host than the policy saw.
_REROUTING_HEADERS = "forwarded x-http-method x-http-method-override x-method-override x-original-url x-rewrite-url"
_REFUSED_HEADERS = frozenset(f"{_CONNECTION_HEADERS} {_REROUTING_HEADERS}".split())
_REFUSED_HEADER_PREFIXES = ("proxy-", "sec-", "x-forwarded-")
_BODY_HEADERS = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type"}
)
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What is asked for. ``method`` is upper-case, header names are lower-case."""

    url: Url
    method: str
    headers: Mapping[str, str]
    body: bytes | None = None

    @property
    def changes_something(self) -> bool:
        """True for a request that must not be made twice."""
        return self.method not in ("GET", "HEAD", "OPTIONS")

    def redirected(self, status: int, location: str) -> FetchRequest:
        """Return the request that a redirect asks for. Raises `CodeModeFetchError`."""
        try:
            url = follow_location(self.url, location)
        except UrlError as error:
            raise CodeModeFetchError(f"fetch was redirected to a URL that {error}") from None
        becomes_get = (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST")
        dropped = _BODY_HEADERS if becomes_get else frozenset[str]()
        if url.origin != self.url.origin:
            dropped |= _CREDENTIAL_HEADERS
        headers = {name: value for name, value in self.headers.items() if name not in dropped}
        return FetchRequest(url, "GET", headers) if becomes_get else FetchRequest(url, self.method, headers, self.body)


def read_request(input_json: str) -> FetchRequest:
    """Read the kernel's JSON ``{url, method, headers, body?, base64?}``.

    Raises `CodeModeFetchError` for what the guest may not ask for, `CodeModeProtocolError` for what no kernel writes.
    """
    fields = _fields(input_json)
    headers = _headers(fields["headers"])
    method = fields["method"].upper()
    if not _TOKEN.fullmatch(method) or method in _REFUSED_METHODS:
        raise CodeModeFetchError(f"fetch cannot use the method {method[:40]!r}")
    try:
        url = parse_url(fields["url"])
    except UrlError as error:
        raise CodeModeFetchError(f"fetch: the URL {error}") from None
    body = None if method in ("GET", "HEAD") else _body(fields)
    if body is not None and fields.get("body") is not None:
        headers.setdefault("content-type", "text/plain;charset=UTF-8")
    return FetchRequest(url, method, headers, body)


def _fields(input_json: str) -> dict[str, Any]:
    try:
        value = decode_json(input_json, max_depth=8)
    except ValueError as error:
        raise CodeModeProtocolError(f"the worker sent a fetch that is not JSON: {error}") from None
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    texts = ("url", "method", *(name for name in ("body", "base64") if name in fields))
    if not all(isinstance(fields.get(name), str) for name in texts) or not isinstance(fields.get("headers"), list):
        raise CodeModeProtocolError("the worker sent a fetch of the wrong shape")
    return fields


def _headers(pairs: list[Any]) -> dict[str, str]:
    headers = RepeatedHeaders("a fetch")
    for pair in pairs:
        match pair:
            case [str(name), str(value)]:
                name, value = name.lower(), value.strip(" \t\r\n")
                headers.add(name, value)
                _check_header(name, value)
            case _:
                raise CodeModeProtocolError("the worker sent a fetch with a header that is not a pair")
    return headers.joined()


class RepeatedHeaders:
    """Headers in the order in which they came, few enough. Repeated ones are joined once, when all have come.

    ``add`` raises `CodeModeFetchError` for one too many.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._values: dict[str, list[str]] = {}
        self._count = self._characters = 0

    def add(self, name: str, value: str) -> None:
        """Take one header; ``name`` is lower-case."""
        self._count += 1
        self._characters += len(name) + len(value)
        if self._count > MAX_HEADERS:
            raise CodeModeFetchError(f"fetch: {self._what} may have {MAX_HEADERS} headers at the most")
        if self._characters > MAX_HEADER_CHARACTERS:
            raise CodeModeFetchError(f"fetch: the headers of {self._what} may have {MAX_HEADER_CHARACTERS} characters")
        self._values.setdefault(name, []).append(value)

    def joined(self) -> dict[str, str]:
        """Return one value for each name."""
        return {name: ", ".join(values) for name, values in self._values.items()}


def _check_header(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise CodeModeFetchError(f"fetch: the header {name[:40]!r} has characters that no header may have")
    if name in _REFUSED_HEADERS or name.startswith(_REFUSED_HEADER_PREFIXES):
        raise CodeModeFetchError(f"fetch: the header {name[:40]!r} cannot be set by a program")


def _body(fields: Mapping[str, Any]) -> bytes | None:
    if "body" in fields:
        return fields["body"].encode("utf-8")
    if "base64" not in fields:
        return None
    try:
        return base64.b64decode(fields["base64"], validate=True)
    except ValueError:
        raise CodeModeProtocolError("the worker sent a fetch with a broken body") from None
