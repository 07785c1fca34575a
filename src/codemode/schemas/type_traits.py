"""Reads traits of a pydantic type from its core schema. Validates nothing."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, cast

from ..data.narrowing import is_array, is_object, is_sequence

_FIELD_TYPES = ("model-fields", "dataclass-args", "typed-dict")
_FIELD_WRAPPER_TYPES = ("definitions", "model", "dataclass", "function-before", "function-after", "function-wrap")
_NON_SCHEMA_KEYS = ("default", "metadata", "expected", "config", "computed_fields")
_PLAIN_FACTORIES = (dict, list, set, frozenset, tuple)
_PYDANTIC_MODULES = ("pydantic", "pydantic_core")
_ITERATOR_MODULES = ("builtins", "pydantic_core._pydantic_core")
_ITERATOR_SCHEMA_TYPES = ("generator", "function-after", "function-wrap", "function-plain")
_CONVERTING_SETTINGS = ("coerce_numbers_to_str", "populate_by_name", "validate_by_name", "custom_init")
_SCALARS = (str, int, float, type(None))


class BufferedIterator(Iterator[Any]):
    """An iterator's values, read once: a person can see all, and a tool still reads them from the beginning."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.rewind()

    def __next__(self) -> Any:
        return next(self._rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BufferedIterator) and self.items == other.items

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of a list

    def rewind(self) -> None:
        """Begin at the beginning."""
        self._rest = iter(self.items)


def may_hold_iterators(core_schema: Any) -> bool:
    """Return True when values of the type may hold iterators."""
    return any(rules.get("type") in _ITERATOR_SCHEMA_TYPES for rules in _iterate_schemas(core_schema))


def may_hold_sets(core_schema: Any) -> bool:
    """Return True when values of the type may hold sets."""
    return any(rules.get("type") in ("set", "frozenset") for rules in _iterate_schemas(core_schema))


def is_builtin_iterator(value: object) -> bool:
    """Tell whether a value is an iterator of Python's or pydantic's own: those end."""
    return isinstance(value, Iterator) and type(cast("Any", value)).__module__ in _ITERATOR_MODULES


def list_items(value: Any) -> list[Any] | None:
    """Return the items of a list, a tuple, a deque or an iterator that ends; None for any other value."""
    if isinstance(value, BufferedIterator):
        return value.items
    return list(cast("Any", value)) if isinstance(value, list | tuple | deque) or is_builtin_iterator(value) else None


def buffer_iterators(value: Any) -> Any:
    """Return a value with every iterator in it read, so that to show it takes nothing away. Changes it in place."""
    buffered = _buffer_if_iterator(value)
    for container in _iterate_containers(buffered):
        for key, old, replace in list(_iterate_replaceable_members(container)):
            new = _buffer_if_iterator(old)
            if new is not old:
                replace(key, new)
    return buffered


def rewind_iterators(value: Any) -> None:
    """Let every iterator that `buffer_iterators` has read begin at its beginning."""
    for container in _iterate_containers(value):
        if isinstance(container, BufferedIterator):
            container.rewind()


