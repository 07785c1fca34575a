"""Build plain JSON from the events of a YAML parser: bounded, without aliases that expand without end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from ..data.json_shape import holds_more_values_than
from ..data.narrowing import is_array, is_object
from ..host import steps

# Scalars as the core schema of YAML 1.2 reads them: `no` and dates are text, as OpenAPI asks for.
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?\Z")
_QUOTED = ("'", '"', "|", ">")
_BEFORE = frozenset({"StreamStartEvent", "DocumentStartEvent"})
_END: Any = object()
_TOO_MANY = "it holds more than {} values"


def parse_yaml(text: str, *, max_values: int, max_depth: int) -> Any:
    """Return the value of a YAML text. Of duplicate keys the last one counts.

    Raises `ValueError` for what is no YAML, for more values than ``max_values`` once aliases are expanded, for nesting
    beyond ``max_depth``, and when PyYAML is missing.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ValueError("YAML needs PyYAML (pip install 'codemode-toolkit[openapi]')") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = _Reader(yaml.parse(text, Loader=loader), max_values, max_depth).read()
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if holds_more_values_than(value, max_values):  # once aliases are expanded
        raise ValueError(_TOO_MANY.format(max_values))
    return None if value is _END else value


class _Reader:
    def __init__(self, events: Iterator[Any], max_values: int, max_depth: int) -> None:
        self._events = events
        self._left = max_values
        self._max_values = max_values
        self._max_depth = max_depth
        self._anchors: dict[str, Any] = {}

    def read(self, depth: int = 0) -> Any:
        """Return the next value; `_END` where there is no more in this container."""
        self._take(1)
        event = next(one for one in self._events if type(one).__name__ not in _BEFORE)
        kind = type(event).__name__
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
            value = self._list(depth + 1) if kind == "SequenceStartEvent" else self._object(depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while (one := self.read(depth)) is not _END:
            found.append(one)
        return found

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (key := self.read(depth)) is not _END:
            value = self.read(depth)
            if key != "<<":
                found[_key(key)] = value
                continue
            for merged in filter(is_object, value if is_array(value) else [value]):
                self._take(len(merged))
                found = {**merged, **found}
        return found

    def _take(self, values: int) -> None:
        steps.take(1 + (values >> 4))
        self._left -= values
        if self._left < 0:
            raise ValueError(_TOO_MANY.format(self._max_values))


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, dict | list):
        raise ValueError("a key of an object is no text")  # noqa: TRY004 - the text is wrong, and no argument
    return json.dumps(key)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.style in _QUOTED or (event.tag or "").endswith(":str"):
        return text
    if _NULL.match(text):
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
