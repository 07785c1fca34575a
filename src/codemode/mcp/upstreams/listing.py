"""What a server says that it has: its tools page by page, and itself. Reads hostile lists; keeps nothing."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header

from ...data.json_values import encode_json
from ...data.narrowing import is_array, is_mapping
from ...host import steps
from ...host.threads import run_check
from ..config.secrets import Secrets

MAX_TOOLS = 5_000
MAX_PAGES = 1_000
MAX_TOOL_BYTES = 256 << 10
MAX_LIST_BYTES = 64 << 20
MAX_LIST_VALUES = 150_000
"""Of all schemas of a server, about: they stay, and whenever they are looked through for circles all stands."""
_MAX_TOOL_VALUES = 20_000
_MAX_INSTRUCTIONS = 16_000
_SMALL = 1 << 20
_log = logging.getLogger("codemode.mcp")


@dataclass(frozen=True)
class Listing:
    """What a server was listed as. ``digest`` is another one whenever any of its tools is."""

    tools: tuple[types.Tool, ...] = ()
    texts: tuple[str, ...] = field(default=(), repr=False)
    digest: str = ""
    era: Literal["handshake", "modern"] | None = None
    capabilities: types.ServerCapabilities | None = None
    server_info: types.Implementation | None = None
    instructions: str | None = None
    ttl_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON, but for the tools, whose texts are JSON already."""
        return {
            "era": self.era,
            "capabilities": _dumped(self.capabilities),
            "serverInfo": _dumped(self.server_info),
            "instructions": self.instructions,
        }


def listing_of(said: Mapping[str, Any], tools: list[Any], name: str) -> Listing:
    """Return a listing from what was kept of one. Metered work; raises `ValueError` for what is none."""
    era = said.get("era")
    instructions = said.get("instructions")
    kept, texts = tools_of(tools, name)
    return Listing(
        tools=kept,
        texts=texts,
        digest=_digest(texts),
        era=era if era in ("handshake", "modern") else None,
        capabilities=_read(types.ServerCapabilities, said.get("capabilities")),
        server_info=_read(types.Implementation, said.get("serverInfo")),
        instructions=instructions[:_MAX_INSTRUCTIONS] if isinstance(instructions, str) else None,
    )


async def listed_tools(
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], name: str, secrets: Secrets, *, mirrors: bool = False
) -> tuple[tuple[types.Tool, ...], tuple[str, ...], str, int | None]:
    """Return the tools of a server, their texts, a digest of them, and for how long they hold, if it says so.

    ``ask`` sends one ``tools/list``. A list that does not end, or is too long, ends where it is. Where the connection
    ``mirrors`` arguments into headers, tools that want this in a way that cannot be are left out.
    """
    tools: list[types.Tool] = []
    texts: list[str] = []
    room, ttl = Room(), None
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask({} if cursor is None else {"cursor": cursor})
        given = page.get("tools")
        found = await run_check(
            _SMALL if is_array(given) and len(given) > _FEW else 0,
            lambda given=given, left=room: _page(given, name, secrets, left, mirrors=mirrors),
        )
        tools += found[0]
        texts += found[1]
        room = found[2]
        ttl = _ttl(page, ttl)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            break
        if cursor in seen or room.is_used_up:
            _log.warning("the list of tools of server %r does not end; the first %d are taken", name, len(tools))
            break
        seen.add(cursor)
    else:
        _log.warning("the list of tools of server %r has more than %d pages; the rest is left out", name, MAX_PAGES)
    digest = await run_check(sum(map(len, texts)), lambda: _digest(texts))
    return tuple(tools), tuple(texts), digest, ttl


_FEW = 20


