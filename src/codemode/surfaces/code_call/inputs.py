"""Inputs of the meta-tools, read field by field: every mistake of one is told at once. Knows no tool."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from ...data.json_shape import weigh
from ...data.json_values import NOT_GIVEN
from ...data.narrowing import is_mapping, is_sequence
from ...errors import CodeModeToolError
from ...host import steps
from ...host.threads import LARGE_CHARACTERS, run_check
from ...schemas.compiled import Problem, json_type, path_text

ValueT = TypeVar("ValueT")
MOST_TEXTS = 100_000
_MOST_SHOWN = 8


def when_read(given: Any, read: Callable[[], ValueT]) -> Awaitable[ValueT]:
    """Return what ``read`` makes of an input: at once where it is small, else in a thread."""
    return run_check(weigh(given, LARGE_CHARACTERS), read)


class InputReader:
    """Reads the fields of one input. None is a field that is not given: models write null for it."""

    def __init__(self, meta_tool: str, value: Any, known: tuple[str, ...]) -> None:
        self._meta_tool = meta_tool
        self._problems: list[Problem] = []
        self._path: tuple[str, ...] = ()
        self._is_object = is_mapping(value)
        self._fields = self._mapping(value, known)

    def within(self, key: str, known: tuple[str, ...]) -> InputReader:
        """Return the reader of an object in this one; what it finds wrong is told with the rest."""
        inner = object.__new__(InputReader)
        inner._meta_tool, inner._problems, inner._path = self._meta_tool, self._problems, (*self._path, key)
        value = self._fields.get(key)
        inner._fields = inner._mapping({} if value is None else value, known)
        return inner

    def text(self, key: str) -> str | None:
        """Return a string."""
        return self._read(key, lambda value: isinstance(value, str), "a string")

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        given = self._read(key, lambda value: isinstance(value, bool), "a boolean")
        return default if given is None else given

    def number(self, key: str) -> float | None:
        """Return a number."""
        return self._read(key, _is_number, "a number")

    def count(self, key: str, default: int, most: int) -> int:
        """Return an integer, brought into 1 to ``most``."""
        given = self._read(key, _is_whole, "an integer")
        return default if given is None else min(max(int(given), 1), most)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of at most `MOST_TEXTS` strings, each of them once."""
        read = self._read(key, is_sequence, "an array of strings")
        if read is None:
            return None
        given = cast("Sequence[Any]", read)
        if len(given) > MOST_TEXTS:
            self.wrong(key, f"has {len(given)} strings; at most {MOST_TEXTS} are allowed")
            return ()
        steps.take(len(given) >> 4)
        for at, one in enumerate(given):
            if not isinstance(one, str):
                self.wrong(key, f"must be an array of strings, and [{at}] is {json_type(one)}")
                return None
        return tuple(dict.fromkeys(given))

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """Return an object."""
        return self._read(key, is_mapping, "an object")

    def anything(self, key: str) -> Any:
        """Return what is given, or `NOT_GIVEN`."""
        return self._fields.get(key, NOT_GIVEN)

    def wrong(self, key: str, message: str) -> None:
        """Note that a field is wrong."""
        self._problems.append({"path": path_text((*self._path, key) if key else self._path), "message": message})

    def require(self, key: str, *aliases: str) -> None:
        """Note that a field is missing, if it and its aliases are."""
        if self._is_object and all(self._fields.get(one) is None for one in (key, *aliases)):
            self.wrong(key, "is required")

    def finish(self) -> None:
        """Raise `CodeModeToolError` for all that was wrong: ``problems``, each ``{"path", "message"}``."""
        if self._problems:
            shown = self._problems[:_MOST_SHOWN]
            said = "; ".join(f"{one['path'] or 'input'} {one['message']}" for one in shown)
            error = CodeModeToolError(
                f'Invalid input for tool "{self._meta_tool}": {said}',
                details={"tool_name": self._meta_tool, "schema": "input", "problems": shown},
            )
            error.reason = "validation"
            raise error

    def _mapping(self, value: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
        if not is_mapping(value):
            self.wrong("", f"must be an object, got {json_type(value)}")
            return {}
        unknown = (key for key in value if key not in known)
        for key in islice(unknown, _MOST_SHOWN):
            self.wrong(str(key)[:100], f"is unknown; known are {', '.join(known)}")
        return value

    def _read(self, key: str, fits: Callable[[Any], bool], what: str) -> Any:
        value = self._fields.get(key)
        if value is None:
            return None
        if not fits(value):
            self.wrong(key, f"must be {what}, got {json_type(value)}")
            return None
        return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
