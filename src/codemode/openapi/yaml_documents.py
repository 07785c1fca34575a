"""Build plain JSON from the events of a YAML parser: bounded, without aliases that expand without end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from ..data.json_shape import holds_more_values_than
from ..data.narrowing import is_array, is_object
from ..host import steps

# Scalars as the core schema of YAML 1.2 reads them: `no` and dates are text, as OpenAPI asks for.
_NULLS = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS = {**_NULLS, "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?\Z")
_QUOTED = ("'", '"', "|", ">")
_BEFORE = frozenset({"StreamStartEvent", "DocumentStartEvent"})
_END: Any = object()


def parse_yaml(text: str, *, max_values: int, max_depth: int) -> Any:
    """Return the value of a YAML text. Of duplicate keys the last one counts.

    Raises `ValueError` for what is no YAML, for more values than ``max_values`` once aliases are expanded, for nesting
    beyond ``max_depth``, and when PyYAML is missing.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ValueError("YAML needs PyYAML (pip install 'codemode-toolkit[openapi]')") from None
    parser: Any = yaml
    events = parser.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        value = _Reader(events, max_values, max_depth).read(0)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if holds_more_values_than(value, max_values):
        raise _too_many(max_values)
    return None if value is _END else value


class _Reader:
    """Reads values, of which an alias is the same object as that of its anchor."""

    def __init__(self, events: Iterator[Any], max_values: int, max_depth: int) -> None:
        self._events = (one for one in events if type(one).__name__ not in _BEFORE)
        self._max_values = max_values
        self._max_depth = max_depth
        self._count = 0
        self._anchors: dict[str, Any] = {}

    def read(self, depth: int) -> Any:
        """Return the next value; `_END` where there is no more in this container."""
        event, kind = (found := next(self._events)), type(found).__name__
        self._take(1)
        if kind.endswith("EndEvent"):
            return _END
        if kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise ValueError(f"the alias *{event.anchor[:100]} has no anchor before it")
            return self._anchors[event.anchor]
        if kind == "ScalarEvent":
            value = _scalar(event)
        elif depth >= self._max_depth:
            raise ValueError(f"it nests deeper than {self._max_depth} levels")
        else:
            members = iter(partial(self.read, depth + 1), _END)
            value = [*members] if kind == "SequenceStartEvent" else self._object(members)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _object(self, members: Iterator[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in members:
            value = next(members)
            if key != "<<":
                found[_key(key)] = value
                continue
            for merged in filter(is_object, value if is_array(value) else [value]):
                self._take(len(merged))
                for name, member in merged.items():
                    found.setdefault(name, member)
        return found

    def _take(self, values: int) -> None:
        steps.take(1 + (values >> 4))
        self._count += values
        if self._count > self._max_values:
            raise _too_many(self._max_values)


def _too_many(max_values: int) -> ValueError:
    return ValueError(f"it holds more than {max_values} values")


def _key(key: Any) -> str:
    if isinstance(key, dict | list):
        raise ValueError("a key of an object is no text")  # noqa: TRY004 - the text is wrong, and no argument
    return key if isinstance(key, str) else json.dumps(key)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.style in _QUOTED or (event.tag or "").endswith(":str"):
        return text
    if text in _WORDS or _INTEGER.match(text):
        return _WORDS[text] if text in _WORDS else int(text)
    number = float(text) if _FLOAT.match(text) else math.inf
    return number if math.isfinite(number) else text
