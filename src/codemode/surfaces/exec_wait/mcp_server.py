"""An MCP server in programs: names, tools, resources, prompts and declarations."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from ...data.json_shape import estimate_json_length
from ...data.narrowing import mapping_or_empty
from ...data.similar_names import find_nearest_names, format_suggestion
from ...errors import CodeModeToolError
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ...host.threads import run_cpu_bound_in_dedicated_thread
from ...schemas.patterns import drop_nonlinear_patterns
from ...signatures.declarations import (
    create_call_types_and_aliases,
    create_tool_jsdoc,
    extract_first_sentence,
    find_tool_description,
)
from ...signatures.described_tool import RenamedTool, rename_tool
from ...signatures.typescript import format_jsdoc, indent_lines
from ...tools.server_lists import (
    CONFLICTING_DUPLICATE_REASON,
    DUPLICATE_REASON,
    MAX_NOTES,
    OmittedEntries,
    format_entry_label,
    log_omitted_entries,
)
from ...tools.tool import Tool
from ...trace.failures import log_failure
from .mcp_session import (
    DEFAULT_TOOL_SETTINGS,
    McpTool,
    McpToolWithIdentifiers,
    ServerToolSettings,
    await_answer_or_raise_tool_error,
    create_mcp_tool,
    describe_server_error,
    has_capability,
    list_paged_items,
    read_callable_tool_name_or_none,
    read_field,
    select_fields_without_binary,
    to_plain_items,
)
from .options import InvalidConfigError
from .sources import INHERITED_NAMES, MCP, ToolSource, to_identifier, to_sources


@dataclass
class _SharedWork:
    loop: asyncio.AbstractEventLoop
    done: Future[None] = field(default_factory=Future[None])
    waiters: int = 0
    task: asyncio.Task[None] | None = None


class SingleFlight:
    """Shares one run of some work among concurrent callers, on the loop of the first. Cancelled when none waits."""

    def __init__(self, work: Callable[..., Awaitable[None]]) -> None:
        self._work = work
        self._lock = create_fork_safe_lock()
        self._flight: _SharedWork | None = None
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Reset in a forked child, which does not have the loop of the work."""
        never_finalize_in_child(self._flight)
        self._flight = None

    async def run(self, *arguments: Any) -> None:
        """Do the work, or wait for the run in progress; start again if its loop closes.

        Raises the exception of the work in all waiting callers.
        """
        while True:
            flight = self._join_or_start(arguments)
            try:
                await asyncio.shield(asyncio.wrap_future(flight.done))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not flight.done.cancelled() or (task is not None and task.cancelling()):
                    raise
            else:
                return
            finally:
                self._leave_and_cancel_if_last(flight)

    def _join_or_start(self, arguments: tuple[Any, ...]) -> _SharedWork:
        with self._lock:
            flight = self._flight
            if flight is None or flight.loop.is_closed():
                flight = self._flight = _SharedWork(asyncio.get_running_loop())
                flight.task = flight.loop.create_task(self._run_work(flight, arguments))
            flight.waiters += 1
            return flight

    def _leave_and_cancel_if_last(self, flight: _SharedWork) -> None:
        with self._lock:
            flight.waiters -= 1
            task = None if flight.waiters or flight.done.done() else flight.task
            if task is not None and self._flight is flight:
                self._flight = None
        if task is not None:
            with suppress(RuntimeError):  # its loop is closed
                flight.loop.call_soon_threadsafe(task.cancel)

    async def _run_work(self, flight: _SharedWork, arguments: tuple[Any, ...]) -> None:
        finish: Callable[[], Any] = flight.done.cancel
        try:
            await self._work(*arguments)
            finish = partial(flight.done.set_result, None)
        except Exception as error:  # noqa: BLE001 - raised in all waiting callers
            finish = partial(flight.done.set_exception, error)
        finally:
            with self._lock:
                if self._flight is flight:
                    self._flight = None
            with suppress(InvalidStateError):  # cancelled by its last waiter
                finish()


_WORD = re.compile(r"_+([A-Za-z0-9])")
SERVER_MEMBERS = frozenset({"$api", "resources", "prompts"})
"""Members of every server object other than its tools."""


def to_camel_case(name: str) -> str:
    """Convert an identifier to camel case: ``create_issue`` becomes ``createIssue``."""
    head = name[: len(name) - len(name.lstrip("_"))]
    body = name[len(head) :].rstrip("_")
    return head + _WORD.sub(lambda found: found[1].upper(), body) if body else name


