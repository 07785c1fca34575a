"""The answer of a tool in the words of an MCP server, and the one value that a program gets of it. Knows no call."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, cast

from ..data.content import MediaContent, current
from ..data.json_values import NOT_GIVEN, encode_json
from ..data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty
from ..errors import CodeModeError
from ..trace.visible_text import clip_text

_WITH_BYTES = ("image", "audio", "resource")
_MAX_TOLD = 20_000  # characters of what a failed call says
_MAX_TOLD_VALUES = 2_000
_MAX_MEMBERS = 64  # of a reason that is too large
_MAX_MEMBER = 2_000  # characters of one
_SAYS_NOTHING = re.compile(
    r"(?:(?:an|the|internal|server|tool|call|unknown|unexpected) )*(?:error|failure|failed)?(?: occurred)?[.:!]*",
    re.IGNORECASE,
)
_MAX_SAYING_NOTHING = 100
_OF_THE_PROTOCOL = frozenset(
    {"_meta", "content", "structuredContent", "toolResult", "isError", "is_error", "resultType"}
)
_PIECE_CHARACTERS = 1 << 18  # of four characters for three bytes
_KEY_CHARACTERS = 1 << 10

RequireRoom = Callable[[MediaContent, int, int], None]


class ToolResult:
    """Content blocks, a structured value, or both, as a tool of an MCP server answers with them.

    A program gets, in this order: ``structured_content`` when it is given, be it 0, False or None; the text of a single
    text block; else ``{"content": [...]}`` with all blocks as they are, but for images, audio and files: in a face that
    has `MediaContent` it gets handles of these. A block is a mapping with a ``type``, or an object with a
    ``model_dump`` that gives one. With ``is_error`` the call has failed, and what its text blocks say is the message,
    else its structured content.
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
        return self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment] - blocks are not hashable

    def _parts(self) -> tuple[Any, ...]:
        return self.content, self.has_structured_content, self.structured_content, self.is_error


def unwrapped(result: ToolResult, require_room: RequireRoom | None = None) -> Any:
    """Return the value that a program gets of a result that is no failure.

    ``require_room`` raises for a part of content that is more than there may be: itself, or with others of so many
    bytes, so many parts. Raises `TypeError` for what is no block.
    """
    if result.has_structured_content:
        return result.structured_content
    blocks = blocks_of(result)
    if len(blocks) == 1 and blocks[0]["type"] == "text" and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    if current.get() is None:
        return {"content": blocks}
    contents = _Contents(require_room)
    return {"content": [contents.of(block) or block for block in blocks]}


class _Contents:
    """The content of one result. What is there many times over is decoded once, and what is too much ends it."""

    def __init__(self, require_room: RequireRoom | None) -> None:
        self._require_room = require_room
        self._count = self._bytes = 0
        self._same: dict[tuple[int, str], MediaContent | None] = {}  # by the identity of the text
        self._alike: dict[tuple[int, str, str], list[tuple[str, MediaContent | None]]] = {}

    def of(self, block: dict[str, Any]) -> MediaContent | None:
        """Return the content that a block has the bytes of; None for any other."""
        held = block.get("resource") if block["type"] == "resource" else block
        text = None if not is_mapping(held) else held.get("blob" if held is not block else "data")
        mime_type = None if not is_mapping(held) else held.get("mimeType")
        if block["type"] not in _WITH_BYTES or not isinstance(text, str) or not isinstance(mime_type, str):
            return None
        same = id(text), mime_type
        if same not in self._same:
            self._same[same] = self._known_or_new(text, mime_type)
        return self._same[same]

    def _known_or_new(self, text: str, mime_type: str) -> MediaContent | None:
        alike = self._alike.setdefault((len(text), mime_type, text[:_KEY_CHARACTERS]), [])
        for other, content in alike:
            if other == text:
                return content
        content = _content(text, mime_type)
        if content is not None:
            self._count += 1
            self._bytes += content.size
            if self._require_room is not None:
                self._require_room(content, self._bytes, self._count)
        alike.append((text, content))
        return content


def _content(text: str, mime_type: str) -> MediaContent | None:
    try:
        return MediaContent(
            b"".join(map(_decoded, range(0, len(text) or 1, _PIECE_CHARACTERS), repeat(text))), mime_type
        )
    except ValueError:  # a server may call anything an image
        return None


def _decoded(start: int, text: str) -> bytes:
    """Return the bytes of a piece of base64. Raises `ValueError` for what is none."""
    piece = text[start : start + _PIECE_CHARACTERS]
    if piece.endswith("=") and start + len(piece) < len(text):
        raise ValueError("there is more behind the end")
    return binascii.a2b_base64(piece, strict_mode=True)


def blocks_of(result: ToolResult) -> list[dict[str, Any]]:
    """Return the content of a result as plain mappings. Raises `TypeError` for what is no block."""
    return [_plain(block) for block in result.content]


