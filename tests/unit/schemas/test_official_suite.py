"""The official test suite of JSON Schema: every verdict is ours too, but for those that are named here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode.schemas.json_schemas import CompiledJsonSchema

SUITE = Path(__file__).parents[2] / "data" / "json_schema_suite"
URIS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
# What several alternatives take is accepted, as the declared union says (docs/ai-sdk.md).
AS_A_UNION = {
    "oneOf: oneOf",
    "oneOf: oneOf with base schema",
    "oneOf: oneOf with boolean schemas, all true",
    "oneOf: oneOf with boolean schemas, more than one true",
    "oneOf: oneOf complex types",
    "oneOf: oneOf with empty schema",
    "oneOf: oneOf with missing optional property",
    "oneOf: oneOf with required",
    "unevaluatedProperties: dynamic evalation inside nested refs",
    "unevaluatedProperties: unevaluatedProperties + ref inside allOf / oneOf",
}
# A keyword that can be meant by nobody is dropped.
MALFORMED = {"enum: empty enum"}
# No reference out of a schema is followed: it takes anything.
FETCHES_NOTHING = {
    "dynamicRef: $ref and $dynamicAnchor are independent of order - $defs first",
    "dynamicRef: $ref and $dynamicAnchor are independent of order - $ref first",
    "dynamicRef: $ref to $dynamicRef finds detached $dynamicAnchor",
    "dynamicRef: strict-tree schema, guards against misspelled properties",
    "dynamicRef: tests for implementation dynamic anchor and reference link",
}
OTHERWISE = AS_A_UNION | MALFORMED | FETCHES_NOTHING


def failed_tests(schema: Any, tests: list[Any]) -> list[str]:
    checked = CompiledJsonSchema(schema)
    return [said for said, value, is_valid in tests if (not checked._find_problems(value)) != is_valid]


@pytest.mark.full
@pytest.mark.parametrize("draft", URIS)
def test_verdicts_are_those_of_the_official_suite(draft: str):
    otherwise: dict[str, list[str]] = {}
    names: set[str] = set()
    for file, groups in json.loads((SUITE / f"{draft}.json").read_text(encoding="utf-8")).items():
        for group in groups:
            schema, name = group["schema"], f"{file}: {group['description']}"
            names.add(name)
            if isinstance(schema, dict):
                schema = {"$schema": URIS[draft], **schema}
            if failed := failed_tests(schema, group["tests"]):
                otherwise[name] = failed
    assert {name: failed for name, failed in otherwise.items() if name not in OTHERWISE} == {}
    assert OTHERWISE & names <= otherwise.keys(), "these verdicts are the suite's now"
