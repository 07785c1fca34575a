"""The catalog of exec and wait: tools that programs find, describe and call by id."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...cached_property import cached_property
from ...data.json_values import CachedJsonObject, count_utf8_bytes, encode_json
from ...data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty
from ...data.similar_names import find_nearest_names, format_suggestion
from ...errors import CodeModeError, CodeModeIllegalAccessError, CodeModeProtocolError, CodeModeToolError
from ...execution.call_context import CallContext, OuterCallSettings, make_state_backend
from ...execution.pauses import make_exec_wait_binding
from ...execution.starting import add_saved_programs_to_catalog
from ...options.parts import CodeModeOptions
from ...profile import SurfaceSettings
from ...tools.prepared import PreparedTool
from ...tools.search.index import ToolIndex
from .mcp_server import McpServer, describe_api, list_declaration_files, read_declaration_file
from .namespaces import NamespaceRegistry, NamespaceScopes, create_scopes
from .options import EXEC_KIND, GLOBALS, ExecWaitOptions
from .program_run import UsageCounts
from .sources import CORE, MCP, CatalogEntry

if TYPE_CHECKING:
    from ...data.program_facts import ProgramFacts
    from ...execution.program_library import ProgramLibrary
    from ...workers.pool import WorkerPool
    from .namespaces import NamespaceScopes
    from .program_run import ProgramRun
    from .stored_runs import StoredRuns


INCLUDE_ENTRIES, INCLUDE_NAMES, INCLUDE_SERVERS = 1, 2, 4
SERVERS_DIGEST = "serversDigest"
_MAX_POSITION = 2**31
_TOOL_CALL = "tools.{name}(input)"


class ViewableCatalog(Protocol):
    """The catalog methods that a view needs."""

    @property
    def servers(self) -> tuple[McpServer, ...]: ...
    @property
    def may_wait_for_person(self) -> bool: ...
    @property
    def entries_text_and_omitted_count(self) -> tuple[str, int]: ...
    @property
    def ids_by_name_json(self) -> str: ...
    @property
    def servers_text(self) -> str: ...
    @property
    def servers_digest(self) -> str: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def names(self) -> tuple[str, ...]: ...
    def get(self, name: str) -> PreparedTool | None: ...
    def answer_query(self, name: str, argument: Any) -> Any: ...
    def tool_not_found_error(self, name: str) -> CodeModeToolError: ...
    def require_same_catalog(self, invocation_data: Mapping[str, Any] | None) -> None: ...
    async def load_server_listings_and_require_same(self, invocation_data: Mapping[str, Any] | None = None) -> None: ...


class CatalogView:
    """A catalog as one program sees it."""

    paths_named_like_javascript_members: tuple[str, ...] = ()  # implicit reads of the language never reach a tool
    shared_tools = None

    def __init__(self, catalog: ViewableCatalog, included: int, scopes: NamespaceScopes | None = None) -> None:
        self._catalog = catalog
        self._included = included
        self._scopes = scopes
        self.answer_query = catalog.answer_query
        self.names = catalog.names
        self.tool_not_found_error = catalog.tool_not_found_error

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of this id or of this namespace path."""
        if self._scopes is not None and name in self._scopes.tools:
            return self._scopes.tools[name]
        return self._catalog.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    @property
    def program_paths_by_tool_id(self) -> dict[str, list[str]]:
        """The names in programs of the tools of listed servers, by id."""
        servers = self._catalog.servers
        return {
            mcp_server.tool.id: [f"{MCP}.{server.name}.{name}" for name in mcp_server.names]
            for server in servers
            for mcp_server in server.tools
        }

    @property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool can wait for a person."""
        return self._catalog.may_wait_for_person

    @property
    def warnings(self) -> list[str]:
        """Warnings about the tool list and the servers that the program uses."""
        if not self._included & (INCLUDE_ENTRIES | INCLUDE_SERVERS):
            return []
        left_out = self._catalog.entries_text_and_omitted_count[1] if self._included & INCLUDE_ENTRIES else 0
        truncation = [f"ALL_TOOLS omits {left_out} tools; find them with tools.search."] if left_out else []
        servers = self._catalog.servers if self._included & INCLUDE_SERVERS else ()
        return [*truncation, *(warning for server in servers if (warning := server.warning) is not None)]

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> CatalogView:
        """Return the view itself. Raises `CodeModeProtocolError` for a program that started with another catalog."""
        self._catalog.require_same_catalog(invocation_data)
        return self

    def build_invocation_data(self, facts: ProgramFacts | None) -> dict[str, Any]:  # noqa: ARG002 - required by `ToolCatalog`
        """Return the texts that the program can read."""
        data: dict[str, Any] = {}
        if self._included & INCLUDE_ENTRIES:
            data["entries"] = self._catalog.entries_text_and_omitted_count[0]
        if self._included & INCLUDE_NAMES:
            data["names"] = self._catalog.ids_by_name_json
        if self._included & INCLUDE_SERVERS:
            data["servers"] = self._catalog.servers_text
            data[SERVERS_DIGEST] = self._catalog.servers_digest
        if self._scopes is not None:
            data["scopes"] = self._scopes.text
        return data

    def find_program_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        """Return the error for a program that uses modules or undefined names, which therefore does not run."""
        program_facts = mapping_or_empty(facts)
        module_uses = [fact for fact in list_or_empty(program_facts.get("modules")) if _has_position(fact)]
        if not module_uses:
            return self._find_undefined_name_error(facts) if program_facts.get("free") else None
        kinds = ", ".join(dict.fromkeys(f"`{str(fact.get('kind'))[:20]}`" for fact in module_uses[:8]))
        position = {"line": module_uses[0]["line"], "column": module_uses[0]["column"]}
        message = f"{kinds} is not available: programs have no modules. Call tools of the catalog: `tools`"
        return CodeModeIllegalAccessError(
            f"line {position['line']}, column {position['column']}: {message}", details=position
        )

    def _find_undefined_name_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        from ...protocol.ending_errors import make_syntax_error  # late: creating the tools runs no program
        from ...source.checks import find_fixable_undefined_name_problems

        name_problems = find_fixable_undefined_name_problems(
            facts, self._list_unambiguous_names(), self._collect_globals(), _TOOL_CALL
        )
        return make_syntax_error(name_problems) if name_problems else None

    def _collect_globals(self) -> frozenset[str]:
        scope_globals = () if self._scopes is None else (path.partition(".")[0] for path in self._scopes.tools)
        return frozenset((*GLOBALS, "tools", *scope_globals))

    def _list_unambiguous_names(self) -> list[str]:
        """Return the names on ``tools`` that belong to exactly one tool."""
        counts = Counter(tool_id.rpartition(":")[2].replace("-", "_") for tool_id in self._catalog)
        return [name for name, count in counts.items() if count == 1]

    def prepare_for_program(
        self,
        facts: ProgramFacts | None,  # noqa: ARG002
        invocation_data: Mapping[str, Any] | None,
    ) -> Awaitable[None] | None:
        """Return a coroutine that lists servers that the program may use, if any are unlisted."""
        uses_servers = self._included & INCLUDE_SERVERS or (
            invocation_data is not None and "servers" in invocation_data
        )
        if not uses_servers or all(server.is_listed for server in self._catalog.servers):
            return None
        return self._catalog.load_server_listings_and_require_same(invocation_data)

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Accept any tools: the host is responsible for them."""


