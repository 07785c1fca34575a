"""An MCP server behind a session: its names, tools, resources, prompts and declarations."""

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

from ...data.json_shape import weigh
from ...data.narrowing import mapping_or_empty
from ...data.similar_names import did_you_mean, nearest_names
from ...errors import CodeModeToolError
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...host.threads import check_alone
from ...schemas.patterns import foreign_patterns
from ...signatures.declarations import call_types, first_sentence, summary_of, tool_doc
from ...signatures.described_tool import Renamed, renamed
from ...signatures.typescript import indented, jsdoc
from ...tools.server_lists import LISTED_AGAIN, LISTED_DIFFERENTLY, MAX_NOTES, LeftOut, entry_label, log_left_out
from ...tools.tool import Tool
from ...trace.failures import log_failure
from .mcp_session import (
    USUAL,
    Making,
    McpTool,
    ServerTool,
    all_plain,
    asked,
    name_of,
    offers,
    pages,
    read,
    said_by_server,
    shown,
    tool_of,
)
from .options import InvalidConfigError
from .sources import INHERITED, MCP, ToolSource, listed, safe_name


@dataclass
class _UnderWay:
    loop: asyncio.AbstractEventLoop
    done: Future[None] = field(default_factory=Future[None])
    waiters: int = 0
    task: asyncio.Task[None] | None = None


class Once:
    """One run of some work at a time, on the loop of whoever asks first. It ends when nobody waits any more."""

    def __init__(self, work: Callable[..., Awaitable[None]]) -> None:
        self._work = work
        self._lock = forkable_lock()
        self._under_way: _UnderWay | None = None
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: the loop that does the work is not in it, and nobody is to wait for it."""
        leave_to_the_parent(self._under_way)
        self._under_way = None

    async def run(self, *given: Any) -> None:
        """Do the work, or wait for whoever does it. A loop that ends, or a last waiter that leaves, hands it on.

        Raises what the work raises, to all who wait for it.
        """
        while True:
            one = self._joined(given)
            try:
                await asyncio.shield(asyncio.wrap_future(one.done))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not one.done.cancelled() or (task is not None and task.cancelling()):
                    raise
            else:
                return
            finally:
                self._leave(one)

    def _joined(self, given: tuple[Any, ...]) -> _UnderWay:
        with self._lock:
            one = self._under_way
            if one is None or one.loop.is_closed():
                one = self._under_way = _UnderWay(asyncio.get_running_loop())
                one.task = one.loop.create_task(self._perform(one, given))
            one.waiters += 1
            return one

    def _leave(self, one: _UnderWay) -> None:
        with self._lock:
            one.waiters -= 1
            task = None if one.waiters or one.done.done() else one.task
            if task is not None and self._under_way is one:
                self._under_way = None
        if task is not None:
            with suppress(RuntimeError):  # its loop is closed
                one.loop.call_soon_threadsafe(task.cancel)

    async def _perform(self, one: _UnderWay, given: tuple[Any, ...]) -> None:
        end: Callable[[], Any] = one.done.cancel
        try:
            await self._work(*given)
            end = partial(one.done.set_result, None)
        except Exception as error:  # noqa: BLE001 - it is that of all who wait
            end = partial(one.done.set_exception, error)
        finally:
            with self._lock:
                if self._under_way is one:
                    self._under_way = None
            with suppress(InvalidStateError):  # nobody waits any more
                end()


_WORD = re.compile(r"_+([A-Za-z0-9])")
OF_SERVERS = frozenset({"$api", "resources", "prompts"})
"""What every server has beside its tools."""


def camel(name: str) -> str:
    """Return an identifier as JavaScript writes one: ``create_issue`` becomes ``createIssue``."""
    head = name[: len(name) - len(name.lstrip("_"))]
    body = name[len(head) :].rstrip("_")
    return head + _WORD.sub(lambda found: found[1].upper(), body) if body else name


def server_names(owners: Iterable[str]) -> dict[str, str]:
    """Return what each server is called in programs, by its owner's name."""
    taken: set[str] = set()
    return {owner: _free(camel(safe_name(owner)), taken, frozenset()) for owner in owners}


