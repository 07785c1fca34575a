"""Read what an API answers: results, links, errors; without the client's credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from ..data.content import Content
from ..data.json_shape import weigh
from ..data.json_values import decode_json
from ..data.narrowing import is_array, list_or_empty, mapping_or_empty
from ..errors import CodeModeHttpError
from ..trace.visible_text import clipped, one_line
from .operations import Operation, body_kind
from .requests import PlainRequest, plain_text
from .spec import origin_of

if TYPE_CHECKING:
    import httpx

_MAX_ERROR_CHARACTERS = 4_000
_MAX_MEMBERS = 50
_MAX_MESSAGE = 500
_MAX_LINKS = 10
_MAX_LINK_CHARACTERS = 20_000
_LEAST_SECRET = 8
_REMOVED = "[secret]"
_SECRET_NAME = re.compile(r"auth|token|key|secret|cookie|password|session|signature|credential", re.IGNORECASE)
_LINK = re.compile(r"<([^<>]{1,4000})>\s*((?:;[^,<]{0,200}){1,10})")
_RELATION = re.compile(r";\s*rel\s*=\s*\"?(next|prev|previous|first|last)\"?", re.IGNORECASE)
_FILE_NAME = re.compile(r"filename\s*=\s*\"?([^\";]{1,200})", re.IGNORECASE)


class Answer(NamedTuple):
    """The answer to a call of an operation with an input."""

    operation: Operation
    value: Mapping[str, Any]
    sent: PlainRequest
    response: httpx.Response
    body: bytes

    def result(self) -> Any:
        """Return what a program gets."""
        result = self._parsed()
        if not self.operation.has_links or not is_array(result):
            return result
        links: dict[str, Any] = {}
        for url, parameters in _LINK.findall(self.response.headers.get("link", "")[:_MAX_LINK_CHARACTERS])[:_MAX_LINKS]:
            if relation := _RELATION.search(parameters):
                links.setdefault(relation[1].lower().replace("previous", "prev"), self._link(url))
        return {"items": result, "links": links}

    def error(self, retry_ms: int | None) -> CodeModeHttpError:
        """Return the error of an answer that is no result."""
        parsed, status = self._parsed(), self.response.status_code
        text = _message_in(parsed)
        details: dict[str, Any] = {"status": status}
        if parsed is not None:
            details["body"] = parsed.described if isinstance(parsed, Content) else _shortened(parsed)
        if retry_ms is not None:
            details["retryAfterMs"] = retry_ms
        what = f"{self.operation.method} {self.operation.path} failed: {status}"
        phrase = one_line(self._without_secrets(self.response.reason_phrase), 60)
        return CodeModeHttpError(f"{what} {phrase}".strip() + (f": {text}" if text else ""), details=details)

    def _parsed(self) -> Any:
        if not self.body:
            return None
        media_type = self.response.headers.get("content-type", "")
        kind = body_kind(media_type) if media_type else "binary" if b"\0" in self.body else "json"
        if kind in ("binary", "multipart"):
            return self._content(media_type)
        try:
            text = self.body.decode(self.response.charset_encoding or "utf-8", "replace")
        except (LookupError, ValueError):  # the charset is unknown
            text = self.body.decode("utf-8", "replace")
        text = self._without_secrets(text)
        try:
            return decode_json(text) if kind == "json" else text
        except ValueError:
            return text

    def _content(self, media_type: str) -> Content:
        name = _FILE_NAME.search(self.response.headers.get("content-disposition", ""))
        shown = one_line(unquote(name[1]).replace("\\", "/").rsplit("/", 1)[-1], 200) if name else None
        try:
            return Content(self.body, media_type.partition(";")[0].strip(), name=shown)
        except ValueError:
            return Content(self.body, "application/octet-stream", name=shown)

    def _link(self, url: str) -> dict[str, Any]:
        target, here = self.response.url.join(url), self.response.request.url
        link: dict[str, Any] = {"url": self._without_secrets(str(target))}
        if origin_of(target) == origin_of(here) and target.path == here.path:
            query = dict(parse_qsl(target.query.decode("ascii", "replace")))
            known = [one for one in self.operation.form.parameters if one.location == "query" and one.name in query]
            link["input"] = {**self.value, **{one.key: self._typed(one.schema, query[one.name]) for one in known}}
        return link

    def _typed(self, schema: Any, text: str) -> Any:
        """Return the value of a query as the type of its parameter."""
        try:
            kind = self.operation.spec.follow(schema).get("type")
            return decode_json(text) if kind in ("integer", "number", "boolean") else text
        except ValueError:
            return text

    def _without_secrets(self, text: str) -> str:
        """Return a text without what the client has added to the request: no program may read it."""
        request, own = self.response.request, {name.lower() for name in self.sent.headers}
        query = dict(parse_qsl(self.sent.target.partition("?")[2]))
        found = {request.url.password, request.url.username}
        for name, value in request.headers.items():
            if _SECRET_NAME.search(name) and name not in own:
                found |= {value, *value.split(" "), *re.split(r"[;=]\s*", value)}
        for name, value in parse_qsl(request.url.query.decode("ascii", "replace")):
            if _SECRET_NAME.search(name) and name not in query:
                found.add(value)
        for secret in sorted((one for one in found if len(one) >= _LEAST_SECRET), key=len, reverse=True):
            text = text.replace(secret, _REMOVED).replace(secret.replace("/", "\\/"), _REMOVED)
        return text


def _message_in(parsed: Any) -> str:
    """Return what an API says of its error, wherever it usually says it."""
    if isinstance(parsed, str):
        return one_line(parsed, _MAX_MESSAGE)
    first = next(iter(list_or_empty(parsed)), parsed)
    for key in ("message", "detail", "error_description", "title", "error", "errors", "reason"):
        said = mapping_or_empty(first).get(key)
        inner = next(iter(list_or_empty(said)), said)
        for text in (said, mapping_or_empty(inner).get("message")):
            if isinstance(text, str) and text.strip():
                return one_line(text, _MAX_MESSAGE)
    return ""


def _shortened(parsed: Any) -> Any:
    """Return the body of an error: whole where it is small, else its small members, or the beginning of its text."""
    if not isinstance(parsed, str) and _is_small(parsed):
        return parsed
    kept: dict[str, Any] = {}
    for key, member in islice(mapping_or_empty(parsed).items(), _MAX_MEMBERS):
        short = clipped(member, _MAX_MESSAGE) if isinstance(member, str) else member
        if _is_small({**kept, key: short}):
            kept[key] = short
    return kept or clipped(plain_text(parsed), _MAX_ERROR_CHARACTERS)


def _is_small(value: Any) -> bool:
    return weigh(value, _MAX_ERROR_CHARACTERS) < _MAX_ERROR_CHARACTERS