def _buffer_if_iterator(value: Any) -> Any:
    if is_builtin_iterator(value):
        return BufferedIterator(list(value))
    if not issubclass(type(value), tuple):
        return value
    items = [_buffer_if_iterator(item) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _iterate_containers(value: Any) -> Iterator[Any]:
    """Give a value and all that it holds, scalars aside, each once: validators may build circles."""
    pending, seen = [value], set[int]()
    while pending:
        container = pending.pop()
        if isinstance(container, _SCALARS) or id(container) in seen:
            continue
        seen.add(id(container))
        yield container
        # Looked at after the caller, who may have put something else there.
        pending += [member for _, member, _ in _iterate_replaceable_members(container)]


def _iterate_replaceable_members(value: Any) -> Iterator[tuple[Any, Any, Callable[[Any, Any], None]]]:
    """Give what stands in a container, a model or a data class: where, what, and how to put something else there."""
    value_type = cast("type[Any]", type(value))
    if dataclasses.is_dataclass(value_type):
        names = [member.name for member in dataclasses.fields(value_type) if hasattr(value, member.name)]
        return ((name, getattr(value, name), partial(object.__setattr__, value)) for name in names)
    if hasattr(value_type, "__pydantic_fields__"):
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        own = ((name, member, value.__dict__.__setitem__) for name, member in value.__dict__.items())
        return chain(own, ((name, member, extra.__setitem__) for name, member in extra.items()))
    if issubclass(value_type, BufferedIterator):
        return _iterate_replaceable_members(value.items)
    if issubclass(value_type, dict):
        return ((key, member, value.__setitem__) for key, member in value.items())
    if issubclass(value_type, list | deque):
        return ((at, member, value.__setitem__) for at, member in enumerate(value))
    return ((at, member, _refuse_change) for at, member in enumerate(value if issubclass(value_type, tuple) else ()))


def _refuse_change(key: Any, new: Any) -> None:
    raise TypeError(f"a tuple is made anew, not changed at {key}: {new}")


def has_varying_defaults(core_schema: Any) -> bool:
    """Return True when one input may give two values, because a default is made for each."""
    return any(rules.get("default_factory") not in (None, *_PLAIN_FACTORIES) for rules in _iterate_schemas(core_schema))


def may_have_custom_conversions(core_schema: Any) -> bool:
    """Return True when code or settings of the author's may take another scalar or key than pydantic usually does."""
    return any(map(_has_custom_conversion, _iterate_schemas(core_schema)))


def _has_custom_conversion(rules: dict[str, Any]) -> bool:
    kind, function = str(rules.get("type")), rules.get("function")
    if kind.startswith("function-"):
        return not _is_pydantic_function(function.get("function") if is_object(function) else function)
    config = rules.get("config")
    settings = {**rules, **config} if is_object(config) else rules
    if any(settings.get(name) for name in _CONVERTING_SETTINGS):
        return True
    fields = list_named_fields(rules["fields"]) if kind in _FIELD_TYPES else []
    return any(is_array(field.get("validation_alias")) for _, field in fields)  # of several names


def find_keys_with_hidden_values(core_schema: Any) -> frozenset[str] | None:
    """Return the keys whose JSON may tell less than their value: secrets, hidden fields, own serialisers.

    None when something else than a field of the type itself may do so.
    """
    definitions = {rules["ref"]: rules for rules in _iterate_schemas(core_schema) if "ref" in rules}
    schema = core_schema
    while (kind := schema.get("type")) not in _FIELD_TYPES:
        if not _may_hide_values(schema, definitions):
            return frozenset()
        if _has_lossy_serializer(schema.get("serialization")) or kind not in (*_FIELD_WRAPPER_TYPES, "definition-ref"):
            return None
        schema = definitions[schema["schema_ref"]] if kind == "definition-ref" else schema["schema"]
    return frozenset(
        key
        for name, field in list_named_fields(schema["fields"])
        if _may_hide_values(field, definitions)
        for key in iterate_field_keys(name, field)
    )


def collect_field_keys(core_schema: Any) -> frozenset[str]:
    """Return the names and aliases of all fields of a type and of those in it."""
    return frozenset(
        key
        for rules in _iterate_schemas(core_schema)
        if rules.get("type") in _FIELD_TYPES
        for name, field in list_named_fields(rules["fields"])
        for key in iterate_field_keys(name, field)
    )


def has_excluded_fields(core_schema: Any) -> bool:
    """Tell whether a type, or one in it, has fields that are no part of its JSON."""
    return any(rules.get("serialization_exclude") for rules in _iterate_schemas(core_schema))


def list_named_fields(fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the fields of a model, a data class or a typed dict, by their names."""
    if is_object(fields):
        return list(fields.items())
    return [(field["name"], field) for field in fields]


def _may_hide_values(schema: Any, definitions: dict[str, Any]) -> bool:
    pending, seen = [schema], set[str]()
    while pending:
        for rules in _iterate_schemas(pending.pop()):
            if any(key.startswith("serialization_exclude") for key in rules):
                return True
            if _has_lossy_serializer(rules.get("serialization")):
                return True
            reference = rules.get("schema_ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                pending.append(definitions.get(reference))
    return False


def _has_lossy_serializer(serialization: Any) -> bool:
    if not is_object(serialization):
        return False
    if "function" in serialization:
        return (
            not _is_pydantic_function(serialization["function"]) or "secret" in str(serialization["function"]).lower()
        )
    return serialization.get("type") != "to-string"


def _is_pydantic_function(function: Any) -> bool:
    """Return True for what pydantic itself brings along, for a path or an address."""
    return str(getattr(function, "__module__", "")).split(".")[0] in _PYDANTIC_MODULES


def iterate_field_keys(name: str, field: dict[str, Any]) -> Iterator[str]:
    """Yield the keys under which a field may be given: its name, and the first key of each alias."""
    yield name
    for alias in (field.get("validation_alias"), field.get("serialization_alias")):
        # One key, a path of keys, or several of these: the first key of each stands at the top.
        for path in _as_list(alias):
            yield from _as_list(path)[:1]


def _as_list(value: Any) -> list[Any]:
    return value if is_array(value) else [] if value is None else [value]


def _iterate_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if is_sequence(schema):
        for item in schema:
            yield from _iterate_schemas(item)
    elif is_object(schema):
        yield schema
        for key, value in schema.items():
            if key not in _NON_SCHEMA_KEYS:
                yield from _iterate_schemas(value)
