"""What a server says that it has: its tools page by page, and itself. Reads hostile lists; keeps nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header

from codemode.data.json_values import canonical_json, decode_json, encode_json
from codemode.data.narrowing import is_array, is_mapping, list_or_empty
from codemode.host.threads import run_check, run_off_loop
from codemode.tools.server_lists import (
    CONFLICTING_DUPLICATE_REASON,
    DUPLICATE_REASON,
    MAX_NOTE_CHARACTERS,
    MAX_NOTES,
    LeftOut,
    PageCursors,
    describe_json_type,
    entry_label,
)
from codemode.trace.visible_text import one_line

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..state_files import is_unused, note_use, schedule_cleanup

MAX_TOOLS = 5_000
MAX_TOOL_BYTES = 256 << 10
MAX_LIST_BYTES = 64 << 20
MAX_LIST_VALUES = 150_000
"""Of all schemas of a server, about: they stay, and whenever they are looked through for circles all stands."""
_MAX_TOOL_VALUES = 20_000
_MAX_INSTRUCTIONS = 16_000
_SMALL = 1 << 20
_FEW = 20
_TOO_LARGE = f"larger than {MAX_TOOL_BYTES >> 10} KiB or {_MAX_TOOL_VALUES:,} values"
_MAX_HIDDEN_NAME = 1_000
_HEADERS = "it wants arguments in headers that cannot be sent"


@dataclass(frozen=True)
class Listing:
    """What a server was listed as. ``digest`` is another one whenever any of its tools is.

    ``left_out`` says which entries of the list programs do not get, and why.
    """

    tools: tuple[types.Tool, ...] = ()
    texts: tuple[str, ...] = field(default=(), repr=False)
    digest: str = ""
    era: Literal["handshake", "modern"] | None = None
    capabilities: types.ServerCapabilities | None = None
    server_info: types.Implementation | None = None
    instructions: str | None = None
    ttl_ms: int | None = None
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON, but for the tools, whose texts are JSON already."""
        return {
            "era": self.era,
            "capabilities": _dumped(self.capabilities),
            "serverInfo": _dumped(self.server_info),
            "instructions": self.instructions,
            "leftOut": [*self.left_out],
        }


def listing_of(said: Mapping[str, Any], tools: list[Any]) -> Listing:
    """Return a listing from what was kept of one. Raises `ValueError` for what is none."""
    era = said.get("era")
    instructions = said.get("instructions")
    kept, texts, left_out = tools_of(tools)
    known = [note for note in list_or_empty(said.get("leftOut")) if isinstance(note, str)]
    return Listing(
        tools=kept,
        texts=texts,
        digest=_digest(texts),
        era=era if era in ("handshake", "modern") else None,
        capabilities=_read(types.ServerCapabilities, said.get("capabilities")),
        server_info=_read(types.Implementation, said.get("serverInfo")),
        instructions=instructions[:_MAX_INSTRUCTIONS] if isinstance(instructions, str) else None,
        left_out=(*(one_line(note, MAX_NOTE_CHARACTERS) for note in known), *left_out.notes)[:MAX_NOTES],
    )


class PageRefusedError(Exception):
    """The server has answered the request for a page with an error, whose text is the message."""


async def listed_tools(
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], secrets: SecretRedactor, *, mirrors: bool = False
) -> Listing:
    """Return what a server lists: its tools, their texts and digest, for how long they hold, what is left out.

    ``ask`` sends one ``tools/list``; where it raises `PageRefusedError` for a page after the first, the tools of the
    pages before it are used. A list that does not end, or is too long, ends where it is. Where the connection
    ``mirrors`` arguments into headers, tools that want this in a way that cannot be are left out.
    """
    tools: list[types.Tool] = []
    texts: dict[str, str] = {}
    left_out = LeftOut()
    cursors = PageCursors(left_out)
    room, ttl, entries = Room(), None, 0
    while True:
        try:
            page = await ask({} if cursors.cursor is None else {"cursor": cursors.cursor})
        except PageRefusedError as error:
            if cursors.cursor is None:
                raise
            cursors.note_refusal(secrets.redact_text(str(error)))
            break
        listed = _entries(page, left_out)
        read = _Reading(room, texts, secrets.redact, first=entries + 1, mirrors=mirrors, repeats=cursors.is_repeat)
        found = await run_check(
            _SMALL if len(listed) > _FEW else 0, lambda listed=listed, read=read: read.page_of(listed)
        )
        tools += found.tools
        texts |= zip((tool.name for tool in found.tools), found.texts, strict=True)
        left_out.include(found.left_out)
        room, ttl, entries = found.room, _ttl(page, ttl), entries + len(listed)
        if room.is_used_up or not cursors.follow(page.get("nextCursor"), has_new=bool(found.tools)):
            break
    digest = await run_check(sum(map(len, texts.values())), lambda: _digest([*texts.values()]))
    return Listing(tuple(tools), tuple(texts.values()), digest, ttl_ms=ttl, left_out=left_out.notes)