def tool_names(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers of each tool, the one that is shown first: `createIssue`, and `create_issue` works too."""
    ordered = sorted(set(names))
    taken: set[str] = set()
    # What is an identifier already is found under it, whatever the others become.
    own_first = sorted(ordered, key=lambda name: camel(safe_name(name)) != name)
    shown = {name: _free(camel(safe_name(name)), taken, OF_SERVERS) for name in own_first}
    found: dict[str, tuple[str, ...]] = {}
    for name in ordered:
        also = safe_name(name)
        if also in taken or also in OF_SERVERS or also in INHERITED:
            found[name] = (shown[name],)
        else:
            taken.add(also)
            found[name] = (shown[name], also)
    return found


def _free(name: str, taken: set[str], reserved: frozenset[str]) -> str:
    free, number = name, 2
    while free in taken or free in reserved or free in INHERITED:
        free, number = f"{name}{number}", number + 1
    taken.add(free)
    return free


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


MAX_TOOLS = 2000


@dataclass(frozen=True)
class _Listing:
    """What a server was listed as. ``digest`` tells it from another listing."""

    tools: tuple[ServerTool, ...]
    lookups: Lookups
    digest: str
    left_out: tuple[str, ...]


_NOTHING = _Listing((), Lookups(), "", ())


class McpServer:
    """What a program sees of one server. ``name`` is its identifier, ``owner`` stands in the ids of its tools.

    Safe to use from several threads and event loops; its session is asked on the loop of whoever lists it.
    """

    def __init__(self, session: Any, owner: str, name: str, making: Making = USUAL) -> None:
        self.owner = owner
        self.name = name
        self.may_ask = making.may_ask
        self.is_listed = False
        self._listing = _NOTHING
        self._failure: str | None = None
        self._by_id: dict[str, McpTool] = {}
        self._session = session
        self._making = making
        self._once = Once(self._list)

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """Its tools, as far as it has been listed."""
        return self._listing.tools

    @property
    def digest(self) -> str:
        """What tells its tools from others; nothing before it has been listed."""
        return self._listing.digest

    @property
    def has_resources(self) -> bool:
        """True where programs read resources."""
        return RESOURCES in self._listing.lookups.offered

    @property
    def has_prompts(self) -> bool:
        """True where programs get prompts."""
        return PROMPTS in self._listing.lookups.offered

    @property
    def told(self) -> dict[str, Any]:
        """What a program is told of it: the id behind each name."""
        told: dict[str, Any] = {"tools": {name: one.tool.id for one in self.tools for name in one.names}}
        return {**told, **self._listing.lookups.offered}

    @property
    def warning(self) -> str | None:
        """What a model should know of a server that its program uses."""
        if not self.is_listed:
            why = f": {self._failure}" if self._failure else ""
            return f"MCP.{self.name} is not there: the server could not be listed{why}. Try again later."
        if not self._listing.left_out:
            return None
        return f"MCP.{self.name} lacks what its server lists: {'; '.join(self._listing.left_out)}"

    def get(self, name: str) -> McpTool | None:
        """Return the tool or the lookup of an id."""
        return self._by_id.get(name)

    def find(self, name: str) -> ServerTool | None:
        """Return the tool that one of these names means: an identifier, or the server's own."""
        found = next((one for one in self.tools if name in one.names), None)
        return found or next((one for one in self.tools if one.name == name), None)

    def _id(self, what: str) -> str:
        return f"{MCP}:{self.owner}:{what}"

    async def list(self, seconds: float) -> None:
        """List it, or wait for whoever does, unless that is done. What fails is left out, and tried again later."""
        if not self.is_listed:
            await self._once.run(seconds)

    async def _list(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                left_out = LeftOut()
                tools, is_whole = await pages(self._session.list_tools, "tools", most=MAX_TOOLS, left_out=left_out)
                if not is_whole:
                    left_out.note(f"it has more than {MAX_TOOLS} tools; the first are taken")
                lookups = await lookups_of(self._session, self._id, self._making)
            work = partial(self._listed, tools, lookups, left_out.notes)
            made = await check_alone(work)  # schemas may be a stranger's
        except Exception as error:  # noqa: BLE001 - it is host code, and may work the next time
            self._failure = said_by_server(error)
            if isinstance(error, TimeoutError):
                self._failure = f"it did not answer within {seconds:g} s, half of waitTimeoutMs"
            if self._failure is None:
                log_failure(_log, "the tools of server %r cannot be listed", (self.owner,), error)
            else:
                _log.error("the tools of server %r cannot be listed: %s", self.owner, self._failure)
            return
        self._by_id = {**{one.tool.id: one.tool for one in made.tools}, **lookups.tools}
        self._listing = made
        self.is_listed = True
        log_left_out(_log, self.owner, made.left_out)

    def _listed(self, tools: Sequence[Any], lookups: Lookups, notes: Sequence[str]) -> _Listing:
        made: dict[str, McpTool] = {}
        first: dict[str, Any] = {}
        left_out = LeftOut()
        with foreign_patterns():
            for place, one in enumerate(tools, 1):
                name = name_of(one)
                if name is None:
                    why = "no program could call it by its name" if read(one, "name") else "it has no name"
                    left_out.add(why if one is not None else "null, not a tool", entry_label(one, place))
                elif name in made:
                    left_out.add(LISTED_AGAIN if one == first[name] else LISTED_DIFFERENTLY, entry_label(one, place))
                else:
                    made[name] = tool_of(self._session, name, one, self._id(name), self._making)
                    first[name] = one
        names = tool_names(made)
        texts = "\n".join([*(made[name].text for name in sorted(made)), *sorted(lookups.tools)])
        digest = hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:32]
        found = tuple(ServerTool(name, names[name], made[name]) for name in sorted(made))
        return _Listing(found, lookups, digest, (*left_out.notes, *notes)[:MAX_NOTES])


def servers_of(sources: Any) -> tuple[McpServer, ...]:
    """Return the servers among the sources, by owner. Raises `InvalidConfigError` for two of one owner."""
    given = [one for one in listed(sources) if one.source == MCP]
    found = {one.owner or MCP: one for one in given}
    if len(found) < len(given):
        raise InvalidConfigError("sources: two servers of MCP have the same owner; give them owners of their own")
    names = server_names(sorted(found))
    return tuple(McpServer(found[owner].tools, owner, name, _making(found[owner])) for owner, name in names.items())


def _making(source: ToolSource) -> Making:
    return Making(source.needs_approval, source.adapt)


ROOT = "mcp"
INDEX = f"{ROOT}/index.d.ts"
_SUFFIX = ".d.ts"
_MAX_SHOWN = 100
MAX_FILE_CHARACTERS = 1_000_000
"""How much of descriptions and schemas one file is made of."""
_RESOURCES = "resources: { list(): Promise<any>; read(uri: string): Promise<any> };"
_PROMPTS = "prompts: { list(): Promise<any>; get(name: string, input?: Record<string, string>): Promise<any> };"
_API = (
    "$api(tool?: string, options?: { schema?: boolean }):"
    " Promise<{ header: string; schemas: Record<string, unknown> }>;"
)


def listed_files(servers: Sequence[McpServer], prefix: Any) -> dict[str, Any]:
    """Return ``{files: [{path}]}`` of those whose path begins so. Raises `CodeModeToolError`."""
    if prefix is None:
        prefix = ""
    _require_path(prefix, "API.list(prefix)")
    paths = [INDEX, *(_path(one) for one in servers)]
    start = f"{ROOT}/" if prefix == ROOT else prefix
    return {"files": [{"path": path} for path in paths if path.startswith(start)]}


def read_file(servers: Sequence[McpServer], path: Any) -> dict[str, str]:
    """Return ``{content}`` of a file. Raises `CodeModeToolError`."""
    _require_path(path, "API.read(path)")
    if path == INDEX:
        return {"content": _index(servers)}
    for one in servers:
        if path == _path(one):
            return {"content": declared(one, one.tools)}
    near = nearest_names(path[:_MAX_SHOWN], [INDEX, *(_path(one) for one in servers)])
    said = f"There is no file {path[:_MAX_SHOWN]!r}.{did_you_mean(near)}"
    raise CodeModeToolError(f"{said} `await API.list()` has all of them.")


def api(server: McpServer, tool: Any, options: Any) -> dict[str, Any]:
    """Return ``{header, schemas}`` of a tool, or of a whole server. Raises `CodeModeToolError`."""
    tools: Sequence[ServerTool] = server.tools
    if tool is not None:
        found = server.find(tool) if isinstance(tool, str) else None
        if found is None:
            asked, known = str(tool)[:_MAX_SHOWN], [name for one in server.tools for name in one.names]
            hint = did_you_mean(nearest_names(asked, known))
            raise CodeModeToolError(f"MCP.{server.name} has no tool {asked!r}.{hint}")
        tools = (found,)
    wants = mapping_or_empty(options).get("schema") is True
    schemas = {one.names[0]: one.tool.input_json_schema or {} for one in tools} if wants else {}
    return {"header": declared(server, tools), "schemas": schemas}


def declared(server: McpServer, tools: Sequence[ServerTool]) -> str:
    """Return a server with these tools as TypeScript, as many as one file may hold; the others are named."""
    shown, others = _fitting([renamed(one.tool, one.names[0]) for one in tools])
    calls, aliases = call_types(shown)
    members = [f"{jsdoc(tool_doc(one))}{one.name}{call};" for one, call in zip(shown, calls, strict=True)]
    members += [f"// {one.name}: see $api({one.name!r})" for one in others]
    members += [_RESOURCES] if server.has_resources else []
    members += [_PROMPTS] if server.has_prompts else []
    body = "".join(f"{indented(indented(member))}\n" for member in [*members, _API])
    return "\n\n".join([*aliases, f"declare const MCP: {{\n  {server.name}: {{\n{body}  }};\n}};"])


def _fitting(tools: list[Renamed]) -> tuple[list[Renamed], list[Renamed]]:
    left = MAX_FILE_CHARACTERS
    for at, one in enumerate(tools):
        schemas = (one.input_json_schema, one.output_json_schema)
        left -= len(one.description) + sum(weigh(schema, left + 1) for schema in schemas if schema is not None)
        if left < 0 < at:
            return tools[:at], tools[at:]
    return tools, []


def _index(servers: Sequence[McpServer]) -> str:
    lines: list[str] = []
    for one in servers:
        lines.append(f"// {_path(one)}: MCP.{one.name}, {len(one.tools)} tools")
        lines += [f"//   {tool.names[0]}: {first_sentence(summary_of(tool.tool))}" for tool in one.tools]
    members = "".join(f"  {one.name}: any; // {_path(one)}\n" for one in servers)
    return "\n".join([*lines, f"declare const MCP: {{\n{members}}};"])


def _path(server: McpServer) -> str:
    return f"{ROOT}/{server.name}{_SUFFIX}"


def _require_path(path: Any, usage: str) -> None:
    if not isinstance(path, str):
        raise CodeModeToolError(f"{usage} takes a string")
    if "\\" in path or path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise CodeModeToolError(f"{usage}: {path[:_MAX_SHOWN]!r} is no path here: no backslash, no . and .. segments")
