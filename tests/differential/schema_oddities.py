"""Schemas that are wrong, or refer to themselves without an end: their declarations compile all the same."""

from __future__ import annotations

from schema_zoo import ADDRESS, NULL, STRING, Specimen, obj

# Here only the text is of interest: jsonschema refuses these, or recurses for ever.
ODDITIES: list[Specimen] = [
    Specimen("ref_missing", obj({"a": {"$ref": "#/$defs/Nope"}})),
    Specimen("ref_remote", obj({"a": {"$ref": "https://example.com/*/other.json"}})),
    Specimen("ref_self", {"$ref": "#"}),
    Specimen("ref_loop", {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}),
    Specimen(
        "ref_union_loop",
        {
            "$ref": "#/$defs/A",
            "$defs": {
                "A": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/C"}}, {"$ref": "#/$defs/B"}, STRING]},
                "B": {"anyOf": [{"$ref": "#/$defs/C"}, {"type": "array", "items": {"$ref": "#/$defs/B"}}]},
                "C": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, NULL]},
            },
        },
    ),
    Specimen(
        "ref_intersection_loop", {"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, ADDRESS]}}}
    ),
    Specimen(
        "alias_names",
        obj(
            {n: {"$ref": f"#/$defs/{n}"} for n in ("Promise", "Record", "1a", "--", "a_b", "aB", "名")},
            allOf=[obj({n: {"$ref": f"#/$defs/{n}"} for n in ("Promise", "Record", "1a", "--", "a_b", "aB", "名")})],
            **{"$defs": {n: obj({n: STRING}) for n in ("Promise", "Record", "1a", "--", "a_b", "aB", "名")}},
        ),
    ),
    # Every object already has a `constructor`, which is no string: no instance is assignable.
    Specimen("constructor_property", obj({"constructor": STRING})),
    Specimen("unknown_type", {"type": "file*/"}),
    Specimen("not_only", {"not": STRING}),
    Specimen("if_then", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    Specimen("huge_enum", {"type": "string", "enum": [f"*/{i}" for i in range(5000)]}),
    Specimen(
        "junk_keywords",
        {"type": 5, "properties": [1], "required": "a", "anyOf": {}, "enum": 3, "items": "x", "allOf": [7, None]},
    ),
    Specimen("junk_values", {"type": "object", "properties": {"a": 1, "b": None, "c": [], "d": "string"}}),
    Specimen("not_finite", {"enum": [float("inf"), float("nan"), 10**5000, 1e308, -0.0]}),
    Specimen("lone_surrogate", obj({"\ud800": {"const": "\udfff", "description": "\ud83d"}})),
    Specimen("number_schema", 7),
    Specimen("list_schema", [STRING]),
]
