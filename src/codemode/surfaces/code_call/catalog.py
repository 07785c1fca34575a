"""The tools that one invocation of CodeCall may see and call: a view of the index. Never runs a tool.

Whatever is outside the index has one answer, that of a name that nobody has registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...data.json_shape import weigh
from ...data.json_values import WrittenObject, encode_json, utf8_length
from ...data.narrowing import is_array, mapping_or_empty
from ...errors import CodeModeToolError
from ...host import steps
from ...source.rules import literal_definitions
from ...tools.catalog import MAX_NAME_CHARACTERS, Catalog, asked
from ...tools.prepared import PreparedTool
from .names import looks_like_meta_tool

if TYPE_CHECKING:
    from ...data.program_facts import Facts

MAX_DEFINITIONS_BYTES = 64 * 1024
MAX_NAMED_DEFINITIONS_CHARACTERS = 1 << 20
_LARGE_CHARACTERS = 1 << 14
_CHARACTERS_OF_A_STEP = 1 << 6
_READS_DEFINITIONS = frozenset({"getTool", "globalThis"})


class CodeCallCatalog:
    """What a run asks about its tools. ``allowed`` None are all in the index; ``whole`` is what a view is of."""

    def __init__(
        self,
        index: Catalog[PreparedTool],
        definition: Callable[[str], dict[str, Any]],
        allowed: frozenset[str] | None = None,
        whole: CodeCallCatalog | None = None,
    ) -> None:
        self._index = index
        self._definition = definition
        self._allowed = allowed
        self._whole = self if whole is None else whole

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._index and (self._allowed is None or name in self._allowed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """All names that lead to tools, in the order of registration."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self._index if self._allowed is None or name in self._allowed)

    @property
    def language_names(self) -> tuple[str, ...]:
        """None: scripts name tools with text."""
        return ()

    @property
    def may_ask(self) -> bool:
        """True when a call of some tool of the index may wait for a person."""
        return self._index.may_ask

    def get(self, name: str) -> PreparedTool | None:
        """Return the tool of exactly this name."""
        return self._index.get(name) if self._allowed is None or name in self._allowed else None

    def unknown_tool(self, name: str) -> CodeModeToolError:
        """Return the error for a name that leads to no tool: that of a meta-tool first of all."""
        shown = name[:MAX_NAME_CHARACTERS]
        if looks_like_meta_tool(name):
            return _refusal(f"{shown!r} is a meta-tool, which no script can call.", shown, "self_reference")
        if name in self._index:
            return _refusal(f"Tool {shown!r} may not be called here.", shown, "access_denied")
        from ...data.similar_names import did_you_mean

        near = [one for one in self._index.nearest(name) if one in self]
        return _refusal(f"There is no tool named {shown!r}.{did_you_mean(near)}", shown, "unknown_tool")

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """Return what fits a query, as a `Catalog` does."""
        return [found for found in self._index.search(query, limit) if found["name"] in self]

    def describe(self, name: str) -> str:
        """Return the declaration of one tool as TypeScript. Raises `CodeModeToolError`."""
        if name not in self:
            raise self.unknown_tool(name)
        return self._index.describe(name)

    def ask(self, name: str, argument: Any) -> Any:
        """Return what a program is told that searches, or asks about a tool."""
        return asked(self, name, argument)

    def refusal(self, facts: Facts | None) -> None:
        """Return nothing: what a script may not say, its profile knows."""

    def preparation(self, facts: Facts | None, given: Mapping[str, Any] | None) -> None:
        """Return nothing: the index is as it is."""

    def going_on(self, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Nothing: they are what the host says."""

    def under(self, given: Mapping[str, Any] | None) -> CodeCallCatalog:
        """Return the tools that an invocation which was given this may see and call."""
        allowed = mapping_or_empty(given).get("allowedTools")
        if not is_array(allowed):
            return self
        return CodeCallCatalog(self._index, self._definition, frozenset(map(str, allowed)), self._whole)

    def given_for(self, facts: Facts | None) -> dict[str, Any]:
        """Return the definitions that ``getTool`` knows in a program, and the namespaces that it uses."""
        used = mapping_or_empty(mapping_or_empty(facts).get("names"))
        namespaces = [one for one in self._whole.namespaces if one in used]
        definitions: dict[str, Any] | None = self._small_definitions if _READS_DEFINITIONS & used.keys() else {}
        are_all = definitions is not None
        if definitions is None:
            definitions = self._named_definitions(literal_definitions(facts))
        return {"definitions": definitions, "all": are_all, "namespaces": namespaces}

    def _named_definitions(self, names: list[str]) -> dict[str, Any]:
        """The definitions of these names, as many as go along; None for a name that no tool has."""
        definitions: dict[str, Any] = {}
        left = MAX_NAMED_DEFINITIONS_CHARACTERS
        for name in names:
            tool = self.get(name)
            if tool is None:
                definitions[name] = None
                continue
            size = _size_of(tool, left + 1)
            if size <= left:
                left -= size
                definitions[name] = self._definition(name)
        return definitions

    @cached_property
    def _small_definitions(self) -> WrittenObject | None:
        """All definitions, where they are small together. It stops at the first that is too much."""
        definitions = WrittenObject()
        left = MAX_DEFINITIONS_BYTES
        for name in self._names:
            tool = self._index.get(name)
            if tool is None or weigh((tool.input_json_schema, tool.output_json_schema), 2 * left) >= 2 * left:
                return None  # it need not be written to be known as too much
            definitions[name] = self._definition(name)
            left -= len(name) + utf8_length(encode_json(definitions[name], what="a definition"))
            if left < 0:
                return None
        return definitions

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """What stands before the first dot of names, where it may name a variable.

        Of tools that a view does not have too: a call through it is refused as one by ``callTool`` is.
        """
        parts = (name.partition(".") for name in self._index)
        return tuple(dict.fromkeys(space for space, dot, method in parts if dot and method and _is_variable(space)))


def _is_variable(name: str) -> bool:
    return name.replace("$", "_").isidentifier()


def _size_of(tool: PreparedTool, enough: int) -> int:
    """Weigh a definition, a large one off the event loop."""
    parts = (tool.description, tool.input_json_schema, tool.output_json_schema)
    size = weigh(parts, min(enough, _LARGE_CHARACTERS))
    steps.take(size // _CHARACTERS_OF_A_STEP)
    return size if size < _LARGE_CHARACTERS else weigh(parts, enough)


def _refusal(message: str, name: str, reason: str) -> CodeModeToolError:
    error = CodeModeToolError(message, details={"tool_name": name})
    error.reason = reason
    return error
