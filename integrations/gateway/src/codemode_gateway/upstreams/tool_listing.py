"""Read and cache tool lists of untrusted servers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header

from codemode.data.json_values import decode_json, encode_canonical_json, encode_json
from codemode.data.narrowing import is_array, is_mapping, list_or_empty
from codemode.host.threads import run_in_single_use_thread, run_in_thread_if_large_or_slow
from codemode.tools.server_lists import (
    CONFLICTING_DUPLICATE_REASON,
    DUPLICATE_REASON,
    MAX_NOTE_CHARACTERS,
    MAX_NOTES,
    OmittedEntries,
    PageCursorTracker,
    describe_json_type,
    format_entry_label,
)
from codemode.trace.visible_text import clip_to_visible_line

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..state_files import (
    is_file_unused,
    mark_file_used,
    read_private_file,
    start_cleanup_if_due,
    write_private_file,
)

MAX_TOOLS = 5_000
MAX_TOOL_BYTES = 256 << 10
MAX_LIST_BYTES = 64 << 20
MAX_LIST_VALUES = 150_000
"""Approximate limit for all schemas of a server: they stay in memory and slow down garbage collection."""
_MAX_TOOL_VALUES = 20_000
_MAX_INSTRUCTIONS = 16_000
_INLINE_CHARACTERS = 1 << 20
_MAX_INLINE_ENTRIES = 20
_TOO_LARGE = f"larger than {MAX_TOOL_BYTES >> 10} KiB or {_MAX_TOOL_VALUES:,} values"
_MAX_HIDDEN_NAME = 1_000
_UNSUPPORTED_HEADERS = "it wants arguments in invalid headers"


@dataclass(frozen=True)
class Listing:
    """A tool list. ``digest`` changes with any tool; ``left_out`` explains omitted entries."""

    tools: tuple[types.Tool, ...] = ()
    texts: tuple[str, ...] = field(default=(), repr=False)
    digest: str = ""
    era: Literal["handshake", "modern"] | None = None
    capabilities: types.ServerCapabilities | None = None
    server_info: types.Implementation | None = None
    instructions: str | None = None
    ttl_ms: int | None = None
    left_out: tuple[str, ...] = ()

    def to_dict_without_tools(self) -> dict[str, Any]:
        """Return plain JSON except for the tools, which are JSON texts already."""
        return {
            "era": self.era,
            "capabilities": _model_to_json(self.capabilities),
            "serverInfo": _model_to_json(self.server_info),
            "instructions": self.instructions,
            "leftOut": [*self.left_out],
        }


def restore_listing(stored: Mapping[str, Any], tools: list[Any]) -> Listing:
    """Return a listing from its stored form. Raises `ValueError`."""
    era = stored.get("era")
    instructions = stored.get("instructions")
    loaded, texts, left_out = parse_listed_tools(tools)
    stored_notes = [note for note in list_or_empty(stored.get("leftOut")) if isinstance(note, str)]
    return Listing(
        tools=loaded,
        texts=texts,
        digest=_compute_digest(texts),
        era=era if era in ("handshake", "modern") else None,
        capabilities=_parse_model_or_none(types.ServerCapabilities, stored.get("capabilities")),
        server_info=_parse_model_or_none(types.Implementation, stored.get("serverInfo")),
        instructions=instructions[:_MAX_INSTRUCTIONS] if isinstance(instructions, str) else None,
        left_out=(*(clip_to_visible_line(note, MAX_NOTE_CHARACTERS) for note in stored_notes), *left_out.notes)[
            :MAX_NOTES
        ],
    )


class PageRefusedError(Exception):
    """The server refused a page with an error. The message is the error's text."""


