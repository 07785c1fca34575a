"""Read the inputs of the meta-tools; report every mistake of one at once."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeGuard, TypeVar, cast

from ...data.json_shape import run_bounded, weigh
from ...data.json_values import NOT_GIVEN, WrittenObject, decode_json, encode_json
from ...data.narrowing import is_mapping, is_object, is_sequence
from ...errors import CodeModeSerializationError, CodeModeToolError
from ...options.checked_fields import mapping_or_none
from ...schemas.compiled import Problem, json_type, path_text
from ...source.program_input import fill_program_field
from .index import CodeCallCatalog

ValueT = TypeVar("ValueT")
MOST_TEXTS = 100_000
_MOST_SHOWN = 8


def when_read(given: Any, read: Callable[[], ValueT]) -> Awaitable[ValueT]:
    """Return what ``read`` makes of an input: at once where it is small, else in a thread."""
    return run_bounded(given, read)


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


# What most scripts are given: the same object, by which a run knows that it is the same.
_GIVEN = WrittenObject(source="script", context={}, allowedTools=None)
MAX_CONTEXT_BYTES = 64 * 1024
_TOO_HEAVY = 16 * MAX_CONTEXT_BYTES
_MOST_FIELDS = 16
_MAX_SHOWN_NAMES = 5
_MAX_NAME_CHARACTERS = 128
_MAX_CALLED_CHARACTERS = 256  # as the kernel has it


@dataclass(frozen=True)
class ExecuteRequest:
    """A script to run. ``allowed_tools`` None are all in the index; ``context`` is plain JSON."""

    script: str
    allowed_tools: tuple[str, ...] | None
    context: Mapping[str, Any]

    def given(self, catalog: CodeCallCatalog) -> Mapping[str, Any]:
        """Return what the invocation is given, signed into its pauses."""
        if self.allowed_tools is None and not self.context:
            return _GIVEN
        allowed = None if self.allowed_tools is None else [name for name in self.allowed_tools if name in catalog]
        given = {"source": "script", "context": dict(self.context), "allowedTools": allowed}
        warnings = self._warnings(catalog)
        return {**given, "warnings": warnings} if warnings else given

    def _warnings(self, catalog: CodeCallCatalog) -> list[str]:
        """Return what should be known of the names that are allowed, at the end of the script, however it pauses."""
        unknown = [name[:_MAX_NAME_CHARACTERS] for name in self.allowed_tools or () if name not in catalog]
        if not unknown:
            return []
        more = f" and {len(unknown) - _MAX_SHOWN_NAMES} more" if len(unknown) > _MAX_SHOWN_NAMES else ""
        return [f"allowedTools names no tool: {', '.join(map(repr, unknown[:_MAX_SHOWN_NAMES]))}{more}"]


async def asked_to_execute(
    meta_tool: str, given: Any, script_context: Mapping[str, Any] | None, catalog: CodeCallCatalog
) -> tuple[str, Mapping[str, Any]]:
    """Return a script and what it is given. What is more than a script is read in a thread where it is large.

    Raises `CodeModeToolError` for a wrong input, `ValueError` for a wrong context.
    """
    if script_context is None and is_object(given) and len(given) == 1 and isinstance(given.get("script"), str):
        return given["script"], _GIVEN  # as most are; below all else is read, and what is wrong told

    given = fill_program_field(given, "script")

    def read() -> tuple[str, Mapping[str, Any]]:
        request = _read_execute(meta_tool, given, script_context)
        return request.script, request.given(catalog)

    rest = [value for key, value in given.items() if key != "script"] if _is_short(given) else given
    return await run_bounded((script_context, rest), read)


def script_in(given: Any) -> str:
    """Return the script of an input that may be wrong; nothing where there is none."""
    given = fill_program_field(given, "script")
    script = given.get("script") if is_mapping(given) else None
    return script if isinstance(script, str) else ""


async def asked_to_invoke(meta_tool: str, given: Any) -> tuple[str, str | None]:
    """Return name and input, as JSON text or None, of the call that is asked for. What is large is read in a thread.

    Raises `CodeModeToolError` for a wrong input.
    """
    return await run_bounded(given, partial(_read_invoke, meta_tool, given))


def _is_short(given: Any) -> TypeGuard[Mapping[str, Any]]:
    return is_mapping(given) and len(given) <= _MOST_FIELDS


def _read_execute(meta_tool: str, given: Any, script_context: Mapping[str, Any] | None) -> ExecuteRequest:
    hosts = _hosts_context(script_context)
    reader = InputReader(meta_tool, given, ("script", "allowedTools", "context"))
    reader.require("script")
    script, context = reader.text("script"), reader.mapping("context")
    request = ExecuteRequest(script or "", reader.texts("allowedTools"), _merged(reader, context, hosts))
    reader.finish()
    return request


def _read_invoke(meta_tool: str, given: Any) -> tuple[str, str | None]:
    reader = InputReader(meta_tool, given, ("tool", "input"))
    reader.require("tool")
    name, value, text = reader.text("tool"), reader.anything("input"), None
    try:
        text = None if value is NOT_GIVEN else encode_json(value, what="it")
    except CodeModeSerializationError as error:
        reader.wrong("input", error.message.removeprefix("it "))
    reader.finish()
    return (name or "")[:_MAX_CALLED_CHARACTERS], text


def _hosts_context(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    try:
        return _context(mapping_or_none(given, "script_context") or {})
    except CodeModeSerializationError as error:
        raise ValueError(f"script_context {error.message.removeprefix('it ')}") from error


def _merged(reader: InputReader, given: Mapping[str, Any] | None, hosts: Mapping[str, Any]) -> Mapping[str, Any]:
    if not given:
        return hosts
    try:
        return _context(given, hosts)
    except CodeModeSerializationError as error:
        reader.wrong("context", error.message.removeprefix("it "))
        return hosts


def _context(*parts: Mapping[str, Any]) -> Mapping[str, Any]:
    # What weighs so much need not be copied or written to be too much.
    if sum(map(len, parts)) > MAX_CONTEXT_BYTES or weigh(parts, _TOO_HEAVY) >= _TOO_HEAVY:
        raise CodeModeSerializationError(f"it is more than {MAX_CONTEXT_BYTES} bytes of JSON.")
    return _plain({key: value for part in parts for key, value in part.items()}, MAX_CONTEXT_BYTES)


def _plain(value: Any, max_bytes: int | None = None) -> Any:
    """Return plain JSON of its own: nothing that the caller changes later changes it."""
    return decode_json(encode_json(value, max_bytes=max_bytes, what="it"))
