"""Imports and calls of a module, read of what a worker said about it. Unverified: what is malformed is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...data.narrowing import ENDS, is_array, list_or_empty, mapping_or_empty, two_counts
from .names import MODULE_OF_DISCOVERY, path_of

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

    ``dynamic`` are literal specifiers of `import()`; ``is_open``: it has one that is no literal.
    """

    prefix: int
    take: str | None
    imports: tuple[ImportFact, ...]
    dynamic: tuple[str, ...]
    is_open: bool
    calls: tuple[CallFact, ...]
    last: tuple[int, ...] = ()
    ends: str = ""

    @property
    def wants_all(self) -> bool:
        """True when a program may ask for any server."""
        return self.is_open or MODULE_OF_DISCOVERY in self._specifiers

    def paths(self) -> list[str]:
        """Return the paths of the servers that it names, each once."""
        return list(dict.fromkeys(path for one in self._specifiers if (path := path_of(one)) is not None))

    @property
    def _specifiers(self) -> list[str]:
        return [*(one.specifier for one in self.imports), *self.dynamic]


def read_module_facts(facts: Any) -> ModuleFacts:
    """Return what is known of a module."""
    said = mapping_or_empty(mapping_or_empty(facts).get("module"))
    prefix, take = said.get("prefix"), said.get("take")
    items = islice(list_or_empty(said.get("dynamic")), _MAX_ITEMS)
    dynamic = [_text(mapping_or_empty(one).get("from")) for one in items]
    return ModuleFacts(
        prefix=prefix if type(prefix) is int and 0 <= prefix < _MAX_PLACE else 0,
        take=_text(take),
        imports=tuple(_imports(said.get("imports"))),
        dynamic=tuple(one for one in dynamic if one is not None),
        is_open=None in dynamic,
        calls=tuple(_calls(said.get("namespace_calls"))),
        last=tuple(two_counts(said.get("last")) or ()),
        ends=ends if (ends := said.get("ends")) in ENDS else "",
    )


def _imports(items: Any) -> Iterator[ImportFact]:
    left = _MAX_NAMES
    for item in islice(list_or_empty(items), _MAX_ITEMS):
        said = mapping_or_empty(item)
        # Every one of them has its place in the list, whatever it says.
        names = tuple(_exported(pair) for pair in islice(list_or_empty(said.get("names")), left))
        left -= len(names)
        pairs = [one if is_array(one) else () for one in islice(list_or_empty(said.get("places")), len(names))]
        places = tuple(_place(dict(zip(("line", "column"), pair, strict=False))) for pair in pairs)
        yield ImportFact(_text(said.get("from")) or "", names, _place(said), places)


def _calls(items: Any) -> Iterator[CallFact]:
    for item in islice(list_or_empty(items), _MAX_ITEMS):
        said = mapping_or_empty(item)
        specifier, name = _text(said.get("from")), _text(said.get("name"))
        if specifier is not None and name is not None:
            yield CallFact(specifier, name, _place(said))


def _exported(pair: Any) -> str:
    return _text(pair[0]) or "" if is_array(pair) and pair else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT_CHARACTERS else None


def _place(said: Any) -> dict[str, int]:
    place = {key: said.get(key) for key in ("line", "column")}
    return {key: value if type(value) is int and 0 < value < _MAX_PLACE else 1 for key, value in place.items()}
