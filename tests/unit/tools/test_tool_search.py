"""Which tools a search finds, in which order, with which scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import each_row, rounds

from codemode.tools.catalog import Catalog
from codemode.tools.search.index import ToolIndex
from codemode.tools.search.postings import collect_searched_texts, create_index_entry

SAMPLE = Path(__file__).parents[2] / "data" / "mcp_tools_sample.json"


def index_of(*tools: PlainTool) -> ToolIndex:
    return ToolIndex((tool.name, tool) for tool in tools)


def found(query: str, *tools: PlainTool) -> list[str]:
    return [tools[one.position].name for one in index_of(*tools).search(query, 50)]


def sample() -> list[PlainTool]:
    servers = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"]
    return [
        PlainTool(t["name"], t.get("description", ""), t["inputSchema"]) for tools in servers.values() for t in tools
    ]


OTHERS = tuple(PlainTool(f"filler{n}", "Something else entirely.") for n in range(6))
SAMPLE_TOOLS = sample()
SAMPLE_INDEX = index_of(*SAMPLE_TOOLS)


def names_in_sample(query: str, limit: int = 8) -> list[str]:
    return [SAMPLE_TOOLS[one.position].name for one in SAMPLE_INDEX.search(query, limit)]


# --- what is searched ---


@each_row(
    "tool",
    [
        PlainTool("walrusOf"),
        PlainTool("t", "Feeds a walrus."),
        PlainTool("t", "Feeds animals. Also a walrus."),
        PlainTool("t", "", {"properties": {"walrus": {}}}),
        PlainTool("t", "", {"properties": {"a": {"description": "the walrus to feed"}}}),
        PlainTool("t", "", None, None, ({"animal": ["walrus"]},)),
        PlainTool("t", "", None, None, ({"to": {"be": {"fed": "a walrus"}}},)),
        PlainTool("t", "", {"title": "Feed a walrus"}),
        PlainTool("t", annotations={"title": "Feed a walrus"}),
    ],
)
def test_every_column_is_searched(tool):
    assert found("walrus", *OTHERS, tool) == [tool.name]


def test_a_word_weighs_by_where_it_stands():
    tools = (
        PlainTool("parameter", "About it.", {"properties": {"walrus": {}}}),
        PlainTool("rest", "About it. A walrus."),
        PlainTool("example", "About it.", None, None, ("walrus",)),
        PlainTool("sentence", "A walrus."),
        PlainTool("walrus", "About it."),
    )
    assert found("walrus", *tools) == ["walrus", "sentence", "example", "rest", "parameter"]


def test_values_of_examples_are_found_with_their_numbers():
    tools = (*OTHERS, PlainTool("t", input_examples=({"order": 4711, "price": 1.5, "is": True, "none": None},)))
    assert found("order 4711", *tools) == ["t"]
    assert found("True None", *tools) == []


# --- which come first ---


def test_tools_with_more_of_the_words_come_first():
    tools = (
        PlainTool("export", "Exports. Export, and export again."),
        PlainTool("reports", "Reports of all kinds, report by report."),
        PlainTool("other", "Something for reports; used in an export as well, and for much else that is not named."),
        *OTHERS,
    )
    assert found("export reports", *tools)[0] == "other"


def test_words_that_say_nothing_do_not_count():
    tools = (PlainTool("walrus"), PlainTool("what", "What is the way to do it, and how do I want to?"), *OTHERS)
    assert found("how do I feed the walrus", *tools) == ["walrus"]


def test_a_query_of_words_that_say_nothing_is_searched_all_the_same():
    assert found("what is this", PlainTool("what_is_this"), *OTHERS) == ["what_is_this"]
    assert found("the", *OTHERS) == []


def test_the_very_name_comes_first_with_score_1():
    tools = (PlainTool("get_order_lines", "Get order. Get order."), PlainTool("get_order", "Words " * 500), *OTHERS)
    for query in ("get_order", "getOrder", "get order", "GET-ORDER"):
        assert [one for one in index_of(*tools).search(query, 9) if one.score == 1] == [(1, 1.0)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_word_that_all_tools_have_still_puts_them_in_order(count):
    tools = [PlainTool(f"t{n}", f"Other. {'much else ' * (9 - n)} walrus.") for n in range(count)]
    scores = [one.score for one in index_of(*tools, PlainTool("walrus")).search("the walrus", 9)]
    assert len(set(scores)) == count + 1
    assert found("the walrus", *tools, PlainTool("walrus")) == ["walrus", *(tool.name for tool in reversed(tools))]


def test_equal_scores_come_in_order_of_registration():
    tools = [PlainTool(name, "A walrus.") for name in ("zeta", "beta", "alpha", "eta")]
    assert found("walrus", *tools, *OTHERS) == ["zeta", "beta", "alpha", "eta"]


# --- misspelt words, other spellings, synonyms, other languages ---


@each_row(
    "query, name",
    [
        ("wlarus", "walrus"),  # neighbours exchanged
        ("walus", "walrus"),
        ("wallrus", "walrus"),
        ("walrvs", "walrus"),
        ("alrus", "walrus"),
        ("repostory", "repository"),
        ("repozitorry", "repository"),
        ("feedwalrus", "feed_walrus"),
        ("screen shot", "takeScreenshot"),
        ("gti", "git_log"),
    ],
)
def test_misspelt_words_are_corrected(query, name):
    assert found(query, PlainTool(name), *OTHERS) == [name]


def test_what_is_known_is_not_corrected():
    assert found("form", PlainTool("form"), PlainTool("from_file"), PlainTool("farm"), *OTHERS) == ["form"]
    assert found("zzzzz", PlainTool("walrus"), *OTHERS) == []
    assert found("walras1", PlainTool("walrus"), *OTHERS) == []


def test_a_prefix_of_the_stem_of_a_misspelt_word_does_not_hide_its_correction():
    assert found("delte", PlainTool("delta"), PlainTool("delete"), *OTHERS)[0] == "delete"


def test_a_synonym_finds_but_never_passes_a_given_word():
    tools = (PlainTool("remove", "Remove. Remove it."), PlainTool("t", "About it. In the end delete."), *OTHERS)
    assert found("delete", *tools) == ["t", "remove"]
    given, meant = index_of(*tools).search("delete", 9)
    assert 0 < meant.score <= given.score / 2


def test_what_no_tool_has_is_known_by_what_it_means():
    music, stray = PlainTool("play_music"), PlainTool("t", "Something. For all on a train.")
    assert found("a song for the train", music, stray, *OTHERS)[0] == "play_music"
    assert (
        found("a song for the train", music, stray, PlainTool("u", "Something. Of a song."), *OTHERS)[2] == "play_music"
    )
    assert found("look at the train", PlainTool("search"), stray, *OTHERS)[0] == "t", "what is done says nothing"


def test_another_form_of_a_word_has_its_synonyms():
    assert found("snapshots", PlainTool("screenshot"), *OTHERS) == ["screenshot"]
    assert found("conversations", PlainTool("chat"), *OTHERS) == ["chat"]


@each_row(
    "query, name",
    [
        ("list prs", "list_pull_requests"),
        ("mkdir", "create_directory"),
        ("erase the document", "delete_file"),
    ],
)
def test_other_ways_to_say_it(query, name):
    tools = [PlainTool(n) for n in ("list_pull_requests", "create_directory", "delete_file", "walrus")]
    assert found(query, *tools)[0] == name


def test_tools_described_without_spaces_are_found_by_parts():
    tools = (PlainTool("a", "查询用户的发货单状态。"), PlainTool("b", "ファイルをゴミ箱に入れる"), *OTHERS)
    assert found("发货单", *tools)[0] == "a"
    assert found("ゴミ箱", *tools) == ["b"]


def test_accents_and_case_make_no_difference():
    for query in ("größe", "GRÖSSE", "grosse", "GRÖẞE"):
        assert found(query, PlainTool("größe_messen"), *OTHERS)[0] == "größe_messen"


# --- real tools ---


@each_row(
    "query, name",
    [
        ("serach code", "search_code"),
        ("take a screenshot", "browser_take_screenshot"),
        ("rename a file", "move_file"),
        ("which alarms are firing right now", "get_active_alarms"),
        ("save my work in git with a message", "git_commit"),
    ],
)
def test_queries_find_real_tools(query, name):
    assert name in names_in_sample(query)


# --- for any query and any tools ---

TEXTS = st.text() | st.text("abcdeé ._-*\"'():^{}\x00\ud800文件を\u0301", max_size=40)
QUERIES = TEXTS | st.lists(st.sampled_from(["file", "reed", "delete", "pr", "OR", "NEAR(", '"', "创建", "the"])).map(
    " ".join
)
ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = ANY | st.fixed_dictionaries(
    {"properties": ANY | st.dictionaries(TEXTS, ANY | st.just({"description": "de"}))}
)
TOOLS = st.lists(
    st.builds(PlainTool, TEXTS, TEXTS, SCHEMAS, st.none(), st.lists(ANY, max_size=2).map(tuple)), max_size=6
)


@settings(max_examples=rounds(30, 300), deadline=None)
@given(QUERIES, st.integers(-2, 60))
def test_any_query_is_answered(query, limit):
    answer = SAMPLE_INDEX.search(query, limit)
    assert len(answer) <= max(limit, 0)
    assert len({one.position for one in answer}) == len(answer)
    assert all(0 <= one.position < len(SAMPLE_TOOLS) and 0 <= one.score <= 1 for one in answer)
    assert answer == sorted(answer, key=lambda one: (-one.score, one.position))
    assert answer == SAMPLE_INDEX.search(query, limit)
    assert answer[:3] == SAMPLE_INDEX.search(query, min(limit, 3))


@settings(max_examples=rounds(20, 200), deadline=None)
@given(QUERIES, st.sets(st.integers(0, len(SAMPLE_TOOLS) - 1)), st.integers(0, 20))
def test_a_choice_of_tools_narrows_before_the_limit(query, among, limit):
    whole = SAMPLE_INDEX.search(query, len(SAMPLE_TOOLS))
    assert SAMPLE_INDEX.search(query, limit, among) == [one for one in whole if one.position in among][:limit]


@settings(max_examples=rounds(20, 150), deadline=None)
@given(TOOLS, QUERIES)
def test_any_tools_can_be_searched(tools, query):
    index, again = index_of(*tools), index_of(*tools)
    answer = index.search(query, 50)
    assert answer == again.search(query, 50)
    assert all(0 <= one.score <= 1 and one.position < len(tools) for one in answer)


@settings(max_examples=rounds(20, 100), deadline=None)
@given(st.sampled_from(SAMPLE_TOOLS))
def test_every_tool_is_found_first_by_its_name(tool):
    assert names_in_sample(tool.name)[0] == tool.name


# --- hostile ---


@each_row(
    "query",
    [
        "a" * 1_000_000,
        "a " * 500_000,
        "\x00" * 1000,
        "\ud800" * 1000,
        "文" * 100_000,
        "e\u0301" * 10_000,
        '" OR "' * 9,
        "name : file",
        "{name sentence} : file",
        "NEAR(read file, 2)",
        "file*",
        "^read",
        "-file",
        "read + file",
        "file AND",
    ],
)
def test_hostile_queries(query):
    assert len(SAMPLE_INDEX.search(query, 50)) <= 50
    assert names_in_sample("fork repository", 1) == ["fork_repository"]


def test_operators_are_words_like_any_other():
    assert found('"alpha" NOT beta', PlainTool("alpha beta"), PlainTool("gamma"), *OTHERS) == ["alpha beta"]


def endless() -> dict[str, Any]:
    example: dict[str, Any] = {}
    example["self"] = [example, example]
    return example


@pytest.mark.parametrize(
    "tool",
    [
        PlainTool("huge", "word " * 1_000_000),
        PlainTool("huge", "w" * 5_000_000),
        PlainTool("huge", "." * 1_000_000),
        PlainTool("huge " * 100_000),
        PlainTool("huge", "", {"properties": {f"p{n}": {"description": "d" * 1000} for n in range(5000)}}),
        PlainTool("huge", "", {"properties": {"p" * 1_000_000: {"description": "d" * 1_000_000}}}),
        PlainTool("huge", input_examples=([["x" * 1000] * 10_000] * 1000,)),
        PlainTool("huge", input_examples=(10**5000, float("nan"), -float("inf"), b"bytes", object())),
        PlainTool("huge", input_examples=(endless(),)),
    ],
)
def test_hostile_tools_take_a_bounded_part_of_the_index(tool):
    assert found("huge walrus", PlainTool("walrus"), tool, *OTHERS)
    entry = create_index_entry(collect_searched_texts(tool.name, tool))
    assert entry.length < 25_000
    assert sum(map(len, entry.terms)) < 60_000
    assert len(found("huge", tool)) == 1


def test_a_catalog_says_of_what_it_finds_what_it_always_did():
    catalog = Catalog({tool.name: tool for tool in SAMPLE_TOOLS})
    assert [set(one) for one in catalog.search("read file", 3)] == [{"name", "description"}] * 3
    assert catalog.search("read_file", 1)[0]["description"] == "Read the complete contents of a file as text."
