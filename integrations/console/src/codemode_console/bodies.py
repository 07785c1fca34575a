"""Bodies of requests: their bounds, and their fields as plain items."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from codemode.data.json_values import decode_json
from codemode.host.threads import run_check

from .errors import Problem
from .web import declared_length, drain

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_FIELDS = 2_000
MAX_LEVELS = 128

Items = list[tuple[str, str]]
"""The fields of a form in their order."""

_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


class BodyTooLarge(ValueError):  # noqa: N818 - a status has its words: 413
    """A body holds more than `MAX_BODY_BYTES` or `MAX_FIELDS`."""


class MalformedBody(ValueError):  # noqa: N818 - likewise: 400
    """A body is not what its content type says, or nests deeper than `MAX_LEVELS`."""


async def read_body(headers: Mapping[str, str], chunks: AsyncIterable[bytes]) -> bytes:
    """Return a body as it arrives (``request.stream()``), and stop at its bound. Raises `BodyTooLarge`."""
    declared = declared_length(headers)
    if declared is None:
        raise MalformedBody("the length of the body is no number")
    if declared > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
    return bytes(body)


def form_items(content_type: str, body: bytes) -> Items:
    """Return the fields of a form, urlencoded or multipart. Raises `MalformedBody` and `BodyTooLarge`.

    Text is UTF-8; a file is no field of any form here.
    """
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _FORM:
        return _urlencoded(body)
    if kind == _MULTIPART:
        return _multipart(content_type, body)
    raise MalformedBody("the body is no form")


def json_body(body: bytes) -> Any:
    """Return the value of a JSON body. Raises `MalformedBody` and `BodyTooLarge`."""
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    return json_value(_text(body))


def json_value(text: str) -> Any:
    """Return the value of a JSON text of at most `MAX_LEVELS` levels. Raises `MalformedBody`, worded for a person."""
    try:
        return decode_json(text.strip(" \t\r\n"), max_depth=MAX_LEVELS)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"is no JSON: {str(error)[:200]}") from None


def _urlencoded(body: bytes) -> Items:
    if not body:
        return []
    if body.count(b"&") >= MAX_FIELDS:
        raise _too_many()
    items: Items = []
    for field in body.split(b"&"):
        if field:
            name, _, value = field.replace(b"+", b" ").partition(b"=")
            items.append((_text(unquote_to_bytes(name)), _text(unquote_to_bytes(value))))
    return items


def _multipart(content_type: str, body: bytes) -> Items:
    from python_multipart.exceptions import MultipartParseError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= 200:
        raise MalformedBody("the form has no boundary")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks(), max_size=MAX_BODY_BYTES)
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise MalformedBody(f"the form cannot be read: {str(error)[:200]}") from None
    if not parts.has_ended:
        raise MalformedBody("the form ends too early")
    return parts.items


class _Parts:
    """Collects the fields of a multipart form."""

    def __init__(self) -> None:
        self.items: Items = []
        self.has_ended = False
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value, self._data = bytearray(), bytearray(), bytearray()

    def callbacks(self) -> Any:
        """Return what the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": _into(lambda: self._data),
            "on_part_end": self._end,
            "on_header_field": _into(lambda: self._field),
            "on_header_value": _into(lambda: self._value),
            "on_header_end": self._header,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        if len(self.items) == MAX_FIELDS:
            raise _too_many()
        self._headers, self._data = {}, bytearray()

    def _header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field, self._value = bytearray(), bytearray()

    def _end(self) -> None:
        from python_multipart.multipart import parse_options_header

        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if kind != b"form-data" or b"name" not in options or b"filename" in options:
            raise MalformedBody("a part of the form is no field")
        # As browsers write what would end the name.
        name = _text(options[b"name"]).replace("%0D", "\r").replace("%0A", "\n").replace("%22", '"')
        self.items.append((name, _text(bytes(self._data))))

    def _finish(self) -> None:
        self.has_ended = True


def _into(place: Callable[[], bytearray]) -> Callable[[bytes, int, int], None]:
    return lambda data, start, end: place().extend(data[start:end])


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedBody("the body is not UTF-8") from None


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")


def _too_many() -> BodyTooLarge:
    return BodyTooLarge(f"the form has more than {MAX_FIELDS} fields")


_MAX_SMALL_BYTES = 16 << 10
_MOST_BYTES_TAKEN, _SECONDS_TAKEN = 32 << 20, 10.0
_JSON = "application/json"


async def read_items(request: Request) -> Items:
    """Return the fields of a form in their order, repeated ones too. Raises `Problem` 400 and 413."""
    content_type = request.headers.get("content-type", "")
    try:
        body = await _read(request)
        return await run_check(len(body), lambda: form_items(content_type, body))
    except BodyTooLarge as error:
        raise _too_much(error) from None
    except MalformedBody as error:
        raise Problem(400, "This is no form", str(error)) from None


async def read_json(request: Request) -> Any:
    """Return the value of a JSON body. Raises `Problem` 400 and 413."""
    try:
        body = await _read(request)
        return await run_check(len(body), lambda: json_body(body))
    except BodyTooLarge as error:
        raise _too_much(error) from None
    except MalformedBody as error:
        raise Problem(400, "This is no JSON", f"The body {error}") from None


def sends_json(request: Request) -> bool:
    """Say whether the body of a request is to be JSON. No page of another origin may send that unasked."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON


def only(items: Items, name: str) -> str:
    """Return the text of a field that a form has once, or not at all. Raises `Problem` 400."""
    found = [text for one, text in items if one == name]
    if len(found) > 1:
        raise Problem(400, "This is no form", f"The field {name} was sent twice.")
    return found[0] if found else ""


async def read_small_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that anybody may send, of at most 16 KiB. Raises `Problem` 400 and 413."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_SMALL_BYTES:
            await drain(request.receive, _MOST_BYTES_TAKEN, _SECONDS_TAKEN)
            raise Problem(413, "This is too much", f"A form here has at most {_MAX_SMALL_BYTES:,} bytes.")
    try:
        items = form_items(request.headers.get("content-type", ""), bytes(body))
    except (BodyTooLarge, MalformedBody) as error:
        raise Problem(400, "This is no form", str(error)) from None
    return dict(reversed(items))


async def _read(request: Request) -> bytes:
    try:
        return await read_body(request.headers, request.stream())
    except BodyTooLarge:
        await drain(request.receive, _MOST_BYTES_TAKEN, _SECONDS_TAKEN)
        raise


def _too_much(error: BodyTooLarge) -> Problem:
    return Problem(413, "This is too much", str(error))
