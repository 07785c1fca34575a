"""Bodies of forms, and what is answered to those that are none. Knows nothing of what they say."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from codemode.plugins import run_check

from .errors import Problem
from .limits import BodyTooLarge, Items, MalformedBody, form_items, json_body, read_body
from .web import drain

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