def _has_position(fact: Any) -> bool:
    position = mapping_or_empty(fact)
    return all(type(position.get(key)) is int and 0 < position[key] < _MAX_POSITION for key in ("line", "column"))


MAX_ENTRIES_BYTES = 1 << 20
_MAX_QUOTED_CHARACTERS = 100
_MAX_QUERY_CHARACTERS = 10_000
_USES_TOOLS = re.compile(r"\btools\b(?!\s*(?:\?\.|\.)\s*(?:search|describe|call)\b)")
_USES_SERVERS = re.compile(r"\b(?:MCP|API)\b")
_CATALOG_KEY = "catalog"


class ServerUnavailableError(CodeModeError):
    """A program cannot resume now because a server that it uses is unavailable; nothing is lost."""


class ExecCatalog:
    """The tools of exec and wait, in order of ids. Immutable and thread-safe."""

    def __init__(
        self,
        entries: tuple[CatalogEntry, ...],
        options: ExecWaitOptions,
        counts: UsageCounts,
        servers: tuple[McpServer, ...] = (),
    ) -> None:
        self._entries = {entry.id: entry for entry in entries}
        self.servers = servers
        self._options = options
        self._counts = counts
        self._index = ToolIndex((_build_search_name(entry), entry.tool) for entry in entries)
        self._views = {included: CatalogView(self, included) for included in range(2 * INCLUDE_SERVERS)}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def names(self) -> tuple[str, ...]:
        """All ids."""
        return tuple(self._entries)

    @property
    def entries(self) -> tuple[CatalogEntry, ...]:
        """All tools, in order of ids."""
        return tuple(self._entries.values())

    @property
    def may_wait_for_person(self) -> bool:
        """True if a call of some tool can wait for a person."""
        return self._may_wait_for_person

    @cached_property
    def _may_wait_for_person(self) -> bool:
        servers_may_ask = any(server.may_wait_for_person for server in self.servers)
        return servers_may_ask or any(server.tool.may_wait_for_person for server in self._entries.values())

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of this id, from the catalog or a server."""
        found = self._entries.get(name)
        if found is not None:
            return found.tool
        if not name.startswith(f"{MCP}:"):
            return None
        return next((tool for server in self.servers if (tool := server.get(name)) is not None), None)

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for an unknown id, with similar ids and how to find the right one."""
        name = name.removeprefix("unknown ")  # prefix of the guest runtime for ids that programs cannot call
        quoted, similar = name[:_MAX_QUOTED_CHARACTERS], self.find_similar_ids(name)
        message = (
            f"There is no tool with the id {quoted!r}.{format_suggestion(similar)} Find ids with"
            " `await tools.search(query)`, read one with `await tools.describe(id)`, and"
            " call it with `await tools.call(id, input)`."
        )
        error = CodeModeToolError(message, details={"tool_name": quoted})
        error.reason = "unknown_tool"
        return error

    def find_similar_ids(self, name: str) -> list[str]:
        """Return at most three ids with the same or a similar tool name."""
        by_name = self._ids_by_name.get(name) or self._ids_by_name.get(name.rpartition(":")[2])
        if by_name:
            return by_name[:3]
        similar_ids = find_nearest_names(name[:_MAX_QUOTED_CHARACTERS], self._entries)
        return [*similar_ids] or [
            ids[0]
            for candidate in find_nearest_names(name[-_MAX_QUOTED_CHARACTERS:], self._ids_by_name)
            if (ids := self._ids_by_name[candidate])
        ]

    @cached_property
    def _ids_by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in self._entries.values():
            found.setdefault(entry.name, []).append(entry.id)
        return found

    # --- questions of programs ---

    def answer_query(self, name: str, argument: Any) -> Any:
        """Return the result of ``tools.search``, ``tools.describe`` or a lookup. Raises `CodeModeToolError`."""
        arguments = argument if is_array(argument) else []
        if name == "search":
            return self._search_and_count_event(*_get_first_two_arguments(arguments))
        if name == "describe":
            return self._describe_and_count_event(arguments[0] if arguments else None)
        if name == "api.list":
            return list_declaration_files(self.servers, arguments[0] if arguments else None)
        if name == "api.read":
            return read_declaration_file(self.servers, arguments[0] if arguments else None)
        if name == "mcp.api":
            return self._describe_server_api(*[*arguments, None, None, None][:3])
        raise CodeModeToolError(f"the catalog has no {name[:_MAX_QUOTED_CHARACTERS]!r}")

    def _search_and_count_event(self, query: Any, options: Any) -> list[dict[str, str]]:
        if not isinstance(query, str):
            raise CodeModeToolError("tools.search(query, {limit}): the query must be a string")
        if options is not None and not is_mapping(options):
            raise CodeModeToolError("tools.search(query, {limit}): the options must be an object such as {limit: 5}")
        limit = mapping_or_empty(options).get("limit")
        if limit is None:
            limit = self._options.search_default_limit
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit != limit // 1 or limit < 1:
            raise CodeModeToolError("tools.search(query, {limit}): the limit must be a positive integer")
        max_results = int(min(limit, self._options.max_search_limit))
        entries = self.entries
        found = [
            entries[position].summary
            for position, _score in self._index.search(query[:_MAX_QUERY_CHARACTERS], max_results)
        ]
        self._counts.count_event("search")  # last: a slow search starts again in a thread
        return found

    def _describe_and_count_event(self, tool_id: Any) -> dict[str, Any]:
        if not isinstance(tool_id, str):
            raise CodeModeToolError("tools.describe(id): the id must be a string")
        found = self._entries.get(tool_id)
        if found is None:
            raise self.tool_not_found_error(tool_id)
        schema = found.tool.input_json_schema
        description = {**found.summary, "parameters": {} if schema is None else schema}
        self._counts.count_event("describe")
        return description

    def _describe_server_api(self, server: Any, tool: Any, options: Any) -> dict[str, Any]:
        found = next((candidate for candidate in self.servers if candidate.name == server), None)
        if found is None:
            raise CodeModeToolError("MCP has no such server")
        return describe_api(found, tool, options)

    # --- data of programs ---

    def get_program_view(self, code: str, scopes: NamespaceScopes | None = None) -> CatalogView:
        """Return the catalog as this program sees it: with the texts that its code may read, and its namespaces."""
        has_escapes = "\\u" in code
        entries = INCLUDE_ENTRIES if has_escapes or "ALL_TOOLS" in code else 0
        names = INCLUDE_NAMES if has_escapes or _USES_TOOLS.search(code) else 0
        servers = INCLUDE_SERVERS if self.servers and (has_escapes or _USES_SERVERS.search(code)) else 0
        included = entries | names | servers
        return self._views[included] if scopes is None else CatalogView(self, included, scopes)

    @property
    def entries_text_and_omitted_count(self) -> tuple[str, int]:
        """The text of ``ALL_TOOLS``, and how many tools it omits because of its maximum size."""
        return self._entries_text_and_omitted_count

    @cached_property
    def _entries_text_and_omitted_count(self) -> tuple[str, int]:
        texts: list[str] = []
        remaining = MAX_ENTRIES_BYTES - 2
        for entry in self._entries.values():
            text = encode_json(entry.summary, what="an entry of the catalog")
            remaining -= count_utf8_bytes(text) + 1
            if remaining < 0:
                break
            texts.append(text)
        return f"[{','.join(texts)}]", len(self._entries) - len(texts)

    @property
    def ids_by_name_json(self) -> str:
        """JSON that maps each unambiguous safe name to its tool id."""
        return self._ids_by_name_json

    @cached_property
    def _ids_by_name_json(self) -> str:
        safe_names = [
            (name, entry.id) for entry in self._entries.values() if (name := entry.javascript_name) is not None
        ]
        counts = Counter(name for name, _ in safe_names)
        return encode_json(
            {name: entry for name, entry in safe_names if counts[name] == 1}, what="the names of the catalog"
        )

    @cached_property
    def catalog_digest_data(self) -> CachedJsonObject:
        """The data of each invocation: a digest of the catalog, checked when a program resumes."""
        texts = (" ".join((entry.id, *entry.tool.schema_texts)) for entry in self._entries.values())
        return CachedJsonObject({_CATALOG_KEY: hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]})

    @property
    def servers_text(self) -> str:
        """The listed servers as a program sees them, as JSON."""
        return encode_json(
            {server.name: server.program_view for server in self.servers if server.is_listed}, what="the servers"
        )

    @property
    def servers_digest(self) -> str:
        """A digest of the tools of all servers."""
        server_texts = "\n".join(f"{server.owner} {server.digest}" for server in self.servers)
        return hashlib.sha256(server_texts.encode()).hexdigest()[:32]

    async def load_server_listings_and_require_same(self, invocation_data: Mapping[str, Any] | None = None) -> None:
        """List the servers that are not listed yet; servers that fail are left out.

        Raises as `require_same_servers` does for a program that resumes with this ``invocation_data``.
        """
        import asyncio

        seconds = self._options.effective_wait_timeout_ms / 2000  # leave the program half of the time
        await asyncio.gather(*(server.load_listing(seconds) for server in self.servers if not server.is_listed))
        self.require_same_servers(invocation_data)

    def require_same_catalog(self, invocation_data: Mapping[str, Any] | None) -> None:
        """Raise `CodeModeProtocolError` for a program that started with another catalog."""
        if invocation_data is self.catalog_digest_data:
            return
        if invocation_data is not None and invocation_data.get(_CATALOG_KEY) != self.catalog_digest_data[_CATALOG_KEY]:
            raise _create_catalog_changed_error("the catalog has changed")
        if all(server.is_listed for server in self.servers):
            self.require_same_servers(invocation_data)

    def require_same_servers(self, invocation_data: Mapping[str, Any] | None) -> None:
        """Raise `CodeModeProtocolError` for a program that started with other servers or server tools."""
        started_digest = None if invocation_data is None else invocation_data.get(SERVERS_DIGEST)
        if started_digest is None or started_digest == self.servers_digest:
            return
        missing = [server.name for server in self.servers if not server.is_listed]
        if missing:  # it may be available later
            raise ServerUnavailableError(f"the server MCP.{missing[0]} cannot be listed now")
        raise _create_catalog_changed_error("the tools of the servers have changed")

    def precompute_program_texts(self) -> None:
        """Build the cached texts for programs now, so that the first program does not block the event loop."""
        _ = self.catalog_digest_data, self.entries_text_and_omitted_count, self.ids_by_name_json

    @property
    def tool_counts_by_source(self) -> dict[str, int]:
        """The number of tools of each kind of source; server tools count once listed."""
        if not self.servers:
            return self._tool_counts_by_source
        return {**self._tool_counts_by_source, MCP: sum(len(server.tools) for server in self.servers)}

    @cached_property
    def _tool_counts_by_source(self) -> dict[str, int]:
        return dict(Counter(entry.source for entry in self._entries.values()))


