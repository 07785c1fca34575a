"""Perform a guest's fetch: validate it, send it under the policy and encode the response."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import re
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast

from ..data.json_values import decode_json, encode_json
from ..errors import HOST_FETCH_ERROR, CodeModeFetchError, CodeModeProtocolError
from ..host.cancellation import is_cancelled_from_outside
from ..host.threads import run_in_thread_if_large_or_slow
from ..options.parts import CodeModeOptions, FetchPolicy
from .client import LOOPBACK_ADDRESSES, Resolver, fetch_from_addresses, is_public_address, resolve_host
from .urls import Url, UrlError, UrlRules, parse_url, resolve_redirect_url

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
    """A validated request. ``method`` is upper-case, header names are lower-case."""

    url: Url
    method: str
    headers: Mapping[str, str]
    body: bytes | None = None

    @property
    def is_unsafe_to_repeat(self) -> bool:
        """True for a request that must not be sent twice."""
        return self.method not in ("GET", "HEAD", "OPTIONS")

    def build_redirected_request(self, status: int, location: str) -> FetchRequest:
        """Return the request of a redirect. Raises `CodeModeFetchError`."""
        try:
            url = resolve_redirect_url(self.url, location)
        except UrlError as error:
            raise CodeModeFetchError(f"fetch was redirected to a URL that {error}") from None
        becomes_get = (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST")
        dropped = _BODY_HEADERS if becomes_get else frozenset[str]()
        if url.origin != self.url.origin:
            dropped |= _CREDENTIAL_HEADERS
        headers = {name: value for name, value in self.headers.items() if name not in dropped}
        return FetchRequest(url, "GET", headers) if becomes_get else FetchRequest(url, self.method, headers, self.body)


def parse_fetch_request(input_json: str) -> FetchRequest:
    """Parse the guest runtime's JSON ``{url, method, headers, body?, base64?}``.

    Raises `CodeModeFetchError` for a request that is not allowed, `CodeModeProtocolError` for malformed JSON.
    """
    fields = _parse_request_fields(input_json)
    headers = _parse_request_headers(fields["headers"])
    method = fields["method"].upper()
    if not _TOKEN.fullmatch(method) or method in _REFUSED_METHODS:
        raise CodeModeFetchError(f"fetch cannot use the method {method[:40]!r}")
    try:
        url = parse_url(fields["url"])
    except UrlError as error:
        raise CodeModeFetchError(f"fetch: the URL {error}") from None
    body = None if method in ("GET", "HEAD") else _decode_body(fields)
    if body is not None and fields.get("body") is not None:
        headers.setdefault("content-type", "text/plain;charset=UTF-8")
    return FetchRequest(url, method, headers, body)


def _parse_request_fields(input_json: str) -> dict[str, Any]:
    try:
        value = decode_json(input_json, max_depth=8)
    except ValueError as error:
        raise CodeModeProtocolError(f"the worker sent a fetch that is not JSON: {error}") from None
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    texts = ("url", "method", *(name for name in ("body", "base64") if name in fields))
    if not all(isinstance(fields.get(name), str) for name in texts) or not isinstance(fields.get("headers"), list):
        raise CodeModeProtocolError("the worker sent a fetch of the wrong shape")
    return fields


def _parse_request_headers(pairs: list[Any]) -> dict[str, str]:
    headers = HeaderCollector("a fetch")
    for pair in pairs:
        match pair:
            case [str(name), str(value)]:
                name, value = name.lower(), value.strip(" \t\r\n")
                headers.add(name, value)
                _check_request_header(name, value)
            case _:
                raise CodeModeProtocolError("the worker sent a fetch with a header that is not a pair")
    return headers.join_repeated()


class HeaderCollector:
    """A limited number of headers in order. Repeated ones are joined at the end.

    ``add`` raises `CodeModeFetchError` beyond the limit.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._values: dict[str, list[str]] = {}
        self._count = self._characters = 0

    def add(self, name: str, value: str) -> None:
        """Add a header; ``name`` is lower-case."""
        self._count += 1
        self._characters += len(name) + len(value)
        if self._count > MAX_HEADERS:
            raise CodeModeFetchError(f"fetch: {self._what} may have {MAX_HEADERS} headers at the most")
        if self._characters > MAX_HEADER_CHARACTERS:
            raise CodeModeFetchError(f"fetch: the headers of {self._what} may have {MAX_HEADER_CHARACTERS} characters")
        self._values.setdefault(name, []).append(value)

    def join_repeated(self) -> dict[str, str]:
        """Return one value for each name."""
        return {name: ", ".join(values) for name, values in self._values.items()}