def _entries(page: Mapping[str, Any], left_out: LeftOut) -> list[Any]:
    """Return the entries of a page; those of an object are tools by their names, and a page may be the array itself."""
    tools = page.get("tools", page.get("toolResult"))
    if is_array(tools):
        return [*tools]
    if is_mapping(tools):
        return [{"name": name, **tool} if is_mapping(tool) else tool for name, tool in tools.items()]
    left_out.note(f"a page of the list has no array of tools: tools is {describe_json_type(tools)}")
    return []


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


@dataclass(frozen=True)
class _Page:
    tools: list[types.Tool]
    texts: list[str]
    left_out: LeftOut
    room: Room


@dataclass(frozen=True)
class _Reading:
    """How the entries of a page become tools. ``known`` are the texts of tools of other pages, by name.

    ``hide`` is called with each entry before anything is made of it, ``first`` is the place of the first in the whole
    list, ``repeats`` says that entries of other pages may be there again.
    """

    room: Room
    known: Mapping[str, str]
    hide: Callable[[Any], Any] | None = None
    first: int = 1
    mirrors: bool = False
    repeats: bool = False

    def page_of(self, entries: list[Any]) -> _Page:
        """Return the tools of a page. Changes nothing, and may be begun again."""
        page = _Page([], [], LeftOut(), copy(self.room))
        texts: dict[str, str] = {}
        for place, entry in enumerate(entries[: MAX_TOOLS + 1], self.first):
            shown, text, why = self._read_entry(entry)
            tool = _tool(shown) if why is None else None
            if tool is None:
                page.left_out.add(why or _impossible_name(shown), entry_label(shown, place))
                continue
            if not page.room.take(text):
                page.left_out.note(f"the list is longer than allowed: what comes after entry {place - 1:,} is left out")
                break
            before = texts.get(tool.name) or self.known.get(tool.name)
            if before is not None:
                if before != text or not self.repeats:
                    why = DUPLICATE_REASON if before == text else CONFLICTING_DUPLICATE_REASON
                    page.left_out.add(why, entry_label(shown, place))
            elif self.mirrors and _wants_what_cannot_be(tool):
                page.left_out.add(_HEADERS, entry_label(shown, place))
            else:
                if (schema := shown.get("inputSchema")) is not None and not is_mapping(schema):
                    what = f"its inputSchema is {describe_json_type(schema)}, not an object: it takes any object"
                    page.left_out.note(f"{entry_label(shown, place)}: {what}")
                texts[tool.name] = text
                page.tools.append(tool)
                page.texts.append(text)
        return page

    def _read_entry(self, entry: Any) -> tuple[Any, str, str | None]:
        """Return an entry without secrets, its text, and why it can be no tool."""
        if not is_mapping(entry):
            return entry, "", f"{describe_json_type(entry)}, not an object"
        try:
            shown = entry if self.hide is None else self.hide(entry)
            text = encode_json(shown, max_bytes=MAX_TOOL_BYTES, max_values=_MAX_TOOL_VALUES, what="a tool")
        except Exception:  # noqa: BLE001 - a tool that cannot be read costs the others nothing
            name = entry.get("name")
            is_shown = isinstance(name, str) and len(name) <= _MAX_HIDDEN_NAME
            return {"name": self.hide(name) if self.hide and is_shown else None}, "", _TOO_LARGE
        return shown, text, None


def tools_of(
    given: list[Any],
    room: Room | None = None,
    *,
    hide: Callable[[Any], Any] | None = None,
    mirrors: bool = False,
) -> tuple[tuple[types.Tool, ...], tuple[str, ...], LeftOut]:
    """Return the tools among what a server has listed, each as JSON text, and what is left out."""
    page = _Reading(room or Room(), {}, hide, mirrors=mirrors).page_of(given)
    return tuple(page.tools), tuple(page.texts), page.left_out


def _tool(entry: Mapping[str, Any]) -> types.Tool | None:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    try:
        return types.Tool.model_validate(_sound(entry), by_name=False)
    except ValueError:
        return None


def _impossible_name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if name is None or isinstance(name, str):
        return "it has no name" if name is None or not name.strip() else "it cannot be read as a tool"
    return f"its name is {describe_json_type(name)}, not a string"


