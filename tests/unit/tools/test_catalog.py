"""Looking tools up: by name, by resemblance, by search, from several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import each_row, rounds

from codemode.errors import CodeModeToolError
from codemode.tools.catalog import Catalog


def catalog(*tools: PlainTool) -> Catalog[PlainTool]:
    return Catalog({tool.name: tool for tool in tools})


ISSUES = catalog(
    PlainTool("create_issue", "Opens a ticket. With labels.", {"properties": {"repositoryName": {}}}),
    PlainTool("listIssues", "Lists tickets of a repository."),
    PlainTool("read_file", "Reads a file from disk."),
    PlainTool("HTTPFetch", "Downloads a page."),
    PlainTool("größe-messen", "Misst die Größe."),
    PlainTool("mute", ""),
)


def names(query: str, limit: int = 10) -> list[str]:
    return [found["name"] for found in ISSUES.search(query, limit)]


@each_row(
    "facts, is_told",
    [
        (None, True),
        ({}, True),
        ({"shadowed": True}, True),
        ({"shadowed": False}, False),
        ({"shadowed": False, "lists": True}, True),
        ([], True),
    ],
)
def test_a_program_that_may_list_them_is_given_the_names(facts, is_told) -> None:
    assert ISSUES.build_invocation_data(facts) == ({"toolNames": list(ISSUES.names())} if is_told else None)
    assert catalog().build_invocation_data(facts) is None


def test_names_keep_their_order() -> None:
    assert ISSUES.names() == ("create_issue", "listIssues", "read_file", "HTTPFetch", "größe-messen", "mute")
    assert list(ISSUES) == list(ISSUES.names())
    assert [tool.name for tool in ISSUES.list_tools()] == list(ISSUES.names())
    assert len(ISSUES) == 6


@each_row("name", ["constructor", "__proto__", "toString", "__class__", "", "READ_FILE", "read_file "])
def test_only_registered_names_are_found(name: str) -> None:
    assert ISSUES.get(name) is None
    assert catalog(PlainTool(name)).get(name) == PlainTool(name)


def test_later_changes_of_the_mapping_change_nothing() -> None:
    tools = {"a": PlainTool("a")}
    looked_up = Catalog(tools)
    tools["b"] = PlainTool("b")
    assert looked_up.names() == ("a",)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("readFile", "read_file"),
        ("read-file", "read_file"),
        ("list_issues", "listIssues"),
        ("craete_issue", "create_issue"),
    ],
)
def test_nearest(name: str, first: str) -> None:
    assert ISSUES.find_nearest_names(name)[0] == first


def test_nothing_is_near_nonsense() -> None:
    assert ISSUES.find_nearest_names("zzzzzz") == []
    assert ISSUES.find_nearest_names("x" * 1_000_000) == []


def test_unknown_tool_error_names_the_nearest() -> None:
    error = ISSUES.tool_not_found_error("readFile")
    assert isinstance(error, CodeModeToolError)
    assert "no tool named 'readFile'" in error.message
    assert "'read_file'" in error.message
    assert error.details["tool_name"] == "readFile"
    assert error.details["available_tools"] == list(ISSUES.names())
    assert len(ISSUES.tool_not_found_error("x" * 10_000).message) < 500


@each_row(
    "query, first",
    [
        ("issue", "create_issue"),
        ("issues", "listIssues"),
        ("list issues", "listIssues"),
        ("listIssues", "listIssues"),
        ("http", "HTTPFetch"),
        ("fetch", "HTTPFetch"),
        ("downloading pages", "HTTPFetch"),
        ("disk", "read_file"),
        ("rea", "read_file"),
        ("repository_name", "listIssues"),
        ("GRÖSSE größe", "größe-messen"),
        ("mute", "mute"),
    ],
)
def test_search_finds_the_best_first(query: str, first: str) -> None:
    assert first in names(query)[:2]


def test_a_word_in_the_name_weighs_more_than_in_the_description() -> None:
    tools = catalog(PlainTool("other", "Talks of alpha."), PlainTool("alpha", "Talks of others."))
    assert [found["name"] for found in tools.search("alpha")] == ["alpha", "other"]


def test_results_hold_name_and_first_sentence() -> None:
    assert ISSUES.search("create") == [{"name": "create_issue", "description": "Opens a ticket."}]


def test_limit() -> None:
    tools = catalog(*(PlainTool(f"tool_{i}") for i in range(200)))
    assert len(tools.search("tool")) == 10
    assert len(tools.search("tool", 3)) == 3
    assert len(tools.search("tool", 10**9)) == 50
    assert tools.search("tool", 0) == tools.search("tool", -5) == []


def test_equal_matches_come_in_order_of_registration() -> None:
    tools = catalog(*(PlainTool(f"tool_{name}") for name in "zyxw"))
    assert [found["name"] for found in tools.search("tool")] == ["tool_z", "tool_y", "tool_x", "tool_w"]


@each_row(
    "query",
    [
        '"',
        "a OR",
        "NEAR(a b",
        "a*",
        "*",
        "name:",
        "a AND NOT",
        "^a",
        "-a",
        "{a b}: c",
        "\x00",
        "\ud800",
        "'; DROP TABLE tools",
        "a " * 100_000,
        "",
        "()",
    ],
)
def test_no_query_is_a_syntax_error(query: str) -> None:
    ISSUES.search(query)
    assert names("disk") == ["read_file"]


@settings(max_examples=rounds(20, 200), deadline=None)
@given(st.text(), st.integers(-5, 100))
def test_any_query_gives_registered_names(query: str, limit: int) -> None:
    assert set(names(query, limit)) <= set(ISSUES.names())


def test_hostile_tool_texts_can_be_indexed() -> None:
    tools = catalog(
        PlainTool("\ud800 a", "\x00 \ud800 b", {"properties": {1: {}, "\udfff": {}}}), PlainTool("b", "", [1])
    )
    assert {found["name"] for found in tools.search("a b")} == {"\ud800 a", "b"}


def test_an_empty_catalog_finds_nothing() -> None:
    assert catalog().search("anything") == []
    assert catalog().find_nearest_names("anything") == []


def test_first_searches_from_many_threads_agree() -> None:
    tools = catalog(*(PlainTool(f"tool_{i}", f"About topic{i % 7}.") for i in range(300)))
    start = threading.Barrier(8, timeout=60)

    def search(_: int) -> list[dict[str, str]]:
        start.wait()
        return tools.search("topic3", 5)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(search, range(8)))
    assert all(result == results[0] for result in results)
    assert len(results[0]) == 5


def test_describe_gives_the_declaration() -> None:
    assert "read_file(input?: unknown): Promise<unknown>;" in ISSUES.describe("read_file")
    with pytest.raises(CodeModeToolError, match="Did you mean 'read_file'"):
        ISSUES.describe("readFile")