class Room:
    """How much of a list is still taken. ``is_used_up`` is known once something had to be left out for it."""

    def __init__(self) -> None:
        self.is_used_up = False
        self._tools, self._bytes, self._values = MAX_TOOLS, MAX_LIST_BYTES, MAX_LIST_VALUES

    def take(self, text: str) -> bool:
        """Take room for a tool, if there is some; behind the first for which there is none nothing is taken."""
        self._tools -= 1
        self._bytes -= len(text)
        self._values -= text.count(",") + text.count("{") + text.count("[")  # which texts have too, but few
        self.is_used_up = self.is_used_up or min(self._tools, self._bytes, self._values) < 0
        return not self.is_used_up


def _page(
    given: Any, name: str, secrets: Secrets, left: Room, *, mirrors: bool
) -> tuple[tuple[types.Tool, ...], tuple[str, ...], Room]:
    room = copy(left)  # this may be begun again
    found = tools_of(given if is_array(given) else [], name, room, hide=secrets.value, mirrors=mirrors)
    return (*found, room)


def tools_of(
    given: list[Any],
    name: str,
    room: Room | None = None,
    *,
    hide: Callable[[Any], Any] | None = None,
    mirrors: bool = False,
) -> tuple[tuple[types.Tool, ...], tuple[str, ...]]:
    """Return the tools among what a server has listed, and each as JSON text. Metered work.

    No more are looked at than there is ``room`` for; ``hide`` is called with each before anything is made of it.
    """
    room = room or Room()
    tools: list[types.Tool] = []
    texts: list[str] = []
    names: set[str] = set()
    left_out = 0
    for one in given[: MAX_TOOLS + 1]:
        steps.take(4)
        try:
            shown = one if hide is None else hide(one)
            text = encode_json(shown, max_bytes=MAX_TOOL_BYTES, max_values=_MAX_TOOL_VALUES, what="a tool")
            tool = types.Tool.model_validate(_sound(shown), by_name=False)
        except Exception:  # noqa: BLE001 - a tool that cannot be read costs the others nothing
            left_out += 1
            continue
        if not room.take(text):
            _log.warning("server %r lists more tools than are taken: the first %d are", name, len(tools))
            break
        if tool.name in names or (mirrors and _wants_what_cannot_be(tool)):
            left_out += 1
            continue
        names.add(tool.name)
        tools.append(tool)
        texts.append(text)
    if left_out:
        why = "they are too large, there twice, none, or want headers that cannot be"
        _log.warning("%d tools of server %r are left out: %s", left_out, name, why)
    return tuple(tools), tuple(texts)


def _wants_what_cannot_be(tool: types.Tool) -> bool:
    try:
        return find_invalid_x_mcp_header(tool.input_schema) is not None
    except (RecursionError, TypeError, ValueError):
        return True


def _sound(given: Any) -> Any:
    """Leave out of a tool what is wrong in it and no tool is lost for."""
    if not is_mapping(given):
        return given
    sound = dict(given)
    if not is_mapping(sound.get("inputSchema")):
        sound["inputSchema"] = {"type": "object"}
    for part, kind in (("outputSchema", None), ("annotations", types.ToolAnnotations)):
        if (part in sound and not is_mapping(sound[part])) or (
            part in sound and kind is not None and _read(kind, sound[part]) is None
        ):
            del sound[part]
    if not is_mapping(sound.get("_meta")):
        sound.pop("_meta", None)
    for part in ("icons", "execution"):
        sound.pop(part, None)
    for part in ("title", "description"):
        if not isinstance(sound.get(part), str):
            sound.pop(part, None)
    return sound


def _ttl(page: Mapping[str, Any], before: int | None) -> int | None:
    said = page.get("ttlMs")
    if isinstance(said, bool) or not isinstance(said, int) or said < 0:
        return before
    return said if before is None else min(said, before)


def _digest(texts: tuple[str, ...] | list[str]) -> str:
    hashed = hashlib.sha256()
    for text in steps.metered(texts):
        hashed.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return hashed.hexdigest()


def _dumped(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _read(kind: Any, said: Any) -> Any:
    try:
        return None if said is None else kind.model_validate(said, by_name=False)
    except ValueError:
        return None
