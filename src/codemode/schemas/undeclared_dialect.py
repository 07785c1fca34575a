"""Infer the JSON Schema draft of a schema with a missing or wrong ``$schema``."""

from __future__ import annotations

from typing import Any

from ..data.narrowing import is_array
from .json_schema.dialects import DEFAULT_DRAFT, named_draft
from .json_schema.walk import subschemas

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
# Keywords that draft 7 does not know.
_SINCE_2019 = (
    "$defs", "$anchor", "$recursiveRef", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties", "minContains", "maxContains",
)  # fmt: skip


def with_dialect(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Add an older draft's ``$schema`` to a schema with an array as ``items``, which the newest draft does not allow.

    ``text`` is the schema's JSON.
    """
    if named_draft(schema) not in (None, DEFAULT_DRAFT) or '"items": [' not in text:
        return schema
    if not any(is_array(rules.get("items")) for rules in subschemas(schema)):
        return schema
    is_newer = any(f'"{keyword}":' in text for keyword in _SINCE_2019)
    return {**schema, "$schema": _DRAFT_2019 if is_newer else _DRAFT_7}