async def fetch_listing(
    request_page: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    secrets: SecretRedactor,
    *,
    supports_argument_headers: bool = False,
) -> Listing:
    """Fetch a server's tools with texts, digest, lifetime and omitted entries.

    ``request_page`` sends one ``tools/list`` request. If a later page raises `PageRefusedError`, earlier pages are
    used. Endless or oversized lists are cut. With ``supports_argument_headers``, tools with invalid header mappings are
    left out.
    """
    tools: list[types.Tool] = []
    texts: dict[str, str] = {}
    left_out = OmittedEntries()
    cursors = PageCursorTracker(left_out)
    budget, ttl, entries = ListBudget(), None, 0
    while True:
        try:
            page = await request_page({} if cursors.cursor is None else {"cursor": cursors.cursor})
        except PageRefusedError as error:
            if cursors.cursor is None:
                raise
            cursors.record_page_refusal(secrets.redact_text(str(error)))
            break
        page_entries = _extract_page_entries_and_note_problems(page, left_out)
        reader = _PageParser(
            budget,
            texts,
            secrets.redact,
            first=entries + 1,
            supports_argument_headers=supports_argument_headers,
            repeats=cursors.is_repeat,
        )
        result = await run_in_thread_if_large_or_slow(
            _INLINE_CHARACTERS if len(page_entries) > _MAX_INLINE_ENTRIES else 0,
            lambda page_entries=page_entries, reader=reader: reader.parse_page(page_entries),
        )
        tools += result.tools
        texts |= zip((tool.name for tool in result.tools), result.texts, strict=True)
        left_out.merge(result.left_out)
        budget, ttl, entries = result.budget, _compute_min_ttl(page, ttl), entries + len(page_entries)
        if budget.is_used_up or not cursors.advance_to(page.get("nextCursor"), has_new=bool(result.tools)):
            break
    digest = await run_in_thread_if_large_or_slow(
        sum(map(len, texts.values())), lambda: _compute_digest([*texts.values()])
    )
    return Listing(tuple(tools), tuple(texts.values()), digest, ttl_ms=ttl, left_out=left_out.notes)


def _extract_page_entries_and_note_problems(page: Mapping[str, Any], left_out: OmittedEntries) -> list[Any]:
    """Return the entries of a page. Accepts an object of tools by name, and ``toolResult`` for ``tools``."""
    tools = page.get("tools", page.get("toolResult"))
    if is_array(tools):
        return [*tools]
    if is_mapping(tools):
        return [{"name": name, **tool} if is_mapping(tool) else tool for name, tool in tools.items()]
    left_out.add_list_note(f"a page of the list has no array of tools: tools is {describe_json_type(tools)}")
    return []


class ListBudget:
    """The remaining size of a list. ``is_used_up`` is set when an entry did not fit."""

    def __init__(self) -> None:
        self.is_used_up = False
        self._tools, self._bytes, self._values = MAX_TOOLS, MAX_LIST_BYTES, MAX_LIST_VALUES

    def reserve_tool(self, text: str) -> bool:
        """Reserve space for a tool; return False if it, or an earlier one, did not fit."""
        self._tools -= 1
        self._bytes -= len(text)
        self._values -= text.count(",") + text.count("{") + text.count("[")  # an estimate: texts contain these too
        self.is_used_up = self.is_used_up or min(self._tools, self._bytes, self._values) < 0
        return not self.is_used_up


@dataclass(frozen=True)
class _Page:
    tools: list[types.Tool]
    texts: list[str]
    left_out: OmittedEntries
    budget: ListBudget


