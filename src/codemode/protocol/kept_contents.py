"""The content of a continuation as plain JSON, and back: what could not have been is refused. Pure."""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, cast

from ..data.content import Content, ContentKind
from ..errors import CodeModeProtocolError
from .contents import MAX_CARRIED_BYTES, Contents
from .kept_values import read_object, read_optional_text, read_text

_NUMBER = re.compile("#[0-9]{1,9}")
_KEYS = {"at", "mimeType", "kind", "name", "origin", "data"}


def parts_to_list(contents: Contents, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the parts, or those of these names, as plain JSON, their bytes as base64."""
    chosen = contents.items() if names is None else [(name, contents.at(name)) for name in names]
    return [{"at": name, **described(part), "data": b64encode(part.data).decode()} for name, part in chosen]


def described(part: Content) -> dict[str, Any]:
    """Return what there is of a part beside its bytes."""
    return {"mimeType": part.mime_type, "kind": part.kind, "name": part.name, "origin": part.origin}


def read_contents(items: list[Any]) -> Contents | None:
    """Return the parts that `parts_to_list` has written, if any. Raises `CodeModeProtocolError` for anything else."""
    if not items:
        return None
    contents = Contents()
    for item in items:
        part = read_part(item)
        name = read_text(item["at"])
        if not _NUMBER.fullmatch(name) and name != part.id:
            raise CodeModeProtocolError("the continuation holds content under another name")
        contents.put(part, name)
    if contents.bytes > MAX_CARRIED_BYTES or len(contents) != len(items):
        raise CodeModeProtocolError("the continuation holds content that it cannot carry")
    return contents


def read_part(value: object) -> Content:
    """Return one part. Raises as `read_contents`."""
    part = read_object(value, _KEYS)
    try:
        data = binascii.a2b_base64(read_text(part["data"]), strict_mode=True)
    except ValueError as error:
        raise CodeModeProtocolError("the continuation holds content that cannot be read") from error
    return part_of(part, data)


def part_of(described: dict[str, Any], data: bytes) -> Content:
    """Return the part with this description and these bytes. Raises as `read_contents`."""
    name, origin = read_optional_text(described["name"]), read_optional_text(described["origin"])
    kind = cast("ContentKind", read_text(described["kind"]))
    try:
        return Content(data, read_text(described["mimeType"]), kind=kind, name=name, origin=origin)
    except ValueError as error:
        raise CodeModeProtocolError("the continuation holds content that cannot be") from error
