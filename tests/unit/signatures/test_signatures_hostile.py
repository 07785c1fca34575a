"""Schemas made to hang, overflow or break out: all of them must give text that parses."""

from __future__ import annotations

import json
import time
from typing import Any

import tree_sitter_typescript
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import each_row, rounds
from tree_sitter import Language, Parser

from codemode.signatures.declarations import format_tool_declarations
from codemode.signatures.examples import create_example_program, create_sample_value
from codemode.surfaces.code_mode.description import describe_code_mode_tool

PARSER = Parser(Language(tree_sitter_typescript.language_typescript()))
MAX_CHARACTERS = 500_000
MAX_SECONDS = 5.0  # of the processor


def parses(text: str) -> bool:
    return not PARSER.parse(text.encode("utf-8")).root_node.has_error


def nested(keyword: str, depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        inner = {"a": schema} if keyword in ("properties", "patternProperties") else schema
        schema = {keyword: [inner] if keyword in ("anyOf", "allOf", "oneOf", "prefixItems") else inner}
    return schema


def cyclic(keyword: str) -> Any:
    schema: dict[str, Any] = {}
    schema[keyword] = {"a": schema} if keyword == "properties" else [schema] if keyword == "anyOf" else schema
    return schema


def chain(length: int) -> Any:
    defs = {f"D{i}": {"properties": {"next": {"$ref": f"#/$defs/D{i + 1}"}}} for i in range(length)}
    return {"$ref": "#/$defs/D0", "$defs": {**defs, f"D{length}": {"type": "string"}}}


def doubling(levels: int) -> Any:
    def level(i: int) -> Any:
        return {"properties": {side: {"$ref": f"#/$defs/D{i + 1}"} for side in ("left", "right")}}

    return {"$ref": "#/$defs/D0", "$defs": {**{f"D{i}": level(i) for i in range(levels)}, f"D{levels}": {"const": 1}}}


def mesh(size: int) -> Any:
    """Every definition refers to every other."""
    every = {f"p{i}": {"$ref": f"#/$defs/D{i}"} for i in range(size)}
    return {"$ref": "#/$defs/D0", "$defs": {f"D{i}": {"properties": {**every, f"own{i}": True}} for i in range(size)}}


HOSTILE: dict[str, Any] = {
    **{
        f"deep_{keyword}": nested(keyword, 10_000)
        for keyword in ("properties", "items", "anyOf", "allOf", "oneOf", "prefixItems", "additionalProperties", "not")
    },
    **{f"cyclic_{keyword}": cyclic(keyword) for keyword in ("properties", "items", "anyOf", "not", "default", "const")},
    "deep_const": {"const": json.loads("[" * 900 + "]" * 900)},
    "deep_default": {"properties": {"a": {"type": "array", "default": json.loads("[" * 900 + "]" * 900)}}},
    "chain": chain(10_000),
    "doubling": doubling(60),
    "mesh": mesh(60),
    "huge_enum": {"enum": list(range(200_000))},
    "huge_mixed_enum": {"type": ["string", "number"], "enum": [*range(1000), *map(str, range(1000))]},
    "huge_properties": {"properties": {f"p{i}": {"type": "string"} for i in range(100_000)}},
    "huge_required": {"required": [f"p{i}" for i in range(100_000)]},
    "huge_union": {"anyOf": [{"const": i} for i in range(50_000)]},
    "huge_tuple": {"prefixItems": [{"type": "string"}] * 50_000},
    "huge_description": {"properties": {"a": {"description": "*/" * 1_000_000}}},
    "huge_pattern": {"properties": {"a": {"pattern": "*/" * 1_000_000}}},
    "huge_reference": {"$ref": "#/" + "a/" * 1_000_000},
    "huge_index_reference": {"$ref": "#/anyOf/" + "9" * 5000, "anyOf": []},
    "huge_integer": {"const": 10**6000},
    "huge_constant": {"const": {f"k{i}": list(range(100)) for i in range(1000)}},
    "anchors": {"$ref": "#z", "properties": {f"p{i}": {"$anchor": f"a{i}"} for i in range(50_000)}},
    "not_strings": {
        "type": [1, None, {}],
        "required": [1, {}],
        "properties": {1: {}, None: True},
        "$ref": 7,
        "title": 5,
    },
    "not_json": {"const": object(), "enum": [object(), b"x", {1, 2}], "default": object()},
    "nan": {"enum": [float("nan"), float("-inf")], "default": float("nan"), "minimum": float("inf")},
    "set_schema": {1, 2},
}


@each_row("name", HOSTILE)
def test_hostile_schema_gives_bounded_text(name: str) -> None:
    schema = HOSTILE[name]
    started = time.thread_time()
    text = format_tool_declarations([PlainTool("it", "", schema, schema)])
    create_example_program([PlainTool("it", "", schema, schema)])
    assert time.thread_time() - started < MAX_SECONDS
    assert len(text) < MAX_CHARACTERS
    assert parses(text)


def test_aliases_keep_doubling_references_small() -> None:
    assert len(format_tool_declarations([PlainTool("it", "", doubling(60))])) < 10_000


# Keywords with values that fit, values that do not, and each other, to any shallow depth.
_names = st.sampled_from(
    ["a", "b", "new", "a-b", "", "__proto__", "*/", "名", "\ud800", "\u2028", "1", "Promise"]
) | st.text(max_size=4)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _names
_references = st.sampled_from(
    ["#", "#/$defs/A", "#/$defs/B", "#/properties/a", "#/$defs/A/items", "other.json", "#x", "#/"]
)
_types = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object", "any", "*/"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    mappings = st.dictionaries(_names, inner, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": _types | st.lists(_types, max_size=3) | _scalars,
        "const": inner,
        "enum": lists,
        "$ref": _references | _scalars,
        "required": st.lists(_names, max_size=3),
        "description": _names | st.text(alphabet="*/\n\\ a\u2028", max_size=12),
        "pattern": st.text(alphabet="*/\n\\ a\u2028", max_size=12),
        "minItems": _scalars,
        "maxItems": st.integers(-1, 3),
        "minimum": _scalars,
        "default": inner,
        "examples": lists | _scalars,
        "nullable": st.booleans(),
        "deprecated": st.booleans(),
        "title": _names,
        "additionalItems": inner,
        "$anchor": st.sampled_from(["x", ""]),
        "$schema": st.sampled_from(["http://json-schema.org/draft-07/schema#", "x"]),
        "$defs": st.fixed_dictionaries({}, optional={"A": inner, "B": inner}),
        **dict.fromkeys(("items", "not", "if", "additionalProperties", "contains", "propertyNames"), inner | lists),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), lists | inner),
        **dict.fromkeys(("properties", "patternProperties"), mappings | inner),
    }
    return st.fixed_dictionaries({}, optional=keywords) | lists | mappings


