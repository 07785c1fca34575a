"""A compiled schema: the common interface, and the wording of its mismatches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from ..cached_property import cached_property
from ..data.json_shape import estimate_json_length, has_more_values_than
from ..data.narrowing import is_array, is_object, list_or_empty, mapping_or_empty
from ..data.references import resolve_reference
from ..host import steps

JsonSchema = dict[str, Any] | bool


class SchemaProblem(TypedDict):
    """A mismatch of a value and its place: ``path`` is empty for the value itself."""

    path: str
    message: str


MAX_PROBLEMS = 8
MAX_SCHEMA_VALUES = 50_000
MAX_SCHEMA_CHARACTERS = 4_000_000
TOO_DEEP_PROBLEM: SchemaProblem = {"path": "", "message": "nests too deeply to be checked"}
TOO_COMPLEX_PROBLEM: SchemaProblem = {"path": "", "message": "is too large or too intricate to be checked"}
_MAX_MESSAGE_CHARACTERS = 200
_LARGE_TEXT_CHARACTERS = 1 << 16
_MAX_ALTERNATIVES = 64
_TYPE_BY_KEYWORD = {"properties": "object", "additionalProperties": "object", "items": "array", "prefixItems": "array"}


class SchemaMismatchError(Exception):
    """A value does not fit a schema. ``problems`` are ``{"path", "message"}``, at most eight."""

    def __init__(self, problems: list[SchemaProblem]) -> None:
        super().__init__(problems)
        self.problems = problems

    @staticmethod
    def format_first_failures(failures: Iterable[tuple[Iterable[str | int], str]]) -> str:
        """Write the first problems, each a path and a message, as one text."""
        return "; ".join(
            f"{format_path(path) or 'value'}: {clip_message(text)}" for path, text in islice(failures, MAX_PROBLEMS)
        )


@dataclass(eq=False, repr=False)
class ValidatedInput:
    """An input that fits its schema. ``value`` is what ``execute`` receives."""

    value: Any
    _to_json: Callable[[], Any]

    @cached_property
    def json_value(self) -> Any:
        """A copy of the value as plain JSON, which is what a person is shown.

        It gives ``value`` when it is validated again, unless the author's validators change a value each time.
        Made when first asked for: ask before ``execute`` can change the value.
        """
        return self._to_json()

    @staticmethod
    def fill_defaults(value: Any, filled: Any) -> Any:
        """Return the given plain JSON, completed by the keys that only its filled form has: the defaults."""
        return merge_defaults(value, filled)


def wrap_unvalidated_input(value: Any) -> ValidatedInput:
    """Take plain JSON as it is."""
    return ValidatedInput(value, lambda: copy_json(value))


def copy_json(value: Any) -> Any:
    """Copy plain JSON; unlike `copy.deepcopy` it does not run out of stack within the depth cap."""
    text = json.dumps(value)
    return json.loads(text) if len(text) < _LARGE_TEXT_CHARACTERS else steps.run_without_gc(lambda: json.loads(text))


def merge_defaults(value: Any, filled: Any) -> Any:
    """Return the given plain JSON, completed by the keys that only its filled form has: the defaults."""
    if is_object(value) and is_object(filled):
        return {
            **filled,
            **{key: merge_defaults(member, filled[key]) if key in filled else member for key, member in value.items()},
        }
    if is_array(value) and is_array(filled):
        return (
            [merge_defaults(*pair) for pair in zip(value, filled, strict=True)] if len(value) == len(filled) else value
        )
    return value


def add_displayed_defaults_that_change(value: Any, filled: Any, refilled: Any) -> Any:
    """Return the given plain JSON with those displayed defaults that would differ if they were computed again."""
    if is_object(value) and is_object(filled) and is_object(refilled):
        merged = {
            key: add_displayed_defaults_that_change(member, filled.get(key), refilled.get(key))
            for key, member in value.items()
        }
        changed_keys = [key for key, member in filled.items() if key not in value and refilled.get(key) != member]
        # A default that is a model is only partly new.
        return merged | {
            key: add_displayed_defaults_that_change({}, filled[key], refilled[key]) if key in refilled else filled[key]
            for key in changed_keys
        }
    if is_array(value) and is_array(filled) and is_array(refilled):
        rows = value, filled, refilled
        return (
            [add_displayed_defaults_that_change(*row) for row in zip(*rows, strict=True)]
            if len(set(map(len, rows))) == 1
            else rows[0]
        )
    return filled if value == {} else value


def require_bounded_schema_size(schema: Mapping[str, Any] | bool) -> None:
    """Raise `ValueError` for a schema that would take too long to be read, before anything of it is."""
    characters = estimate_json_length(schema, MAX_SCHEMA_CHARACTERS)
    # A value takes two characters at least.
    if characters > 2 * MAX_SCHEMA_VALUES and has_more_values_than(schema, MAX_SCHEMA_VALUES):
        raise ValueError(f"holds more than {MAX_SCHEMA_VALUES} values, the limit for a schema")
    if characters >= MAX_SCHEMA_CHARACTERS:
        raise ValueError(f"is longer than {MAX_SCHEMA_CHARACTERS} characters, the limit for a schema")


Conversion: TypeAlias = Literal["none", "pydantic", "unknown"]
"""What a validator makes of scalars of another type and of keys of another name.

