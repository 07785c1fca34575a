"""What one program asks, and is given, of a catalog: as much of it as the program says it looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...data.narrowing import list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeIllegalAccessError, CodeModeToolError
from ...tools.prepared import PreparedTool
from .profile import GLOBALS

if TYPE_CHECKING:
    from ...data.program_facts import Facts
    from .mcp_server import McpServer
    from .namespaces import Scopes

ENTRIES, NAMES, SERVERS = 1, 2, 4
SERVERS_DIGEST = "serversDigest"
_MAX_PLACE = 2**31
_TOOL_CALL = "tools.{name}(input)"


class Viewed(Protocol):
    """What a view needs of its catalog."""

    @property
    def servers(self) -> tuple[McpServer, ...]: ...
    @property
    def may_ask(self) -> bool: ...
    @property
    def listed(self) -> tuple[str, int]: ...
    @property
    def names_text(self) -> str: ...
    @property
    def servers_text(self) -> str: ...
    @property
    def servers_digest(self) -> str: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def names(self) -> tuple[str, ...]: ...
    def get(self, name: str) -> PreparedTool | None: ...
    def ask(self, name: str, argument: Any) -> Any: ...
    def unknown_tool(self, name: str) -> CodeModeToolError: ...
    def require_same(self, given: Mapping[str, Any] | None) -> None: ...
    async def list_servers(self, given: Mapping[str, Any] | None = None) -> None: ...


class CatalogView:
    """What one program asks and is given of a catalog; it is that catalog in all else."""

    def __init__(self, catalog: Viewed, gives: int, scopes: Scopes | None = None) -> None:
        self._catalog = catalog
        self._gives = gives
        self._scopes = scopes
        self.ask = catalog.ask
        self.names = catalog.names
        self.unknown_tool = catalog.unknown_tool

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this id, or what stands behind this path of a namespace."""
        if self._scopes is not None and name in self._scopes.tools:
            return self._scopes.tools[name]
        return self._catalog.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    @property
    def language_names(self) -> tuple[str, ...]:
        """None, as of the catalog."""
        return ()

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return self._catalog.may_ask

    @property
    def warnings(self) -> list[str]:
        """What a model should know of the list, and of the servers, that its program looks at."""
        if not self._gives & (ENTRIES | SERVERS):
            return []
        left_out = self._catalog.listed[1] if self._gives & ENTRIES else 0
        cut = [f"ALL_TOOLS is cut: {left_out} tools are left out; find them with tools.search."] if left_out else []
        servers = self._catalog.servers if self._gives & SERVERS else ()
        return [*cut, *(warning for one in servers if (warning := one.warning) is not None)]

    def under(self, given: Mapping[str, Any] | None) -> CatalogView:
        """Return all of it. Raises `CodeModeProtocolError` for a program that was begun over another catalog."""
        self._catalog.require_same(given)
        return self

    def given_for(self, facts: Facts | None) -> dict[str, Any]:  # noqa: ARG002 - as above
        """Return the texts that a program may look at."""
        given: dict[str, Any] = {}
        if self._gives & ENTRIES:
            given["entries"] = self._catalog.listed[0]
        if self._gives & NAMES:
            given["names"] = self._catalog.names_text
        if self._gives & SERVERS:
            given["servers"] = self._catalog.servers_text
            given[SERVERS_DIGEST] = self._catalog.servers_digest
        if self._scopes is not None:
            given["scopes"] = self._scopes.text
        return given

    def refusal(self, facts: Facts | None) -> CodeModeError | None:
        """Return the error of a program that uses modules, or names that are not there; nothing of it runs."""
        known = mapping_or_empty(facts)
        uses = [one for one in list_or_empty(known.get("modules")) if _is_placed(one)]
        if not uses:
            return self._absent_names(facts) if known.get("free") else None
        shown = ", ".join(dict.fromkeys(f"`{str(one.get('kind'))[:20]}`" for one in uses[:8]))
        place = {"line": uses[0]["line"], "column": uses[0]["column"]}
        message = f"{shown} is not available: a program has no modules. What it can call is in the catalog: `tools`"
        return CodeModeIllegalAccessError(f"line {place['line']}, column {place['column']}: {message}", details=place)

    def _absent_names(self, facts: Facts | None) -> CodeModeError | None:
        from ...protocol.ending_errors import syntax_error  # late: making a pair runs no program
        from ...source.free_names import check_free_names

        problems = check_free_names(facts, self._alone(), self._globals(), _TOOL_CALL)
        return syntax_error(problems) if problems else None

    def _globals(self) -> frozenset[str]:
        own = () if self._scopes is None else (path.partition(".")[0] for path in self._scopes.tools)
        return frozenset((*GLOBALS, "tools", *own))

    def _alone(self) -> list[str]:
        """Return the names on ``tools`` that exactly one tool has."""
        counts = Counter(one.rpartition(":")[2].replace("-", "_") for one in self._catalog)
        return [name for name, count in counts.items() if count == 1]

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> Awaitable[None] | None:  # noqa: ARG002
        """Return what lists the servers that a program may use, if there is one that has not been listed."""
        uses = self._gives & SERVERS or (given is not None and "servers" in given)
        if not uses or all(one.is_listed for one in self._catalog.servers):
            return None
        return self._catalog.list_servers(given)

    def going_on(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Nothing: they are what the host says."""


def _is_placed(use: Any) -> bool:
    place = mapping_or_empty(use)
    return all(type(place.get(key)) is int and 0 < place[key] < _MAX_PLACE for key in ("line", "column"))
