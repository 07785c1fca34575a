"""Look up tools by name, by similar name and by search."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..cached_property import cached_property
from ..data.narrowing import mapping_or_empty
from ..errors import CodeModeToolError
from ..host.forks import create_fork_safe_lock
from ..signatures.described_tool import DescribedTool

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts
    from ..errors import CodeModeError
    from .search.index import ToolIndex

MAX_RESULTS = 50
MAX_NAME_CHARACTERS = 100
JAVASCRIPT_NAMES = frozenset({"constructor", "prototype", "toJSON", "toLocaleString", "toString", "valueOf"})
"""Names that JavaScript reads of every object. They reach the catalog only if such a tool exists; ``then`` never."""

ToolT = TypeVar("ToolT", bound=DescribedTool)
ToolT_co = TypeVar("ToolT_co", bound=DescribedTool, covariant=True)


class ToolCatalog(Protocol[ToolT_co]):
    """The catalog that a run uses: a `Catalog`, or a surface's view of one.

    Names that it does not resolve cannot be called. Used from several threads.
    """

    def __len__(self) -> int: ...

    def __contains__(self, name: object, /) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def names(self) -> tuple[str, ...]:
        """All names that resolve to tools, in the order of registration."""
        ...

    @property
    def shared_tools(self) -> object | None:
        """What answers about a program depend on, if catalogs of several runs share it; None: the catalog itself."""
        ...

    @property
    def paths_named_like_javascript_members(self) -> tuple[str, ...]:
        """Paths on ``tools`` that resolve to tools by names that JavaScript itself reads of every object."""
        ...

    @property
    def may_wait_for_person(self) -> bool:
        """True when a call of some tool may wait for a person."""
        ...

    def get(self, name: str) -> ToolT_co | None:
        """Return the tool with exactly this name."""
        ...

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """Return the error for a name without a tool, with its ``reason``."""
        ...

    def answer_query(self, name: str, argument: Any) -> Any:
        """Return the answer to a program's query about tools, as plain JSON. Raises `CodeModeError`.

        ``argument`` is the program's unchecked argument, plain JSON; None for none.
        """
        ...

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> ToolCatalog[ToolT_co]:
        """Return the tools that an invocation with this data may see and call. Builds no index."""
        ...

    def build_invocation_data(self, facts: ProgramFacts | None) -> Mapping[str, Any] | None:
        """Return data that a program with these facts gets in addition to its invocation's: plain JSON."""
        ...

    def find_program_error(self, facts: ProgramFacts | None) -> CodeModeError | None:
        """Return an error that a program certainly has by rules of the tools; the program then does not run."""
        ...

    def prepare_for_program(
        self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None
    ) -> Awaitable[None] | None:
        """Return a coroutine to await before a program is checked or resumed with ``invocation_data``, or None.

        The program's clock is stopped meanwhile, and the coroutine is cancelled with the run. It must handle its own
        errors. What it changes is not part of cached facts about the program.
        """
        ...

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Check the data of a program that is resumed here, and the names of the tools that it has called.

        Raises `CodeModeProtocolError` if they do not match this catalog; the program then does not run.
        """
        ...


class Catalog(Generic[ToolT]):
    """An immutable set of tools. Thread-safe."""

    shared_tools = None

    def __init__(self, tools: Mapping[str, ToolT]) -> None:
        self._tools = dict(tools)
        self._names = list(tools)
        self.paths_named_like_javascript_members = tuple(
            dict.fromkeys(path for name in tools for path in _iterate_paths_named_like_javascript_members(name))
        )
        """Paths on ``tools`` that lead to tools by names that JavaScript itself reads of every object."""
        self._index: ToolIndex | None = None
        self._lock = create_fork_safe_lock()

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._tools)

    def list_tools(self) -> tuple[ToolT, ...]:
        """All tools, in the order of registration."""
        return tuple(self._tools.values())

    @property
    def may_wait_for_person(self) -> bool:
        """True when a call of some tool may wait for a person."""
        return self._may_wait_for_person

    @cached_property
    def _may_wait_for_person(self) -> bool:
        return any(getattr(tool, "may_wait_for_person", False) for tool in self._tools.values())

    def get(self, name: str) -> ToolT | None:
        """The tool registered under exactly ``name``."""
        return self._tools.get(name)

    def find_nearest_names(self, name: str) -> list[str]:
        """Return at most three registered names similar to ``name``, best first."""
        from ..data.similar_names import find_nearest_names

        plain = _normalize_name(name[:MAX_NAME_CHARACTERS])
        return [self._names_by_plain_name[match] for match in find_nearest_names(plain, self._names_by_plain_name)]

    def tool_not_found_error(self, name: str) -> CodeModeToolError:
        """The error for a name that is not registered; its message suggests the nearest ones."""
        from ..data.similar_names import format_suggestion

        shown, hint = name[:MAX_NAME_CHARACTERS], format_suggestion(self.find_nearest_names(name))
        details = {"tool_name": shown, "available_tools": self._names}
        error = CodeModeToolError(f"There is no tool named {shown!r}.{hint}", details=details)
        error.reason = "unknown_tool"
        return error

    def for_invocation(self, invocation_data: Mapping[str, Any] | None) -> Catalog[ToolT]:  # noqa: ARG002 - as `ToolCatalog` has it
        """Return the whole catalog for every invocation."""
        return self

    def build_invocation_data(self, facts: ProgramFacts | None) -> Mapping[str, Any] | None:
        """Return the names for a program that may list them; it queries the rest at run time."""
        known = mapping_or_empty(facts)
        may_list = known.get("shadowed") is not False or known.get("lists") is True
        return {"toolNames": self._names} if may_list and self._names else None

    def find_program_error(self, facts: ProgramFacts | None) -> None:
        """Nothing: it has no rules of its own."""

    def prepare_for_program(self, facts: ProgramFacts | None, invocation_data: Mapping[str, Any] | None) -> None:
        """Nothing: it does not change."""

    def check_resumed_program(self, invocation_data: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        """Accept everything: the data come from the host."""

    def answer_query(self, name: str, argument: Any) -> Any:
        """Answer ``$search`` or ``$describe``. Raises `CodeModeToolError` for anything but one string."""
        return answer_catalog_query(self, name, argument)

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """Name and first sentence of the tools that fit any word of ``query``, best first; at most 50."""
        from ..signatures.declarations import extract_first_sentence, find_tool_description

        positions = self._get_or_create_index().search(query, min(max(limit, 0), MAX_RESULTS))
        matches = [(self._names[position], self._tools[self._names[position]]) for position, _score in positions]
        return [
            {"name": name, "description": extract_first_sentence(find_tool_description(tool))} for name, tool in matches
        ]

    def describe(self, name: str) -> str:
        """Return the declaration of a tool as TypeScript. Raises `CodeModeToolError` for an unknown name."""
        from ..signatures.declarations import format_tool_declarations

        tool = self.get(name)
        if tool is None:
            raise self.tool_not_found_error(name)
        return format_tool_declarations([tool])

    def _get_or_create_index(self) -> ToolIndex:
        if self._index is None:
            from .search.index import ToolIndex

            with self._lock:
                self._index = self._index or ToolIndex(self._tools.items())
        return self._index

    @cached_property
    def _names_by_plain_name(self) -> dict[str, str]:
        plain_names: dict[str, str] = {}
        for name in reversed(self._names):
            plain_names[_normalize_name(name)] = name
        return plain_names


class SearchableTools(Protocol):
    """Tools that can be searched and described."""

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """Return name and first sentence of the matching tools, best first."""
        ...

    def describe(self, name: str) -> str:
        """Return the declaration of a tool as TypeScript. Raises `CodeModeToolError`."""
        ...


def answer_catalog_query(tools: SearchableTools, name: str, argument: Any) -> Any:
    """Answer ``$search`` or ``$describe``. Raises `CodeModeToolError` for anything but one string."""
    if not isinstance(argument, str):
        raise CodeModeToolError(f"tools.{name} takes one string")
    return tools.search(argument) if name == "$search" else tools.describe(argument)


def _iterate_paths_named_like_javascript_members(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: index + 1]) for index, part in enumerate(parts) if part in JAVASCRIPT_NAMES)


def _normalize_name(name: str) -> str:
    from .search.tokenizer import split_terms

    return "".join(split_terms(name))
