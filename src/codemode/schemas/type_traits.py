"""Traits of a pydantic type beyond describing data, read from its core schema. Validates nothing.

And one of its values: an iterator gives what it holds once, to whoever asks first.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, cast

from ..data.narrowing import is_array, is_object, is_sequence

_WITH_FIELDS = ("model-fields", "dataclass-args", "typed-dict")
_AROUND_FIELDS = ("definitions", "model", "dataclass", "function-before", "function-after", "function-wrap")
_NO_SCHEMAS = ("default", "metadata", "expected", "config", "computed_fields")
_PLAIN_FACTORIES = (dict, list, set, frozenset, tuple)
_OWN_MODULES = ("pydantic", "pydantic_core")
_READ_ONCE_FROM = ("builtins", "pydantic_core._pydantic_core")
_GIVING_ONCE = ("generator", "function-after", "function-wrap", "function-plain")
_CONVERTING = ("coerce_numbers_to_str", "populate_by_name", "validate_by_name", "custom_init")
_SCALARS = (str, int, float, type(None))


class ReadAgain(Iterator[Any]):
    """What an iterator gives, read: a person is shown it all, and a tool still reads it from its beginning."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.rewind()

    def __next__(self) -> Any:
        return next(self._rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReadAgain) and self.items == other.items

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of a list

    def rewind(self) -> None:
        """Begin at the beginning."""
        self._rest = iter(self.items)


def may_give_once(core_schema: Any) -> bool:
    """Return True when values of the type may hold iterators."""
    return any(rules.get("type") in _GIVING_ONCE for rules in _parts(core_schema))


def is_read_once(value: object) -> bool:
    """Tell whether a value is an iterator of Python's or pydantic's own: those end."""
    return isinstance(value, Iterator) and type(cast("Any", value)).__module__ in _READ_ONCE_FROM


def list_items(value: Any) -> list[Any] | None:
    """Return the items of a list, a tuple, a deque or an iterator that ends; None for any other value."""
    if isinstance(value, ReadAgain):
        return value.items
    return list(cast("Any", value)) if isinstance(value, list | tuple | deque) or is_read_once(value) else None


def read_again(value: Any) -> Any:
    """Return a value with every iterator in it read, so that to show it takes nothing away. Changes it in place."""
    whole = _read(value)
    for holder in _holders(whole):
        for place, old, put in list(_places(holder)):
            new = _read(old)
            if new is not old:
                put(place, new)
    return whole


def rewind(value: Any) -> None:
    """Let every iterator that `read_again` has read begin at its beginning."""
    for holder in _holders(value):
        if isinstance(holder, ReadAgain):
            holder.rewind()