"none": nothing, they are refused. "pydantic": what pydantic does when nobody asks for anything else, and keys have the
names of the JSON Schema. "unknown": code of the author's may convert anything.
"""


class CompiledSchema(Protocol):
    """A schema that is ready for use. One that says its `Conversion` has an attribute ``conversion``.

    A schema that excludes fields also has a method ``read_leniently(value)``: it returns an output that violates the
    schema without these fields, and a list of further problems.
    """

    @property
    def json_schema(self) -> JsonSchema:
        """The JSON Schema that a model is shown."""
        ...

    @property
    def is_nondeterministic(self) -> bool:
        """True when one input may give two values, because a default is made for each."""
        ...

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check plain JSON from a guest. Raises `SchemaMismatchError`."""
        ...

    def validate_output(self, value: Any, what: str) -> Any:
        """Check what a tool returned, and give what `encode_json` takes; ``what`` names it in errors."""
        ...


def is_object_schema(schema: JsonSchema) -> bool:
    """Return whether a schema is of objects: then an absent input stands for ``{}``."""
    if isinstance(schema, bool):
        return False
    target = resolve_reference(schema, schema)
    if not is_object(target):
        return False
    return target.get("type") == "object" or "properties" in target


def is_container_schema(schema: JsonSchema) -> bool:
    """Tell whether a schema is of objects or arrays, perhaps of null, and of nothing else."""
    pending, types = [resolve_reference(schema, schema)], set[str]()
    for _ in range(_MAX_ALTERNATIVES):
        if not pending:
            break
        candidate = mapping_or_empty(pending.pop())
        declared_type = candidate.get("type")
        types |= {kind for kind in (list_or_empty(declared_type) or [declared_type]) if isinstance(kind, str)}
        types |= {kind for key, kind in _TYPE_BY_KEYWORD.items() if key in candidate and declared_type is None}
        for keyword in ("anyOf", "oneOf", "allOf"):
            pending += [resolve_reference(inner, schema) for inner in list_or_empty(candidate.get(keyword))]
    return not pending and bool(types - {"null"}) and types <= {"object", "array", "null"}


# --- wording ---


def format_path(parts: Iterable[str | int]) -> str:
    """Write a path as JavaScript would: ``items[0].name``; empty for the value itself."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part)}]"
    return clip_message(text)


def get_json_type_name(value: Any) -> str:
    """Name the JSON type of a plain value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if is_array(value):
        return "array"
    return "object" if is_object(value) else type(value).__name__


def clip_message(text: str) -> str:
    """Shorten to 200 characters."""
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[: _MAX_MESSAGE_CHARACTERS - 3] + "..."


def deduplicate_problems(problems: Iterable[SchemaProblem]) -> list[SchemaProblem]:
    """Drop repetitions, keep the order."""
    return list({(problem["path"], problem["message"]): problem for problem in problems}.values())
