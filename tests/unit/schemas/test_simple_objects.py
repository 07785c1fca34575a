"""Objects of plain types are checked at once: what they break is what the check of each keyword finds."""

from __future__ import annotations

import random

from codemode.schemas.json_schema.check import SchemaDocument

VALUES = [None, True, 1, 1.5, 2.0, "x", [], {}, [1], {"a": 1}]
TYPES = ["object", "array", "string", "boolean", "integer", "number", "null", ["string", "null"]]
DRAFTS = [{}, {"$schema": "http://json-schema.org/draft-04/schema#"}, {"additionalProperties": False}]


def test_the_check_of_simple_objects_agrees_with_that_of_each_keyword():
    rows = random.Random(7)
    simple = 0
    for _ in range(500):
        inner = [{}, True, {"type": rows.choice(TYPES), "title": "t"}, {"type": "string", "nullable": True}]
        properties = {name: rows.choice(inner) for name in "ab"}
        required = rows.sample("abc", rows.randint(0, 2))
        schema = {"type": "object", "properties": properties, "required": required, **rows.choice(DRAFTS)}
        value = {name: rows.choice(VALUES) for name in rows.sample("abc", rows.randint(0, 3))}
        document = SchemaDocument(schema, "")
        expected = list(document.create_check(value).iterate_failures(document.root, value, None))
        found = document.find_failures(value, 8)
        assert [one.to_problem() for one in found] == [one.to_problem() for one in expected], (schema, value)
        simple += not found and document._simple_object_rules is not None
    assert simple > 50
