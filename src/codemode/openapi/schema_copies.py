"""Copy schemas out of an OpenAPI document: what they refer to comes along, within a budget."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any

from ..data.content import CONTENT_SCHEMA
from ..data.narrowing import is_array, is_mapping, is_object, mapping_or_empty, string_or_empty
from ..host import steps
from ..schemas.keyword_repair import Side
from ..trace.visible_text import clipped
from .spec import Spec

MAX_INPUT_VALUES = 10_000
MAX_OUTPUT_VALUES = 1_000
"""Output types get less: a program can read a field that is not declared, and a model reads every declaration."""
_MAX_DEPTH = 60
_MAX_DESCRIPTION = 300
_MAX_OUTPUT_DESCRIPTION = 80
_MAX_DEFAULT = 80
_MAX_NAME = 60
_ONE = frozenset(
    {"additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else", "items"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
# All others are left out: `x-codemode` would make content of text, `$id` would move references.
_PLAIN = frozenset(
    {"type", "enum", "const", "format", "pattern", "nullable", "readOnly", "writeOnly", "deprecated", "uniqueItems"}
    | {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains", "required"}
    | {"dependentRequired", "contentEncoding", "contentMediaType"}
)


class SchemaCopies:
    """Copies schemas of one document into one new document, breadth first.

    ``side`` input: a default becomes a part of the description. Filled in by a validator, those of a PATCH would
    overwrite fields that the program never named.
    """

    def __init__(self, spec: Spec, side: Side, max_values: int) -> None:
        self._references = spec.references
        self._side: Side = side
        self._left = max_values
        self._names: dict[tuple[str, ...], str] = {}
        self._taken = UniqueNames()
        self._waiting: deque[tuple[str, ...]] = deque()

    def copy(self, schema: Any, description: str = "") -> Any:
        """Return the copy of a schema, in which references point to `definitions`, with this description if any."""
        if description and not isinstance(schema, bool):
            schema = {**mapping_or_empty(schema), "description": description}
        return self._schema(schema, 0)

    def definitions(self) -> dict[str, Any]:
        """Copy what the copies refer to. Beyond the budget it accepts anything."""
        found: dict[str, Any] = {}
        while self._waiting:
            pointer = self._waiting.popleft()
            found[self._names[pointer]] = self._schema(self._references.lookup(pointer), 0)
        return {"$defs": found} if found else {}

    def _schema(self, schema: Any, depth: int) -> Any:
        steps.take()
        if not is_mapping(schema):
            return schema if isinstance(schema, bool) else {}
        self._left -= 1
        if self._left <= 0 or depth > _MAX_DEPTH:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, schema)
        if schema.get("type") == "file":
            return dict(CONTENT_SCHEMA)
        rules = {str(keyword): self._rule(keyword, rule, depth) for keyword, rule in schema.items()}
        copied = {keyword: rule for keyword, rule in rules.items() if rule is not _LEFT_OUT and rule is not None}
        if self._side == "input" and "default" in schema:
            copied = with_default(copied, schema["default"])
        return copied

    def _rule(self, keyword: Any, rule: Any, depth: int) -> Any:
        if keyword in _ONE and not is_array(rule):
            return self._schema(rule, depth + 1)
        if keyword in _LISTS or keyword == "items":
            return [self._schema(one, depth + 1) for one in rule] if is_array(rule) else _LEFT_OUT
        if keyword in _MAPS:
            if not is_mapping(rule):
                return _LEFT_OUT
            return {str(name): self._schema(one, depth + 1) for name, one in rule.items()}
        if keyword == "description":
            return described(rule, self._side) or _LEFT_OUT
        if keyword == "format" and self._side == "output":
            return _LEFT_OUT  # a program does nothing with it, and a model reads it
        if keyword == "discriminator":
            name = mapping_or_empty(rule).get("propertyName")
            return {"propertyName": name} if isinstance(name, str) else _LEFT_OUT
        if keyword in _PLAIN or (keyword == "default" and self._side == "output"):
            self._left -= len(rule) if is_array(rule) or is_object(rule) else 0
            return rule
        return _LEFT_OUT

    def _referred(self, reference: str, schema: Any) -> dict[str, Any]:
        pointer = self._references.resolve(reference)
        if pointer is None:
            # Another document: it is not fetched. Also what leads nowhere.
            return {"description": f"not described here: {clipped(reference, 100)}"}
        if pointer not in self._names:
            name = re.sub(r"[^A-Za-z0-9_]+", "_", pointer[-1] if pointer else "")[:_MAX_NAME]
            self._names[pointer] = self._taken.take(name or "Type")
            self._waiting.append(pointer)
        copied: dict[str, Any] = {"$ref": f"#/$defs/{self._names[pointer]}"}
        if description := described(schema.get("description"), self._side):
            copied["description"] = description
        return copied


class UniqueNames:
    """Gives out names, each once. ``renamed`` are those that got a suffix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.renamed: list[str] = []

    def take(self, wanted: str) -> str:
        """Return the name, or one with a suffix."""
        name = wanted
        while name in self._counts:
            self._counts[wanted] += 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._counts[name] = 1
        if name != wanted:
            self.renamed.append(name)
        return name


_LEFT_OUT: Any = object()


def described(text: Any, side: Side = "input") -> str:
    """Return a description as it is declared: shortened, most of all that of a result, on one line."""
    most = _MAX_DESCRIPTION if side == "input" else _MAX_OUTPUT_DESCRIPTION
    return clipped(" ".join(string_or_empty(text)[: 4 * most].split()), most)


def with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Return a schema that says in words what the API does without a value."""
    try:
        text = json.dumps(default, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return schema
    if default is None or len(text) > _MAX_DEFAULT:
        return schema
    return {**schema, "description": f"{schema.get('description', '')} Default: {text}".strip()}