def failure_text(result: ToolResult, tool_name: str) -> str:
    """Return what a result says of its failure, wherever it says it.

    That is the text of its blocks and of embedded resources, and the address of a link; where these say nothing, or no
    more than that it has failed, the structured content.
    """
    said: list[str] = []
    left = _MAX_TOLD
    for block in map(_plain, result.content):
        text = _text_of(block)
        if text:
            said.append(str.__str__(text[:left]))
            left -= len(said[-1]) + 1
        if left <= 0:
            break
    text = "\n".join(said)
    is_telling = len(text) > _MAX_SAYING_NOTHING or not _SAYS_NOTHING.fullmatch(text.strip())
    if not is_telling and result.structured_content not in (None, "", {}, []):
        more = _as_text(result.structured_content)
        text = f"{text}\n{more}" if text and more else text or more
    return text[:_MAX_TOLD] or f"tool {tool_name!r} failed"


def _text_of(block: Mapping[str, Any]) -> str | None:
    held = block.get("resource")
    text = held.get("text") if block["type"] == "resource" and is_mapping(held) else block.get("text")
    if block["type"] == "resource_link" and not isinstance(text, str):
        text = block.get("uri")
    return text if isinstance(text, str) else None


def _as_text(value: Any) -> str:
    """Return a value as text: a string as it is, all else as JSON; of what is too large its small members."""
    if isinstance(value, str):
        return value[:_MAX_TOLD]
    try:
        text = encode_json(value, max_bytes=_MAX_TOLD, max_values=_MAX_TOLD_VALUES, what="a reason")
        return json.dumps(json.loads(text), ensure_ascii=False)
    except CodeModeError:
        shown: dict[str, Any] = {}
        for name, member in islice(mapping_or_empty(value).items(), _MAX_MEMBERS):
            if isinstance(member, str | int | float):
                shown[str(name)] = clip_text(member, _MAX_MEMBER) if isinstance(member, str) else member
        return json.dumps(shown, ensure_ascii=False) if shown else ""


def result_of_server(raw: Mapping[str, Any], output_schema: Any = None) -> ToolResult:
    """Return what a server has answered, in whatever shape it came: nothing of it is lost.

    ``content`` may be one block, a text or any value, and ``toolResult``, of the first revision of the protocol, the
    same. A result without either is the object of its own fields. A structured value that is null where
    ``output_schema`` allows none, or is empty where there is no schema, gives way to what came with it.
    """
    content, structured = raw.get("content"), raw.get("structuredContent", NOT_GIVEN)
    blocks, value = _blocks_in(content)
    if not blocks and value is NOT_GIVEN:
        blocks, value = _blocks_in(raw.get("toolResult"))
    if _gives_way(structured, blocks, value, output_schema):
        structured = value
    elif value is not NOT_GIVEN:
        blocks = [{"type": "text", "text": _as_text(value)}]
    flag = raw.get("isError", raw.get("is_error"))
    is_error = flag is True or flag in (1, "true", "True")
    if structured is NOT_GIVEN and (is_error or not blocks):
        own = {name: field for name, field in raw.items() if name not in _OF_THE_PROTOCOL}
        structured = own or NOT_GIVEN
    return ToolResult(blocks, structured, is_error)


def _gives_way(structured: Any, blocks: Sequence[Any], value: Any, output_schema: Any) -> bool:
    """Tell whether something else that came is the result in place of a structured value."""
    if structured is NOT_GIVEN:
        return True
    if structured is None:
        return not _allows_null(output_schema) and (bool(blocks) or value is not NOT_GIVEN)
    if output_schema is not None or structured not in ({}, [], ""):
        return False
    return value is not NOT_GIVEN or any(map(_says_something, blocks))


def _allows_null(schema: Any) -> bool:
    if not is_mapping(schema):
        return False
    kind = schema.get("type")
    if kind == "null" or "null" in list_or_empty(kind) or schema.get("nullable") is True:
        return True
    branches = [*list_or_empty(schema.get("anyOf")), *list_or_empty(schema.get("oneOf"))]
    return any(is_mapping(branch) and branch.get("type") == "null" for branch in branches[:_MAX_MEMBERS])


def _says_something(block: Any) -> bool:
    try:
        text = _text_of(_plain(block))
    except TypeError:
        return True
    return text is None or text.strip() not in ("", "null", "{}", "[]", '""')


def _blocks_in(content: Any) -> tuple[list[Any], Any]:
    """Return the blocks of a content, or the value that it is where it has none."""
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
        if is_block(entry):
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
    for at, entry in others:
        blocks[at] = {"type": "text", "text": _as_text(entry)}
    return blocks, NOT_GIVEN


def is_block(entry: Any) -> bool:
    """Tell whether an entry of a content is a block: a mapping with a type, or a model of an SDK."""
    return isinstance(entry.get("type"), str) if is_mapping(entry) else hasattr(entry, "model_dump")


def _plain(block: Any) -> dict[str, Any]:
    dump = getattr(cast("Any", type(block)), "model_dump", None)
    plain = block if dump is None else dump(block, mode="json", by_alias=True, exclude_none=True)
    if not is_mapping(plain) or not isinstance(plain.get("type"), str):
        raise TypeError(f"a content block of a ToolResult must be a mapping with a type, not {type(block).__name__}")
    return dict(plain)