@dataclass(frozen=True)
class _PageParser:
    """Parses the entries of a page. ``cached_texts`` are the texts of tools of other pages by name.

    ``hide`` redacts each entry, ``first`` is the position of the first entry in the whole list, and ``repeats`` allows
    entries of other pages to occur again.
    """

    budget: ListBudget
    cached_texts: Mapping[str, str]
    hide: Callable[[Any], Any] | None = None
    first: int = 1
    supports_argument_headers: bool = False
    repeats: bool = False

    def parse_page(self, entries: list[Any]) -> _Page:
        """Return the tools of a page. Has no side effects and can be repeated."""
        page = _Page([], [], OmittedEntries(), copy(self.budget))
        texts: dict[str, str] = {}
        for place, entry in enumerate(entries[: MAX_TOOLS + 1], self.first):
            visible, text, reason = self._redact_and_serialize_entry(entry)
            tool = _parse_tool(visible) if reason is None else None
            if tool is None:
                page.left_out.add_entry(reason or _describe_invalid_entry(visible), format_entry_label(visible, place))
                continue
            if not page.budget.reserve_tool(text):
                page.left_out.add_list_note(f"the list is too long: entries after {place - 1:,} are left out")
                break
            cached_text = texts.get(tool.name) or self.cached_texts.get(tool.name)
            if cached_text is not None:
                if cached_text != text or not self.repeats:
                    reason = DUPLICATE_REASON if cached_text == text else CONFLICTING_DUPLICATE_REASON
                    page.left_out.add_entry(reason, format_entry_label(visible, place))
            elif self.supports_argument_headers and _has_invalid_argument_header(tool):
                page.left_out.add_entry(_UNSUPPORTED_HEADERS, format_entry_label(visible, place))
            else:
                if (schema := visible.get("inputSchema")) is not None and not is_mapping(schema):
                    note = f"its inputSchema is {describe_json_type(schema)}, not an object: it accepts any object"
                    page.left_out.add_list_note(f"{format_entry_label(visible, place)}: {note}")
                texts[tool.name] = text
                page.tools.append(tool)
                page.texts.append(text)
        return page

    def _redact_and_serialize_entry(self, entry: Any) -> tuple[Any, str, str | None]:
        """Return an entry without secrets, its text, and the reason if it is not a tool."""
        if not is_mapping(entry):
            return entry, "", f"{describe_json_type(entry)}, not an object"
        try:
            visible = entry if self.hide is None else self.hide(entry)
            text = encode_json(visible, max_bytes=MAX_TOOL_BYTES, max_values=_MAX_TOOL_VALUES, what="a tool")
        except Exception:  # noqa: BLE001 - an unreadable tool must not affect the others
            name = entry.get("name")
            is_shown = isinstance(name, str) and len(name) <= _MAX_HIDDEN_NAME
            return {"name": self.hide(name) if self.hide and is_shown else None}, "", _TOO_LARGE
        return visible, text, None


def parse_listed_tools(
    entries: list[Any],
    budget: ListBudget | None = None,
    *,
    hide: Callable[[Any], Any] | None = None,
    supports_argument_headers: bool = False,
) -> tuple[tuple[types.Tool, ...], tuple[str, ...], OmittedEntries]:
    """Return the tools of a server's list, their JSON texts and the omitted entries."""
    page = _PageParser(
        budget or ListBudget(), {}, hide, supports_argument_headers=supports_argument_headers
    ).parse_page(entries)
    return tuple(page.tools), tuple(page.texts), page.left_out


def _parse_tool(entry: Mapping[str, Any]) -> types.Tool | None:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    try:
        return types.Tool.model_validate(_repair_and_strip_entry(entry), by_name=False)
    except ValueError:
        return None


