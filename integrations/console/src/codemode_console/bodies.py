"""Read request bodies with limits, as forms or JSON."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from codemode.data.json_values import decode_json
from codemode.host.threads import run_in_thread_if_large_or_slow

from .errors import Problem
from .web import drain_body, parse_content_length

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_FIELDS = 2_000
MAX_JSON_DEPTH = 128

FormItems = list[tuple[str, str]]
"""Names and texts of form fields, in order."""

_URLENCODED_TYPE = "application/x-www-form-urlencoded"
_MULTIPART_TYPE = "multipart/form-data"


class BodyTooLargeError(ValueError):
    """The body has more than `MAX_BODY_BYTES` or `MAX_FIELDS`."""


class MalformedBodyError(ValueError):
    """The body does not match its content type, or nests deeper than `MAX_JSON_DEPTH`."""


async def read_body(headers: Mapping[str, str], chunks: AsyncIterable[bytes]) -> bytes:
    """Read a body from its chunks (``request.stream()``). Raises `BodyTooLargeError` and `MalformedBodyError`."""
    declared = parse_content_length(headers)
    if declared is None:
        raise MalformedBodyError("Content-Length is not a number")
    if declared > MAX_BODY_BYTES:
        raise _body_too_large_error()
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _body_too_large_error()
    return bytes(body)


def parse_form(content_type: str, body: bytes) -> FormItems:
    """Return the fields of a urlencoded or multipart form in UTF-8; files are rejected.

    Raises `MalformedBodyError` and `BodyTooLargeError`.
    """
    if len(body) > MAX_BODY_BYTES:
        raise _body_too_large_error()
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _URLENCODED_TYPE:
        return _parse_urlencoded(body)
    if kind == _MULTIPART_TYPE:
        return _parse_multipart(content_type, body)
    raise MalformedBodyError("the body is not a form")


def parse_json_body(body: bytes) -> Any:
    """Return the value of a JSON body. Raises `MalformedBodyError` and `BodyTooLargeError`."""
    if len(body) > MAX_BODY_BYTES:
        raise _body_too_large_error()
    return parse_json_text(_decode_utf8(body))


def parse_json_text(text: str) -> Any:
    """Return the value of a JSON text of at most `MAX_JSON_DEPTH` levels. Raises `MalformedBodyError`."""
    try:
        return decode_json(text.strip(" \t\r\n"), max_depth=MAX_JSON_DEPTH)
    except (ValueError, RecursionError) as error:
        raise MalformedBodyError(f"is not JSON: {str(error)[:200]}") from None


def _parse_urlencoded(body: bytes) -> FormItems:
    if not body:
        return []
    if body.count(b"&") >= MAX_FIELDS:
        raise _too_many_fields_error()
    items: FormItems = []
    for pair in body.split(b"&"):
        if pair:
            name, _, value = pair.replace(b"+", b" ").partition(b"=")
            items.append((_decode_utf8(unquote_to_bytes(name)), _decode_utf8(unquote_to_bytes(value))))
    return items


def _parse_multipart(content_type: str, body: bytes) -> FormItems:
    from python_multipart.exceptions import MultipartParseError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= 200:
        raise MalformedBodyError("the form has no boundary")
    parts = _MultipartFields()
    try:
        parser = MultipartParser(boundary, parts.create_parser_callbacks(), max_size=MAX_BODY_BYTES)
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise MalformedBodyError(f"the form cannot be read: {str(error)[:200]}") from None
    if not parts.is_complete:
        raise MalformedBodyError("the form ends too early")
    return parts.items


class _MultipartFields:
    """Collects the fields of a multipart form."""

    def __init__(self) -> None:
        self.items: FormItems = []
        self.is_complete = False
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value, self._data = bytearray(), bytearray(), bytearray()

    def create_parser_callbacks(self) -> Any:
        """Return the callbacks of the parser."""
        return {
            "on_part_begin": self._on_part_begin,
            "on_part_data": _create_append_callback(lambda: self._data),
            "on_part_end": self._on_part_end,
            "on_header_field": _create_append_callback(lambda: self._field),
            "on_header_value": _create_append_callback(lambda: self._value),
            "on_header_end": self._on_header_end,
            "on_end": self._on_form_end,
        }

    def _on_part_begin(self) -> None:
        if len(self.items) == MAX_FIELDS:
            raise _too_many_fields_error()
        self._headers, self._data = {}, bytearray()

    def _on_header_end(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field, self._value = bytearray(), bytearray()

    def _on_part_end(self) -> None:
        from python_multipart.multipart import parse_options_header

        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if kind != b"form-data" or b"name" not in options or b"filename" in options:
            raise MalformedBodyError("a part of the form is not a field")
        # Browsers encode characters that would end the name.
        name = _decode_utf8(options[b"name"]).replace("%0D", "\r").replace("%0A", "\n").replace("%22", '"')
        self.items.append((name, _decode_utf8(bytes(self._data))))

    def _on_form_end(self) -> None:
        self.is_complete = True


def _create_append_callback(get_buffer: Callable[[], bytearray]) -> Callable[[bytes, int, int], None]:
    return lambda data, start, end: get_buffer().extend(data[start:end])


def _decode_utf8(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedBodyError("the body is not UTF-8") from None


def _body_too_large_error() -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes")


def _too_many_fields_error() -> BodyTooLargeError:
    return BodyTooLargeError(f"the form has more than {MAX_FIELDS} fields")


_MAX_SMALL_FORM_BYTES = 16 << 10
_MAX_DRAIN_BYTES, _DRAIN_SECONDS = 32 << 20, 10.0
_JSON_TYPE = "application/json"


async def read_form_items(request: Request) -> FormItems:
    """Return the fields of a form in order, with repeated ones. Raises `Problem` 400 and 413."""
    content_type = request.headers.get("content-type", "")
    try:
        body = await _read_body_or_drain(request)
        return await run_in_thread_if_large_or_slow(len(body), lambda: parse_form(content_type, body))
    except BodyTooLargeError as error:
        raise _too_large_problem(error) from None
    except MalformedBodyError as error:
        raise Problem(400, "This is not a form", str(error)) from None


async def read_json(request: Request) -> Any:
    """Return the value of a JSON body. Raises `Problem` 400 and 413."""
    try:
        body = await _read_body_or_drain(request)
        return await run_in_thread_if_large_or_slow(len(body), lambda: parse_json_body(body))
    except BodyTooLargeError as error:
        raise _too_large_problem(error) from None
    except MalformedBodyError as error:
        raise Problem(400, "This is not JSON", f"The body {error}") from None


def has_json_body(request: Request) -> bool:
    """Return whether the content type is JSON, which browsers send across origins only after a preflight."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON_TYPE


