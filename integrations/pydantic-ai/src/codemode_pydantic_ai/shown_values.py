"""Validated arguments as the JSON that a person is shown. Calls no tools and knows no approvals."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, count
from typing import Any, cast
from uuid import UUID

from pydantic import AliasChoices, BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_ai.messages import tool_return_ta

from codemode.plugins import ReadAgain, canonical_json, is_read_once

from .content import place_of

_PLAIN = (str, bool, int, type(None))
_SIMPLE = (*_PLAIN, float, Decimal, date, time, timedelta, UUID, Enum)


def shown_arguments(validated: Mapping[str, Any], flattened: str | None) -> dict[str, Any]:
    """Return a tool's validated arguments as plain JSON, keyed as its schema keys them.

    ``flattened`` names the one parameter that is shown as the input itself. What runs is shown whole: fields that a
    model leaves out when it is serialised, and what a serialiser would hide.
    """
    shown = json.loads(canonical_json(plain_arguments(validated)))
    only = shown.get(flattened) if flattened is not None and len(shown) == 1 else None
    return cast("dict[str, Any]", only) if isinstance(only, dict) else shown


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as plain values, nothing hidden."""
    return {name: _plain(value) for name, value in arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return _plain(cast("Any", value).get_secret_value())
    if isinstance(value, RootModel):
        return _plain(cast("Any", value).root)
    if isinstance(value, BaseModel):
        return _plain_model(value)
    if (place := place_of(value)) is not None:
        return place
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields: dict[str, FieldInfo] = getattr(value, "__pydantic_fields__", {})
        names = [one.name for one in dataclasses.fields(value)]
        return _object((_key(name, fields.get(name)), getattr(value, name)) for name in names)
    return _plain_container(value)


def _object(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object in which nothing stands in the place of what is written alike."""
    shown: dict[str, Any] = {}
    for name, value in items:
        key = next(key for key in _names_like(name) if key not in shown)
        shown[key] = _plain(value)
    return shown


def _names_like(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({number})" for number in count(2))


def _plain_model(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    known = ((_key(name, field), getattr(model, name)) for name, field in fields.items())
    return _object(chain(known, (model.model_extra or {}).items()))


def _key(name: str, field: FieldInfo | None) -> str:
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) else name


def _plain_container(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return _object((str(_plain(key)), one) for key, one in items)
    if isinstance(value, AbstractSet):
        return sorted((_plain(one) for one in cast("AbstractSet[Any]", value)), key=canonical_json)
    if isinstance(value, ReadAgain):
        return _plain(value.items)
    if isinstance(value, list | tuple | deque) or is_read_once(value):
        return [_plain(one) for one in cast("list[Any]", value)]
    try:
        return value.decode() if isinstance(value, bytes) else tool_return_ta.dump_python(value, mode="json")
    except UnicodeDecodeError:
        return tool_return_ta.dump_python(value, mode="json")
    except ValueError:
        return _of_unknown_kind(value)


def _of_unknown_kind(value: Any) -> Any:
    """Show what a class of the tool's author holds, when that is simple; else its kind is all that can be said."""
    kind, name = type(value).__qualname__, getattr(value, "__qualname__", None)
    if isinstance(name, str):  # a function or a class
        return f"<{kind} {getattr(value, '__module__', '')}.{name}>"
    slots = [one for base in type(value).__mro__ for one in _slots_of(base) if hasattr(value, one)]
    held: dict[str, Any] = {one: getattr(value, one) for one in slots} | getattr(value, "__dict__", {})
    is_simple = held and all(isinstance(one, _SIMPLE) for one in held.values())
    return {f"<{kind}>": _object(held.items())} if is_simple else f"<{kind}>"


def _slots_of(kind: type) -> list[str]:
    slots: Any = kind.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [one for one in slots if not one.startswith("__")]
