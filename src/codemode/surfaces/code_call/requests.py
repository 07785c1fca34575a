"""Parse the inputs of the meta-tools and report all mistakes at once."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeGuard, TypeVar, cast

from ...data.json_shape import estimate_json_length, run_off_loop_if_large
from ...data.json_values import NOT_GIVEN, CachedJsonObject, decode_json, encode_json
from ...data.narrowing import is_mapping, is_object, is_sequence
from ...errors import CodeModeSerializationError, CodeModeToolError
from ...options.checked_fields import require_mapping_or_none
from ...schemas.compiled import SchemaProblem, format_path, get_json_type_name
from ...source.program_input import rename_program_field
from .index import CodeCallCatalog

ValueT = TypeVar("ValueT")
MAX_STRINGS = 100_000
_MAX_REPORTED_PROBLEMS = 8


def parse_off_loop_if_large(value: Any, read: Callable[[], ValueT]) -> Awaitable[ValueT]:
    """Call ``read`` on an input: at once if it is small, else in a thread."""
    return run_off_loop_if_large(value, read)


class MetaToolInputReader:
    """Reads the fields of one input. Null counts as absent, because models write it for unused fields."""

    def __init__(self, meta_tool: str, value: Any, allowed_fields: tuple[str, ...]) -> None:
        self._meta_tool = meta_tool
        self._problems: list[SchemaProblem] = []
        self._path: tuple[str, ...] = ()
        self._is_object = is_mapping(value)
        self._fields = self._check_and_get_fields(value, allowed_fields)

    def read_nested(self, key: str, allowed_fields: tuple[str, ...]) -> MetaToolInputReader:
        """Return a reader of an object in this one. Its problems are reported with those of this reader."""
        nested_reader = object.__new__(MetaToolInputReader)
        nested_reader._meta_tool, nested_reader._problems, nested_reader._path = (
            self._meta_tool,
            self._problems,
            (*self._path, key),
        )
        value = self._fields.get(key)
        nested_reader._fields = nested_reader._check_and_get_fields({} if value is None else value, allowed_fields)
        return nested_reader

    def read_string(self, key: str) -> str | None:
        """Return a string."""
        return self._read_field(key, lambda value: isinstance(value, str), "a string")

    def read_boolean(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        found = self._read_field(key, lambda value: isinstance(value, bool), "a boolean")
        return default if found is None else found

    def read_number(self, key: str) -> float | None:
        """Return a number."""
        return self._read_field(key, _is_number, "a number")

    def read_clamped_integer(self, key: str, default: int, maximum: int) -> int:
        """Return an integer, clamped to 1 to ``maximum``."""
        value = self._read_field(key, _is_integer, "an integer")
        return default if value is None else min(max(int(value), 1), maximum)

    def read_strings(self, key: str) -> tuple[str, ...] | None:
        """Return a list of at most `MAX_STRINGS` strings without duplicates."""
        read = self._read_field(key, is_sequence, "an array of strings")
        if read is None:
            return None
        values = cast("Sequence[Any]", read)
        if len(values) > MAX_STRINGS:
            self.add_problem(key, f"has {len(values)} strings; at most {MAX_STRINGS} are allowed")
            return ()
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self.add_problem(key, f"must be an array of strings; [{index}] is {get_json_type_name(value)}")
                return None
        return tuple(dict.fromkeys(values))

    def read_mapping(self, key: str) -> Mapping[str, Any] | None:
        """Return an object."""
        return self._read_field(key, is_mapping, "an object")

    def read_raw(self, key: str) -> Any:
        """Return the value, or `NOT_GIVEN`."""
        return self._fields.get(key, NOT_GIVEN)

    def add_problem(self, key: str, message: str) -> None:
        """Record that a field is invalid."""
        self._problems.append({"path": format_path((*self._path, key) if key else self._path), "message": message})

    def add_problem_if_missing(self, key: str, *aliases: str) -> None:
        """Record a missing field if neither it nor an alias is present."""
        if self._is_object and all(self._fields.get(field) is None for field in (key, *aliases)):
            self.add_problem(key, "is required")

    def raise_if_problems(self) -> None:
        """Raise `CodeModeToolError` with all ``problems``, each ``{"path", "message"}``, if there are any."""
        if self._problems:
            shown = self._problems[:_MAX_REPORTED_PROBLEMS]
            message = "; ".join(f"{problem['path'] or 'input'} {problem['message']}" for problem in shown)
            error = CodeModeToolError(
                f'Invalid input for tool "{self._meta_tool}": {message}',
                details={"tool_name": self._meta_tool, "schema": "input", "problems": shown},
            )
            error.reason = "validation"
            raise error

    def _check_and_get_fields(self, value: Any, allowed_fields: tuple[str, ...]) -> Mapping[str, Any]:
        if not is_mapping(value):
            self.add_problem("", f"must be an object, got {get_json_type_name(value)}")
            return {}
        unknown = (key for key in value if key not in allowed_fields)
        for key in islice(unknown, _MAX_REPORTED_PROBLEMS):
            self.add_problem(str(key)[:100], f"is unknown; known: {', '.join(allowed_fields)}")
        return value

    def _read_field(self, key: str, is_valid: Callable[[Any], bool], type_name: str) -> Any:
        value = self._fields.get(key)
        if value is None:
            return None
        if not is_valid(value):
            self.add_problem(key, f"must be {type_name}, got {get_json_type_name(value)}")
            return None
        return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


# The data of most scripts: one shared object, so that a run recognises it.
_DEFAULT_SCRIPT_DATA = CachedJsonObject(source="script", context={}, allowedTools=None)
MAX_CONTEXT_BYTES = 64 * 1024
_MAX_CONTEXT_WEIGHT = 16 * MAX_CONTEXT_BYTES
_MAX_FIELDS = 16
_MAX_SHOWN_NAMES = 5
_MAX_NAME_CHARACTERS = 128
_MAX_CALLED_CHARACTERS = 256  # as in the guest runtime


@dataclass(frozen=True)
class ExecuteRequest:
    """A script to run. ``allowed_tools`` None means all in the index; ``context`` is plain JSON."""

    script: str
    allowed_tools: tuple[str, ...] | None
    context: Mapping[str, Any]

    def to_script_data(self, catalog: CodeCallCatalog) -> Mapping[str, Any]:
        """Return the data of the invocation, which its pauses sign."""
        if self.allowed_tools is None and not self.context:
            return _DEFAULT_SCRIPT_DATA
        allowed = None if self.allowed_tools is None else [name for name in self.allowed_tools if name in catalog]
        data = {"source": "script", "context": dict(self.context), "allowedTools": allowed}
        warnings = self._build_missing_tool_warnings(catalog)
        return {**data, "warnings": warnings} if warnings else data

    def _build_missing_tool_warnings(self, catalog: CodeCallCatalog) -> list[str]:
        """Return warnings about ``allowed_tools``, for the result of the script."""
        unknown = [name[:_MAX_NAME_CHARACTERS] for name in self.allowed_tools or () if name not in catalog]
        if not unknown:
            return []
        more = f" and {len(unknown) - _MAX_SHOWN_NAMES} more" if len(unknown) > _MAX_SHOWN_NAMES else ""
        return [f"allowedTools has unknown tools: {', '.join(map(repr, unknown[:_MAX_SHOWN_NAMES]))}{more}"]


async def parse_execute_input(
    meta_tool: str, tool_input: Any, script_context: Mapping[str, Any] | None, catalog: CodeCallCatalog
) -> tuple[str, Mapping[str, Any]]:
    """Return a script and the data of its invocation; large input is parsed in a thread.

    Raises `CodeModeToolError` for invalid input, `ValueError` for an invalid context.
    """
    if (
        script_context is None
        and is_object(tool_input)
        and len(tool_input) == 1
        and isinstance(tool_input.get("script"), str)
    ):
        return tool_input["script"], _DEFAULT_SCRIPT_DATA  # the usual input; anything else is checked below

    tool_input = rename_program_field(tool_input, "script")

    def parse_request() -> tuple[str, Mapping[str, Any]]:
        request = _parse_execute_request(meta_tool, tool_input, script_context)
        return request.script, request.to_script_data(catalog)

    other_fields = (
        [value for key, value in tool_input.items() if key != "script"] if _has_few_fields(tool_input) else tool_input
    )
    return await run_off_loop_if_large((script_context, other_fields), parse_request)


def find_script(value: Any) -> str:
    """Return the script of an input that may be invalid, or an empty string."""
    value = rename_program_field(value, "script")
    script = value.get("script") if is_mapping(value) else None
    return script if isinstance(script, str) else ""


async def parse_invoke_input(meta_tool: str, value: Any) -> tuple[str, str | None]:
    """Return the tool name and the input as JSON text or None; large input is parsed in a thread.

    Raises `CodeModeToolError` for invalid input.
    """
    return await run_off_loop_if_large(value, partial(_parse_invoke_request, meta_tool, value))


def _has_few_fields(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return is_mapping(value) and len(value) <= _MAX_FIELDS


def _parse_execute_request(meta_tool: str, value: Any, script_context: Mapping[str, Any] | None) -> ExecuteRequest:
    host_context = _parse_host_context(script_context)
    reader = MetaToolInputReader(meta_tool, value, ("script", "allowedTools", "context"))
    reader.add_problem_if_missing("script")
    script, context = reader.read_string("script"), reader.read_mapping("context")
    request = ExecuteRequest(
        script or "", reader.read_strings("allowedTools"), _merge_context(reader, context, host_context)
    )
    reader.raise_if_problems()
    return request


def _parse_invoke_request(meta_tool: str, tool_input: Any) -> tuple[str, str | None]:
    reader = MetaToolInputReader(meta_tool, tool_input, ("tool", "input"))
    reader.add_problem_if_missing("tool")
    name, value, text = reader.read_string("tool"), reader.read_raw("input"), None
    try:
        text = None if value is NOT_GIVEN else encode_json(value, what="it")
    except CodeModeSerializationError as error:
        reader.add_problem("input", error.message.removeprefix("it "))
    reader.raise_if_problems()
    return (name or "")[:_MAX_CALLED_CHARACTERS], text


def _parse_host_context(script_context: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if script_context is None:
        return {}
    try:
        return _combine_context_parts(require_mapping_or_none(script_context, "script_context") or {})
    except CodeModeSerializationError as error:
        raise ValueError(f"script_context {error.message.removeprefix('it ')}") from error


def _merge_context(
    reader: MetaToolInputReader, context: Mapping[str, Any] | None, host_context: Mapping[str, Any]
) -> Mapping[str, Any]:
    if not context:
        return host_context
    try:
        return _combine_context_parts(context, host_context)
    except CodeModeSerializationError as error:
        reader.add_problem("context", error.message.removeprefix("it "))
        return host_context


def _combine_context_parts(*parts: Mapping[str, Any]) -> Mapping[str, Any]:
    # Reject a huge context before copying or encoding it.
    if (
        sum(map(len, parts)) > MAX_CONTEXT_BYTES
        or estimate_json_length(parts, _MAX_CONTEXT_WEIGHT) >= _MAX_CONTEXT_WEIGHT
    ):
        raise CodeModeSerializationError(f"it is more than {MAX_CONTEXT_BYTES} bytes of JSON.")
    return _copy_json({key: value for part in parts for key, value in part.items()}, MAX_CONTEXT_BYTES)


def _copy_json(value: Any, max_bytes: int | None = None) -> Any:
    """Return an independent copy of a value as plain JSON."""
    return decode_json(encode_json(value, max_bytes=max_bytes, what="it"))
