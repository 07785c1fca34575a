"""LangChain's content blocks as content of a program, and back. Runs nothing."""

from __future__ import annotations

import binascii
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from codemode import Content
from codemode.plugins import current, places_for, with_parts

# Where the bytes stand in a block: those of LangChain, of its earlier versions, of Anthropic, of OpenAI, of MCP.
_PLACES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("base64",), ("mime_type",)),
    (("data",), ("mime_type",)),
    (("source", "data"), ("source", "media_type")),
    (("data",), ("mimeType",)),
    (("image_url", "url"), ()),
)
_KINDS: dict[str, Any] = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "video": "video",
    "file": "file",
    "document": "file",
}
_DATA_URL = "data:"
_BASE64 = ";base64,"


def content_of(block: Any) -> Content | None:
    """Return the content that a block holds the bytes of; None for any other value, such as one with an address."""
    if type(block) is not dict or (kind := _KINDS.get(str(cast("dict[str, Any]", block).get("type")))) is None:
        return None
    known = cast("dict[str, Any]", block)
    for place, type_place in _PLACES:
        text, mime_type = _at(known, place), _at(known, type_place)
        if isinstance(text, str) and text.startswith(_DATA_URL) and _BASE64 in text:
            mime_type, text = text[len(_DATA_URL) :].split(_BASE64, 1)
        elif not type_place:
            continue
        if isinstance(text, str) and isinstance(mime_type, str):
            return _made(known, kind, place, mime_type, text)
    return None


def _made(block: dict[str, Any], kind: Any, place: tuple[str, ...], mime_type: str, text: str) -> Content | None:
    is_url = str(_at(block, place)).startswith(_DATA_URL)
    told = {"block": _with(block, place, None), "at": [*place], **({"url": True} if is_url else {})}
    name = next((one for one in (block.get("filename"), block.get("name")) if isinstance(one, str)), None)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        origin = json.dumps(told, sort_keys=True)
        return Content(data, mime_type, kind=kind, name=None if name is None else name[:256], origin=origin)
    except (ValueError, TypeError):  # it only looks like one
        return None


def block_of(part: Content) -> dict[str, Any]:
    """Return a part as the block that it came as, or as LangChain writes one."""
    text = b64encode(part.data).decode()
    if part.origin is None:
        named = {} if part.name is None else {"filename": part.name}
        return {"type": part.kind, "base64": text, "mime_type": part.mime_type, **named}
    told: dict[str, Any] = json.loads(part.origin)
    text = f"{_DATA_URL}{part.mime_type}{_BASE64}{text}" if told.get("url") else text
    return _with(told["block"], tuple(told["at"]), text)


def taken(value: Any) -> Any:
    """Return what a tool gave with what stands for it in place of each block with bytes."""
    parts = current.get()
    return value if parts is None else places_for(value, parts, content_of)


def with_blocks(values: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with blocks in the places of parts."""
    parts = current.get()
    return values if parts is None else with_parts(values, parts, block_of)


def place_of(value: Any) -> dict[str, Any] | None:
    """Return what stands for a part in what people are shown; None for any other value."""
    parts = current.get()
    return parts.take(value) if isinstance(value, Content) and parts is not None else None


def message_content(text: str, blocks: Sequence[Mapping[str, Any]]) -> Any:
    """Return the content of a message that says this and has these blocks."""
    return [{"type": "text", "text": text}, *map(dict, blocks)] if blocks else text


def shown_block(part: Content) -> dict[str, Any]:
    """Return a part as a model is shown it: as the block that it came as, but for those of MCP."""
    block = block_of(part)
    if "mimeType" not in block:
        return block
    return block_of(Content(part.data, part.mime_type, kind=part.kind, name=part.name))


def _at(block: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    found: Any = block
    for key in place:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found


def _with(block: Mapping[str, Any], place: tuple[str, ...], text: str | None) -> dict[str, Any]:
    key, *rest = place
    return {**block, key: text if not rest else _with(block[key], tuple(rest), text)}