def _check_request_header(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise CodeModeFetchError(f"fetch: the header {name[:40]!r} has characters that no header may have")
    if name in _REFUSED_HEADERS or name.startswith(_REFUSED_HEADER_PREFIXES):
        raise CodeModeFetchError(f"fetch: the header {name[:40]!r} cannot be set by a program")


def _decode_body(fields: Mapping[str, Any]) -> bytes | None:
    if "body" in fields:
        return fields["body"].encode("utf-8")
    if "base64" not in fields:
        return None
    try:
        return base64.b64decode(fields["base64"], validate=True)
    except ValueError:
        raise CodeModeProtocolError("the worker sent a fetch with a broken body") from None


_CUSTOM_FETCH_RESOLVE_SECONDS = 2.0
_NO_BODY_STATUSES = frozenset({204, 205, 304})
# They carry the host's session; browsers hide them from programs too.
_HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2"})


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Performs the fetches of one invocation. ``resolve`` is called once per request for its host name.

    With a custom ``policy.fetch`` the addresses are checked before it is called, if this host can resolve the name, but
    it connects by itself: only the default client is pinned to the checked address.
    """

    policy: FetchPolicy
    rules: UrlRules
    max_result_bytes: int
    resolve: Resolver
    unresolved: set[str] = field(default_factory=set[str])

    @classmethod
    def from_options(cls, options: CodeModeOptions) -> Fetcher | None:
        """Create a fetcher for options; None without fetch.

        Raises `ValueError` for an invalid origin or prefix, or without an HTTP client.
        """
        policy = options.fetch_policy
        if policy is None:
            return None
        if policy.fetch is None and find_spec("httpx") is None:
            raise ValueError("fetch_policy needs httpx (pip install 'codemode-toolkit[fetch]') or its own fetch")
        rules = UrlRules.parse(policy.allowed_origins, policy.allowed_url_prefixes)
        return cls(policy, rules, options.execution_policy.max_result_bytes, resolve_host)

    async def fetch_encoded_response(self, request: FetchRequest) -> str:
        """Return the response as JSON for the guest runtime.

        Its members are status, statusText, url, redirected, headers, and text or base64. Raises `CodeModeFetchError`,
        with code ``CODE_MODE_HOST_FETCH_ERROR`` if the exchange failed; `CodeModeSerializationError` if the response is
        larger than a result may be; `CodeModeProtocolError`.
        """
        for redirects in range(self.policy.max_redirects + 1):
            async with self._open_response(request) as response:
                status, headers = _get_status_or_raise(response), _collect_visible_response_headers(response.headers)
                url = self._parse_and_check_final_url(response, request)
                location = headers.get("location") if status in REDIRECT_STATUSES else None
                is_final = location is None or not self.policy.allow_redirects
                body = await self._read_body(response, request, status, headers) if is_final else b""
                reason = str(getattr(response, "reason_phrase", "") or "")
            if is_final:
                redirected = redirects > 0 or url != request.url
                head = {"status": status, "statusText": reason, "url": str(url), "redirected": redirected}
                return await self._encode_response({**head, "headers": sorted(headers.items())}, body)
            request = request.build_redirected_request(status, location or "")
        raise CodeModeFetchError(f"fetch was redirected more than {self.policy.max_redirects} times")

    @contextlib.asynccontextmanager
    async def _open_response(self, request: FetchRequest) -> AsyncGenerator[Any]:
        """Send a request and give its response, which is closed at the end of the block."""
        with _sanitizing_errors(request):
            response = await self._check_and_send_request(request)
            try:
                yield response
            finally:
                await _close_quietly(response)

    async def _check_and_send_request(self, request: FetchRequest) -> Any:
        self._check_request(request)
        addresses = await self._resolve_and_check_addresses(request.url)
        arguments: dict[str, Any] = {"method": request.method, "headers": dict(request.headers), "body": request.body}
        if self.policy.fetch is None:
            return await fetch_from_addresses(request.url, **arguments, addresses=addresses)
        return await self.policy.fetch(str(request.url), **arguments)

    def _check_request(self, request: FetchRequest) -> None:
        if request.method not in self.policy.allowed_methods:
            allowed = ", ".join(self.policy.allowed_methods) or "none"
            raise CodeModeFetchError(f"fetch may not use {request.method[:40]}; allowed are: {allowed}")
        self._check_url(request.url)

    def _check_url(self, url: Url) -> None:
        if not self.rules.allows(url):
            raise CodeModeFetchError(f"fetch may not reach {url.origin}{url.path[:200]}")

    async def _resolve_and_check_addresses(self, url: Url) -> tuple[str, ...]:
        # A policy that allows an address or localhost names it: only resolved names need a check.
        if url.has_ip_host:
            return (url.host,)
        if url.is_localhost:
            return LOOPBACK_ADDRESSES
        if self.policy.fetch is not None:
            if self.policy.refuse_private_addresses:
                await self._check_host_if_resolvable(url)
            return ()
        addresses = tuple(await self.resolve(url.host, url.port))
        self._check_addresses(url, addresses)
        return addresses

    async def _check_host_if_resolvable(self, url: Url) -> None:
        """Check the addresses of a name, if this host can resolve it: behind a proxy only the proxy can."""
        if url.host in self.unresolved:
            return
        try:
            found = await asyncio.wait_for(self.resolve(url.host, url.port), _CUSTOM_FETCH_RESOLVE_SECONDS)
        except Exception:  # noqa: BLE001 - any failure means that it is unknown here
            self.unresolved.add(url.host)
        else:
            self._check_addresses(url, tuple(found))

    def _check_addresses(self, url: Url, addresses: tuple[str, ...]) -> None:
        if self.policy.refuse_private_addresses and not all(map(is_public_address, addresses)):
            raise CodeModeFetchError(
                f"fetch: {url.host} has an address that is not public (refuse_private_addresses)",
                details={"host": url.host, "addresses": list(addresses)},
            )

    def _parse_and_check_final_url(self, response: Any, request: FetchRequest) -> Url:
        try:
            url = parse_url(str(response.url))
        except UrlError as error:
            raise CodeModeFetchError(f"fetch: the response comes from a URL that {error}") from None
        if url != request.url:
            self._check_url(url)
        return url

    async def _read_body(self, response: Any, request: FetchRequest, status: int, headers: Mapping[str, str]) -> bytes:
        if request.method == "HEAD" or status in _NO_BODY_STATUSES:
            return b""
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and _is_number_above(declared, self.policy.max_response_bytes):
            raise self._create_too_large_error()
        body = bytearray()
        chunks = response.aiter_bytes()
        try:
            async for chunk in chunks:
                if len(body) + len(chunk) > self.policy.max_response_bytes:
                    raise self._create_too_large_error()
                body += chunk
        finally:
            await _close_quietly(chunks)
        return bytes(body)

    def _create_too_large_error(self) -> CodeModeFetchError:
        return CodeModeFetchError(
            f"fetch: the response is larger than max_response_bytes allows ({self.policy.max_response_bytes})"
        )

    async def _encode_response(self, head: Mapping[str, Any], body: bytes) -> str:
        def encode_head_and_body() -> str:
            answer = {**head, **_encode_body_fields(body)}
            return encode_json(answer, max_bytes=self.max_result_bytes, what="the response of fetch")

        return await run_in_thread_if_large_or_slow(len(body), encode_head_and_body)


def describe_fetch(policy: FetchPolicy | None) -> str | None:
    """Return the model's description of ``fetch``; None without it."""
    if policy is None:
        return None
    origins = f"origins {', '.join(policy.allowed_origins)}" if policy.allowed_origins else ""
    prefixes = f"URL prefixes {', '.join(policy.allowed_url_prefixes)}" if policy.allowed_url_prefixes else ""
    reach = " and ".join(filter(None, (origins, prefixes))) or "no origins or URL prefixes allowed"
    redirects = f"followed up to {policy.max_redirects} times" if policy.allow_redirects else "returned, not followed"
    return (
        "`fetch(url, { method, headers, body })` is the only network access; its response has ok, status, headers, "
        f"text(), json() and arrayBuffer(). It may reach: {reach}; "
        f"methods {', '.join(policy.allowed_methods) or 'none'}; "
        f"response bodies up to {policy.max_response_bytes} bytes; redirects are {redirects}."
    )


@contextlib.contextmanager
def _sanitizing_errors(request: FetchRequest) -> Generator[None]:
    """Turn errors of the client into errors without details for the guest. Refusals pass unchanged."""
    try:
        yield
    except CodeModeFetchError:
        raise
    except asyncio.CancelledError as error:
        if is_cancelled_from_outside(asyncio.current_task()):
            raise
        # Cancelled inside the client, not from outside.
        raise _make_fetch_failed_error(request) from error
    except (Exception, SystemExit) as error:
        raise _make_fetch_failed_error(request) from error


def _make_fetch_failed_error(request: FetchRequest) -> CodeModeFetchError:
    details = {"method": request.method, "url": str(request.url)}
    return CodeModeFetchError(f"fetch of {request.url.origin} failed", code=HOST_FETCH_ERROR, details=details)


def _get_status_or_raise(response: Any) -> int:
    status = response.status_code
    if type(status) is not int or not 100 <= status <= 599:
        raise TypeError("the response has no valid status_code")
    return status


def _collect_visible_response_headers(headers_like: Any) -> dict[str, str]:
    """Return response headers with lower-case names, repeated ones joined, without hidden ones."""
    items = (
        headers_like.multi_items()
        if hasattr(headers_like, "multi_items")
        else headers_like.items()
        if hasattr(headers_like, "items")
        else headers_like
    )
    headers = HeaderCollector("a response")
    for name, value in cast("Iterable[tuple[Any, Any]]", items):
        headers.add(_decode_header_text(name).lower(), _decode_header_text(value))
    return {name: value for name, value in headers.join_repeated().items() if name not in _HIDDEN_HEADERS}


def _decode_header_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _is_number_above(digits: str, limit: int) -> bool:
    # Without int(): the number of digits is the server's choice.
    plain = digits.lstrip("0")
    return (len(plain), plain) > (len(str(limit)), str(limit))


def _encode_body_fields(body: bytes) -> dict[str, str]:
    try:
        return {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}


async def _close_quietly(response: Any) -> None:
    close = getattr(response, "aclose", None)
    if close is None:
        return
    # The response is read or refused by now; a failing close changes neither.
    with contextlib.suppress(Exception):
        pending = close()
        if inspect.isawaitable(pending):
            await pending