def get_single_value(items: FormItems, name: str) -> str:
    """Return the text of a field, "" without one. Raises `Problem` 400 for a repeated field."""
    values = [text for item_name, text in items if item_name == name]
    if len(values) > 1:
        raise Problem(400, "This is not a form", f"The field {name} was sent twice.")
    return values[0] if values else ""


async def read_small_form(request: Request) -> dict[str, str]:
    """Return the fields of a form of at most 16 KiB from any sender. Raises `Problem` 400 and 413."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_SMALL_FORM_BYTES:
            await drain_body(request.receive, _MAX_DRAIN_BYTES, _DRAIN_SECONDS)
            raise Problem(
                413, "The request is too large", f"This form may have at most {_MAX_SMALL_FORM_BYTES:,} bytes."
            )
    try:
        items = parse_form(request.headers.get("content-type", ""), bytes(body))
    except (BodyTooLargeError, MalformedBodyError) as error:
        raise Problem(400, "This is not a form", str(error)) from None
    return dict(reversed(items))


async def _read_body_or_drain(request: Request) -> bytes:
    try:
        return await read_body(request.headers, request.stream())
    except BodyTooLargeError:
        await drain_body(request.receive, _MAX_DRAIN_BYTES, _DRAIN_SECONDS)
        raise


def _too_large_problem(error: BodyTooLargeError) -> Problem:
    return Problem(413, "The request is too large", str(error))
