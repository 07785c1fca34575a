"""Iterators in what a tool returned, read as far as an output may go. It is the tool's code, and may never end."""

from __future__ import annotations

import copy
import io
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from types import GeneratorType
from typing import Any, cast

from ..data.json_shape import AT_ONCE, SCALARS, members
from ..data.narrowing import is_mapping
from ..errors import CodeModeSerializationError
from ..host import steps
from ..options.parts import ExecutionPolicy


class UnreadOutput(Exception):  # noqa: N818 - never leaves this package
    """There is an iterator in an output."""


def refuse_iterators(output: Any, *, is_declared: bool) -> None:
    """Raise `UnreadOutput` for an iterator anywhere in an output; without a schema only generators are read."""
    pending, seen = [iter([output])], set[int]()
    while pending:
        items = [*islice(pending[-1], AT_ONCE)]
        steps.take(1 + (len(items) >> 5))
        if not items:
            pending.pop()
        elif not SCALARS.issuperset(map(type, items)):
            for item in items:
                if type(item) not in SCALARS and id(item) not in seen:
                    seen.add(id(item))
                    if _is_iterator(item, is_declared=is_declared):
                        raise UnreadOutput
                    if inside := members(item):
                        pending.append(iter(inside))


def without_iterators(output: Any, policy: ExecutionPolicy, what: str, *, is_declared: bool) -> Any:
    """Return an output with lists in place of its iterators, of at most one value more than the policy allows.

    Raises `CodeModeSerializationError` when there is more text in them than an output may be long.
    """
    return _Reading(policy, what, is_declared=is_declared).of(output)


def _is_iterator(item: Any, *, is_declared: bool) -> bool:
    if isinstance(item, GeneratorType):
        return True
    return is_declared and isinstance(item, Iterator) and not isinstance(item, io.IOBase)


class _Reading:
    def __init__(self, policy: ExecutionPolicy, what: str, *, is_declared: bool) -> None:
        self._values_left = policy.max_values
        self._max_bytes = self._characters_left = policy.max_tool_output_bytes
        self._what = what
        self._is_declared = is_declared

    def of(self, value: Any) -> Any:
        if type(value) in SCALARS:
            return value
        if _is_iterator(value, is_declared=self._is_declared):
            return self._items(value)
        if is_mapping(value):
            return self._mapping(value)
        if isinstance(value, list | tuple | set | frozenset | deque):
            return self._sequence(cast("Collection[Any]", value))
        if hasattr(cast("Any", type(value)), "__pydantic_fields__"):
            return self._model(value)
        return self._data_class(value) if is_dataclass(value) else value

    def _items(self, iterator: Iterator[Any]) -> list[Any]:
        items: list[Any] = []
        for item in iterator:
            self._count(item)
            items.append(self.of(item))
            if self._values_left < 0:
                break
        return items

    def _count(self, item: Any) -> None:
        pending = [item]
        while pending and self._values_left >= 0:
            one = pending.pop()
            self._values_left -= 1
            if isinstance(one, str | bytes):
                self._characters_left -= len(one)
            else:
                pending += members(one)
        if self._characters_left < 0:
            raise CodeModeSerializationError(
                f"{self._what} is more than {self._max_bytes} bytes of JSON, the limit.",
                details={"max_bytes": self._max_bytes},
            )

    def _changed(self, named: Mapping[Any, Any]) -> dict[Any, Any]:
        read = {name: self.of(item) for name, item in named.items()}
        return {name: item for name, item in read.items() if item is not named[name]}

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        changed = self._changed(value)
        return {**value, **changed} if changed else value

    def _sequence(self, value: Collection[Any]) -> Any:
        changed = self._changed(dict(enumerate(value)))
        return [changed.get(index, item) for index, item in enumerate(value)] if changed else value

    def _model(self, value: Any) -> Any:
        changed = self._changed({**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})})
        return value.model_copy(update=changed) if changed and hasattr(value, "model_copy") else value

    def _data_class(self, value: Any) -> Any:
        changed = self._changed({one.name: getattr(value, one.name, None) for one in fields(value)})
        if changed:
            value = copy.copy(value)
            for name, item in changed.items():
                object.__setattr__(value, name, item)
        return value
