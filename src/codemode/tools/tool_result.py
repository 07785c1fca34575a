"""Results of MCP servers' tools, and the value that a program gets of one."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, cast

from ..data.content import MediaContent, current_registry
from ..data.json_values import NOT_GIVEN, encode_json
from ..data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty
from ..errors import CodeModeError
from ..trace.visible_text import clip_text

_MEDIA_BLOCK_TYPES = ("image", "audio", "resource")
_MAX_FAILURE_CHARACTERS = 20_000  # characters of what a failed call says
_MAX_FAILURE_VALUES = 2_000
_MAX_MEMBERS = 64  # of a reason that is too large
_MAX_MEMBER_CHARACTERS = 2_000  # characters of one
_UNINFORMATIVE = re.compile(
    r"(?:(?:an|the|internal|server|tool|call|unknown|unexpected) )*(?:error|failure|failed)?(?: occurred)?[.:!]*",
    re.IGNORECASE,
)
_MAX_UNINFORMATIVE_CHARACTERS = 100
_PROTOCOL_FIELDS = frozenset(
    {"_meta", "content", "structuredContent", "toolResult", "isError", "is_error", "resultType"}
)
_BASE64_CHUNK_CHARACTERS = 1 << 18  # of four characters for three bytes
_PREFIX_CHARACTERS = 1 << 10

RequireCapacity = Callable[[MediaContent, int, int], None]


class ToolResult:
    """Content blocks, a structured value, or both, as a tool of an MCP server returns them.

    A program gets the first that exists of: ``structured_content``, even 0, False or None; the text of a single text
    block; ``{"content": [...]}`` with all blocks, with images, audio and files as handles on surfaces that have
    `MediaContent`. A block is a mapping with a ``type``, or an object with a ``model_dump`` that returns one. With
    ``is_error`` the call has failed, and the message is the text of the blocks, else the structured content.
    """

    __slots__ = ("content", "has_structured_content", "is_error", "structured_content")

    content: tuple[Any, ...]
    structured_content: Any
    is_error: bool
    has_structured_content: bool

    def __init__(
        self, content: Sequence[Any] = (), structured_content: Any = NOT_GIVEN, is_error: bool = False
    ) -> None:
        if isinstance(content, str | bytes) or not isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the content of a ToolResult must be a list of blocks, not {type(content).__name__}")
        self.content = tuple(content)
        self.has_structured_content = structured_content is not NOT_GIVEN
        self.structured_content = structured_content if self.has_structured_content else None
        self.is_error = bool(is_error)

    def __repr__(self) -> str:
        structured = f", structured_content={self.structured_content!r}" if self.has_structured_content else ""
        return f"ToolResult(content={self.content!r}{structured}{', is_error=True' if self.is_error else ''})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return self._get_compared_fields() == other._get_compared_fields()

    __hash__ = None  # type: ignore[assignment] - blocks are not hashable

    def _get_compared_fields(self) -> tuple[Any, ...]:
        return self.content, self.has_structured_content, self.structured_content, self.is_error


def to_program_value(result: ToolResult, require_capacity: RequireCapacity | None = None) -> Any:
    """Return the value that a program gets of a successful result.

    ``require_capacity`` raises for content beyond the limits: it gets the content, and the total bytes and number.
    Raises `TypeError` for an invalid block.
    """
    if result.has_structured_content:
        return result.structured_content
    blocks = to_plain_blocks(result)
    if len(blocks) == 1 and blocks[0]["type"] == "text" and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    if current_registry.get() is None:
        return {"content": blocks}
    contents = _MediaDecoder(require_capacity)
    return {"content": [contents.decode_block_media(block) or block for block in blocks]}


class _MediaDecoder:
    """Decodes the media of one result, equal data once, within limits."""

    def __init__(self, require_capacity: RequireCapacity | None) -> None:
        self._require_capacity = require_capacity
        self._count = self._bytes = 0
        self._by_identity: dict[tuple[int, str], MediaContent | None] = {}  # by the identity of the text
        self._by_prefix: dict[tuple[int, str, str], list[tuple[str, MediaContent | None]]] = {}

    def decode_block_media(self, block: dict[str, Any]) -> MediaContent | None:
        """Return the media of a block; None for other blocks."""
        holder = block.get("resource") if block["type"] == "resource" else block
        text = None if not is_mapping(holder) else holder.get("blob" if holder is not block else "data")
        mime_type = None if not is_mapping(holder) else holder.get("mimeType")
        if block["type"] not in _MEDIA_BLOCK_TYPES or not isinstance(text, str) or not isinstance(mime_type, str):
            return None
        key = id(text), mime_type
        if key not in self._by_identity:
            self._by_identity[key] = self._get_or_decode_media_and_count_limit(text, mime_type)
        return self._by_identity[key]

    def _get_or_decode_media_and_count_limit(self, text: str, mime_type: str) -> MediaContent | None:
        candidates = self._by_prefix.setdefault((len(text), mime_type, text[:_PREFIX_CHARACTERS]), [])
        for other, content in candidates:
            if other == text:
                return content
        content = _decode_media(text, mime_type)
        if content is not None:
            self._count += 1
            self._bytes += content.size
            if self._require_capacity is not None:
                self._require_capacity(content, self._bytes, self._count)
        candidates.append((text, content))
        return content


def _decode_media(text: str, mime_type: str) -> MediaContent | None:
    if text.endswith("="):
        unpadded = text.rstrip("=")
        if unpadded and not len(unpadded) % 4:  # the padding is superfluous, and could be in a chunk of its own
            text = unpadded
    try:
        return MediaContent(
            b"".join(map(_decode_chunk, range(0, len(text) or 1, _BASE64_CHUNK_CHARACTERS), repeat(text))), mime_type
        )
    except ValueError:  # a server may call anything an image
        return None


def _decode_chunk(start: int, text: str) -> bytes:
    """Decode a chunk of base64. Raises `ValueError`."""
    chunk = text[start : start + _BASE64_CHUNK_CHARACTERS]
    if chunk.endswith("=") and start + len(chunk) < len(text):
        raise ValueError("data after the end")
    return binascii.a2b_base64(chunk, strict_mode=True)


def to_plain_blocks(result: ToolResult) -> list[dict[str, Any]]:
    """Return the blocks of a result as plain mappings. Raises `TypeError` for an invalid block."""
    return [_to_plain_block(block) for block in result.content]


def format_failure_message(result: ToolResult, tool_name: str) -> str:
    """Return the error message of a result.

    It is the text of its blocks and embedded resources, and the address of links; if these say no more than that the
    call failed, also the structured content.
    """
    texts: list[str] = []
    remaining = _MAX_FAILURE_CHARACTERS
    for block in map(_to_plain_block, result.content):
        text = _get_block_text(block)
        if text:
            texts.append(str.__str__(text[:remaining]))
            remaining -= len(texts[-1]) + 1
        if remaining <= 0:
            break
    text = "\n".join(texts)
    is_informative = len(text) > _MAX_UNINFORMATIVE_CHARACTERS or not _UNINFORMATIVE.fullmatch(text.strip())
    if not is_informative and result.structured_content not in (None, "", {}, []):
        structured_text = _to_text_or_json(result.structured_content)
        text = f"{text}\n{structured_text}" if text and structured_text else text or structured_text
    return text[:_MAX_FAILURE_CHARACTERS] or f"tool {tool_name!r} failed"


def _get_block_text(block: Mapping[str, Any]) -> str | None:
    resource = block.get("resource")
    text = resource.get("text") if block["type"] == "resource" and is_mapping(resource) else block.get("text")
    if block["type"] == "resource_link" and not isinstance(text, str):
        text = block.get("uri")
    return text if isinstance(text, str) else None


def _to_text_or_json(value: Any) -> str:
    """Return a string as it is, other values as JSON; of a value that is too large, its small members."""
    if isinstance(value, str):
        return value[:_MAX_FAILURE_CHARACTERS]
    try:
        text = encode_json(value, max_bytes=_MAX_FAILURE_CHARACTERS, max_values=_MAX_FAILURE_VALUES, what="a reason")
        return json.dumps(json.loads(text), ensure_ascii=False)
    except CodeModeError:
        small_members: dict[str, Any] = {}
        for name, member in islice(mapping_or_empty(value).items(), _MAX_MEMBERS):
            if isinstance(member, str | int | float):
                shown = clip_text(member, _MAX_MEMBER_CHARACTERS) if isinstance(member, str) else member
                small_members[str(name)] = shown
        return json.dumps(small_members, ensure_ascii=False) if small_members else ""


def parse_server_result(raw: Mapping[str, Any], output_schema: Any = None) -> ToolResult:
    """Return a server's answer of any shape as a result, without losing anything.

    ``content`` may be one block, a text or any value, and so may ``toolResult``, from the first revision of the
    protocol. A result without either is the object of its own fields. A structured value that is null where
    ``output_schema`` disallows it, or empty without a schema, yields to the other content.
    """
    content, structured = raw.get("content"), raw.get("structuredContent", NOT_GIVEN)
    blocks, value = _parse_content(content)
    if not blocks and value is NOT_GIVEN:
        blocks, value = _parse_content(raw.get("toolResult"))
    if _is_structured_value_superseded(structured, blocks, value, output_schema):
        structured = value
    elif value is not NOT_GIVEN:
        blocks = [{"type": "text", "text": _to_text_or_json(value)}]
    flag = raw.get("isError", raw.get("is_error"))
    is_error = flag is True or flag in (1, "true", "True")
    if structured is NOT_GIVEN and (is_error or not blocks):
        other_fields = {name: field for name, field in raw.items() if name not in _PROTOCOL_FIELDS}
        structured = other_fields or NOT_GIVEN
    return ToolResult(blocks, structured, is_error)


def _is_structured_value_superseded(structured: Any, blocks: Sequence[Any], value: Any, output_schema: Any) -> bool:
    """Return whether other content replaces a structured value."""
    if structured is NOT_GIVEN:
        return True
    if structured is None:
        return not _allows_null(output_schema) and (bool(blocks) or value is not NOT_GIVEN)
    if output_schema is not None or structured not in ({}, [], ""):
        return False
    return value is not NOT_GIVEN or any(map(_has_content, blocks))


def _allows_null(schema: Any) -> bool:
    if not is_mapping(schema):
        return False
    kind = schema.get("type")
    if kind == "null" or "null" in list_or_empty(kind) or schema.get("nullable") is True:
        return True
    branches = [*list_or_empty(schema.get("anyOf")), *list_or_empty(schema.get("oneOf"))]
    return any(is_mapping(branch) and branch.get("type") == "null" for branch in branches[:_MAX_MEMBERS])


def _has_content(block: Any) -> bool:
    try:
        text = _get_block_text(_to_plain_block(block))
    except TypeError:
        return True
    return text is None or text.strip() not in ("", "null", "{}", "[]", '""')


def _parse_content(content: Any) -> tuple[list[Any], Any]:
    """Return the blocks of a content, or a value without blocks."""
    if content is None:
        return [], NOT_GIVEN
    if isinstance(content, str):
        return [{"type": "text", "text": content}], NOT_GIVEN
    entries = content if is_array(content) else [content]
    blocks: list[Any] = []
    others: list[tuple[int, Any]] = []
    for entry in entries:
        if entry is None:
            continue
        if is_content_block(entry):
            blocks.append(entry)
        elif isinstance(entry, str):
            blocks.append({"type": "text", "text": entry})
        elif is_mapping(entry) and isinstance(entry.get("text"), str):
            blocks.append({**entry, "type": "text"})
        else:
            others.append((len(blocks), entry))
            blocks.append(None)
    if others and len(others) == len(blocks):
        return [], content
    for index, entry in others:
        blocks[index] = {"type": "text", "text": _to_text_or_json(entry)}
    return blocks, NOT_GIVEN


def is_content_block(entry: Any) -> bool:
    """Return whether an entry is a block: a mapping with a type, or a model of an SDK."""
    return isinstance(entry.get("type"), str) if is_mapping(entry) else hasattr(entry, "model_dump")


def _to_plain_block(block: Any) -> dict[str, Any]:
    dump = getattr(cast("Any", type(block)), "model_dump", None)
    plain = block if dump is None else dump(block, mode="json", by_alias=True, exclude_none=True)
    if not is_mapping(plain) or not isinstance(plain.get("type"), str):
        raise TypeError(f"a content block of a ToolResult must be a mapping with a type, not {type(block).__name__}")
    return dict(plain)
