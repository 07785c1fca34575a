"""Tools of MCP servers, as `langchain-mcp-adapters` and LangChain's own adapter make them: read by their shape.

Imports neither of them, and no SDK. What such a tool is, says and gives came from a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.tools import BaseTool

_STRUCTURED = "structured_content"
_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}
_SCHEMAS = ("output_schema", "outputSchema")  # of the newer and the older SDK


def is_of_server(tool: BaseTool) -> bool:
    """Tell whether a tool looks as adapters make those of servers: a schema as JSON, and blocks with an artifact."""
    return tool.response_format == "content_and_artifact" and isinstance(tool.args_schema, dict)


def annotations_of(tool: BaseTool) -> dict[str, Any]:
    """Return a tool's hints, in the protocol's spelling: those of its metadata before what its server says."""
    given: Mapping[str, Any] = tool.metadata or {}
    said = {**_mapping(_mapping(_mapping(given.get("mcp")).get("tool")).get("annotations")), **given}
    named = {_HINTS.get(key, key): one for key, one in said.items()}
    return {
        key: one
        for key, one in named.items()
        if isinstance(one, bool if key.endswith("Hint") else str) and (key.endswith("Hint") or key == "title")
    }


def may_destroy(annotations: Mapping[str, Any]) -> bool:
    """Tell whether a tool is declared destructive, or nothing is declared of it that says otherwise.

    By the protocol a tool that writes and says no more is destructive.
    """
    destroys: Any = annotations.get("destructiveHint")
    return destroys is True or (destroys is None and annotations.get("readOnlyHint") is not True)


def declared_output(tool: BaseTool) -> dict[str, Any] | None:
    """Return the schema that a server declares for what its tool gives, None where there is none.

    Adapters pass it on nowhere: it is in what the tool's function holds of the server's own description.
    """
    for cell in getattr(getattr(tool, "coroutine", None), "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        key = next((one for one in _SCHEMAS if hasattr(held, one)), None)
        schema = None if key is None else getattr(held, key)
        if isinstance(schema, dict) and isinstance(getattr(held, "name", None), str):
            return cast("dict[str, Any]", schema)
    return None


def answer_of(content: Any, artifact: Any = None) -> Any:
    """Return what a program gets of a server's tool: structured content, else the text of a block, else all blocks.

    Those that hold bytes stay LangChain's, which are content in programs. What is no list of blocks stays as it is.
    """
    if not isinstance(content, list) or not all(map(_is_block, cast("list[Any]", content))):
        return cast("Any", content)
    structured = _mapping(artifact).get(_STRUCTURED)
    if structured is not None:
        return structured
    blocks = [_as_sent(one) for one in cast("list[dict[str, Any]]", content)]
    if len(blocks) == 1 and blocks[0]["type"] == "text" and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    return {"content": blocks}


def text_in(content: Sequence[Any]) -> str | None:
    """Return the text of content blocks, None where they have none."""
    said = [one if isinstance(one, str) else _mapping(one).get("text") for one in content]
    return "\n".join(one for one in said if isinstance(one, str) and one) or None


def _as_sent(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without the id that LangChain makes up, a link in the words of the protocol."""
    if isinstance(url := block.get("url"), str) and block["type"] in ("image", "audio", "file"):
        described = {"mimeType": block["mime_type"]} if isinstance(block.get("mime_type"), str) else {}
        return {"type": "resource_link", "uri": url, **described}
    return {key: one for key, one in block.items() if key != "id"}


def _is_block(given: Any) -> bool:
    return isinstance(_mapping(given).get("type"), str)


def _mapping(given: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
