"""Tools with JSON Schema as dicts: defaults, problems, and hostile schemas and values."""

import pytest
from orders_tool import ORDER_SCHEMA, make, problems_of
from suite import each_row

from codemode.tools.prepared import MISSING


def test_a_dict_schema_gives_plain_json_with_defaults():
    one = make(input_schema=ORDER_SCHEMA)
    given = {"customer": "c", "lines": [{}, {"count": 2}]}
    validated = one.validate_input(given)
    assert validated.value == {"customer": "c", "priority": "low", "lines": [{"count": 1}, {"count": 2}]}
    assert validated.json_value == validated.value
    assert given == {"customer": "c", "lines": [{}, {"count": 2}]}
    assert one.input_json_schema == ORDER_SCHEMA


def test_defaults_are_never_shared():
    one = make(input_schema={"type": "object", "properties": {"a": {"default": []}}})
    one.validate_input({}).value["a"].append(1)
    assert one.validate_input({}).value == {"a": []}


@each_row(
    "value, path, message",
    [
        ({"customer": 5}, "customer", "expected string, got number"),
        ({"customer": True}, "customer", "expected string, got boolean"),
        ({}, "", 'missing required "customer"'),
        (MISSING, "", 'missing required "customer"'),
        (None, "", "expected object, got null"),
        ([], "", "expected object, got array"),
        ({"customer": "c", "priority": "top"}, "priority", 'must be one of "low", "high"'),
        ({"customer": "c", "lines": [{}, {"count": 0}]}, "lines[1].count", "must satisfy minimum: 1"),
        ({"customer": "c", "x y": 1}, "", "does not take 'x y'"),
    ],
)
def test_dict_schema_problems_name_path_and_expectation(value, path, message):
    (problem,) = problems_of(make(input_schema=ORDER_SCHEMA), value)
    assert problem["path"] == path
    assert message in problem["message"]


def test_problems_are_few_and_short():
    one = make(input_schema={"type": "array", "items": {"maxLength": 3, "type": "string"}})
    found = problems_of(one, ["x" * 100_000, *range(10_000)])
    assert len(found) <= 8
    assert max(len(problem["message"]) for problem in found) <= 200
    typed = make(input_schema=list[str])
    assert problems_of(typed, list(range(5000))) == [{"path": "", "message": "does not fit in 5000 places"}]
    assert len(problems_of(typed, list(range(50)))) == 8


def test_an_alternative_that_comes_close_explains_itself():
    one = make(input_schema={"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "string"}}}]})
    assert problems_of(one, {"a": 1}) == [{"path": "a", "message": "expected string, got number"}]


def test_remote_references_are_never_fetched(monkeypatch):
    fetched = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    one = make(input_schema={"properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}})
    assert one.validate_input({"a": 1}).value == {"a": 1}
    assert fetched == []


def test_drafts_follow_the_schema():
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
    }
    assert problems_of(make(input_schema=old), 3)
    assert make(input_schema=old).validate_input(4).value == 4


def tree(depth):
    value = {"kind": "leaf"}
    for _ in range(depth):
        value = {"kind": "add", "left": value, "right": {"kind": "leaf"}}
    return value


def variant(kind):
    both = {"left": {"$ref": "#"}, "right": {"$ref": "#"}}
    return {"type": "object", "properties": {"kind": {"const": kind}, **both}, "required": ["kind"]}


def test_recursive_alternatives_end_in_bounded_time():
    one = make(input_schema={"oneOf": [variant("leaf"), variant("multiply"), variant("add")]})
    assert one.validate_input(tree(3)).value == tree(3)
    assert one.validate_input(tree(40)).value == tree(40)
    wrong = tree(40)
    wrong["right"]["kind"] = "nothing"
    assert problems_of(one, wrong)


def test_large_plain_data_is_not_too_much():
    one = make(input_schema={"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}})
    value = [{"a": number} for number in range(40_000)]
    assert one.validate_input(value).value == value


@each_row(
    "schema, value, fits",
    [
        ({"pattern": "^(a+)+$"}, "a" * 100_000 + "b", False),
        ({"pattern": r"\S+@\S+\.\S+"}, "a@" * 50_000, False),
        ({"pattern": r"^\p{L}+$"}, "größe", True),
        ({"pattern": r"^(?<first>a)$"}, "a", True),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "b"}, 5, True),
        ({"patternProperties": {"^(x+)+$": {"type": "string"}}}, {"x" * 50_000 + "y": 1}, True),
        ({"patternProperties": {"^x": {"type": "string"}}}, {"xa": 1}, False),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xa": 1}, True),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"ya": 1}, False),
        ({"additionalProperties": {"type": "string"}, "properties": {"a": {}}}, {"a": 1, "b": "c"}, True),
        ({"additionalProperties": {"type": "string"}, "properties": {"a": {}}}, {"a": 1, "b": 1}, False),
        ({"uniqueItems": True}, [{"a": number} for number in range(40_000)], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"uniqueItems": True}, [1, True, "1", None], True),
    ],
)
def test_hostile_values_meet_every_keyword_in_bounded_time(schema, value, fits):
    one = make(input_schema=schema)
    if fits:
        assert one.validate_input(value).value == value
    else:
        assert problems_of(one, value)


def test_formats_are_not_checked():
    assert make(input_schema={"type": "string", "format": "date"}).validate_input("no").value == "no"


def circular_schema():
    schema = {"type": "object"}
    schema["properties"] = {"self": schema}
    return schema


def deep_schema():
    schema = {}
    for _ in range(100_000):
        schema = {"not": schema}
    return schema


@each_row(
    "make_schema",
    [
        lambda: {"properties": {"a": {"pattern": "("}}},
        lambda: {"patternProperties": {"(": {}}},
        circular_schema,
        deep_schema,
    ],
)
def test_a_broken_schema_is_a_value_error_naming_the_tool(make_schema):
    with pytest.raises(ValueError, match="input_schema of tool 'orders'"):
        make(input_schema=make_schema()).compile_schemas()
    with pytest.raises(ValueError, match="output_schema of tool 'orders'"):
        make(output_schema=make_schema()).compile_schemas()


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}])
def test_circular_references_are_left_out(schema):
    assert make(input_schema={**schema, "default": 1}).validate_input({}).value == {}


def test_deep_values_end():
    value = []
    for _ in range(500):
        value = [value]
    one = make(input_schema={"items": {"$ref": "#"}, "type": "array", "default": []})
    assert problems_of(one, value) == [{"path": "", "message": "nests too deeply to be checked"}]


@pytest.mark.parametrize(("schema", "value"), [(True, 5), ({}, None)])
def test_schemas_that_take_anything(schema, value):
    assert make(input_schema=schema).validate_input(value).value == value


def test_false_takes_nothing():
    assert problems_of(make(input_schema=False), 1) == [{"path": "", "message": "is not allowed"}]


def test_no_schema_takes_anything():
    one = make()
    one.compile_schemas()
    assert (one.input_json_schema, one.output_json_schema) == (None, None)
    assert one.validate_input({"a": [1]}).json_value == {"a": [1]}
    assert one.validate_input(MISSING).value is None
    assert one.validate_output(one) is one


@each_row(
    "schema, value",
    [
        ({"type": "object"}, {}),
        ({"properties": {}}, {}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, {}),
        ({"type": ["string", "null"]}, None),
        (dict[str, int], {}),
        (int | None, None),
    ],
)
def test_a_missing_input(schema, value):
    assert make(input_schema=schema).validate_input(MISSING).value == value