def assign_server_names(owners: Iterable[str]) -> dict[str, str]:
    """Return the identifier of each server in programs, by its owner."""
    taken: set[str] = set()
    return {owner: _claim_unused_name(to_camel_case(to_identifier(owner)), taken, frozenset()) for owner in owners}


def assign_tool_names(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers of each tool, the primary first: ``createIssue``, then ``create_issue``."""
    ordered = sorted(set(names))
    taken: set[str] = set()
    # Names that are identifiers already keep them.
    identifiers_first = sorted(ordered, key=lambda name: to_camel_case(to_identifier(name)) != name)
    primary_names = {
        name: _claim_unused_name(to_camel_case(to_identifier(name)), taken, SERVER_MEMBERS)
        for name in identifiers_first
    }
    identifiers: dict[str, tuple[str, ...]] = {}
    for name in ordered:
        snake_name = to_identifier(name)
        if snake_name in taken or snake_name in SERVER_MEMBERS or snake_name in INHERITED_NAMES:
            identifiers[name] = (primary_names[name],)
        else:
            taken.add(snake_name)
            identifiers[name] = (primary_names[name], snake_name)
    return identifiers


def _claim_unused_name(name: str, taken: set[str], reserved: frozenset[str]) -> str:
    unused, number = name, 2
    while unused in taken or unused in reserved or unused in INHERITED_NAMES:
        unused, number = f"{name}{number}", number + 1
    taken.add(unused)
    return unused


_log = logging.getLogger("codemode.tools")
RESOURCES, PROMPTS = "resources", "prompts"
_READ_ONLY = {"readOnlyHint": True}
_TEXT = {"type": "string"}
_READ_SCHEMA = {"type": "object", "properties": {"uri": _TEXT}, "required": ["uri"], "additionalProperties": False}
_GET_PROMPT_SCHEMA = {
    "type": "object",
    "properties": {"name": _TEXT, "arguments": {"type": "object", "additionalProperties": _TEXT}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ResourceAndPromptTools:
    """``offered``: ids of the functions for resources and prompts, by kind and name. ``tools``: their tools, by id."""

    offered: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    tools: Mapping[str, McpTool] = field(default_factory=lambda: MappingProxyType({}))


async def create_resource_and_prompt_tools(
    session: Any, id_of: Callable[[str], str], settings: ServerToolSettings
) -> ResourceAndPromptTools:
    """Return the functions for the resources and prompts of a server."""
    offered: dict[str, dict[str, str]] = {}
    tools: dict[str, McpTool] = {}
    for kind, make in ((RESOURCES, _create_resource_lookups), (PROMPTS, _create_prompt_lookups)):
        functions = make(session)
        if functions is None or not await _probe_capability(session, kind):
            continue
        offered[kind] = {name: id_of(f"{kind}/{name}") for name in functions}
        for name, (execute, input_schema) in functions.items():
            tool_id = offered[kind][name]
            lookup_tool = Tool(f"{kind}/{name}", execute=execute, input_schema=input_schema, annotations=_READ_ONLY)
            tools[tool_id] = McpTool(lookup_tool, tool_id, settings)
    return ResourceAndPromptTools(offered, tools)


_LookupFunctions = dict[str, tuple[Callable[[Any, Any], Awaitable[Any]], Any]]


def _create_resource_lookups(session: Any) -> _LookupFunctions | None:
    list_page, read_one = getattr(session, "list_resources", None), getattr(session, "read_resource", None)
    if list_page is None or read_one is None:
        return None

    async def list_resources(_value: Any, _context: Any) -> dict[str, Any]:
        resources, _ = await await_answer_or_raise_tool_error(list_paged_items(list_page, RESOURCES))
        templates = await _list_templates(session)
        answer = {RESOURCES: await to_plain_items(resources)}
        return {**answer, "resourceTemplates": await to_plain_items(templates)} if templates else answer

    async def read_resource(value: Any, _context: Any) -> dict[str, Any]:
        return await select_fields_without_binary(
            await await_answer_or_raise_tool_error(read_one(value["uri"])), ("contents",)
        )

    return {"list": (list_resources, None), "read": (read_resource, _READ_SCHEMA)}


async def _list_templates(session: Any) -> list[Any]:
    list_page = getattr(session, "list_resource_templates", None)
    if list_page is None:
        return []
    try:
        return (await list_paged_items(list_page, "resource_templates", "resourceTemplates"))[0]
    except Exception as error:  # noqa: BLE001 - some servers without templates return an error
        with suppress(Exception):  # of a handler, which is host code
            _log.info("a server returned an error for resource templates", exc_info=error)
        return []


def _create_prompt_lookups(session: Any) -> _LookupFunctions | None:
    list_page, get_one = getattr(session, "list_prompts", None), getattr(session, "get_prompt", None)
    if list_page is None or get_one is None:
        return None

    async def list_prompts(_value: Any, _context: Any) -> dict[str, Any]:
        prompts, _ = await await_answer_or_raise_tool_error(list_paged_items(list_page, PROMPTS))
        return {PROMPTS: await to_plain_items(prompts)}

    async def get_prompt(value: Any, _context: Any) -> dict[str, Any]:
        return await select_fields_without_binary(
            await await_answer_or_raise_tool_error(get_one(value["name"], dict(value.get("arguments", {})))),
            ("description", "messages"),
        )

    return {"list": (list_prompts, None), "get": (get_prompt, _GET_PROMPT_SCHEMA)}


async def _probe_capability(session: Any, kind: str) -> bool:
    is_offered = has_capability(session, kind)
    if is_offered is not None:
        return is_offered
    try:
        await getattr(session, f"list_{kind}")()
    except Exception as error:  # noqa: BLE001 - servers without them return an error
        with suppress(Exception):  # of a handler, which is host code
            _log.info("a server that does not declare %s returned an error for them", kind, exc_info=error)
        return False
    return True


MAX_TOOLS = 2000


@dataclass(frozen=True)
class _ServerListing:
    """The result of listing a server. ``digest`` identifies it."""

    tools: tuple[McpToolWithIdentifiers, ...]
    lookups: ResourceAndPromptTools
    digest: str
    left_out: tuple[str, ...]


_EMPTY_LISTING = _ServerListing((), ResourceAndPromptTools(), "", ())


class McpServer:
    """An MCP server as programs see it. ``name`` is its identifier, ``owner`` the middle part of its tool ids.

    Thread-safe; its session is used on the event loop that lists it.
    """

    def __init__(
        self, session: Any, owner: str, name: str, settings: ServerToolSettings = DEFAULT_TOOL_SETTINGS
    ) -> None:
        self.owner = owner
        self.name = name
        self.may_wait_for_person = settings.may_wait_for_person
        self.is_listed = False
        self._listing = _EMPTY_LISTING
        self._failure: str | None = None
        self._by_id: dict[str, McpTool] = {}
        self._session = session
        self._settings = settings
        self._single_flight = SingleFlight(self._request_and_store_listing_or_failure)

    @property
    def tools(self) -> tuple[McpToolWithIdentifiers, ...]:
        """Its tools; empty before it is listed."""
        return self._listing.tools

    @property
    def digest(self) -> str:
        """A digest of its tools; empty before it is listed."""
        return self._listing.digest

    @property
    def has_resources(self) -> bool:
        """True if programs can read resources."""
        return RESOURCES in self._listing.lookups.offered

    @property
    def has_prompts(self) -> bool:
        """True if programs can get prompts."""
        return PROMPTS in self._listing.lookups.offered

    @property
    def program_view(self) -> dict[str, Any]:
        """The server as a program sees it: the id of each function."""
        tool_ids: dict[str, Any] = {"tools": {name: tool.tool.id for tool in self.tools for name in tool.names}}
        return {**tool_ids, **self._listing.lookups.offered}

    @property
    def warning(self) -> str | None:
        """A warning for the model about this server, if there is one."""
        if not self.is_listed:
            reason = f": {self._failure}" if self._failure else ""
            return f"MCP.{self.name} is unavailable: the server could not be listed{reason}. Try again later."
        if not self._listing.left_out:
            return None
        return f"MCP.{self.name} lacks tools of its server: {'; '.join(self._listing.left_out)}"

    def get(self, name: str) -> McpTool | None:
        """Return the tool or lookup of an id."""
        return self._by_id.get(name)

    def find_tool(self, name: str) -> McpToolWithIdentifiers | None:
        """Return the tool with this identifier or original name."""
        found = next((tool for tool in self.tools if name in tool.names), None)
        return found or next((tool for tool in self.tools if tool.name == name), None)

    def _build_tool_id(self, what: str) -> str:
        return f"{MCP}:{self.owner}:{what}"

    async def load_listing(self, seconds: float) -> None:
        """List the server unless it is listed, or wait for a listing in progress. A failure is retried later."""
        if not self.is_listed:
            await self._single_flight.run(seconds)

    async def _request_and_store_listing_or_failure(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                left_out = OmittedEntries()
                tools, is_whole = await list_paged_items(
                    self._session.list_tools, "tools", max_items=MAX_TOOLS, left_out=left_out
                )
                if not is_whole:
                    left_out.add_list_note(f"it has more than {MAX_TOOLS} tools; only the first are used")
                lookups = await create_resource_and_prompt_tools(self._session, self._build_tool_id, self._settings)
            build_listing = partial(self._build_listing, tools, lookups, left_out.notes)
            listing = await run_cpu_bound_in_dedicated_thread(build_listing)  # schemas of servers are untrusted
        except Exception as error:  # noqa: BLE001 - host code; the next listing may succeed
            self._failure = describe_server_error(error)
            if isinstance(error, TimeoutError):
                self._failure = f"it did not answer within {seconds:g} s, half of wait_timeout_ms"
            if self._failure is None:
                log_failure(_log, "the tools of server %r cannot be listed", (self.owner,), error)
            else:
                _log.error("the tools of server %r cannot be listed: %s", self.owner, self._failure)
            return
        self._by_id = {**{listed_tool.tool.id: listed_tool.tool for listed_tool in listing.tools}, **lookups.tools}
        self._listing = listing
        self.is_listed = True
        log_omitted_entries(_log, self.owner, listing.left_out)

    def _build_listing(
        self, tools: Sequence[Any], lookups: ResourceAndPromptTools, notes: Sequence[str]
    ) -> _ServerListing:
        tools_by_name: dict[str, McpTool] = {}
        definitions: dict[str, Any] = {}
        left_out = OmittedEntries()
        with drop_nonlinear_patterns():
            for position, definition in enumerate(tools, 1):
                name = read_callable_tool_name_or_none(definition)
                if name is None:
                    reason = (
                        "no program could call it by its name" if read_field(definition, "name") else "it has no name"
                    )
                    left_out.add_entry(
                        reason if definition is not None else "null, not a tool",
                        format_entry_label(definition, position),
                    )
                elif name in tools_by_name:
                    left_out.add_entry(
                        DUPLICATE_REASON if definition == definitions[name] else CONFLICTING_DUPLICATE_REASON,
                        format_entry_label(definition, position),
                    )
                else:
                    tools_by_name[name] = create_mcp_tool(
                        self._session, name, definition, self._build_tool_id(name), self._settings
                    )
                    definitions[name] = definition
        names = assign_tool_names(tools_by_name)
        texts = "\n".join(
            [*(tools_by_name[name].identity_text for name in sorted(tools_by_name)), *sorted(lookups.tools)]
        )
        digest = hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:32]
        server_tools = tuple(
            McpToolWithIdentifiers(name, names[name], tools_by_name[name]) for name in sorted(tools_by_name)
        )
        return _ServerListing(server_tools, lookups, digest, (*left_out.notes, *notes)[:MAX_NOTES])


def create_servers(sources: Any) -> tuple[McpServer, ...]:
    """Return the MCP servers of the sources. Raises `InvalidConfigError` for two with one owner."""
    server_sources = [source for source in to_sources(sources) if source.source == MCP]
    sources_by_owner = {source.owner or MCP: source for source in server_sources}
    if len(sources_by_owner) < len(server_sources):
        raise InvalidConfigError("sources: two MCP servers have the same owner; give each its own owner")
    names = assign_server_names(sorted(sources_by_owner))
    return tuple(
        McpServer(sources_by_owner[owner].tools, owner, name, _create_tool_settings(sources_by_owner[owner]))
        for owner, name in names.items()
    )


def _create_tool_settings(source: ToolSource) -> ServerToolSettings:
    return ServerToolSettings(source.needs_approval, source.adapt)


DECLARATIONS_ROOT = "mcp"
INDEX_PATH = f"{DECLARATIONS_ROOT}/index.d.ts"
_DECLARATION_SUFFIX = ".d.ts"
_MAX_QUOTED_CHARACTERS = 100
MAX_FILE_CHARACTERS = 1_000_000
"""Maximum size of descriptions and schemas in one file."""
_RESOURCES = "resources: { list(): Promise<any>; read(uri: string): Promise<any> };"
_PROMPTS = "prompts: { list(): Promise<any>; get(name: string, input?: Record<string, string>): Promise<any> };"
_API = (
    "$api(tool?: string, options?: { schema?: boolean }):"
    " Promise<{ header: string; schemas: Record<string, unknown> }>;"
)


def list_declaration_files(servers: Sequence[McpServer], prefix: Any) -> dict[str, Any]:
    """Return ``{files: [{path}]}`` for paths with a prefix. Raises `CodeModeToolError`."""
    if prefix is None:
        prefix = ""
    _require_valid_path(prefix, "API.list(prefix)")
    paths = [INDEX_PATH, *(_build_declaration_path(server) for server in servers)]
    start = f"{DECLARATIONS_ROOT}/" if prefix == DECLARATIONS_ROOT else prefix
    return {"files": [{"path": path} for path in paths if path.startswith(start)]}


def read_declaration_file(servers: Sequence[McpServer], path: Any) -> dict[str, str]:
    """Return ``{content}`` of a file. Raises `CodeModeToolError`."""
    _require_valid_path(path, "API.read(path)")
    if path == INDEX_PATH:
        return {"content": _format_index(servers)}
    for server in servers:
        if path == _build_declaration_path(server):
            return {"content": declare_mcp_server(server, server.tools)}
    similar = find_nearest_names(
        path[:_MAX_QUOTED_CHARACTERS], [INDEX_PATH, *(_build_declaration_path(server) for server in servers)]
    )
    message = f"There is no file {path[:_MAX_QUOTED_CHARACTERS]!r}.{format_suggestion(similar)}"
    raise CodeModeToolError(f"{message} `await API.list()` lists all.")


def describe_api(server: McpServer, tool: Any, options: Any) -> dict[str, Any]:
    """Return ``{header, schemas}`` of a tool or a whole server. Raises `CodeModeToolError`."""
    tools: Sequence[McpToolWithIdentifiers] = server.tools
    if tool is not None:
        found = server.find_tool(tool) if isinstance(tool, str) else None
        if found is None:
            requested, known = (
                str(tool)[:_MAX_QUOTED_CHARACTERS],
                [name for server_tool in server.tools for name in server_tool.names],
            )
            hint = format_suggestion(find_nearest_names(requested, known))
            raise CodeModeToolError(f"MCP.{server.name} has no tool {requested!r}.{hint}")
        tools = (found,)
    wants_schemas = mapping_or_empty(options).get("schema") is True
    schemas = (
        {server_tool.names[0]: server_tool.tool.input_json_schema or {} for server_tool in tools}
        if wants_schemas
        else {}
    )
    return {"header": declare_mcp_server(server, tools), "schemas": schemas}


def declare_mcp_server(server: McpServer, tools: Sequence[McpToolWithIdentifiers]) -> str:
    """Return TypeScript for a server with these tools; tools beyond the size limit are only named."""
    fitting_tools, other_tools = _split_by_size([rename_tool(tool.tool, tool.names[0]) for tool in tools])
    calls, aliases = create_call_types_and_aliases(fitting_tools)
    members = [
        f"{format_jsdoc(create_tool_jsdoc(tool))}{tool.name}{call};"
        for tool, call in zip(fitting_tools, calls, strict=True)
    ]
    members += [f"// {tool.name}: see $api({tool.name!r})" for tool in other_tools]
    members += [_RESOURCES] if server.has_resources else []
    members += [_PROMPTS] if server.has_prompts else []
    body = "".join(f"{indent_lines(indent_lines(member))}\n" for member in [*members, _API])
    return "\n\n".join([*aliases, f"declare const MCP: {{\n  {server.name}: {{\n{body}  }};\n}};"])


def _split_by_size(tools: list[RenamedTool]) -> tuple[list[RenamedTool], list[RenamedTool]]:
    remaining = MAX_FILE_CHARACTERS
    for index, tool in enumerate(tools):
        schemas = (tool.input_json_schema, tool.output_json_schema)
        remaining -= len(tool.description) + sum(
            estimate_json_length(schema, remaining + 1) for schema in schemas if schema is not None
        )
        if remaining < 0 < index:
            return tools[:index], tools[index:]
    return tools, []


def _format_index(servers: Sequence[McpServer]) -> str:
    lines: list[str] = []
    for server in servers:
        lines.append(f"// {_build_declaration_path(server)}: MCP.{server.name}, {len(server.tools)} tools")
        lines += [
            f"//   {tool.names[0]}: {extract_first_sentence(find_tool_description(tool.tool))}" for tool in server.tools
        ]
    members = "".join(f"  {server.name}: any; // {_build_declaration_path(server)}\n" for server in servers)
    return "\n".join([*lines, f"declare const MCP: {{\n{members}}};"])


def _build_declaration_path(server: McpServer) -> str:
    return f"{DECLARATIONS_ROOT}/{server.name}{_DECLARATION_SUFFIX}"


def _require_valid_path(path: Any, usage: str) -> None:
    if not isinstance(path, str):
        raise CodeModeToolError(f"{usage} takes a string")
    if "\\" in path or path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise CodeModeToolError(
            f"{usage}: {path[:_MAX_QUOTED_CHARACTERS]!r} is not a valid path: no backslash, no . or .. segments"
        )
