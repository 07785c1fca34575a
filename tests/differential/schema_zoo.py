"""JSON Schema features, each with instances worth telling apart. Which of them fit is for jsonschema to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

MCP_SAMPLE = Path(__file__).parents[1] / "data" / "mcp_tools_sample.json"
STRING, NUMBER, INTEGER, BOOLEAN, NULL = ({"type": t} for t in ("string", "number", "integer", "boolean", "null"))


class Specimen(NamedTuple):
    name: str
    schema: Any
    instances: tuple[Any, ...] = ()


def obj(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    listed = {"required": required} if required is not None else {}
    return {"type": "object", "properties": properties, **listed, **more}


ADDRESS = obj({"street": STRING, "zip": STRING}, ["street"])
_TREE = obj({"value": NUMBER, "children": {"type": "array", "items": {"$ref": "#"}}}, ["value"])
_CAT = obj({"kind": {"const": "cat"}, "lives": INTEGER}, ["kind", "lives"])
_DOG = obj({"kind": {"const": "dog"}, "good": BOOLEAN}, ["kind", "good"])

FEATURES: list[Specimen] = [
    # Whole schemas
    Specimen("true", True, ({"a": 1},)),
    Specimen("false", False, ({"a": 1},)),
    Specimen("empty", {}, ({"a": 1},)),
    Specimen("only_description", {"description": "anything"}),
    # Primitive types and what constrains them
    Specimen("string", STRING, ("", "a")),
    Specimen("number", NUMBER, (-1, 1e9)),
    Specimen("integer", INTEGER, (2,)),
    Specimen("boolean", BOOLEAN, (False,)),
    Specimen("null", NULL),
    Specimen("string_limits", {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]*$"}, ("abc",)),
    *[
        Specimen(f"format_{f.replace('-', '_')}", {"type": "string", "format": f}, ("2025-01-31",))
        for f in ("date-time", "date", "time", "email", "uri", "uuid", "ipv4", "hostname", "regex", "binary")
    ],
    Specimen("number_limits", {"type": "number", "minimum": 0, "exclusiveMaximum": 10, "multipleOf": 0.5}, (1, 3.5)),
    Specimen("content", {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}),
    Specimen("pattern_only", {"pattern": "^a"}),
    Specimen("minimum_only", {"minimum": 1}),
    # const and enum
    Specimen("const_string", {"const": "a"}, ("a", "b")),
    Specimen("const_number", {"const": -1.5}, (-1.5, 1.5)),
    Specimen("const_true", {"const": True}, (False,)),
    Specimen("const_null", {"const": None}),
    Specimen("const_object", {"const": {"a": [1, "x"]}}, ({"a": [1, "x"]}, {"a": [1]}, {"a": 1})),
    Specimen("const_array", {"const": [1, [2]]}, ([1, [2]], [1, 2])),
    Specimen("const_empty_object", {"const": {}}),
    Specimen("const_empty_array", {"const": []}, ([1],)),
    Specimen("const_quotes", {"const": 'a"\\\n\u2028b'}, ('a"\\\n\u2028b', "a")),
    Specimen("enum_strings", {"enum": ["a", "b"]}, ("a", "c")),
    Specimen("enum_mixed", {"enum": ["a", 1, True, None]}, ("a", 2, False)),
    Specimen("enum_typed", {"type": "string", "enum": ["a", "b"]}, ("a", "c")),
    Specimen("enum_type_filters", {"type": "string", "enum": ["a", 1, None]}, ("a",)),
    Specimen("enum_nullable_list", {"type": ["string", "null"], "enum": ["a", None]}, ("a", "c")),
    Specimen("enum_numbers", {"type": "integer", "enum": [1, 2, 3]}, (3, 4)),
    Specimen("enum_single", {"enum": ["only"]}, ("only",)),
    Specimen("enum_objects", {"enum": [{"a": 1}, {"b": 2}]}, ({"a": 1}, {"b": 2}, {"a": 2})),
    Specimen("enum_many", {"type": "string", "enum": [f"v{i}" for i in range(150)]}, ("v149", "v150")),
    # Unions
    Specimen("type_list", {"type": ["string", "number"]}, ("a",)),
    Specimen("type_list_null", {"type": ["string", "null"]}),
    Specimen("type_list_all", {"type": ["string", "number", "boolean", "null", "array", "object"]}),
    Specimen("type_list_with_items", {"type": ["array", "string"], "items": NUMBER}, ([1], ["a"], "a")),
    Specimen("type_list_with_properties", {**obj({"a": STRING}, ["a"]), "type": ["object", "null"]}, ({"a": "x"},)),
    Specimen("any_of", {"anyOf": [STRING, NUMBER]}, ("a",)),
    Specimen("any_of_null", {"anyOf": [STRING, NULL], "default": None}),
    Specimen("any_of_nested", {"anyOf": [{"anyOf": [STRING, NULL]}, {"anyOf": [NUMBER, NULL]}]}),
    Specimen("any_of_objects", {"anyOf": [_CAT, _DOG]}, ({"kind": "cat", "lives": 9}, {"kind": "dog", "lives": 9})),
    Specimen("any_of_any", {"anyOf": [{}, NULL]}),
    Specimen("any_of_false", {"anyOf": [False, STRING]}),
    Specimen("any_of_parent_type", {"type": "string", "anyOf": [{"enum": ["a"]}, {"pattern": "^b"}]}, ("a", "b")),
    Specimen(
        "any_of_required",
        obj({"a": STRING, "b": STRING}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        ({"a": "x"}, {"b": "x"}, {"a": "x", "b": "y"}),
    ),
    Specimen("one_of", {"oneOf": [STRING, BOOLEAN]}),
    Specimen("one_of_const", {"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ("a", "b", "c")),
    Specimen(
        "one_of_discriminated",
        {"oneOf": [_CAT, _DOG], "discriminator": {"propertyName": "kind"}},
        ({"kind": "cat", "lives": 9}, {"kind": "dog", "good": True}, {"kind": "cow"}),
    ),
    Specimen(
        "one_of_beside_properties",
        obj({"id": STRING}, ["id"], oneOf=[_CAT, _DOG]),
        ({"id": "1", "kind": "cat", "lives": 1}, {"kind": "cat", "lives": 1}, {"id": "1"}),
    ),
    Specimen("nullable", {"type": "string", "nullable": True}),
    Specimen("nullable_object", obj({"a": STRING}, ["a"], nullable=True), ({"a": "x"},)),
    # Intersections
    Specimen("all_of_single", {"allOf": [STRING]}),
    Specimen(
        "all_of_objects",
        {"allOf": [obj({"a": STRING}, ["a"]), obj({"b": NUMBER}, ["b"])]},
        ({"a": "x", "b": 1}, {"a": "x"}, {"a": "x", "b": "y"}),
    ),
    Specimen(
        "all_of_beside_properties",
        obj({"a": STRING}, ["a"], allOf=[obj({"b": NUMBER}, ["b"])]),
        ({"a": "x", "b": 1}, {"b": 1}),
    ),
    Specimen("all_of_limits", {"type": "string", "allOf": [{"minLength": 1}, {"maxLength": 9}]}),
    Specimen("all_of_union", {"allOf": [{"anyOf": [STRING, NUMBER]}, {"anyOf": [NUMBER, BOOLEAN]}]}),
    Specimen("all_of_never", {"allOf": [STRING, NUMBER]}),
    Specimen("all_of_false", {"allOf": [STRING, False]}),
    Specimen(
        "array_of_intersection",
        {"type": "array", "items": {"allOf": [obj({"a": STRING}, ["a"]), obj({"b": STRING}, ["b"])]}},
        ([{"a": "x", "b": "y"}], [{"a": "x"}]),
    ),
    # Objects
    Specimen("object", {"type": "object"}, ({"a": 1},)),
    Specimen("object_optional", obj({"a": STRING}), ({"a": "x"}, {"a": 1})),
    Specimen("object_required", obj({"a": STRING, "b": NUMBER}, ["a"]), ({"a": "x", "b": 1}, {"b": 1})),
    Specimen("object_all_required", obj({"a": STRING, "b": NUMBER}, ["a", "b"]), ({"a": "x", "b": 1}, {"a": "x"})),
    Specimen("object_empty_properties", obj({}), ({"a": 1},)),
    Specimen("object_closed_empty", obj({}, additionalProperties=False), ({"a": 1},)),
    Specimen("object_closed", obj({"a": STRING}, ["a"], additionalProperties=False), ({"a": "x"},)),
    Specimen("object_open", obj({"a": STRING}, ["a"], additionalProperties=True), ({"a": "x", "b": 1},)),
    Specimen("object_map", {"type": "object", "additionalProperties": NUMBER}, ({"a": 1}, {"a": "x"})),
    Specimen(
        "object_map_of_maps",
        {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": STRING}},
        ({"a": {"b": "x"}}, {"a": {"b": 1}}),
    ),
    Specimen(
        "object_map_of_objects",
        {"type": "object", "additionalProperties": ADDRESS},
        ({"a": {"street": "x"}}, {"a": {}}),
    ),
    Specimen(
        "object_and_map",
        obj({"a": STRING}, ["a"], additionalProperties=NUMBER),
        ({"a": "x", "b": 1}, {"a": "x", "b": True}),
    ),
    Specimen("object_and_map_optional", obj({"a": STRING}, additionalProperties=NUMBER), ({"b": 1}, {"b": True})),
    Specimen(
        "object_pattern",
        {"type": "object", "patternProperties": {"^x-": STRING}, "additionalProperties": False},
        ({"x-a": "y"}, {"x-a": 1}),
    ),
    Specimen("object_patterns", {"type": "object", "patternProperties": {"^s": STRING, "^n*/": NUMBER}}),
    Specimen(
        "object_pattern_and_property", obj({"a": BOOLEAN}, patternProperties={"^x": STRING}), ({"a": True, "xa": "y"},)
    ),
    Specimen("object_property_names", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, ({"a": 1},)),
    Specimen(
        "object_listed_keys",
        {"type": "object", "propertyNames": {"enum": ["red", "blue"]}, "additionalProperties": NUMBER},
        ({"red": 1}, {"red": "x"}, {"red": 1, "blue": 2}),
    ),
    Specimen("object_required_only", {"type": "object", "required": ["a"]}, ({"a": 1},)),
    Specimen("object_required_unlisted", obj({"a": STRING}, ["a", "b"]), ({"a": "x", "b": 1}, {"a": "x"})),
    Specimen(
        "object_required_mapped",
        {"type": "object", "required": ["a"], "additionalProperties": STRING},
        ({"a": "x"}, {"a": 1}),
    ),
    Specimen("object_size", {"type": "object", "minProperties": 0, "maxProperties": 3}, ({"a": 1},)),
    Specimen("object_unevaluated", obj({"a": STRING}, ["a"], unevaluatedProperties=False), ({"a": "x"},)),
    Specimen(
        "object_dependent", obj({"a": STRING, "b": STRING}, dependentRequired={"a": ["b"]}), ({"a": "x", "b": "y"},)
    ),
    Specimen("object_any_value", obj({"a": {}, "b": True}, ["a"]), ({"a": None}, {"a": 1, "b": 2})),
    Specimen("object_false_value", obj({"a": False}), ({"a": 1},)),
    Specimen("object_without_type", {"properties": {"a": STRING}, "required": ["a"]}, ({"a": "x"},)),
    Specimen(
        "object_nested",
        obj({"a": obj({"b": obj({"c": STRING}, ["c"])}, ["b"])}, ["a"]),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": 1}}}, {"a": {"b": {}}}),
    ),
    Specimen(
        "object_strange_names",
        obj({"a-b": STRING, "1": STRING, "": STRING, 'q"': STRING, "__proto__": STRING, "new": STRING}, ["a-b"]),
        ({"a-b": "x", "1": "y"}, {"a-b": 1}),
    ),
    Specimen(
        "object_reserved_names",
        obj(
            dict.fromkeys(
                (
                    "new",
                    "abstract",
                    "readonly",
                    "get",
                    "set",
                    "static",
                    "class",
                    "default",
                    "type",
                    "async",
                    "is",
                    "infer",
                ),
                STRING,
            )
        ),
        ({"new": "x", "get": "y"}, {"readonly": 1}),
    ),
    Specimen(
        "object_unicode_names",
        obj({"größe": NUMBER, "名前": STRING, "😀": STRING}, ["größe"]),
        ({"größe": 1}, {"größe": "x"}),
    ),
    Specimen(
        "object_documented",
        obj(
            {
                "a": {
                    "type": "string",
                    "description": "ends */ here\nand on",
                    "default": "*/",
                    "examples": ["*/ x"],
                    "deprecated": True,
                    "minLength": 1,
                }
            }
        ),
        ({"a": "x"},),
    ),
    Specimen(
        "object_many",
        obj({f"property_number_{i}": STRING for i in range(40)}, ["property_number_0"]),
        ({"property_number_0": "x"},),
    ),
    # Arrays and tuples
    Specimen("array", {"type": "array"}, ([1, "a"],)),
    Specimen("array_of_strings", {"type": "array", "items": STRING}, (["a"], [1])),
    Specimen("array_of_unions", {"type": "array", "items": {"type": ["string", "null"]}}, (["a", None], [1])),
    Specimen("array_of_enums", {"type": "array", "items": {"enum": ["a", "b"]}}, (["a", "b"], ["c"])),
    Specimen("array_of_arrays", {"type": "array", "items": {"type": "array", "items": NUMBER}}, ([[1], []], [["a"]])),
    Specimen("array_of_objects", {"type": "array", "items": ADDRESS}, ([{"street": "x"}], [{}])),
    Specimen(
        "array_of_maps",
        {"type": "array", "items": {"type": "object", "additionalProperties": NUMBER}},
        ([{"a": 1}], [{"a": "x"}]),
    ),
    Specimen("array_of_anything", {"type": "array", "items": True}, ([1],)),
    Specimen("array_of_nothing", {"type": "array", "items": False}, ([1],)),
    Specimen(
        "array_limits",
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 3, "uniqueItems": True},
        ([1, 2],),
    ),
    Specimen("array_contains", {"type": "array", "contains": {"const": 1}}, ([1],)),
    Specimen("array_without_type", {"items": STRING}, (["a"], [1])),
    Specimen(
        "tuple",
        {"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 2, "items": False},
        (["a", 1], ["a"], [1, "a"], ["a", 1, 2]),
    ),
    Specimen(
        "tuple_max",
        {"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 2, "maxItems": 2},
        (["a", 1], ["a", 1, 2]),
    ),
    Specimen(
        "tuple_optional",
        {"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 1, "maxItems": 2},
        (["a"], ["a", 1], ["a", "b"]),
    ),
    Specimen("tuple_open", {"type": "array", "prefixItems": [STRING]}, (["a", 1, None], [1])),
    Specimen(
        "tuple_rest",
        {"type": "array", "prefixItems": [STRING], "items": NUMBER, "minItems": 1},
        (["a", 1, 2], ["a", "b"]),
    ),
    Specimen(
        "tuple_rest_union",
        {"type": "array", "prefixItems": [STRING], "items": {"type": ["number", "null"]}, "minItems": 1},
        (["a", None], ["a", "b"]),
    ),
    Specimen(
        "tuple_union_items",
        {"type": "array", "prefixItems": [{"type": ["string", "null"]}, {"enum": [1, 2]}], "maxItems": 2},
        ([None, 1], ["a", 3]),
    ),
    Specimen(
        "tuple_draft7",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [STRING, NUMBER],
            "additionalItems": False,
            "minItems": 2,
        },
        (["a", 1], ["a", 1, 2], ["a"]),
    ),
    Specimen(
        "tuple_draft7_rest",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [STRING],
            "additionalItems": NUMBER,
        },
        (["a", 1], ["a", "b"], []),
    ),
    Specimen(
        "array_of_tuples",
        {"type": "array", "items": {"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}},
        ([[1, 2]], [[1]]),
    ),
    # References
    Specimen("ref_defs", {"$ref": "#/$defs/A", "$defs": {"A": ADDRESS}}, ({"street": "x"}, {"zip": "x"})),
    Specimen(
        "ref_definitions",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **obj({"a": {"$ref": "#/definitions/A"}}, ["a"]),
            "definitions": {"A": ADDRESS},
        },
        ({"a": {"street": "x"}}, {"a": {}}),
    ),
    Specimen(
        "ref_twice",
        obj({"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, ["a"], **{"$defs": {"A": ADDRESS}}),
        ({"a": {"street": "x"}}, {"a": {"street": "x"}, "b": {}}),
    ),
    Specimen(
        "ref_property",
        obj({"a": ADDRESS, "b": {"$ref": "#/properties/a"}}, ["b"]),
        ({"b": {"street": "x"}}, {"b": {}}),
    ),
    Specimen(
        "ref_escaped",
        obj({"a": {"$ref": "#/$defs/a~1b%20c~0"}}, ["a"], **{"$defs": {"a/b c~": NUMBER}}),
        ({"a": 1}, {"a": "x"}),
    ),
    Specimen(
        "ref_anchor",
        obj({"a": {"$ref": "#here"}}, ["a"], **{"$defs": {"A": {"$anchor": "here", **NUMBER}}}),
        ({"a": 1}, {"a": "x"}),
    ),
    Specimen(
        "ref_siblings",
        {
            **obj({"a": {"$ref": "#/$defs/A", "properties": {"b": STRING}, "required": ["b"]}}, ["a"]),
            "$defs": {"A": ADDRESS},
        },
        ({"a": {"street": "x", "b": "y"}}, {"a": {"street": "x"}}),
    ),
    Specimen(
        "ref_draft7_siblings",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **obj({"a": {"$ref": "#/definitions/A", "type": "string"}}, ["a"]),
            "definitions": {"A": NUMBER},
        },
        ({"a": 1}, {"a": "x"}),
    ),
    Specimen(
        "ref_enum_nullable",
        obj(
            {"a": {"anyOf": [{"$ref": "#/$defs/E"}, NULL]}, "b": {"$ref": "#/$defs/E"}},
            **{"$defs": {"E": {"enum": list("abcdef")}}},
        ),
        ({"a": "a"}, {"a": "z"}, {"a": None, "b": "b"}),
    ),
    Specimen("ref_of_ref", {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": STRING}}),
    Specimen(
        "ref_array",
        {"type": "array", "items": {"$ref": "#/$defs/U"}, "$defs": {"U": {"anyOf": [STRING, NUMBER]}}},
        (["a", 1], [True]),
    ),
    Specimen(
        "ref_own_id",
        {
            "$id": "https://example.com/s",
            "type": "array",
            "items": {"$ref": "https://example.com/s#/$defs/A"},
            "$defs": {"A": STRING},
        },
        (["a"], [1]),
    ),
    # Recursion
    Specimen("recursion_root", _TREE, ({"value": 1, "children": [{"value": 2}]}, {"value": 1, "children": [{}]})),
    Specimen("recursion_titled", {**_TREE, "title": "Tree node"}, ({"value": 1, "children": []},)),
    Specimen(
        "recursion_defs",
        {
            "$ref": "#/$defs/N",
            "$defs": {"N": obj({"next": {"anyOf": [{"$ref": "#/$defs/N"}, NULL]}, "v": NUMBER}, ["v"])},
        },
        ({"v": 1, "next": {"v": 2, "next": None}}, {"v": 1, "next": {}}),
    ),
    Specimen(
        "recursion_mutual",
        {
            "$ref": "#/$defs/A",
            "$defs": {
                "A": obj({"b": {"$ref": "#/$defs/B"}}),
                "B": obj({"a": {"$ref": "#/$defs/A"}, "n": NUMBER}, ["n"]),
            },
        },
        ({"b": {"n": 1, "a": {"b": {"n": 2}}}}, {"b": {"a": {}}}),
    ),
    Specimen(
        "recursion_map",
        {"$ref": "#/$defs/M", "$defs": {"M": {"type": "object", "additionalProperties": {"$ref": "#/$defs/M"}}}},
        ({"a": {"b": {}}}, {"a": 1}),
    ),
    Specimen(
        "recursion_array",
        {"$ref": "#/$defs/L", "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}},
        ([[], [[]]], [1]),
    ),
    Specimen(
        "recursion_json",
        {
            "$ref": "#/$defs/J",
            "$defs": {
                "J": {
                    "anyOf": [
                        STRING,
                        NUMBER,
                        BOOLEAN,
                        NULL,
                        {"type": "array", "items": {"$ref": "#/$defs/J"}},
                        {"type": "object", "additionalProperties": {"$ref": "#/$defs/J"}},
                    ]
                }
            },
        },
        ({"a": [1, {"b": None}]},),
    ),
    Specimen(
        "recursion_dynamic",
        {
            "$dynamicAnchor": "node",
            **obj({"v": NUMBER, "kids": {"type": "array", "items": {"$dynamicRef": "#node"}}}, ["v"]),
        },
        ({"v": 1, "kids": [{"v": 2}]}, {"v": 1, "kids": [{}]}),
    ),
    Specimen(
        "recursion_in_an_optional_tuple",
        {"oneOf": [{"type": "array", "prefixItems": [{"type": "array", "prefixItems": [{"$ref": "#"}]}]}, NULL]},
        (None, [[[[None]]]]),
    ),
    Specimen(
        "recursion_behind_a_tuple",
        {
            "oneOf": [
                {"type": "array", "prefixItems": [STRING], "items": {"type": "array", "items": {"$ref": "#"}}},
                NULL,
            ]
        },
        (None, ["x", [["y"], None]]),
    ),
]


def mcp_tools() -> list[dict[str, Any]]:
    servers = json.loads(MCP_SAMPLE.read_text())["servers"]
    return [tool for tools in servers.values() for tool in tools]


def mcp_schemas() -> list[Specimen]:
    return [
        Specimen(f"mcp_{i}_{key}", tool[key])
        for i, tool in enumerate(mcp_tools())
        for key in ("inputSchema", "outputSchema")
        if tool.get(key) is not None
    ]
