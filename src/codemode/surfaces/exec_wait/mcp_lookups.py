"""Resources and prompts of a server of MCP: what programs list, read and get. Asked anew each time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...tools.tool import Tool
from .mcp_session import all_plain, asked, offers, pages, shown
from .mcp_tool import Making, McpTool

_log = logging.getLogger("codemode.tools")
RESOURCES, PROMPTS = "resources", "prompts"
_READS = {"readOnlyHint": True}
_TEXT = {"type": "string"}
_OF_READ = {"type": "object", "properties": {"uri": _TEXT}, "required": ["uri"], "additionalProperties": False}
_OF_GET = {
    "type": "object",
    "properties": {"name": _TEXT, "arguments": {"type": "object", "additionalProperties": _TEXT}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Lookups:
    """``offered``: for each of resources and prompts that a server has, the id behind each name; ``tools`` by id."""

    offered: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    tools: Mapping[str, McpTool] = field(default_factory=lambda: MappingProxyType({}))


async def lookups_of(session: Any, id_of: Callable[[str], str], making: Making) -> Lookups:
    """Return what a server offers beside its tools."""
    offered: dict[str, dict[str, str]] = {}
    tools: dict[str, McpTool] = {}
    for what, make in ((RESOURCES, _resources), (PROMPTS, _prompts)):
        made = make(session)
        if made is None or not await _are_offered(session, what):
            continue
        offered[what] = {name: id_of(f"{what}/{name}") for name in made}
        for name, (execute, takes) in made.items():
            tool_id = offered[what][name]
            made_tool = Tool(f"{what}/{name}", execute=execute, input_schema=takes, annotations=_READS)
            tools[tool_id] = McpTool(made_tool, tool_id, making)
    return Lookups(offered, tools)


_Made = dict[str, tuple[Callable[[Any, Any], Awaitable[Any]], Any]]


def _resources(session: Any) -> _Made | None:
    list_page, read_one = getattr(session, "list_resources", None), getattr(session, "read_resource", None)
    if list_page is None or read_one is None:
        return None

    async def list_all(_value: Any, _context: Any) -> dict[str, Any]:
        found, _ = await asked(pages(list_page, RESOURCES))
        templates = await _templates(session)
        told = {RESOURCES: await all_plain(found)}
        return {**told, "resourceTemplates": await all_plain(templates)} if templates else told

    async def read(value: Any, _context: Any) -> dict[str, Any]:
        return await shown(await asked(read_one(value["uri"])), ("contents",))

    return {"list": (list_all, None), "read": (read, _OF_READ)}


async def _templates(session: Any) -> list[Any]:
    list_page = getattr(session, "list_resource_templates", None)
    if list_page is None:
        return []
    try:
        return (await pages(list_page, "resource_templates", "resourceTemplates"))[0]
    except Exception as error:  # noqa: BLE001 - a server without them may say so with an error
        with suppress(Exception):  # of a handler, which is host code
            _log.info("a server gave an error for its templates of resources", exc_info=error)
        return []


def _prompts(session: Any) -> _Made | None:
    list_page, get_one = getattr(session, "list_prompts", None), getattr(session, "get_prompt", None)
    if list_page is None or get_one is None:
        return None

    async def list_all(_value: Any, _context: Any) -> dict[str, Any]:
        found, _ = await asked(pages(list_page, PROMPTS))
        return {PROMPTS: await all_plain(found)}

    async def get(value: Any, _context: Any) -> dict[str, Any]:
        return await shown(
            await asked(get_one(value["name"], dict(value.get("arguments", {})))), ("description", "messages")
        )

    return {"list": (list_all, None), "get": (get, _OF_GET)}


async def _are_offered(session: Any, what: str) -> bool:
    said = offers(session, what)
    if said is not None:
        return said
    try:
        await getattr(session, f"list_{what}")()
    except Exception as error:  # noqa: BLE001 - a server without them says so with an error
        with suppress(Exception):  # of a handler, which is host code
            _log.info("a server that does not say whether it has %s gave an error for them", what, exc_info=error)
        return False
    return True