def _describe_invalid_entry(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if name is None or isinstance(name, str):
        return "it has no name" if name is None or not name.strip() else "it is not a valid tool"
    return f"its name is {describe_json_type(name)}, not a string"


def _has_invalid_argument_header(tool: types.Tool) -> bool:
    try:
        return find_invalid_x_mcp_header(tool.input_schema) is not None
    except (RecursionError, TypeError, ValueError):
        return True


def _repair_and_strip_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's entry without its invalid optional fields."""
    repaired = dict(entry)
    if not is_mapping(repaired.get("inputSchema")):
        repaired["inputSchema"] = {"type": "object"}
    for key, kind in (("outputSchema", None), ("annotations", types.ToolAnnotations)):
        if (key in repaired and not is_mapping(repaired[key])) or (
            key in repaired and kind is not None and _parse_model_or_none(kind, repaired[key]) is None
        ):
            del repaired[key]
    if not is_mapping(repaired.get("_meta")):
        repaired.pop("_meta", None)
    for key in ("icons", "execution"):
        repaired.pop(key, None)
    for key in ("title", "description"):
        if not isinstance(repaired.get(key), str):
            repaired.pop(key, None)
    return repaired


def _compute_min_ttl(page: Mapping[str, Any], previous: int | None) -> int | None:
    ttl = page.get("ttlMs")
    if isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0:
        return previous
    return ttl if previous is None else min(ttl, previous)


def _compute_digest(texts: tuple[str, ...] | list[str]) -> str:
    hashed = hashlib.sha256()
    for text in texts:
        hashed.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return hashed.hexdigest()


def _model_to_json(model: Any) -> Any:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _parse_model_or_none(model: Any, value: Any) -> Any:
    try:
        return None if value is None else model.model_validate(value, by_name=False)
    except ValueError:
        return None


# Cached lists are as hostile as servers: other gateways and other programs of the same user write here.

_VERSION = 1
_MAX_BYTES = MAX_LIST_BYTES + (1 << 20)
_MAX_DEPTH = 128
# The settings that cannot change a tool list; all others may.
_UNKEYED_FIELDS = frozenset(
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
_LIST_FILE = re.compile(r"[0-9a-f]{64}\.json")
_TEMPORARY_FILE = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.[0-9a-f]{8}")
_LEFTOVER_SECONDS = 3_600.0
_log = logging.getLogger("codemode.mcp")


class ListCache:
    """The cached lists of one principal in a folder; without a folder nothing is cached.

    Lists that were not read for a long time are removed.
    """

    def __init__(self, folder: Path | None, principal: str) -> None:
        self._folder = folder
        self._principal = principal

    async def read(self, config: ServerConfig) -> Listing | None:
        """Return the cached list of a server, or None."""
        path = self._get_path(config)
        if path is None:
            return None

        def read_listing() -> Listing | None:
            text = read_private_file(path, _MAX_BYTES)
            if text is None:
                return None
            mark_file_used(path)
            return _parse_listing(text)

        return await _run_off_loop_or_log(read_listing, config.name)

    async def write(self, config: ServerConfig, listing: Listing) -> None:
        """Cache a list. A failure costs only time."""
        path = self._get_path(config)
        if path is not None:
            await _run_off_loop_or_log(lambda: write_private_file(path, _serialize_listing(listing)), config.name)
            start_cleanup_if_due(path.parent, remove_unused_lists)

    def _get_path(self, config: ServerConfig) -> Path | None:
        if self._folder is None:
            return None
        settings = {
            config_field.name: _to_plain_value(getattr(config, config_field.name))
            for config_field in fields(config)
            if config_field.name not in _UNKEYED_FIELDS
        }
        key = encode_canonical_json({"principal": self._principal, "server": settings, "version": _VERSION})
        return self._folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


async def _run_off_loop_or_log(work: Callable[[], Any], name: str) -> Any:
    try:
        return await run_in_single_use_thread(work)
    except Exception as error:  # noqa: BLE001 - the cache is optional
        _log.warning("the cached list of server %r cannot be used: %s", name, type(error).__name__)
        return None


def _to_plain_value(value: Any) -> Any:
    if is_mapping(value):
        return dict(value)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _parse_listing(text: str) -> Listing | None:
    stored = decode_json(text, max_depth=_MAX_DEPTH)
    if not is_mapping(stored) or stored.get("version") != _VERSION or not is_array(stored.get("tools")):
        return None
    return restore_listing(stored, stored["tools"])


def _serialize_listing(listing: Listing) -> bytes:
    # The texts of the tools are JSON already.
    head = json.dumps({"version": _VERSION, **listing.to_dict_without_tools()})
    return f'{head[:-1]},"tools":[{",".join(listing.texts)}]}}'.encode("utf-8", "surrogatepass")


def remove_unused_lists(folder: Path) -> None:
    """Remove lists that were not read for a long time, and unfinished files. Raises `OSError`.

    Concurrent readers and writers lose only time.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            is_list = _LIST_FILE.fullmatch(entry.name) is not None
            is_leftover = not is_list and _TEMPORARY_FILE.fullmatch(entry.name) is not None
            with suppress(OSError):
                if (is_list and is_file_unused(entry.stat(follow_symlinks=False))) or (
                    is_leftover and is_file_unused(entry.stat(follow_symlinks=False), _LEFTOVER_SECONDS)
                ):
                    Path(entry).unlink()
