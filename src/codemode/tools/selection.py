"""Which of an agent's tools an option of a plugin means: by their names, by their metadata, or as a function says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, cast

from ..data.similar_names import did_you_mean, nearest_names

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
            raise ValueError(not_among_the_tools(self._path, name, there))


def not_among_the_tools(path: str, name: str, there: Collection[str]) -> str:
    """Return what is said of a name in an option ``path`` that fits none of the tools that are there."""
    hint = did_you_mean(nearest_names(name, there))
    return f"{path} names {name!r}, which is not among the tools.{hint or _listed(there)}"


class Places(NamedTuple):
    """Where a tool is called: in programs, by the model itself, or both."""

    in_programs: bool
    directly: bool


def places(*, is_kept: bool, is_named: bool | None) -> Places:
    """Return where a tool is called that ``keep`` has or not, and ``tools`` too; None: nobody has said ``tools``.

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
