"""The tools of all servers as one run sees them: an unchanging snapshot. Never runs a tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...data.json_values import WrittenObject
from ...data.narrowing import is_array
from ...errors import CodeModeError, CodeModeToolError
from ...host import steps
from ...host.forks import forkable_lock
from ...schemas.compiled import json_type
from ...tools.prepared import PreparedTool
from ...trace.visible_text import clipped
from .absent_names import absent_names
from .discovery import answer, search_index, unknown_server
from .imports import Modules
from .listing import ListedServer, ModuleTool
from .module_facts import read_module_facts
from .words import WITHOUT_SERVER_HINT

if TYPE_CHECKING:
    from ...data.program_facts import Facts
    from ...tools.search.index import ToolIndex

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

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return any(one.may_ask for one in self.servers)

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

    def given_for(self, facts: Facts | None) -> Mapping[str, Any]:
        """Return the modules that a program imports, for its guest to make."""
        module = read_module_facts(facts)
        paths = tuple(path for path in module.paths() if path in self._by_path)
        imports = tuple(one.specifier for one in module.imports)
        key = (module.prefix, module.take, imports, paths, module.wants_all, module.last, module.ends)
        kept = self._given.get(key)
        if kept is None:
            kept = WrittenObject(
                prefix=module.prefix,
                take=module.take,
                imports=list(imports),
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

    def refusal(self, facts: Facts | None) -> CodeModeError | None:
        """Return what is certainly wrong with what a program imports and calls."""
        return self._modules.refusal(read_module_facts(facts)) or absent_names(facts, self.servers)

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
    steps.take(len(server.tools) >> 3)
    for one in server.tools:
        said: dict[str, Any] = {"toolName": one.tool_name, "exportName": one.export_name}
        if one.tool.description:
            said["description"] = clipped(one.tool.description, _MAX_TOLD_CHARACTERS)
        tools.append(said)
    told: dict[str, Any] = {"serverId": server.path, "serverName": server.name}
    if server.version is not None:
        told["serverVersion"] = server.version
    return {**told, "tools": tools}
