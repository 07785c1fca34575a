"""Answers of servers in whatever shape they come: a program gets what came, and a failure says its reason."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode.tools.tool_result import ToolResult, format_failure_message, parse_server_result, to_program_value

TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
OBJECT = {"type": "object"}
MAYBE = {"anyOf": [OBJECT, {"type": "null"}]}


@each_row(
    "raw, schema, value",
    [
        ({"content": [TEXT]}, None, "x"),
        ({"content": [TEXT], "structuredContent": 0}, None, 0),
        ({"content": "plain text"}, None, "plain text"),
        ({"content": TEXT}, None, "x"),
        ({"content": {"text": "x"}}, None, "x"),
        ({"content": {"rows": [1]}}, None, {"rows": [1]}),
        ({"content": 5}, None, 5),
        ({"content": [1, 2]}, None, [1, 2]),
        ({"content": ["a"]}, None, "a"),
        ({"content": [{"text": "x"}]}, None, "x"),
        ({"content": ["a", TEXT, {"n": 1}, None]}, None, {"content": [
            {"type": "text", "text": "a"}, TEXT, {"type": "text", "text": '{"n": 1}'}]}),
        ({"toolResult": {"a": 1}}, None, {"a": 1}),
        ({"toolResult": "text"}, None, "text"),
        ({"toolResult": [TEXT]}, None, "x"),
        ({"content": [], "toolResult": False}, None, False),
        ({"result": 5, "_meta": {"a": 1}}, None, {"result": 5}),
        ({"content": [], "output": "x"}, None, {"output": "x"}),
        ({"content": [TEXT], "structuredContent": None}, None, "x"),
        ({"content": [TEXT], "structuredContent": None}, OBJECT, "x"),
        ({"content": [TEXT], "structuredContent": None}, MAYBE, None),
        ({"structuredContent": None}, None, None),
        ({"content": [TEXT], "structuredContent": {}}, None, "x"),
        ({"content": [IMAGE], "structuredContent": {}}, None, {"content": [IMAGE]}),
        ({"content": [{"type": "text", "text": "{}"}], "structuredContent": {}}, None, {}),
        ({"content": [TEXT], "structuredContent": {}}, OBJECT, {}),
        ({"content": []}, None, {"content": []}),
        ({}, None, {"content": []}),
        ({"content": [{"type": "new", "of": 1}]}, None, {"content": [{"type": "new", "of": 1}]}),
    ],
)  # fmt: skip
def test_a_program_gets_what_came(raw: dict[str, Any], schema: Any, value: Any):
    assert to_program_value(parse_server_result(raw, schema)) == value, raw


@each_row(
    "raw, words",
    [
        ({"content": [TEXT]}, "x"),
        ({"content": "because"}, "because"),
        ({"content": [], "structuredContent": {"error": "quota", "after": 30}}, '{"error": "quota", "after": 30}'),
        ({"content": [], "structuredContent": "quota"}, "quota"),
        ({"content": [TEXT], "structuredContent": {"error": "x"}}, "x"),
        ({"content": [TEXT], "structuredContent": {"why": "quota"}}, "x"),
        ({"content": "Error", "structuredContent": {"why": "quota"}}, 'Error\n{"why": "quota"}'),
        ({"content": "An error occurred.", "why": "quota"}, 'An error occurred.\n{"why": "quota"}'),
        ({"content": [{"type": "resource", "resource": {"uri": "e:1", "text": "because"}}]}, "because"),
        ({"content": [{"type": "resource_link", "uri": "https://a.example/e"}]}, "https://a.example/e"),
        ({"content": [IMAGE], "message": "because"}, '{"message": "because"}'),
        ({"content": [IMAGE]}, "tool 't' failed"),
        ({"content": [], "message": "because"}, '{"message": "because"}'),
        ({"toolResult": "because"}, "because"),
        ({}, "tool 't' failed"),
        ({"content": [], "structuredContent": {"é": "ü"}}, '{"é": "ü"}'),
    ],
)  # fmt: skip
def test_a_failure_says_its_reason_wherever_it_is(raw: dict[str, Any], words: str):
    result = parse_server_result({**raw, "isError": True})
    assert result.is_error
    assert format_failure_message(result, "t") == words, raw


@pytest.mark.parametrize("said", [True, "true", "True", 1])
def test_a_failure_is_known_by_each_way_to_say_true(said: Any):
    assert parse_server_result({"content": [TEXT], "isError": said}).is_error


@pytest.mark.parametrize("said", [False, None, "false", "no", 0, [], {}])
def test_what_does_not_say_true_is_no_failure(said: Any):
    assert not parse_server_result({"content": [TEXT], "isError": said}).is_error


def test_a_large_reason_is_cut_and_keeps_its_small_members():
    reason = {"message": "because", "rows": [*range(100_000)], "text": "y" * 50_000}
    text = format_failure_message(ToolResult((), reason, is_error=True), "t")
    assert '"message": "because"' in text
    assert len(text) < 20_000


def test_a_deep_reason_is_no_reason_to_fail():
    deep: dict[str, Any] = {"why": "because"}
    for _ in range(400):
        deep = {"in": deep}
    assert "because" in format_failure_message(ToolResult((), deep, is_error=True), "t")
