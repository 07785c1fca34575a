"""Choose which of an agent's tools programs call and which the model calls itself, as ``tools`` and ``keep`` say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, cast

from ..data.similar_names import did_you_mean, nearest_names
from .collecting import refuse_framework_tool

ALL = "all"
_FORMS = "a list of names, a mapping that the metadata of a tool must hold, or a function that tells"


class Selection:
    """Some of an agent's tools, as ``given`` to the option ``path``.

    ``predicate`` is the function that tells them, which the plugin asks about its framework's tools; None where names
    or metadata do. With ``may_be_all`` "all" means each of them. Raises `ValueError` for what is none of these.
    """

    def __init__(self, given: Any, path: str, *, may_be_all: bool = False) -> None:
        self._path = path
        self.predicate: Callable[..., Any] | None = None
        self.names: frozenset[str] = frozenset()
        self._metadata: Mapping[str, Any] = {}
        self._is_all = may_be_all and given == ALL
        if self._is_all:
            return
        if isinstance(given, str):
            why = f"{path} must be a list of tool names, got {given!r}: write {path}=[{given!r}]"
            raise ValueError(why)  # noqa: TRY004 - as every wrong option
        if isinstance(given, Mapping):
            if not given:
                raise ValueError(f"{path} is an empty mapping, which every tool would fit: {path} takes {_FORMS}")
            self._metadata = cast("Mapping[str, Any]", given)
        elif isinstance(given, Collection) and all(isinstance(one, str) for one in cast("Collection[Any]", given)):
            self.names = frozenset(cast("Collection[str]", given))
        elif callable(cast("object", given)):
            self.predicate = cast("Callable[..., Any]", given)
        else:
            raise ValueError(f"{path} must be names of tools, got {given!r}: {path} takes {_FORMS}")

    @property
    def is_by_name(self) -> bool:
        """True when nothing but its name says whether a tool is one of them."""
        return self.predicate is None and not self._metadata and not self._is_all

    def has(self, name: str, metadata: Mapping[str, Any] | None) -> bool:
        """Tell whether a tool is one of them, where no function has to be asked."""
        if self._is_all or name in self.names:
            return True
        return bool(self._metadata) and _holds(metadata or {}, self._metadata)

    def require_known(self, there: Collection[str]) -> None:
        """Raise `ValueError` for a name that fits none of the tools that are there."""
        for name in sorted(self.names.difference(there)):
            raise ValueError(describe_unknown_name(self._path, name, there))


def describe_unknown_name(path: str, name: str, there: Collection[str]) -> str:
    """Say that a name in an option ``path`` fits none of the tools that are there."""
    hint = did_you_mean(nearest_names(name, there))
    return f"{path} names {name!r}, which is not among the tools.{hint or _listed(there)}"


class Places(NamedTuple):
    """Where a tool is called: in programs, by the model itself, or both."""

    in_programs: bool
    directly: bool


class ToolSelection:
    """Which of an agent's tools programs call, and which the model calls itself.

    ``tools`` and ``keep`` are names, a mapping that a tool's metadata must hold, or a function that is called with what
    a plugin gives to `find_places`; ``tools`` may be "all", or None: then programs call all that are not kept. A tool
    in both is called both ways, one in neither by the model. ``keep_path`` is what the plugin calls ``keep``. Raises
    `ValueError` for anything else.
    """

    ONLY_DIRECTLY: ClassVar[Places] = Places(in_programs=False, directly=True)
    """Where a tool is called that programs cannot call."""

    def __init__(self, tools: Any, keep: Any, *, keep_path: str = "keep") -> None:
        self.tools = None if tools is None else Selection(tools, "tools", may_be_all=True)
        self.keep = Selection(keep, keep_path)

    def find_places(self, name: str, metadata: Mapping[str, Any] | None, *arguments: Any) -> Places:
        """Return where a tool is called. Raises `ValueError` for an async function."""
        tools = None if self.tools is None else _has(self.tools, name, metadata, arguments)
        return _places(is_kept=_has(self.keep, name, metadata, arguments), is_named=tools)

    async def find_places_async(self, name: str, metadata: Mapping[str, Any] | None, *arguments: Any) -> Places:
        """Return where a tool is called; functions may be async."""
        is_kept = await _has_async(self.keep, name, metadata, arguments)
        is_named = None if self.tools is None else await _has_async(self.tools, name, metadata, arguments)
        return _places(is_kept=is_kept, is_named=is_named)

    def require_known(self, there: Collection[str]) -> None:
        """Raise `ValueError` for a name that fits none of the tools that are there."""
        for selection in (self.tools, self.keep):
            if selection is not None:
                selection.require_known(there)

    @staticmethod
    def refuse_framework_tool(value: Any) -> None:
        """Raise `ValueError` for a tool object of another framework, which is called with anything.

        Functions, and callable objects with parameters of their own, are taken.
        """
        refuse_framework_tool(value)

    @staticmethod
    def describe_unknown_name(path: str, name: str, there: Collection[str]) -> str:
        """Say that a name in another option, ``path``, fits none of the tools that are there."""
        return describe_unknown_name(path, name, there)


def _has(selection: Selection, name: str, metadata: Mapping[str, Any] | None, arguments: tuple[Any, ...]) -> bool:
    if selection.predicate is None:
        return selection.has(name, metadata)
    answer = selection.predicate(*arguments)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ValueError("the function that tells which tools are meant must not be async: it is asked at once")
    return bool(answer)


async def _has_async(
    selection: Selection, name: str, metadata: Mapping[str, Any] | None, arguments: tuple[Any, ...]
) -> bool:
    if selection.predicate is None:
        return selection.has(name, metadata)
    answer = selection.predicate(*arguments)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _places(*, is_kept: bool, is_named: bool | None) -> Places:
    """Return where a tool is called; ``is_named`` None: the agent has no ``tools``.

    What ``tools`` leaves out stays with the model, for nothing shall vanish.
    """
    in_programs = not is_kept if is_named is None else is_named
    return Places(in_programs=in_programs, directly=is_kept or not in_programs)


def _holds(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for key, value in wanted.items():
        if key not in metadata:
            return False
        given = metadata[key]
        if isinstance(value, Mapping) and isinstance(given, Mapping):
            if not _holds(cast("Mapping[str, Any]", given), cast("Mapping[str, Any]", value)):
                return False
        elif given != value:
            return False
    return True


def _listed(there: Iterable[str]) -> str:
    names = sorted(there)
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f" There is {shown}." if names else " There is none."