def _read(value: Any) -> Any:
    if is_read_once(value):
        return ReadAgain(list(value))
    if not issubclass(type(value), tuple):
        return value
    items = [_read(one) for one in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _holders(value: Any) -> Iterator[Any]:
    """Give a value and all that it holds, scalars aside, each once: validators may build circles."""
    pending, seen = [value], set[int]()
    while pending:
        holder = pending.pop()
        if isinstance(holder, _SCALARS) or id(holder) in seen:
            continue
        seen.add(id(holder))
        yield holder
        # Looked at after the caller, who may have put something else there.
        pending += [one for _, one, _ in _places(holder)]


def _places(value: Any) -> Iterator[tuple[Any, Any, Callable[[Any, Any], None]]]:
    """Give what stands in a container, a model or a data class: where, what, and how to put something else there."""
    kind = cast("type[Any]", type(value))
    if dataclasses.is_dataclass(kind):
        names = [one.name for one in dataclasses.fields(kind) if hasattr(value, one.name)]
        return ((name, getattr(value, name), partial(object.__setattr__, value)) for name in names)
    if hasattr(kind, "__pydantic_fields__"):
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        own = ((name, one, value.__dict__.__setitem__) for name, one in value.__dict__.items())
        return chain(own, ((name, one, extra.__setitem__) for name, one in extra.items()))
    if issubclass(kind, ReadAgain):
        return _places(value.items)
    if issubclass(kind, dict):
        return ((key, one, value.__setitem__) for key, one in value.items())
    if issubclass(kind, list | deque):
        return ((at, one, value.__setitem__) for at, one in enumerate(value))
    return ((at, one, _never) for at, one in enumerate(value if issubclass(kind, tuple) else ()))


def _never(place: Any, new: Any) -> None:
    raise TypeError(f"a tuple is made anew, not changed at {place}: {new}")


def varies(core_schema: Any) -> bool:
    """Return True when one input may give two values, for a default is made anew each time."""
    return any(rules.get("default_factory") not in (None, *_PLAIN_FACTORIES) for rules in _parts(core_schema))


def may_convert(core_schema: Any) -> bool:
    """Return True when code or settings of the author's may take another scalar or key than pydantic usually does."""
    return any(map(_converts, _parts(core_schema)))


def _converts(rules: dict[str, Any]) -> bool:
    kind, function = str(rules.get("type")), rules.get("function")
    if kind.startswith("function-"):
        return not _is_own(function.get("function") if is_object(function) else function)
    config = rules.get("config")
    settings = {**rules, **config} if is_object(config) else rules
    if any(settings.get(name) for name in _CONVERTING):
        return True
    fields = named_fields(rules["fields"]) if kind in _WITH_FIELDS else []
    return any(is_array(field.get("validation_alias")) for _, field in fields)  # of several names


def hiding_keys(core_schema: Any) -> frozenset[str] | None:
    """Return the keys whose JSON may tell less than their value: secrets, hidden fields, own serialisers.

    None when something else than a field of the type itself may do so.
    """
    definitions = {rules["ref"]: rules for rules in _parts(core_schema) if "ref" in rules}
    schema = core_schema
    while (kind := schema.get("type")) not in _WITH_FIELDS:
        if not _hides(schema, definitions):
            return frozenset()
        if _writes_otherwise(schema.get("serialization")) or kind not in (*_AROUND_FIELDS, "definition-ref"):
            return None
        schema = definitions[schema["schema_ref"]] if kind == "definition-ref" else schema["schema"]
    return frozenset(
        key
        for name, field in named_fields(schema["fields"])
        if _hides(field, definitions)
        for key in keys_of(name, field)
    )


def field_keys(core_schema: Any) -> frozenset[str]:
    """Return the names and aliases of all fields of a type and of those in it."""
    return frozenset(
        key
        for rules in _parts(core_schema)
        if rules.get("type") in _WITH_FIELDS
        for name, field in named_fields(rules["fields"])
        for key in keys_of(name, field)
    )


def excludes_fields(core_schema: Any) -> bool:
    """Tell whether a type, or one in it, has fields that are no part of its JSON."""
    return any(rules.get("serialization_exclude") for rules in _parts(core_schema))


def named_fields(fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the fields of a model, a data class or a typed dict, by their names."""
    if is_object(fields):
        return list(fields.items())
    return [(field["name"], field) for field in fields]


def _hides(schema: Any, definitions: dict[str, Any]) -> bool:
    pending, seen = [schema], set[str]()
    while pending:
        for rules in _parts(pending.pop()):
            if any(key.startswith("serialization_exclude") for key in rules):
                return True
            if _writes_otherwise(rules.get("serialization")):
                return True
            reference = rules.get("schema_ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                pending.append(definitions.get(reference))
    return False


def _writes_otherwise(serialization: Any) -> bool:
    if not is_object(serialization):
        return False
    if "function" in serialization:
        return not _is_own(serialization["function"]) or "secret" in str(serialization["function"]).lower()
    return serialization.get("type") != "to-string"


def _is_own(function: Any) -> bool:
    """Return True for what pydantic itself brings along, for a path or an address."""
    return str(getattr(function, "__module__", "")).split(".")[0] in _OWN_MODULES


def keys_of(name: str, field: dict[str, Any]) -> Iterator[str]:
    """Yield the keys under which a field may be given: its name, and the first key of each alias."""
    yield name
    for alias in (field.get("validation_alias"), field.get("serialization_alias")):
        # One key, a path of keys, or several of these: the first key of each stands at the top.
        for path in _listed(alias):
            yield from _listed(path)[:1]


def _listed(value: Any) -> list[Any]:
    return value if is_array(value) else [] if value is None else [value]


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if is_sequence(schema):
        for item in schema:
            yield from _parts(item)
    elif is_object(schema):
        yield schema
        for key, value in schema.items():
            if key not in _NO_SCHEMAS:
                yield from _parts(value)
