"""The tools of all servers as one run sees them, compared with what a module imports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ...data.json_values import WrittenObject
from ...data.narrowing import ENDS, is_array, list_or_empty, mapping_or_empty, two_counts
from ...data.program_facts import ProgramProblem
from ...data.similar_names import nearest_names
from ...errors import CodeModeError, CodeModeSyntaxError, CodeModeToolError
from ...execution.outcome_texts import CLASSES, IMPORT_FAILURE, TOOL_NOT_FOUND, WITHOUT_SERVER_HINT, absent_hint
from ...host.forks import forkable_lock
from ...protocol.ending_errors import syntax_error
from ...schemas.compiled import json_type
from ...source.checks import MAX_UNDEFINED_NAMES, placed_items, problem_at
from ...tools.prepared import PreparedTool
from ...trace.visible_text import clipped
from .discovery import USAGE, answer, search_index, unknown_server
from .module_tools import (
    META,
    MODULE_OF_DISCOVERY,
    MODULE_OF_ERRORS,
    ListedServer,
    ModuleTool,
    module_of,
    module_paths,
    path_of,
)
from .options import GLOBALS

if TYPE_CHECKING:
    from ...data.program_facts import Facts
    from ...tools.search.index import ToolIndex


_MAX_ITEMS = 4_096
_MAX_NAMES = 16_384  # of all imports together
_MAX_TEXT_CHARACTERS = 1_024
_MAX_PLACE = 2**31


@dataclass(frozen=True, slots=True)
class ImportFact:
    """One static import or re-export of a module, and what of it: names of exports, "*" for its namespace.

    ``place`` is the statement's, ``places`` those of the names.
    """

    specifier: str
    names: tuple[str, ...]
    place: dict[str, int]
    places: tuple[dict[str, int], ...] = ()

    def place_of(self, name: str) -> dict[str, int]:
        """Return where a name stands first."""
        at = self.names.index(name)
        return self.places[at] if at < len(self.places) else self.place


@dataclass(frozen=True, slots=True)
class CallFact:
    """One call of a name of a namespace, which the program does not look at in another way."""

    specifier: str
    name: str
    place: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """What is known of one module. ``prefix``, ``take``, ``last`` and ``ends`` go to the guest as they came.

    ``paths`` are those of the servers that it names, each once. ``wants_all``: it may ask for any server.
    """

    prefix: int
    take: str | None
    imports: tuple[ImportFact, ...]
    calls: tuple[CallFact, ...]
    paths: tuple[str, ...]
    wants_all: bool
    last: tuple[int, ...] = ()
    ends: str = ""


def read_module_facts(facts: Any) -> ModuleFacts:
    """Return what is known of a module. Facts are hostile."""
    said = mapping_or_empty(mapping_or_empty(facts).get("module"))
    prefix, ends = said.get("prefix"), said.get("ends")
    imports = _read_imports(list_or_empty(said.get("imports")))
    specifiers: dict[str, None] = {one.specifier: None for one in imports}
    wants_all = False  # it has an import() of what is no literal, or asks discovery
    for item in islice(list_or_empty(said.get("dynamic")), _MAX_ITEMS):
        specifier = _text(mapping_or_empty(item).get("from"))
        if specifier is None:
            wants_all = True
        else:
            specifiers[specifier] = None
    paths: dict[str, None] = {}
    for specifier in specifiers:
        if (path := path_of(specifier)) is not None:
            paths[path] = None
    return ModuleFacts(
        prefix=prefix if type(prefix) is int and 0 <= prefix < _MAX_PLACE else 0,
        take=_text(said.get("take")),
        imports=imports,
        calls=_read_calls(list_or_empty(said.get("namespace_calls"))),
        paths=tuple(paths),
        wants_all=wants_all or MODULE_OF_DISCOVERY in specifiers,
        last=tuple(two_counts(said.get("last")) or ()),
        ends=ends if ends in ENDS else "",
    )


def _read_imports(items: Sequence[Any]) -> tuple[ImportFact, ...]:
    imports: list[ImportFact] = []
    left = _MAX_NAMES
    for item in islice(items, _MAX_ITEMS):
        said = mapping_or_empty(item)
        names: list[str] = []
        places: list[dict[str, int]] = []
        for pair in islice(list_or_empty(said.get("names")), left):
            name = _text(pair[0]) if is_array(pair) and pair else None
            names.append(name or "")  # each has its place in the list, whatever it says
        for pair in islice(list_or_empty(said.get("places")), len(names)):
            line, column = pair[:2] if is_array(pair) and len(pair) > 1 else (None, None)
            places.append(_place(line, column))
        left -= len(names)
        place = _place(said.get("line"), said.get("column"))
        imports.append(ImportFact(_text(said.get("from")) or "", tuple(names), place, tuple(places)))
    return tuple(imports)


def _read_calls(items: Sequence[Any]) -> tuple[CallFact, ...]:
    calls: list[CallFact] = []
    for item in islice(items, _MAX_ITEMS):
        said = mapping_or_empty(item)
        specifier, name = _text(said.get("from")), _text(said.get("name"))
        if specifier is not None and name is not None:
            calls.append(CallFact(specifier, name, _place(said.get("line"), said.get("column"))))
    return tuple(calls)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT_CHARACTERS else None


def _place(line: Any, column: Any) -> dict[str, int]:
    return {
        "line": line if type(line) is int and 0 < line < _MAX_PLACE else 1,
        "column": column if type(column) is int and 0 < column < _MAX_PLACE else 1,
    }


MAX_IMPORT_PROBLEMS = 32
_MAX_SUGGESTIONS = 8
_MAX_SHOWN_CHARACTERS = 200
_EXPORTS: Mapping[str, frozenset[str]] = {
    MODULE_OF_ERRORS: CLASSES,
    MODULE_OF_DISCOVERY: frozenset((*USAGE, "specVersion")),
}


class Modules:
    """The modules there are. ``unavailable`` says of servers that could not be listed why, by path."""

    def __init__(self, servers: Sequence[ListedServer], unavailable: Mapping[str, str]) -> None:
        self._servers = {one.path: one for one in servers}
        self._unavailable = unavailable
        self._exports: dict[str, frozenset[str]] = {}

    def refusal(self, facts: ModuleFacts) -> CodeModeSyntaxError | None:
        """Return what is certainly wrong with a module that imports this: an error with all its ``problems``."""
        if self._is_fine(facts):
            return None
        problems = list(islice(self._problems(facts), MAX_IMPORT_PROBLEMS))
        if not problems:
            return None
        problems.sort(key=lambda one: (one["line"], one["column"]))
        return syntax_error(cast("list[ProgramProblem]", problems))

    def _is_fine(self, facts: ModuleFacts) -> bool:
        for one in facts.imports:
            exports = self._exports_of(one.specifier)
            if exports is None or not exports.issuperset(one.names):
                return False
        return not facts.calls

    def _problems(self, facts: ModuleFacts) -> Iterator[dict[str, Any]]:
        suggesting = _Suggesting()
        for one in facts.imports:
            yield from self._of_import(one, suggesting)
        for call in facts.calls:
            exports = self._exports_of(call.specifier)
            if exports is None or call.name in exports:
                continue
            hint = suggesting.hint(call.name, exports, "Call {}.", "Import @codemode/discovery and look the tool up.")
            message = f"{_quoted(call.specifier)} has no tool {_quoted(call.name)}"
            message += self._why_left_out(call.specifier, call.name)
            yield _problem("TOOL_NOT_FOUND", message, hint, call.place, error_class=TOOL_NOT_FOUND)

    def _of_import(self, one: ImportFact, suggesting: _Suggesting) -> Iterator[dict[str, Any]]:
        exports = self._exports_of(one.specifier)
        if exports is None:
            yield self._no_module(one, suggesting)
            return
        for name in dict.fromkeys(one.names):
            if name == "*" or name in exports:
                continue
            if name == "default":
                hint = f"Write import * as server from {_quoted(one.specifier)}."
            else:
                own = ", ".join(sorted(_EXPORTS.get(one.specifier, ())))
                else_hint = f"It has {own}." if own else "Import @codemode/discovery and look the tool up."
                hint = suggesting.hint(name, exports, "Import {}.", else_hint)
            message = f"{_quoted(one.specifier)} has no export {_quoted(name)}"
            message += self._why_left_out(one.specifier, name)
            yield _problem(IMPORT_FAILURE, message, hint, one.place_of(name))

    def _no_module(self, one: ImportFact, suggesting: _Suggesting) -> dict[str, Any]:
        specifier, path = one.specifier, path_of(one.specifier)
        if path is not None and path in self._unavailable:
            message = f"the server {_quoted(path)} cannot be imported: {self._unavailable[path]}"
            hint = WITHOUT_SERVER_HINT
        elif path is not None:
            message = f"there is no server {_quoted(path)}"
            hint = self._path_meant(path) or suggesting.hint(
                path.lower(),
                self._servers,
                f"Import {module_of('{}')}.",
                "Import @codemode/discovery and call listServers().",
            )
        else:
            message = f"there is no module {_quoted(specifier)}"
            known = [*_EXPORTS, *map(module_of, self._servers)]
            hint = suggesting.hint(
                module_of(specifier) if specifier in self._servers else specifier,
                known,
                "Import {}.",
                "Import @codemode/discovery, @codemode/errors or @codemode/servers/<serverId>: there are no others.",
            )
        return _problem(IMPORT_FAILURE, message, hint, one.place)

    def _why_left_out(self, specifier: str, name: str) -> str:
        server = self._servers.get(path_of(specifier) or "")
        return "" if server is None else server.why_left_out(name)

    def _path_meant(self, written: str) -> str | None:
        """Return the hint for the id of a server that stands where its path should."""
        meant = next((one.path for one in self._servers.values() if one.server_id == written), None)
        meant = meant or next((path for path in module_paths([written]) if path in self._servers), None)
        return None if meant is None else f"Import {module_of(meant)}."

    def _exports_of(self, specifier: str) -> frozenset[str] | None:
        own = _EXPORTS.get(specifier)
        if own is not None:
            return own
        exports = self._exports.get(specifier)
        if exports is None:
            server = self._servers.get(path_of(specifier) or "")
            if server is None:
                return None
            exports = self._exports[specifier] = frozenset((META, *(one.export_name for one in server.tools)))
        return exports


class _Suggesting:
    """The nearest names of a few mistakes; comparing names of all of them would take long."""

    def __init__(self) -> None:
        self._left = _MAX_SUGGESTIONS

    def hint(self, name: str, known: Collection[str], near_hint: str, else_hint: str) -> str:
        """Return what to do, with the nearest names in it where there are any."""
        self._left -= 1
        near = nearest_names(name[:_MAX_SHOWN_CHARACTERS], sorted(known)) if self._left >= 0 else []
        return near_hint.replace("{}", " or ".join(near)) if near else else_hint


def _problem(
    code: str, message: str, hint: str, place: Mapping[str, int], *, error_class: str | None = None
) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint, "error_class": error_class, **place}


def _quoted(text: str) -> str:
    return f'"{text[:_MAX_SHOWN_CHARACTERS]}"'


def absent_names(facts: Any, servers: Iterable[ListedServer]) -> CodeModeSyntaxError | None:
    """Return the error for names of tools that are not imported, and of other hosts. Facts are hostile."""
    problems = list(islice(_problems(facts, servers), MAX_UNDEFINED_NAMES))
    return syntax_error(cast("list[ProgramProblem]", problems)) if problems else None


def _problems(facts: Any, servers: Iterable[ListedServer]) -> Iterator[dict[str, Any]]:
    paths: dict[str, str] | None = None
    for use in placed_items(facts, "free"):
        name = use.get("name")
        if not isinstance(name, str) or name in GLOBALS:
            continue
        if paths is None:
            paths = {tool.export_name: server.path for server in servers for tool in server.tools}
        path = paths.get(name) if use.get("called") is True else None
        hint = absent_hint(name)
        if path is not None:
            hint = f'Import it: import {{ {name} }} from "@codemode/servers/{path}";'
        if hint is not None:
            yield {**problem_at(use, f"{name} is not defined"), "hint": hint}


IMPORT_SERVER = "importServer"
_MAX_NAME_CHARACTERS = 100
_MAX_TOLD_CHARACTERS = 300
_MOST_GIVEN = 64


class ModuleCatalog:
    """The tools of a run, and what it asks of them.

    ``unavailable`` says of servers that could not be listed why, by path.
    """

    def __init__(
        self,
        servers: Sequence[ListedServer],
        unavailable: Mapping[str, str],
        before: ModuleCatalog | None = None,
    ) -> None:
        self.servers = tuple(servers)
        self.unavailable = dict(unavailable)
        self._by_path = {one.path: one for one in servers}
        self._tools = {one.tool.name: one for server in servers for one in server.tools}
        self._modules = Modules(servers, unavailable)
        self.may_ask = any(one.may_ask for one in servers)
        """True when a call of some tool may wait for a person."""
        self.index: ToolIndex = search_index(servers, None if before is None else before.index)
        self._entries: dict[str, dict[str, Any]] = {}
        self._given: dict[Any, WrittenObject] = {}
        self._lock = forkable_lock()

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def names(self) -> tuple[str, ...]:
        """All names that lead to tools, ``<path>.<tool>``, in the order of servers."""
        return tuple(self._tools)

    @property
    def language_names(self) -> tuple[str, ...]:
        """None: a program calls what it has imported."""
        return ()

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        found = self._tools.get(name)
        return None if found is None else found.tool

    def find(self, name: str) -> ModuleTool | None:
        """Return it with what its module calls it."""
        return self._tools.get(name)

    def server(self, path: str) -> ListedServer | None:
        """Return the server of this path."""
        return self._by_path.get(path)

    def unknown_tool(self, name: str) -> CodeModeToolError:
        """Return the error for a call of what is no tool here."""
        path, _, tool_name = name.partition(".")
        if path in self.unavailable:  # as after a pause
            return self._unavailable(path)
        shown = clipped(tool_name, _MAX_NAME_CHARACTERS)
        error = CodeModeToolError(
            f'Server "{clipped(path, _MAX_NAME_CHARACTERS)}" has no tool "{shown}" any more.',
            details={"tool_name": shown},
        )
        error.reason = "unknown_tool"
        return error

    def ask(self, name: str, argument: Any) -> Any:
        """Return what a program is told that imports a server by a name made at run time, or asks discovery."""
        if name == IMPORT_SERVER:
            return self._import(argument[0] if is_array(argument) and len(argument) == 1 else argument)
        try:
            return answer(self.servers, self.index, name, argument)
        except CodeModeToolError as error:
            path = error.details.get("server_id")
            if error.reason == "unknown_server" and path in self.unavailable:
                raise self._unavailable(path) from None
            raise

    def under(self, given: Mapping[str, Any] | None) -> ModuleCatalog:  # noqa: ARG002 - as `ToolCatalog` has it
        """Return all of it: a program may import any server."""
        return self

    def given_for(self, facts: Facts | None, module: ModuleFacts | None = None) -> Mapping[str, Any]:
        """Return the modules that a program imports, for its guest to make. ``module`` is what ``facts`` say, read."""
        module = module or read_module_facts(facts)
        paths = [path for path in module.paths if path in self._by_path]
        imports = [one.specifier for one in module.imports]
        key = (module.prefix, module.take, *imports, None, *paths, module.wants_all, module.last, module.ends)
        kept = self._given.get(key)
        if kept is None:
            kept = WrittenObject(
                prefix=module.prefix,
                take=module.take,
                imports=imports,
                servers={path: self._entry(self._by_path[path]) for path in paths},
                all=module.wants_all,
                **({"last": list(module.last)} if module.last else {}),
                **({"ends": module.ends} if module.ends else {}),
            )
            with self._lock:
                if len(self._given) >= _MOST_GIVEN:
                    self._given.clear()
                self._given[key] = kept
        return {"module": kept}

    def refusal(self, facts: Facts | None, module: ModuleFacts | None = None) -> CodeModeError | None:
        """Return what is certainly wrong with what a program imports and calls."""
        return self._modules.refusal(module or read_module_facts(facts)) or absent_names(facts, self.servers)

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> None:
        """Nothing: it does not change."""

    def going_on(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Nothing: servers that never change are what the host says."""

    def _import(self, path: Any) -> dict[str, Any]:
        server = self._by_path.get(path) if isinstance(path, str) else None
        if server is not None:
            return self._entry(server)
        shown = clipped(path, _MAX_NAME_CHARACTERS) if isinstance(path, str) else json_type(path)
        is_known = isinstance(path, str) and path in self.unavailable
        error = self._unavailable(path, "cannot be imported") if is_known else unknown_server(self.servers, shown)
        error.reason = "import_failure"
        raise error

    def _unavailable(self, path: str, cannot: str = "is not available") -> CodeModeToolError:
        message = f'The server "{clipped(path, _MAX_NAME_CHARACTERS)}" {cannot}: {self.unavailable[path]}.'
        error = CodeModeToolError(message, details={"server_id": path, "hint": WITHOUT_SERVER_HINT})
        error.reason = "unknown_server"
        return error

    def _entry(self, server: ListedServer) -> dict[str, Any]:
        made = self._entries.get(server.path)
        if made is None:
            made = self._entries[server.path] = meta_of(server)
        return made


def meta_of(server: ListedServer) -> dict[str, Any]:
    """Return the ``__meta__`` of a server's module."""
    tools: list[dict[str, Any]] = []
    for one in server.tools:
        said: dict[str, Any] = {"toolName": one.tool_name, "exportName": one.export_name}
        if one.tool.description:
            said["description"] = clipped(one.tool.description, _MAX_TOLD_CHARACTERS)
        tools.append(said)
    told: dict[str, Any] = {"serverId": server.path, "serverName": server.name}
    if server.version is not None:
        told["serverVersion"] = server.version
    return {**told, "tools": tools}
