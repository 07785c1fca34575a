"""Send requests of operations with the user's client, and read what the API answers."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from ..data.content import Content
from ..data.json_values import decode_json, encode_json
from ..data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty
from ..errors import CALL_TIMEOUT, CodeModeError, CodeModeFetchError, CodeModeHttpError, CodeModeToolError
from ..fetch.client import decoded_body
from ..host.threads import run_check
from ..trace.visible_text import clipped, one_line
from .operations import Operation, body_kind
from .requests import PlainRequest, write_request
from .spec import MAX_REDIRECTS, REDIRECTS, origin_of

if TYPE_CHECKING:
    import httpx

_RETRIED = frozenset({429, 503})
_MAX_ATTEMPTS = 4
_MAX_ERROR_CHARACTERS = 4_000
_MAX_ERROR_VALUES = 1_000
_MAX_MESSAGE = 500
_MAX_LINKS = 10
_SECRET_NAME = re.compile(r"auth|token|key|secret|cookie|password|session|signature|credential", re.IGNORECASE)
_LEAST_SECRET = 8
_REMOVED = "[secret]"
_LINK = re.compile(r"<([^<>]{1,4000})>\s*((?:;[^,<]{0,200}){1,10})")
_RELATION = re.compile(r";\s*rel\s*=\s*\"?(next|prev|previous|first|last)\"?", re.IGNORECASE)
_FILE_NAME = re.compile(r"filename\s*=\s*\"?([^\";]{1,200})", re.IGNORECASE)


class Caller:
    """Sends requests to one origin. What the client adds to them (credentials) is removed from whatever comes back."""

    def __init__(self, client: httpx.AsyncClient, base_url: str, max_response_bytes: int, max_wait_ms: int) -> None:
        self._client = client
        self._base = base_url.rstrip("/")
        self._origin = origin_of(client.build_request("GET", base_url).url)
        self._max_bytes = max_response_bytes
        self._max_wait_ms = max_wait_ms

    async def call(self, operation: Operation, value: Mapping[str, Any]) -> Any:
        """Return the result of an operation.

        Raises `CodeModeHttpError` for an error of the API, `CodeModeToolError` where there was no answer.
        """
        plain = await run_check(len(value), partial(write_request, operation, value))
        response, body = await self._answered(operation, plain)
        read = partial(self._result, operation, value, response, body)
        return await run_check(len(body), read)

    async def _answered(self, operation: Operation, plain: PlainRequest) -> tuple[httpx.Response, bytes]:
        waited_ms = 0
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response, body = await self._exchange(operation, plain)
            if response.status_code < 400:
                return response, body
            retry_ms = _retry_after_ms(response)
            may_repeat = operation.is_idempotent and response.status_code in _RETRIED and attempt < _MAX_ATTEMPTS
            if not may_repeat or retry_ms is None or waited_ms + retry_ms > self._max_wait_ms:
                raise await run_check(len(body), partial(self._error, operation, response, body, retry_ms))
            waited_ms += retry_ms
            await asyncio.sleep(retry_ms / 1000)
        raise AssertionError

    async def _exchange(self, operation: Operation, plain: PlainRequest) -> tuple[httpx.Response, bytes]:
        """Send a request and follow its redirects within the origin."""
        import httpx

        try:
            request = self._request(plain, self._base + plain.target)
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._client.send(request, stream=True, follow_redirects=False)
                try:
                    location = response.headers.get("location")
                    if response.status_code not in REDIRECTS or location is None:
                        return response, await self._body(operation, response)
                    url = response.url.join(location)
                finally:
                    await response.aclose()
                if origin_of(url) != self._origin:
                    where = one_line(origin_of(url), 200)
                    raise self._failed(operation, f"the API redirects to {where}, where credentials may not go")
                plain = _redirected(plain, response.status_code)
                request = self._request(plain, str(url))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            raise self._failed(operation, "no connection to the API; nothing was sent") from None
        except httpx.HTTPError as error:
            raise _unanswered(operation, error) from None
        except (httpx.InvalidURL, ValueError, UnicodeError) as error:
            raise self._failed(operation, f"this is no request that can be sent ({type(error).__name__})") from None
        raise self._failed(operation, f"the API redirects more than {MAX_REDIRECTS} times")

    def _request(self, plain: PlainRequest, url: str) -> httpx.Request:
        headers = {"accept": "application/json, text/*;q=0.8, */*;q=0.5", "accept-encoding": "gzip", **plain.headers}
        own = self._client.headers.get("accept")
        if own not in (None, "*/*"):
            headers["accept"] = own
        body: dict[str, Any] = {"files": plain.files} if plain.files else {"content": plain.content}
        request = self._client.build_request(plain.method, url, headers=headers, **body)
        if plain.cookies:
            kept = request.headers.get("cookie")
            request.headers["cookie"] = "; ".join([*([kept] if kept else []), *plain.cookies])
        return request

    async def _body(self, operation: Operation, response: httpx.Response) -> bytes:
        if operation.method == "HEAD" or response.status_code in (204, 205, 304):
            return b""
        body = bytearray()
        try:
            async for piece in decoded_body(response):
                if len(body) + len(piece) > self._max_bytes:
                    why = f"the answer is larger than {self._max_bytes} bytes; ask for less at once"
                    raise self._failed(operation, why)
                body += piece
        except (CodeModeFetchError, EOFError, zlib.error):
            raise self._failed(operation, "the answer is compressed in a way that cannot be read") from None
        return bytes(body)

    # --- what comes back ---

    def _secrets(self, response: httpx.Response) -> tuple[str, ...]:
        """Return what the request carried that no program may read."""
        request, found = response.request, set[str]()
        for name, value in request.headers.items():
            if _SECRET_NAME.search(name):
                found |= {value, *value.split(" "), *re.split(r"[;=]\s*", value)}
        found |= {
            value
            for name, value in parse_qsl(request.url.query.decode("ascii", "replace"))
            if _SECRET_NAME.search(name)
        }
        found |= {one for one in (request.url.password, request.url.username) if one}
        return tuple(sorted((one for one in found if len(one) >= _LEAST_SECRET), key=len, reverse=True))

    def _without_secrets(self, response: httpx.Response, text: str) -> str:
        for secret in self._secrets(response):
            for written in dict.fromkeys((secret, secret.replace("/", "\\/"))):
                text = text.replace(written, _REMOVED)
        return text

    def _result(self, operation: Operation, value: Mapping[str, Any], response: httpx.Response, body: bytes) -> Any:
        if operation.method == "HEAD":
            kept = ("content-length", "content-type", "etag", "last-modified", "allow")
            headers = {name: response.headers[name] for name in kept if name in response.headers}
            return {"status": response.status_code, "headers": headers}
        result = self._parsed(response, body)
        if operation.has_links and is_array(result):
            return {"items": result, "links": self._links(operation, value, response)}
        return result

    def _parsed(self, response: httpx.Response, body: bytes) -> Any:
        if not body:
            return None
        media_type = response.headers.get("content-type", "")
        kind = body_kind(media_type or "*/*")
        if kind in ("binary", "multipart") and not _is_text(body, media_type):
            return _content(response, media_type, body)
        try:
            text = body.decode(response.charset_encoding or "utf-8", "replace")
        except (LookupError, ValueError):  # a charset that nobody knows
            text = body.decode("utf-8", "replace")
        text = self._without_secrets(response, text)
        if kind != "json":
            return text
        try:
            return decode_json(text)
        except ValueError:
            return text

    def _links(self, operation: Operation, value: Mapping[str, Any], response: httpx.Response) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for url, parameters in _LINK.findall(response.headers.get("link", "")[:20_000])[:_MAX_LINKS]:
            relation = _RELATION.search(parameters)
            if relation is not None:
                name = relation[1].lower().replace("previous", "prev")
                found.setdefault(name, self._link(operation, value, response, url))
        return found

    def _link(
        self, operation: Operation, value: Mapping[str, Any], response: httpx.Response, url: str
    ) -> dict[str, Any]:
        target = response.url.join(url)
        link: dict[str, Any] = {"url": self._without_secrets(response, str(target))}
        if origin_of(target) == self._origin and target.path == response.request.url.path:
            said = dict(parse_qsl(target.query.decode("ascii", "replace")))
            known = [one for one in operation.form.parameters if one.location == "query" and one.name in said]
            link["input"] = {**value, **{one.key: _typed(operation, one.schema, said[one.name]) for one in known}}
        return link

    def _error(
        self, operation: Operation, response: httpx.Response, body: bytes, retry_ms: int | None
    ) -> CodeModeHttpError:
        parsed = self._parsed(response, body)
        said = _message_in(parsed)
        status = f"{response.status_code} {one_line(response.reason_phrase, 60)}".strip()
        details: dict[str, Any] = {"status": response.status_code}
        if isinstance(parsed, Content):
            parsed = parsed.described
        if parsed is not None:
            details["body"] = _shortened(parsed)
        if retry_ms is not None:
            details["retryAfterMs"] = retry_ms
        message = f"{operation.method} {operation.path} failed: {status}{': ' if said else ''}{said}"
        return CodeModeHttpError(message, details=details)

    def _failed(self, operation: Operation, why: str) -> CodeModeToolError:
        return CodeModeToolError(f"{operation.method} {operation.path} failed: {why}")


def _unanswered(operation: Operation, error: Exception) -> CodeModeError:
    what = f"{operation.method} {operation.path} got no answer ({type(error).__name__})"
    if operation.is_read_only:
        return CodeModeToolError(what)
    return CodeModeToolError(f"{what}; it may have happened all the same: look before you repeat it", code=CALL_TIMEOUT)


def _redirected(plain: PlainRequest, status: int) -> PlainRequest:
    """Return the request that follows a redirect, as browsers make it."""
    becomes_get = (status == 303 and plain.method != "HEAD") or (status in (301, 302) and plain.method == "POST")
    if not becomes_get:
        return plain
    headers = {name: value for name, value in plain.headers.items() if name != "content-type"}
    return plain._replace(method="GET", content=None, files=None, headers=headers)


def _retry_after_ms(response: httpx.Response) -> int | None:
    said = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", said):
        return int(float(said) * 1000)
    try:
        seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0, min(int(seconds * 1000), 1 << 40))


def _is_text(body: bytes, media_type: str) -> bool:
    """Tell whether a body of no known type is text: one that names a type of its own is taken at its word."""
    if media_type and not media_type.lower().startswith("application/octet-stream"):
        return False
    return not media_type and b"\0" not in body


def _content(response: httpx.Response, media_type: str, body: bytes) -> Content:
    name = _FILE_NAME.search(response.headers.get("content-disposition", ""))
    shown = one_line(unquote(name[1]).replace("\\", "/").rsplit("/", 1)[-1], 200) if name else None
    try:
        content = Content(body, media_type.partition(";")[0].strip() or "application/octet-stream", name=shown)
    except ValueError:
        content = Content(body, "application/octet-stream", name=shown)
    return content


def _typed(operation: Operation, schema: Any, text: str) -> Any:
    """Return the value of a query as the type of its parameter."""
    kind = operation.spec.follow(schema).get("type")
    if kind == "integer" and re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    if kind == "number" and re.fullmatch(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?", text):
        return float(text)
    return text == "true" if kind == "boolean" and text in ("true", "false") else text


def _message_in(parsed: Any) -> str:
    """Return what an API says of its error, wherever it usually says it."""
    if isinstance(parsed, str):
        return one_line(parsed, _MAX_MESSAGE)
    for one in (parsed, *list_or_empty(parsed)[:1]):
        found = mapping_or_empty(one)
        for key in ("message", "detail", "error_description", "title", "error", "errors", "reason"):
            said = found.get(key)
            if isinstance(said, str) and said.strip():
                return one_line(said, _MAX_MESSAGE)
            inner = mapping_or_empty(said if is_mapping(said) else next(iter(list_or_empty(said)), None)).get("message")
            if isinstance(inner, str) and inner.strip():
                return one_line(inner, _MAX_MESSAGE)
    return ""


def _shortened(parsed: Any) -> Any:
    """Return the body of an error: whole where it is small, else the small members, or the beginning of its text."""
    if isinstance(parsed, str):
        return clipped(parsed, _MAX_ERROR_CHARACTERS)
    if _is_small(parsed):
        return parsed
    if is_mapping(parsed):
        kept: dict[str, Any] = {}
        for key, one in list(parsed.items())[:50]:
            short = clipped(one, 500) if isinstance(one, str) else one
            if _is_small({**kept, key: short}):
                kept[key] = short
        return kept
    kept_items: Iterable[Any] = list_or_empty(parsed)[:5]
    return [one for one in kept_items if _is_small([one] * 5)]


def _is_small(value: Any) -> bool:
    try:
        encode_json(value, max_bytes=_MAX_ERROR_CHARACTERS, max_values=_MAX_ERROR_VALUES, what="an error")
    except CodeModeError:
        return False
    return True
