"""What a client is answered: the response of a run as text and as structured content. Runs nothing.

Clients show their model either of the two, so each says the whole of it. A program that failed is an answer as any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from ..config.values import Output
from .media import Media, taken_out


def answer_of(response: Mapping[str, Any], output: Output = "both") -> types.CallToolResult:
    """Return the answer to a call. Images and audio in the result become content blocks.

    Such an answer has no structured content: clients that have some show their model nothing else.
    """
    result, media = taken_out(response.get("result"))
    said = {**response, "result": result} if media else dict(response)
    structured = None if media or output == "text" else said
    if output == "structured" and structured is not None:
        return types.CallToolResult(content=[], structured_content=structured)
    text = json.dumps(_without_empty(said), ensure_ascii=False, separators=(",", ":"))
    blocks: list[types.ContentBlock] = [types.TextContent(type="text", text=text), *map(_block, media)]
    return types.CallToolResult(content=blocks, structured_content=structured)


def _without_empty(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what says nothing; a result says something even where it is null or empty."""
    return {name: value for name, value in said.items() if name == "result" or value not in ([], {}, "", None)}


def _block(one: Media) -> types.ContentBlock:
    if one.kind == "image":
        return types.ImageContent(type="image", data=one.data, mime_type=one.mime_type)
    return types.AudioContent(type="audio", data=one.data, mime_type=one.mime_type)
