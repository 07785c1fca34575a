"""JSON with comments: read as the same JSON without them, and refused at the place where it is none."""

from __future__ import annotations

import json
import re

import pytest
from codemode_gateway.config import config_file
from codemode_gateway.config.config_file import MAX_DEPTH, JsonError, JsonNode, parse_jsonc
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
COMMENT_TEXT = st.text(alphabet=st.characters(exclude_characters="*\r\n", exclude_categories=["Cs"]), max_size=8)
BETWEEN = st.one_of(
    st.sampled_from(["", " ", "\n", "\r\n", "\t", "/**/", "// {\n", "/* \n */"]),
    COMMENT_TEXT.map(lambda text: f"/*{text}*/"),
    COMMENT_TEXT.map(lambda text: f"//{text}\n"),
)
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@given(VALUES, st.data())
def test_comments_at_any_place_change_nothing(value: object, data: st.DataObject):
    tokens = TOKENS.findall(json.dumps(value, ensure_ascii=data.draw(st.booleans())))
    text = data.draw(BETWEEN)
    for index, token in enumerate(tokens):
        is_last_of_some = token in ("}", "]") and index and tokens[index - 1] not in ("{", "[")
        comma = "," + data.draw(BETWEEN) if is_last_of_some and data.draw(st.booleans()) else ""
        text += comma + token + data.draw(BETWEEN)
    assert parse_jsonc(text).root.to_python() == value


def nodes(node: JsonNode) -> list[JsonNode]:
    inner = [*node.items, *(one.node for one in node.members)]
    return [node, *(found for one in inner for found in nodes(one))]


@given(VALUES, st.sampled_from([None, 2, "\t"]))
def test_each_node_knows_its_place(value: object, indent: int | str | None):
    text = json.dumps(value, indent=indent)
    for node in nodes(parse_jsonc(text).root):
        assert json.loads(text[node.start : node.end]) == node.to_python()
        assert all(json.loads(TOKENS.match(text, one.start)[0]) == one.key for one in node.members)  # type: ignore[index]


@given(st.text(alphabet='{}[],:"\\/*\n ab1-.e\x00é', max_size=40))
def test_no_text_breaks_the_reader(text: str):
    try:
        found = parse_jsonc(text).root.to_python()
    except JsonError as mistake:
        assert mistake.line >= 1
        assert mistake.column >= 1
        return
    assert json.loads(json.dumps(found)) == found


@given(st.text())
def test_what_json_takes_is_taken(text: str):
    assert parse_jsonc(json.dumps({text: text})).root.to_python() == {text: text}


@each_row(
    "text, line, column, says",
    [
        ("", 1, 1, "is empty"),
        ("  \n // nothing\n", 3, 1, "is empty"),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "comma missing"),
        ('{\r\n  "a" 1}', 2, 7, "colon"),
        ("{'a': 1}", 1, 2, "double quotes"),
        ("{\"a\": 'x'}", 1, 7, "double quotes"),
        ('{"a": [1, 2', 1, 7, "ends before"),
        ('{"a": 1', 1, 1, "ends before"),
        ('{"a":', 1, 6, "cut off"),
        ('{"a": "x\ny"}', 1, 7, "not closed"),
        ('{"a": "\\x"}', 1, 7, "escape"),
        ("{} {}", 1, 4, "follows the end"),
        ("{,}", 1, 2, "key in double quotes"),
        ("[,]", 1, 2, "value"),
        ("[1,,2]", 1, 4, "value"),
        ("/* never", 1, 1, "comment is not closed"),
        ('{"a": 1} /* never', 1, 10, "comment is not closed"),
        ('{"a": 01}', 1, 7, "value"),
        ('{"a": NaN}', 1, 7, "value"),
        ('{"a": undefined}', 1, 7, "value"),
        ('{"a": 1e999}', 1, 7, "too large"),
        ('{"a": ' + "9" * 5_000 + "}", 1, 7, "too many digits"),
    ],
)
def test_a_mistake_names_its_place(text: str, line: int, column: int, says: str):
    with pytest.raises(JsonError) as caught:
        parse_jsonc(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert says in str(caught.value)


def test_depth_is_bounded():
    assert parse_jsonc("[" * MAX_DEPTH + "]" * MAX_DEPTH).root.kind == "array"
    for text in ("[" * (MAX_DEPTH + 1), '{"a":' * 100_000, "[" * 1_000_000):
        with pytest.raises(JsonError, match="nested more than"):
            parse_jsonc(text)


def test_a_key_that_stands_twice_is_told_with_both_lines():
    found = parse_jsonc('{\n"a": 1,\n"b": {"c": 1,\n"c": 2},\n"\\u0061": 3}')
    assert [(one.line, "first on line" in str(one)) for one in found.warnings] == [(4, True), (5, True)]
    assert found.root.to_python() == {"a": 3, "b": {"c": 2}}


def test_half_a_character_is_told_and_read():
    found = parse_jsonc('{\n"a": "\\ud83d\\ude00 \\ud83d"}')
    assert [(one.line, one.column) for one in found.warnings] == [(2, 6)]
    assert found.root.to_python() == {"a": "😀 \ud83d"}


def test_more_values_than_anybody_writes_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(config_file, "MAX_VALUES", 100)
    assert parse_jsonc(json.dumps(list(range(99)))).root.kind == "array"
    with pytest.raises(JsonError, match="more than 100 values"):
        parse_jsonc(json.dumps(list(range(100))))
