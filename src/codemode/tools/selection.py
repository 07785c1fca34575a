"""Choose which of an agent's tools programs call and which the model calls directly."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, cast

from ..data.similar_names import find_nearest_names, format_suggestion
from .collecting import refuse_framework_tool_without_adapter

ALL = "all"
_ACCEPTED_FORMS = "a list of names, a mapping that a tool's metadata must contain, or a predicate function"


class ToolSelectionOption:
    """A selection of an agent's tools: the value of the option ``path``.

    ``predicate`` is a function that the plugin calls for its framework's tools; None if names or metadata select them.
    With ``may_be_all``, "all" selects every tool. Raises `ValueError` for other values.
    """

    def __init__(self, value: Any, path: str, *, may_be_all: bool = False) -> None:
        self._path = path
        self.predicate: Callable[..., Any] | None = None
        self.names: frozenset[str] = frozenset()
        self._metadata: Mapping[str, Any] = {}
        self._is_all = may_be_all and value == ALL
        if self._is_all:
            return
        if isinstance(value, str):
            message = f"{path} must be a list of tool names, got {value!r}: write {path}=[{value!r}]"
            raise ValueError(message)  # noqa: TRY004 - as every wrong option
        if isinstance(value, Mapping):
            if not value:
                raise ValueError(
                    f"{path} is an empty mapping, which every tool would fit: {path} takes {_ACCEPTED_FORMS}"
                )
            self._metadata = cast("Mapping[str, Any]", value)
        elif isinstance(value, Collection) and all(isinstance(name, str) for name in cast("Collection[Any]", value)):
            self.names = frozenset(cast("Collection[str]", value))
        elif callable(cast("object", value)):
            self.predicate = cast("Callable[..., Any]", value)
        else:
            raise ValueError(f"{path} must be names of tools, got {value!r}: {path} takes {_ACCEPTED_FORMS}")

    @property
    def selects_only_by_name(self) -> bool:
        """True if only names select tools."""
        return self.predicate is None and not self._metadata and not self._is_all

    def selects_by_name_or_metadata(self, name: str, metadata: Mapping[str, Any] | None) -> bool:
        """Return whether a tool is selected, without a predicate."""
        if self._is_all or name in self.names:
            return True
        return bool(self._metadata) and _metadata_matches(metadata or {}, self._metadata)

    def require_names_among(self, tool_names: Collection[str]) -> None:
        """Raise `ValueError` for a name without a tool."""
        for name in sorted(self.names.difference(tool_names)):
            raise ValueError(describe_missing_name(self._path, name, tool_names))


def describe_missing_name(path: str, name: str, tool_names: Collection[str]) -> str:
    """Return the message for a name in the option ``path`` without a tool."""
    hint = format_suggestion(find_nearest_names(name, tool_names))
    return f"{path} names {name!r}, which is not among the tools.{hint or _format_available_names(tool_names)}"


class CallRoutes(NamedTuple):
    """How a tool is called: by programs, by the model directly, or both."""

    in_programs: bool
    directly: bool


class ToolSelection:
    """Which of an agent's tools programs call, and which the model calls directly.

    ``tools`` and ``keep`` are names, a mapping that a tool's metadata must contain, or a function with the arguments
    that a plugin passes to `find_routes`; ``tools`` may be "all", or None: then programs call all tools that are not
    kept. A tool in both is called both ways, one in neither by the model. ``keep_path`` is the plugin's name of
    ``keep``. Raises `ValueError` for anything else.
    """

    ONLY_DIRECTLY: ClassVar[CallRoutes] = CallRoutes(in_programs=False, directly=True)
    """The routes of a tool that programs cannot call."""

    def __init__(self, tools: Any, keep: Any, *, keep_path: str = "keep") -> None:
        self.tools = None if tools is None else ToolSelectionOption(tools, "tools", may_be_all=True)
        self.keep = ToolSelectionOption(keep, keep_path)

    def find_routes(self, name: str, metadata: Mapping[str, Any] | None, *arguments: Any) -> CallRoutes:
        """Return the routes of a tool. Raises `ValueError` for an async function."""
        tools = None if self.tools is None else _is_selected(self.tools, name, metadata, arguments)
        return _create_call_routes(is_kept=_is_selected(self.keep, name, metadata, arguments), is_named=tools)

    async def find_routes_async(self, name: str, metadata: Mapping[str, Any] | None, *arguments: Any) -> CallRoutes:
        """Return the routes of a tool; functions may be async."""
        is_kept = await _is_selected_async(self.keep, name, metadata, arguments)
        is_named = None if self.tools is None else await _is_selected_async(self.tools, name, metadata, arguments)
        return _create_call_routes(is_kept=is_kept, is_named=is_named)

    def require_names_among(self, tool_names: Collection[str]) -> None:
        """Raise `ValueError` for a name without a tool."""
        for selection in (self.tools, self.keep):
            if selection is not None:
                selection.require_names_among(tool_names)

    @staticmethod
    def refuse_framework_tool(value: Any) -> None:
        """Raise `ValueError` for another framework's tool object that takes any arguments.

        Functions and callable objects with their own parameters are accepted.
        """
        refuse_framework_tool_without_adapter(value)

    @staticmethod
    def describe_missing_name(path: str, name: str, tool_names: Collection[str]) -> str:
        """Return the message for a name in another option, ``path``, without a tool."""
        return describe_missing_name(path, name, tool_names)


def _is_selected(
    selection: ToolSelectionOption, name: str, metadata: Mapping[str, Any] | None, arguments: tuple[Any, ...]
) -> bool:
    if selection.predicate is None:
        return selection.selects_by_name_or_metadata(name, metadata)
    answer = selection.predicate(*arguments)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ValueError("the function that selects tools must not be async")
    return bool(answer)


async def _is_selected_async(
    selection: ToolSelectionOption, name: str, metadata: Mapping[str, Any] | None, arguments: tuple[Any, ...]
) -> bool:
    if selection.predicate is None:
        return selection.selects_by_name_or_metadata(name, metadata)
    answer = selection.predicate(*arguments)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _create_call_routes(*, is_kept: bool, is_named: bool | None) -> CallRoutes:
    """Return the routes of a tool; ``is_named`` None: the agent has no ``tools``.

    Tools that ``tools`` leaves out stay with the model, so that none disappears.
    """
    in_programs = not is_kept if is_named is None else is_named
    return CallRoutes(in_programs=in_programs, directly=is_kept or not in_programs)


def _metadata_matches(metadata: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    for key, value in expected.items():
        if key not in metadata:
            return False
        actual = metadata[key]
        if isinstance(value, Mapping) and isinstance(actual, Mapping):
            if not _metadata_matches(cast("Mapping[str, Any]", actual), cast("Mapping[str, Any]", value)):
                return False
        elif actual != value:
            return False
    return True


def _format_available_names(tool_names: Iterable[str]) -> str:
    names = sorted(tool_names)
    listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f" There is {listed}." if names else " There is none."