_junk = st.recursive(_scalars, _schemas, max_leaves=20)
_relaxed = settings(max_examples=rounds(20, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Making four tools of junk takes far longer than describing them.
_few = settings(_relaxed, max_examples=20)


@_relaxed
@given(name=_names, description=st.text(max_size=20), takes=_junk, gives=_junk)
def test_any_junk_gives_typescript_that_parses(name: str, description: str, takes: Any, gives: Any) -> None:
    tools = [PlainTool(name, description, takes, gives), PlainTool("other", "", gives, takes)]
    text = format_tool_declarations(tools)
    assert parses(text), text
    assert parses(create_example_program(tools).replace("return ", "void "))


@_few
@given(st.lists(st.builds(PlainTool, _names, st.text(max_size=20), _junk, _junk), max_size=4))
def test_any_tools_give_the_same_prompt_twice(tools: list[PlainTool]) -> None:
    text = describe_code_mode_tool(tools, max_characters=3000)
    assert text == describe_code_mode_tool(tools, max_characters=3000)
    assert tools == [] or parses(create_example_program(tools).replace("return ", "void "))
    text.encode("utf-8")


@_relaxed
@given(_junk)
def test_a_sample_is_made_of_any_junk(schema: Any) -> None:
    create_sample_value(schema)


# Tags, selectors of shapes, fillers, joiners: a model reads what is hidden in them, and nobody else does.
UNSEEN = "\U000e0041\U000e0142\ufe0f\u3164\u034f\u180e\u115f\u2800\u200b\u202e\ufff9\U0001d173"


def test_nothing_is_hidden_from_people_in_what_models_read():
    schema = {
        "type": "object",
        "properties": {f"a{UNSEEN}b": {"type": "string", "enum": [UNSEEN], "description": f"c{UNSEEN}d"}},
    }
    text = format_tool_declarations([PlainTool("tool", f"e{UNSEEN}f", schema, input_examples=({"g": UNSEEN},))])
    assert not set(UNSEEN) & set(text)
    assert "\\u{e0041}" in text
    assert parses(text)
