"""Validated arguments as the JSON that a person is shown. Knows no tools and no approvals."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, cast

from pydantic import AliasChoices, BaseModel, RootModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_ai.messages import tool_return_ta

from codemode.values import canonical_json

_PLAIN = (str, bool, int, type(None))


def shown_arguments(validated: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's validated arguments as plain JSON, keyed as its schema keys them.

    What runs is shown whole: fields that a model leaves out when it is serialised, and what a serialiser would hide.
    """
    shown = json.loads(canonical_json({name: _plain(value) for name, value in validated.items()}))
    properties = set(cast("dict[str, Any]", schema.get("properties") or {}))
    if len(shown) == 1:
        ((name, only),) = shown.items()
        if isinstance(only, dict) and _is_flattened(name, cast("dict[str, Any]", only), properties):
            return cast("dict[str, Any]", only)
    return shown


def _is_flattened(name: str, only: dict[str, Any], properties: set[str]) -> bool:
    # The framework shows a single parameter that is a model as the model itself.
    return name not in properties or (len(properties) > 1 and properties <= set(only))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, SecretStr | SecretBytes):
        return _plain(cast("Any", value).get_secret_value())
    if isinstance(value, RootModel):
        return _plain(cast("Any", value).root)
    if isinstance(value, BaseModel):
        return _plain_model(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return _plain_container(value)


def _plain_model(model: BaseModel) -> dict[str, Any]:
    fields = type(model).model_fields
    shown = {_key(name, field): _plain(getattr(model, name)) for name, field in fields.items()}
    return {**shown, **{name: _plain(value) for name, value in (model.model_extra or {}).items()}}


def _key(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) else name


def _plain_container(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(_plain(key)): _plain(one) for key, one in items}
    if isinstance(value, AbstractSet):
        return sorted((_plain(one) for one in cast("AbstractSet[Any]", value)), key=canonical_json)
    if isinstance(value, list | tuple | deque):
        return [_plain(one) for one in cast("list[Any]", value)]
    try:
        return value.decode() if isinstance(value, bytes) else tool_return_ta.dump_python(value, mode="json")
    except UnicodeDecodeError:
        return tool_return_ta.dump_python(value, mode="json")
    except ValueError:
        # A class of the tool's author that nothing can write down: its kind is all that can be said.
        return f"<{type(value).__qualname__}>"
