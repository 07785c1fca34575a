"""What a pydantic type does beyond describing data, read from its core schema. Validates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

_WITH_FIELDS = ("model-fields", "dataclass-args", "typed-dict")
_AROUND_FIELDS = ("definitions", "model", "dataclass", "function-before", "function-after", "function-wrap")
_NO_SCHEMAS = ("default", "metadata", "expected", "config", "computed_fields")
_PLAIN_FACTORIES = (dict, list, set, frozenset, tuple)
_OWN_MODULES = ("pydantic", "pydantic_core")


def varies(core_schema: Any) -> bool:
    """Return True when one input may give two values, for a default is made anew each time."""
    return any(rules.get("default_factory") not in (None, *_PLAIN_FACTORIES) for rules in _parts(core_schema))


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
        key for name, field in _named(schema["fields"]) if _hides(field, definitions) for key in _keys(name, field)
    )


def _named(fields: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(fields, dict):
        return list(cast("dict[str, Any]", fields).items())
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
    if not isinstance(serialization, dict):
        return False
    rules = cast("dict[str, Any]", serialization)
    if "function" in rules:
        return not _is_own(rules["function"]) or "secret" in str(rules["function"]).lower()
    return rules.get("type") != "to-string"


def _is_own(function: Any) -> bool:
    """Return True for what pydantic itself brings along, for a path or an address."""
    return str(getattr(function, "__module__", "")).split(".")[0] in _OWN_MODULES


def _keys(name: str, field: dict[str, Any]) -> Iterator[str]:
    yield name
    for alias in (field.get("validation_alias"), field.get("serialization_alias")):
        # One key, a path of keys, or several of these: the first key of each stands at the top.
        for path in _listed(alias):
            yield from _listed(path)[:1]


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list | tuple):
        for item in cast("list[Any]", schema):
            yield from _parts(item)
    elif isinstance(schema, dict):
        rules = cast("dict[str, Any]", schema)
        yield rules
        for key, value in rules.items():
            if key not in _NO_SCHEMAS:
                yield from _parts(value)
