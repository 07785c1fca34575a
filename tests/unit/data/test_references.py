"""Local references of a schema: one resolver, for declarations, validators and the checks before a run."""

from __future__ import annotations

from typing import Any

from suite import each_row

from codemode.data.references import MAX_REFERENCE_CHAIN, LocalReferenceResolver, resolve_reference
from codemode.source.checks import find_program_problems

SCHEMA: dict[str, Any] = {
    "$id": "https://example.test/root",
    "$ref": "#/$defs/start",
    "$defs": {
        "start": {"$ref": "#named"},
        "end": {"$anchor": "named", "type": "object"},
        "a/b~c d": {"type": "string"},
        "list": [{"type": "null"}, {"type": "number"}],
        "circle": {"$ref": "#/$defs/circle"},
        "once": {"$anchor": "twice"},
        "again": {"$anchor": "twice"},
        "nothing": None,
    },
}


@each_row(
    "reference, target",
    [
        ("#", SCHEMA),
        ("#/$defs/end", SCHEMA["$defs"]["end"]),
        ("https://example.test/root#/$defs/end", SCHEMA["$defs"]["end"]),
        ("#named", SCHEMA["$defs"]["end"]),
        ("#/$defs/a~1b~0c%20d", {"type": "string"}),
        ("#/$defs/list/1", {"type": "number"}),
        ("#/$defs/list/01", None),
        ("#/$defs/list/2", None),
        ("#/$defs/none", None),
        ("#twice", None),
        ("#unknown", None),
        ("https://example.test/other#/$defs/end", None),
        ("other.json", None),
        ("#/" + "a/" * 5000, None),
        (5, None),
        (["#"], None),
        (None, None),
    ],
)
def test_a_reference_names_one_place_of_the_document(reference, target):
    assert LocalReferenceResolver(SCHEMA).look_up_reference(reference) == target


def test_chains_are_followed_and_circles_are_not():
    assert resolve_reference(SCHEMA, SCHEMA) == SCHEMA["$defs"]["end"]
    assert resolve_reference({"$ref": "#/$defs/circle"}, SCHEMA) is None
    chain = {str(n): {"$ref": f"#/{n + 1}"} for n in range(MAX_REFERENCE_CHAIN + 5)}
    assert resolve_reference({"$ref": "#/0"}, {**chain, "20": True}) is None
    for plain in (True, {"type": "string"}, None, 5):
        assert resolve_reference(plain, SCHEMA) == plain


def test_a_check_knows_an_anchor_from_the_whole_schema():
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"$ref": "#text"}},
        "$defs": {"text": {"$anchor": "text", "type": "string"}},
    }
    name = {"type": "string", "value": "x"}
    call = {"name": "t", "line": 1, "column": 1, "input": {"type": "object", "open": False, "keys": {"name": name}}}
    assert find_program_problems({"tools": [], "calls": [call]}, {"t"}, lambda _: schema) == []