def _create_catalog_changed_error(what: str) -> CodeModeProtocolError:
    details = {"origin": "continuation", "not_resumable": True}
    return CodeModeProtocolError(f"{what} since this program started", details=details)


def _get_first_two_arguments(arguments: list[Any]) -> tuple[Any, Any]:
    return (arguments[0] if arguments else None), (arguments[1] if len(arguments) > 1 else None)


def _build_search_name(entry: CatalogEntry) -> str:
    return entry.name if entry.owner == CORE else f"{entry.owner} {entry.name}"


@dataclass(frozen=True)
class ExecWaitContext:
    """The shared context of all parts of exec and wait. Immutable except for the counts."""

    catalog: ExecCatalog
    options: ExecWaitOptions
    settings: CodeModeOptions
    profile: SurfaceSettings
    pool: WorkerPool | None
    counts: UsageCounts
    stored_runs: StoredRuns | None = None
    namespaces: NamespaceRegistry | None = None
    library: ProgramLibrary | None = None

    def create_view_with_saved_programs(
        self, code: str, scopes: NamespaceScopes | None, call: CallContext, pool: WorkerPool | None
    ) -> CatalogView:
        """Return the catalog as a program and its saved programs see it; saved programs can read all texts."""
        searched_code = f"{code}\ntools[name]; ALL_TOOLS; MCP" if self.library is not None and "saved" in code else code
        view = self.catalog.get_program_view(searched_code, scopes)
        return cast("CatalogView", add_saved_programs_to_catalog(view, self.library, code, call, pool))

    async def create_namespace_scopes(self, context: Any) -> NamespaceScopes | None:
        """Return the namespaces for a program with this context. Raises `InvalidConfigError`."""
        if self.namespaces is None:
            return None
        return await create_scopes(self.namespaces.list_visible(self.catalog.entries), context)

    def create_outer_call_and_bind_state(self, call: CallContext, run: ProgramRun) -> OuterCallSettings:
        """Return the outer call of a run, and store where its program shares values."""
        scope = call.conversation_id
        binding = make_exec_wait_binding(scope or "") if scope or self.stored_runs is not None else None
        scoped_call = call if call.conversation_id == binding else replace(call, conversation_id=binding)
        location = run.state_location = make_state_backend(self.settings, scoped_call if scope else call)
        return OuterCallSettings(
            call=scoped_call if location is None else replace(scoped_call, state=location),
            wait_ms=self.options.effective_wait_timeout_ms,
            takes_output=self.options.approvals == "park",
            tool_kind=EXEC_KIND,
            tool_input_kind=run.language,
        )
