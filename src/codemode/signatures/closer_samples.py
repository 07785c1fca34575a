"""Samples of schemas that say more than types: patterns, conditions, alternatives, how many members. Checks none.

Several are offered, the plainest first; which of them fits, if one does, only the schema can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.references import LocalReferences
from .examples import MAX_SAMPLE_DEPTH, MAX_SAMPLE_PROPERTIES, Sampler, sample_value
from .pattern_samples import text_for

# What of a condition a sample is made to meet: not its `if`; its `if`, as one without it does; and both.
_WAYS = (("else",), ("then",), ("if", "then"))
_MAX_VALUES = 300
_TYPES = {
    "pattern": "string",
    "minLength": "string",
    "format": "string",
    "contains": "array",
    "items": "array",
    "minItems": "array",
    "minProperties": "object",
    "properties": "object",
    "required": "object",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
_PARTS = frozenset({"allOf", "if", "then", "else"})


def samples(schema: Any) -> Iterator[Any]:
    """Yield values that may fit a schema. Never raises."""
    seen = [sample_value(schema)]
    yield seen[0]
    for way in _WAYS:
        try:
            made = _CloserSampler(schema, way).value(schema, 0)
        except _TooMuch:
            return
        if made not in seen:
            seen.append(made)
            yield made


class _TooMuch(Exception):  # noqa: N818 - no error: the schema has no small sample
    """A sample would be too large."""


class _CloserSampler(Sampler):
    """Makes one value that minds more keywords. ``way`` names the parts of conditions that it is to meet."""

    def __init__(self, schema: Any, way: tuple[str, ...]) -> None:
        super().__init__(LocalReferences(schema))
        self._followed = LocalReferences(schema).followed
        self._way = way
        self._left = _MAX_VALUES

    def value(self, schema: Any, depth: int) -> Any:
        self._spend()
        if not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return super().value(schema, depth)
        whole = self._whole(mapping_or_empty(schema), depth)
        return whole["const"] if whole.get("const") is not None else super().value(whole, depth)

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch

    def _whole(self, schema: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
        """Return a schema with what stands in its parts as if it stood in the schema itself."""
        parts = [*list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]]
        if "properties" in schema or "required" in schema:
            parts += [one for key in ("anyOf", "oneOf") for one in list_or_empty(schema.get(key))[:1]]
        parts += [schema[key] for key in self._way if key in schema and "if" in schema]
        whole = {key: value for key, value in schema.items() if key not in _PARTS}
        for part in parts:
            self._spend()
            followed = mapping_or_empty(self._followed(part))
            if depth < MAX_SAMPLE_DEPTH:
                whole = _both(whole, self._whole(followed, depth + 1))
        if "type" not in whole and (implied := next((_TYPES[key] for key in _TYPES if key in whole), None)):
            whole["type"] = implied
        return whole

    def _string(self, schema: Mapping[Any, Any]) -> str:
        pattern, least, most = (schema.get(key) for key in ("pattern", "minLength", "maxLength"))
        if not isinstance(pattern, str):
            return super()._string(schema)
        text = text_for(pattern, least if isinstance(least, int) else 0, most if isinstance(most, int) else None)
        return super()._string(schema) if text is None else text

    def _array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        wanted = mapping_or_empty(schema.get("contains"))
        if "items" not in schema and isinstance(schema.get("minItems"), int) and "prefixItems" not in schema:
            schema = {**schema, "items": wanted or {"type": "string"}}
        made = super()._array(schema, depth)
        least = schema.get("minContains", 1)
        if not wanted or not isinstance(least, int):
            return made
        of_items = mapping_or_empty(schema.get("items"))
        found = {**schema, "items": _both(of_items, wanted), "minItems": min(least, MAX_SAMPLE_PROPERTIES)}
        beside = made[: max(len(made) - least, 0)] if isinstance(schema.get("minItems"), int) else []
        return [*super()._array({key: value for key, value in found.items() if key != "prefixItems"}, depth), *beside]

    def _object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample = super()._object(schema, depth)
        known = mapping_or_empty(schema.get("properties"))
        for name, needed in mapping_or_empty(schema.get("dependentRequired")).items():
            for one in list_or_empty(needed)[:MAX_SAMPLE_PROPERTIES] if name in sample else ():
                if isinstance(one, str) and one not in sample:
                    sample[one] = self.value(known.get(one), depth + 1)
        least = schema.get("minProperties")
        if isinstance(least, int):
            self._fill(sample, schema, min(least, MAX_SAMPLE_PROPERTIES), depth)
        return sample

    def _fill(self, sample: dict[str, Any], schema: Mapping[Any, Any], least: int, depth: int) -> None:
        """Add members that may be there until there are enough."""
        known, other = mapping_or_empty(schema.get("properties")), schema.get("additionalProperties", True)
        named = list_or_empty(mapping_or_empty(schema.get("propertyNames")).get("enum"))
        names = [*known, *(named or [f"key{number + 1}" for number in range(least)] if other is not False else [])]
        for name in names:
            if len(sample) >= least:
                return
            if isinstance(name, str) and name not in sample:
                of_others = mapping_or_empty(other) or {"type": "string"}
                sample[name] = self.value(known.get(name, of_others), depth + 1)


def _both(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the keywords of two schemas of one value; of the same keyword the second's counts."""
    both = {**one, **other}
    for key in ("properties", "dependentRequired"):
        first, second = mapping_or_empty(one.get(key)), mapping_or_empty(other.get(key))
        if first and second:
            both[key] = {**first, **{name: _of_both(first.get(name), second[name]) for name in second}}
    if "required" in one and "required" in other:
        both["required"] = [*list_or_empty(one["required"]), *list_or_empty(other["required"])]
    return both


def _of_both(first: Any, second: Any) -> Any:
    one, other = mapping_or_empty(first), mapping_or_empty(second)
    return {**one, **other} if one and other else second
