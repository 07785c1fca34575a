"""The tools of all servers in one run, and checks of a module's imports against them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ...data.json_values import CachedJsonObject
from ...data.narrowing import ENDS, is_array, list_or_empty, mapping_or_empty, two_counts_or_none
from ...data.program_facts import ProgramProblem
from ...data.similar_names import find_nearest_names
from ...errors import CodeModeError, CodeModeSyntaxError, CodeModeToolError
from ...execution.outcome_texts import (
    CLASSES,
    IMPORT_FAILURE,
    TOOL_NOT_FOUND,
    WITHOUT_SERVER_HINT,
    find_foreign_name_hint,
)
from ...host.forks import create_fork_safe_lock
from ...protocol.ending_errors import make_syntax_error
from ...protocol.messages import AnalysisFacts
from ...schemas.compiled import get_json_type_name
from ...source.checks import MAX_UNDEFINED_NAMES, create_problem, list_located_facts
from ...tools.prepared import PreparedTool
from ...trace.visible_text import clip_text
from .discovery import USAGE, build_search_index, call_discovery_function, server_not_found_error
from .module_tools import (
    DISCOVERY_MODULE,
    ERRORS_MODULE,
    META_EXPORT,
    ListedServer,
    ModuleTool,
    assign_module_paths,
    to_server_path,
    to_specifier,
)
from .options import GLOBALS

if TYPE_CHECKING:
    from ...data.program_facts import ProgramFacts
    from ...tools.search.index import ToolIndex


_MAX_FACTS = 4_096
_MAX_NAMES = 16_384  # in all imports together
_MAX_TEXT_CHARACTERS = 1_024
_MAX_POSITION = 2**31


@dataclass(frozen=True, slots=True)
class ImportFact:
    """One static import or re-export of a module: the names of its exports, "*" for the namespace.

    ``position`` is that of the statement, ``positions`` are those of the names.
    """

    specifier: str
    names: tuple[str, ...]
    position: dict[str, int]
    positions: tuple[dict[str, int], ...] = ()

    def get_name_position(self, name: str) -> dict[str, int]:
        """Return the position of the first use of a name."""
        index = self.names.index(name)
        return self.positions[index] if index < len(self.positions) else self.position


@dataclass(frozen=True, slots=True)
class NamespaceCallFact:
    """One call of a member of a namespace that the program does not use otherwise."""

    specifier: str
    name: str
    position: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """Facts about one module. ``prefix``, ``take``, ``last`` and ``ends`` are passed to the guest unchanged.

    ``paths``: the servers that it names, without duplicates. ``wants_all``: whether it may ask for any server.
    """

    prefix: int
    take: str | None
    imports: tuple[ImportFact, ...]
    calls: tuple[NamespaceCallFact, ...]
    paths: tuple[str, ...]
    wants_all: bool
    last: tuple[int, ...] = ()
    ends: str = ""


def parse_module_facts(facts: Any) -> ModuleFacts:
    """Return the facts about a module, parsed once for each analysis. They come from the guest and are untrusted."""
    if not isinstance(facts, AnalysisFacts):  # with those of saved programs, or none
        return _parse_module_facts(facts)
    if facts.parsed is None:
        facts.parsed = _parse_module_facts(facts)
    return facts.parsed


def _parse_module_facts(facts: Any) -> ModuleFacts:
    raw = mapping_or_empty(mapping_or_empty(facts).get("module"))
    prefix, ends = raw.get("prefix"), raw.get("ends")
    imports = _parse_imports(list_or_empty(raw.get("imports")))
    specifiers: dict[str, None] = {fact.specifier: None for fact in imports}
    wants_all = False  # has a dynamic import() or uses discovery
    for item in islice(list_or_empty(raw.get("dynamic")), _MAX_FACTS):
        specifier = _parse_text(mapping_or_empty(item).get("from"))
        if specifier is None:
            wants_all = True
        else:
            specifiers[specifier] = None
    paths: dict[str, None] = {}
    for specifier in specifiers:
        if (path := to_server_path(specifier)) is not None:
            paths[path] = None
    return ModuleFacts(
        prefix=prefix if type(prefix) is int and 0 <= prefix < _MAX_POSITION else 0,
        take=_parse_text(raw.get("take")),
        imports=imports,
        calls=_parse_namespace_calls(list_or_empty(raw.get("namespace_calls"))),
        paths=tuple(paths),
        wants_all=wants_all or DISCOVERY_MODULE in specifiers,
        last=tuple(two_counts_or_none(raw.get("last")) or ()),
        ends=ends if ends in ENDS else "",
    )


def _parse_imports(items: Sequence[Any]) -> tuple[ImportFact, ...]:
    imports: list[ImportFact] = []
    remaining = _MAX_NAMES
    for item in islice(items, _MAX_FACTS):
        raw = mapping_or_empty(item)
        names: list[str] = []
        positions: list[dict[str, int]] = []
        for pair in islice(list_or_empty(raw.get("names")), remaining):
            name = _parse_text(pair[0]) if is_array(pair) and pair else None
            names.append(name or "")  # keep the index of each name
        for pair in islice(list_or_empty(raw.get("places")), len(names)):
            line, column = pair[:2] if is_array(pair) and len(pair) > 1 else (None, None)
            positions.append(_parse_position(line, column))
        remaining -= len(names)
        position = _parse_position(raw.get("line"), raw.get("column"))
        imports.append(ImportFact(_parse_text(raw.get("from")) or "", tuple(names), position, tuple(positions)))
    return tuple(imports)


def _parse_namespace_calls(items: Sequence[Any]) -> tuple[NamespaceCallFact, ...]:
    calls: list[NamespaceCallFact] = []
    for item in islice(items, _MAX_FACTS):
        raw = mapping_or_empty(item)
        specifier, name = _parse_text(raw.get("from")), _parse_text(raw.get("name"))
        if specifier is not None and name is not None:
            calls.append(NamespaceCallFact(specifier, name, _parse_position(raw.get("line"), raw.get("column"))))
    return tuple(calls)


def _parse_text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT_CHARACTERS else None


def _parse_position(line: Any, column: Any) -> dict[str, int]:
    return {
        "line": line if type(line) is int and 0 < line < _MAX_POSITION else 1,
        "column": column if type(column) is int and 0 < column < _MAX_POSITION else 1,
    }


MAX_IMPORT_PROBLEMS = 32
_MAX_SUGGESTIONS = 8
_MAX_QUOTED_CHARACTERS = 200
_EXPORTS: Mapping[str, frozenset[str]] = {
    ERRORS_MODULE: CLASSES,
    DISCOVERY_MODULE: frozenset((*USAGE, "specVersion")),
}


class ImportChecker:
    """The modules that programs can import. ``unavailable``: why servers could not be listed, by path."""

    def __init__(self, servers: Sequence[ListedServer], unavailable: Mapping[str, str]) -> None:
        self._servers = {server.path: server for server in servers}
        self._unavailable = unavailable
        self._exports: dict[str, frozenset[str]] = {}

    def find_error(self, facts: ModuleFacts) -> CodeModeSyntaxError | None:
        """Return an error with all ``problems`` that a module with these imports certainly has, or None."""
        if self._passes_quick_check(facts):
            return None
        problems = list(islice(self._find_problems(facts), MAX_IMPORT_PROBLEMS))
        if not problems:
            return None
        problems.sort(key=lambda problem: (problem["line"], problem["column"]))
        return make_syntax_error(cast("list[ProgramProblem]", problems))

    def _passes_quick_check(self, facts: ModuleFacts) -> bool:
        for fact in facts.imports:
            exports = self._get_exports(fact.specifier)
            if exports is None or not exports.issuperset(fact.names):
                return False
        return not facts.calls

    def _find_problems(self, facts: ModuleFacts) -> Iterator[dict[str, Any]]:
        suggestions = _HintBuilder()
        for fact in facts.imports:
            yield from self._find_import_problems(fact, suggestions)
        for call in facts.calls:
            exports = self._get_exports(call.specifier)
            if exports is None or call.name in exports:
                continue
            hint = suggestions.build_hint_and_count_limit(
                call.name, exports, "Call {}.", "Import @codemode/discovery and look the tool up."
            )
            message = f"{_quote(call.specifier)} has no tool {_quote(call.name)}"
            message += self._explain_missing_tool(call.specifier, call.name)
            yield _build_problem("TOOL_NOT_FOUND", message, hint, call.position, error_class=TOOL_NOT_FOUND)

    def _find_import_problems(self, fact: ImportFact, suggestions: _HintBuilder) -> Iterator[dict[str, Any]]:
        exports = self._get_exports(fact.specifier)
        if exports is None:
            yield self._build_missing_module_problem(fact, suggestions)
            return
        for name in dict.fromkeys(fact.names):
            if name == "*" or name in exports:
                continue
            if name == "default":
                hint = f"Write import * as server from {_quote(fact.specifier)}."
            else:
                builtin_exports = ", ".join(sorted(_EXPORTS.get(fact.specifier, ())))
                else_hint = (
                    f"It has {builtin_exports}."
                    if builtin_exports
                    else "Import @codemode/discovery and look the tool up."
                )
                hint = suggestions.build_hint_and_count_limit(name, exports, "Import {}.", else_hint)
            message = f"{_quote(fact.specifier)} has no export {_quote(name)}"
            message += self._explain_missing_tool(fact.specifier, name)
            yield _build_problem(IMPORT_FAILURE, message, hint, fact.get_name_position(name))

    def _build_missing_module_problem(self, fact: ImportFact, suggestions: _HintBuilder) -> dict[str, Any]:
        specifier, path = fact.specifier, to_server_path(fact.specifier)
        if path is not None and path in self._unavailable:
            message = f"the server {_quote(path)} cannot be imported: {self._unavailable[path]}"
            hint = WITHOUT_SERVER_HINT
        elif path is not None:
            message = f"there is no server {_quote(path)}"
            hint = self._build_path_hint(path) or suggestions.build_hint_and_count_limit(
                path.lower(),
                self._servers,
                f"Import {to_specifier('{}')}.",
                "Import @codemode/discovery and call listServers().",
            )
        else:
            message = f"there is no module {_quote(specifier)}"
            known = [*_EXPORTS, *map(to_specifier, self._servers)]
            hint = suggestions.build_hint_and_count_limit(
                to_specifier(specifier) if specifier in self._servers else specifier,
                known,
                "Import {}.",
                "Import @codemode/discovery, @codemode/errors or @codemode/servers/<serverId>: there are no others.",
            )
        return _build_problem(IMPORT_FAILURE, message, hint, fact.position)

    def _explain_missing_tool(self, specifier: str, name: str) -> str:
        server = self._servers.get(to_server_path(specifier) or "")
        return "" if server is None else server.format_omission_suffix(name)

    def _build_path_hint(self, written: str) -> str | None:
        """Return the hint for a server id used in place of its path, or None."""
        matching_path = next((server.path for server in self._servers.values() if server.server_id == written), None)
        matching_path = matching_path or next(
            (path for path in assign_module_paths([written]) if path in self._servers), None
        )
        return None if matching_path is None else f"Import {to_specifier(matching_path)}."

    def _get_exports(self, specifier: str) -> frozenset[str] | None:
        builtin_exports = _EXPORTS.get(specifier)
        if builtin_exports is not None:
            return builtin_exports
        exports = self._exports.get(specifier)
        if exports is None:
            server = self._servers.get(to_server_path(specifier) or "")
            if server is None:
                return None
            exports = self._exports[specifier] = frozenset((META_EXPORT, *(tool.export_name for tool in server.tools)))
        return exports


class _HintBuilder:
    """Suggests similar names for the first mistakes only, because comparing all names is slow."""

    def __init__(self) -> None:
        self._remaining = _MAX_SUGGESTIONS

    def build_hint_and_count_limit(self, name: str, known: Collection[str], near_hint: str, else_hint: str) -> str:
        """Return ``near_hint`` with similar names, or ``else_hint`` without any."""
        self._remaining -= 1
        similar = find_nearest_names(name[:_MAX_QUOTED_CHARACTERS], sorted(known)) if self._remaining >= 0 else []
        return near_hint.replace("{}", " or ".join(similar)) if similar else else_hint


def _build_problem(
    code: str, message: str, hint: str, position: Mapping[str, int], *, error_class: str | None = None
) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint, "error_class": error_class, **position}


def _quote(text: str) -> str:
    return f'"{text[:_MAX_QUOTED_CHARACTERS]}"'


def find_undefined_names_error(facts: Any, servers: Iterable[ListedServer]) -> CodeModeSyntaxError | None:
    """Return the error for tools that are not imported and globals of other hosts. Facts are untrusted."""
    problems = list(islice(_find_undefined_name_problems(facts, servers), MAX_UNDEFINED_NAMES))
    return make_syntax_error(cast("list[ProgramProblem]", problems)) if problems else None


def _find_undefined_name_problems(facts: Any, servers: Iterable[ListedServer]) -> Iterator[dict[str, Any]]:
    paths: dict[str, str] | None = None
    for use in list_located_facts(facts, "free"):
        name = use.get("name")
        if not isinstance(name, str) or name in GLOBALS:
            continue
        if paths is None:
            paths = {tool.export_name: server.path for server in servers for tool in server.tools}
        path = paths.get(name) if use.get("called") is True else None
        hint = find_foreign_name_hint(name)
        if path is not None:
            hint = f'Import it: import {{ {name} }} from "@codemode/servers/{path}";'
        if hint is not None:
            yield {**create_problem(use, f"{name} is not defined"), "hint": hint}


IMPORT_SERVER = "importServer"
_MAX_NAME_CHARACTERS = 100
_MAX_META_DESCRIPTION_CHARACTERS = 300
_MAX_CACHED_IMPORTS = 64


class ModuleCatalog:
    """The tools of all servers, with the answers to a program's questions about them.

    ``unavailable``: why servers could not be listed, by path.
    """

    paths_named_like_javascript_members: tuple[str, ...] = ()  # programs call what they import
    shared_tools = None

    def __init__(
        self,
        servers: Sequence[ListedServer],
        unavailable: Mapping[str, str],
        before: ModuleCatalog | None = None,
    ) -> None:
        self.servers = tuple(servers)
        self.unavailable = dict(unavailable)
        self._by_path = {tool.path: tool for tool in servers}
        self._tools = {tool.tool.name: tool for server in servers for tool in server.tools}
        self._modules = ImportChecker(servers, unavailable)
        self.may_wait_for_person = any(tool.may_wait_for_person for tool in servers)
        """True if a call of some tool can wait for a person."""
        self.index: ToolIndex = build_search_index(servers, None if before is None else before.index)
        self._meta_by_path: dict[str, dict[str, Any]] = {}
        self._imports_cache: dict[Any, CachedJsonObject] = {}
        self._lock = create_fork_safe_lock()

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def names(self) -> tuple[str, ...]:
        """All tool names, ``<path>.<tool>``, in the order of servers."""
        return tuple(self._tools)

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        found = self._tools.get(name)
        return None if found is None else found.tool

    def get_module_tool(self, name: str) -> ModuleTool | None:
        """Return the tool of this name with its export name."""
        return self._tools.get(name)

    def get_server(self, path: str) -> ListedServer | None:
        """Return the server of this path."""
        return self._by_path.get(path)

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for a call of an unknown tool."""
        path, _, tool_name = name.partition(".")
        if path in self.unavailable:  # after a pause
            return self._create_unavailable_server_error(path)
        quoted = clip_text(tool_name, _MAX_NAME_CHARACTERS)
        error = CodeModeToolError(
            f'Server "{clip_text(path, _MAX_NAME_CHARACTERS)}" has no tool "{quoted}" any more.',
            details={"tool_name": quoted},
        )
        error.reason = "unknown_tool"
        return error

    def answer_query(self, name: str, argument: Any) -> Any:
        """Return the answer to a dynamic import of a server or to a discovery call."""
        if name == IMPORT_SERVER:
            return self._answer_server_import(read_import_path(argument))
        try:
            return call_discovery_function(self.servers, self.index, name, argument)
        except CodeModeToolError as error:
            path = error.details.get("server_id")
            if error.reason == "unknown_server" and path in self.unavailable:
                raise self._create_unavailable_server_error(path) from None
            raise

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> ModuleCatalog:  # noqa: ARG002 - required by `ToolCatalog`
        """Return the catalog itself: a program can import any server."""
        return self

    def build_invocation_data(self, facts: ProgramFacts | None) -> Mapping[str, Any]:
        """Return the modules that a program imports, for the guest."""
        module = parse_module_facts(facts)
        paths = [path for path in module.paths if path in self._by_path]
        imports = [fact.specifier for fact in module.imports]
        key = (module.prefix, module.take, *imports, None, *paths, module.wants_all, module.last, module.ends)
        import_data = self._imports_cache.get(key)
        if import_data is None:
            import_data = CachedJsonObject(
                prefix=module.prefix,
                take=module.take,
                imports=imports,
                servers={path: self._get_or_build_meta(self._by_path[path]) for path in paths},
                all=module.wants_all,
                **({"last": list(module.last)} if module.last else {}),
                **({"ends": module.ends} if module.ends else {}),
            )
            with self._lock:
                if len(self._imports_cache) >= _MAX_CACHED_IMPORTS:
                    self._imports_cache.clear()
                self._imports_cache[key] = import_data
        return {"module": import_data}

    def find_program_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        """Return the error that a program certainly has in its imports and calls, or None."""
        error = self._modules.find_error(parse_module_facts(facts))
        return error or find_undefined_names_error(facts, self.servers)

    def prepare_for_program(self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None) -> None:
        """Return None: the catalog does not change."""

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Accept any tools: the host is responsible for servers that never change."""

    def _answer_server_import(self, path: Any) -> dict[str, Any]:
        server = self._by_path.get(path) if isinstance(path, str) else None
        if server is not None:
            return self._get_or_build_meta(server)
        quoted = clip_text(path, _MAX_NAME_CHARACTERS) if isinstance(path, str) else get_json_type_name(path)
        is_known = isinstance(path, str) and path in self.unavailable
        error = (
            self._create_unavailable_server_error(path, "cannot be imported")
            if is_known
            else server_not_found_error(self.servers, quoted)
        )
        error.reason = "import_failure"
        raise error

    def _create_unavailable_server_error(self, path: str, problem: str = "is not available") -> CodeModeToolError:
        message = f'The server "{clip_text(path, _MAX_NAME_CHARACTERS)}" {problem}: {self.unavailable[path]}.'
        error = CodeModeToolError(message, details={"server_id": path, "hint": WITHOUT_SERVER_HINT})
        error.reason = "unknown_server"
        return error

    def _get_or_build_meta(self, server: ListedServer) -> dict[str, Any]:
        meta = self._meta_by_path.get(server.path)
        if meta is None:
            meta = self._meta_by_path[server.path] = build_meta(server)
        return meta


def read_import_path(argument: Any) -> Any:
    """Return the path in the argument of a dynamic import, which may be of any type."""
    return argument[0] if is_array(argument) and len(argument) == 1 else argument


def build_meta(server: ListedServer) -> dict[str, Any]:
    """Return the ``__meta__`` of a server's module."""
    tools: list[dict[str, Any]] = []
    for tool in server.tools:
        tool_fields: dict[str, Any] = {"toolName": tool.tool_name, "exportName": tool.export_name}
        if tool.tool.description:
            tool_fields["description"] = clip_text(tool.tool.description, _MAX_META_DESCRIPTION_CHARACTERS)
        tools.append(tool_fields)
    server_fields: dict[str, Any] = {"serverId": server.path, "serverName": server.name}
    if server.version is not None:
        server_fields["serverVersion"] = server.version
    return {**server_fields, "tools": tools}