def _wants_what_cannot_be(tool: types.Tool) -> bool:
    try:
        return find_invalid_x_mcp_header(tool.input_schema) is not None
    except (RecursionError, TypeError, ValueError):
        return True


def _sound(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a tool what is wrong in it and no tool is lost for."""
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
    for text in texts:
        hashed.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return hashed.hexdigest()


def _dumped(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _read(kind: Any, said: Any) -> Any:
    try:
        return None if said is None else kind.model_validate(said, by_name=False)
    except ValueError:
        return None


# What is read is as hostile as what a server says: several gateways write here, and so may others of the same user.

_VERSION = 1
_MAX_BYTES = MAX_LIST_BYTES + (1 << 20)
_MAX_DEPTH = 128
# What a list cannot depend on: all else of a configuration may change which tools there are.
_OWN = frozenset(
    [
        "approval",
        "tool_approvals",
        "auto_approve",
        "allow",
        "deny",
        "common_patterns",
        "timeout_ms",
        "connect_timeout_ms",
        "max_concurrency",
        "max_concurrency_per_program",
        "idle_ms",
        "pin",
        "output_validation",
        "approval_wait_ms",
        "secrets",
    ]
)
_KEPT = re.compile(r"[0-9a-f]{64}\.json")
_BEING_WRITTEN = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.[0-9a-f]{8}")
_WRITTEN_SECONDS = 3_600.0
_log = logging.getLogger("codemode.mcp")


class ListCache:
    """The lists of one principal in one folder; without a folder nothing is kept.

    Those of users and configurations that are gone are removed once nobody has read them for long.
    """

    def __init__(self, folder: Path | None, principal: str) -> None:
        self._folder = folder
        self._principal = principal

    async def read(self, config: ServerConfig) -> Listing | None:
        """Return the list that was kept of a server, None where there is none to be read."""
        path = self._path(config)
        if path is None:
            return None

        def work() -> Listing | None:
            text = _text(path)
            return None if text is None else _listing(text)

        return await _quietly(work, config.name)

    async def write(self, config: ServerConfig, listing: Listing) -> None:
        """Keep a list. Where that cannot be, nothing is lost but time."""
        path = self._path(config)
        if path is not None:
            await _quietly(lambda: _replace(path, _written(listing)), config.name)
            schedule_cleanup(path.parent, remove_unused)

    def _path(self, config: ServerConfig) -> Path | None:
        if self._folder is None:
            return None
        said = {one.name: _plain(getattr(config, one.name)) for one in fields(config) if one.name not in _OWN}
        key = canonical_json({"principal": self._principal, "server": said, "version": _VERSION})
        return self._folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


async def _quietly(work: Callable[[], Any], name: str) -> Any:
    try:
        return await run_off_loop(work)
    except Exception as error:  # noqa: BLE001 - a cache that fails is none
        _log.warning("the kept list of server %r cannot be used: %s", name, type(error).__name__)
        return None


def _plain(value: Any) -> Any:
    if is_mapping(value):
        return dict(value)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _text(path: Path) -> str | None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_own = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
        if not stat.S_ISREG(found.st_mode) or not is_own or found.st_size > _MAX_BYTES:
            return None
        note_use(path)
        return file.read(_MAX_BYTES + 1).decode("utf-8", "replace")


def _listing(text: str) -> Listing | None:
    kept = decode_json(text, max_depth=_MAX_DEPTH)
    if not is_mapping(kept) or kept.get("version") != _VERSION or not is_array(kept.get("tools")):
        return None
    return listing_of(kept, kept["tools"])


def _written(listing: Listing) -> bytes:
    # The texts of the tools are JSON as they are.
    head = json.dumps({"version": _VERSION, **listing.to_dict()})
    return f'{head[:-1]},"tools":[{",".join(listing.texts)}]}}'.encode("utf-8", "surrogatepass")


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def remove_unused(folder: Path) -> None:
    """Remove the lists that nobody has read for long, and what was left in the middle of writing. Raises `OSError`.

    Whoever reads or writes one meanwhile loses nothing but time.
    """
    with os.scandir(folder) as found:
        for one in found:
            is_list = _KEPT.fullmatch(one.name) is not None
            is_left = not is_list and _BEING_WRITTEN.fullmatch(one.name) is not None
            with suppress(OSError):
                if (is_list and is_unused(one.stat(follow_symlinks=False))) or (
                    is_left and is_unused(one.stat(follow_symlinks=False), _WRITTEN_SECONDS)
                ):
                    Path(one).unlink()
