"""Build plain JSON from the events of a YAML parser: bounded, without aliases that expand without end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from ..data.narrowing import is_array, is_object
from ..host import steps

# Scalars as the core schema of YAML 1.2 reads them: `no` and dates are text, as OpenAPI asks for.
_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?\Z")
_QUOTED = ("'", '"', "|", ">")
_EVENTS_OF_A_STEP = 16


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
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(parser, max_values, max_depth).build(parser.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


class _Open:
    """A container that is being read. ``size`` counts the values in it, those of aliases each time."""

    def __init__(self, value: Any, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.size = 1
        self.key: Any = None
        self.has_key = False


class _Builder:
    def __init__(self, yaml: Any, max_values: int, max_depth: int) -> None:
        self._yaml = yaml
        self._max_values = max_values
        self._max_depth = max_depth
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open = [_Open([], None)]

    def build(self, events: Iterator[Any]) -> Any:
        yaml = self._yaml
        for number, event in enumerate(events):
            if not number % _EVENTS_OF_A_STEP:
                steps.take()
            if isinstance(event, yaml.ScalarEvent):
                value = _scalar(event)
                self._put(value, 1)
                if event.anchor:
                    self._anchors[event.anchor] = value, 1
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if len(self._open) > self._max_depth:
                    raise ValueError(f"it nests deeper than {self._max_depth} levels")
                made: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                self._open.append(_Open(made, event.anchor))
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                done = self._open.pop()
                if done.anchor:
                    self._anchors[done.anchor] = done.value, done.size
                self._put(done.value, done.size)
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise ValueError(f"the alias *{event.anchor[:100]} has no anchor before it")
                self._put(*self._anchors[event.anchor])
            elif isinstance(event, yaml.DocumentEndEvent):
                break
        root = self._open[0].value
        return root[0] if root else None

    def _put(self, value: Any, size: int) -> None:
        holder = self._open[-1]
        holder.size += size
        if holder.size > self._max_values:
            raise ValueError(f"it holds more than {self._max_values} values")
        if is_array(holder.value):
            holder.value.append(value)
        elif not holder.has_key:
            holder.key, holder.has_key = value, True
        else:
            holder.has_key = False
            if holder.key == "<<":
                _merge(holder.value, value)
            else:
                holder.value[_key(holder.key)] = value


def _merge(into: dict[str, Any], value: Any) -> None:
    for one in value if is_array(value) else [value]:
        if is_object(one):
            steps.take(1 + (len(one) >> 4))
            for key, member in one.items():
                into.setdefault(key, member)


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
