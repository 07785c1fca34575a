"""The description of the whole tool, and one declaration in it."""

from __future__ import annotations

import copy
import re
import textwrap

import pytest
from plain_tool import PlainTool
from suite import each_row

from codemode import ExecutionPolicy, Tool, create_code_mode_tool
from codemode.signatures.declarations import extract_first_sentence, format_tool_declarations
from codemode.surfaces.code_mode.description import describe_code_mode_tool

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
HITS = {"type": "object", "properties": {"hits": {"type": "array", "items": {"type": "string"}}}}
SEARCH = PlainTool("search", "Searches. Slowly.", QUERY, HITS)


def many(count: int) -> list[PlainTool]:
    return [PlainTool(f"tool_{i:04}", f"Does thing number {i:04}. And explains.", QUERY, HITS) for i in range(count)]


def is_listed(tools: list[PlainTool], **limits: int) -> bool:
    return describe_code_mode_tool(tools, **limits) != describe_code_mode_tool(tools, max_characters=10**9)


def test_rules_declarations_and_example() -> None:
    text = describe_code_mode_tool([SEARCH])
    for rule in (
        "async function",
        "Await every call",
        "no import, require, timer",
        "JSON only",
        "console.log",
    ):
        assert rule in text
    assert "declare const tools: {\n  /** Searches. Slowly. */\n  search(input: { query: string })" in text
    assert text.endswith(
        'const first = await tools.firstTool({ key: "value" });\nreturn await tools.secondTool({ id: first.id });\n```'
    )


def test_without_tools_nothing_is_declared() -> None:
    text = describe_code_mode_tool([])
    assert "There are no tools" in text
    assert "declare" not in text
    assert "await tools." not in text


def test_fetch_is_told_of_only_when_there_is_one() -> None:
    assert "no `fetch`" in describe_code_mode_tool([SEARCH])
    text = describe_code_mode_tool([SEARCH], fetch_line="`fetch` may reach https://example.com\nwith GET.")
    assert "- `fetch` may reach https://example.com with GET." in text
    assert "no `fetch`" not in text


def test_names_are_listed_where_declarations_would_fit() -> None:
    text = describe_code_mode_tool([SEARCH], listing="names")
    assert "There are 1 tools. Look one up" in text
    assert text.endswith("Tools:\n- search: Searches.")
    assert "query: string" not in text.replace("$search(query: string)", "")


def test_a_search_is_one_text_whatever_tools_there_are() -> None:
    text = describe_code_mode_tool([], listing="search")
    assert (
        text
        == describe_code_mode_tool([SEARCH], listing="search")
        == describe_code_mode_tool(many(500), listing="search")
    )
    assert "tools.$search(" in text
    assert "only the tools that `tools.$search` finds exist" in text
    assert "described below" not in text
    assert len(text) < 3000
    code_mode = create_code_mode_tool(
        [textwrap.dedent], {"execution_policy": {"listing": "search", "in_flight_limit": "queue"}}
    )
    assert code_mode.description == text


def test_annotations_and_examples_are_tags() -> None:
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    tool = PlainTool("t", "Reads.", QUERY, None, ({"query": "a */ b"},), hints)
    text = format_tool_declarations([tool])
    assert "@annotations read-only, non-destructive, idempotent, open-world" in text
    assert '@example { query: "a *\\/ b" }' in text
    assert "@annotations destructive */" in format_tool_declarations(
        [PlainTool("t", "", None, None, (), {"destructiveHint": True})]
    )
    assert "@annotations" not in format_tool_declarations([PlainTool("t", "", None, None, (), {"readOnlyHint": "yes"})])


@each_row(
    "tool, expected",
    [
        (PlainTool("t"), "  t(input?: unknown): Promise<unknown>;"),
        (PlainTool("a-b", "", QUERY), '  "a-b"(input: { query: string }): Promise<unknown>;'),
        (PlainTool("new", "", True, False), '  "new"(input: unknown): Promise<never>;'),
        (PlainTool("", "", QUERY), '  ""(input: { query: string }): Promise<unknown>;'),
        (PlainTool('q"\n', "", QUERY), '  "q\\"\\n"(input: { query: string }): Promise<unknown>;'),
        (
            PlainTool("now", "", {"type": "object", "properties": {}}),
            "  now(input?: Record<string, never>): Promise<unknown>;",
        ),
        (
            PlainTool("o", "", {"type": "object", "properties": {"a": True}}),
            "  o(input?: { a?: unknown }): Promise<unknown>;",
        ),
    ],
)
def test_one_declaration(tool: PlainTool, expected: str) -> None:
    assert expected in format_tool_declarations([tool]).split("\n")


def test_description_falls_back_to_titles() -> None:
    assert "/** From annotations */" in format_tool_declarations(
        [PlainTool("t", "", QUERY, annotations={"title": "From annotations"})]
    )
    assert "/** From schema */" in format_tool_declarations([PlainTool("t", " ", {**QUERY, "title": "From schema"})])


@each_row(
    "description",
    [
        "ends */ code()",
        "ends *\\/ then */",
        "**/",
        "*\u2028/",
        "*\u200b/",
        "*\n/ on two lines",
        "*\r/",
        "x" * 3999 + "*/ over the cut",
        "/* opens",
        "*/*/*/",
        "line\u2028code()\u2029code()\x85code()",
    ],
)
def test_no_description_ends_its_comment(description: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": description, "pattern": description}},
    }
    text = format_tool_declarations(
        [PlainTool("t", description, schema, {**schema, "patternProperties": {description: True}})]
    )
    outside = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert "*/" not in outside
    assert "code()" not in outside
    assert not set("\u2028\u2029\x85\u200b\r") & set(text)


def test_no_description_ends_the_block_it_stands_in() -> None:
    text = describe_code_mode_tool([PlainTool("t", "Say:\n````\nhello\n````", QUERY)])
    assert text.count("`````") == 2
    assert "\n`````ts\ndeclare const tools" in text


def test_the_same_tools_give_the_same_text() -> None:
    tools = many(20)
    assert describe_code_mode_tool(tools) == describe_code_mode_tool(copy.deepcopy(tools))


def test_text_grows_with_the_number_of_tools_only() -> None:
    ten, twenty, thirty = (len(format_tool_declarations(many(count))) for count in (10, 20, 30))
    assert thirty - twenty == twenty - ten


def test_beyond_the_budget_tools_are_listed() -> None:
    tools = many(400)
    text = describe_code_mode_tool(tools)
    assert is_listed(tools)
    assert len(text) <= ExecutionPolicy().max_description_characters
    assert "$describe(name: string): Promise<string>;" in text
    assert "$search(query: string)" in text
    assert "- tool_0399: Does thing number 0399.\n" in text + "\n"
    assert "And explains" not in text
    assert "query: string }" not in text


def test_below_the_budget_nothing_changes() -> None:
    tools = many(5)
    full = describe_code_mode_tool(tools)
    assert not is_listed(tools)
    assert "$describe" not in full
    assert describe_code_mode_tool(tools, max_characters=len(full)) == full
    assert "$describe" in describe_code_mode_tool(tools, max_characters=len(full) - 1)


@pytest.mark.parametrize("max_characters", [3000, 4000, 9000, 30000])
def test_the_budget_holds_however_many_tools(max_characters: int) -> None:
    text = describe_code_mode_tool(many(2000), max_characters=max_characters)
    assert len(text) <= max_characters
    assert "tool_0000" in text


@pytest.mark.parametrize("count", [1, 7, 30])
def test_whether_tools_are_listed_is_decided_by_the_full_text(count: int) -> None:
    tools = [*many(count), PlainTool("a-b", "One.\n\n\n \u200b\nTwo */ three.", QUERY)]
    full = describe_code_mode_tool(tools, max_characters=10**9)
    for max_characters in (*range(0, len(full), 97), len(full) - 1):
        assert is_listed(tools, max_characters=max_characters)
    assert describe_code_mode_tool(tools, max_characters=len(full)) == full


def test_a_tiny_budget_still_tells_how_to_search() -> None:
    assert "$search" in describe_code_mode_tool(many(50), max_characters=1)


def test_a_description_cannot_switch_the_listing_on() -> None:
    assert not is_listed([PlainTool("t", "tools.$describe(name: string)", QUERY)])


@each_row(
    "text, expected",
    [
        ("One. Two.", "One."),
        ("Version 1.5 of it. Two.", "Version 1.5 of it."),
        ("No end", "No end"),
        ("Head\n\nBody.", "Head"),
        ("Over\ntwo lines. Next", "Over two lines."),
        ("", ""),
        ("x" * 300, "x" * 119 + "…"),
    ],
)
def test_first_sentence(text: str, expected: str) -> None:
    assert extract_first_sentence(text) == expected


def test_tools_that_need_approval_are_marked_with_a_rule() -> None:
    refund = Tool("refund", execute=len, description="Refunds.", needs_approval=True)
    text = create_code_mode_tool([refund, Tool("find", execute=len)]).description
    assert "/** Refunds. @approval */" in text
    assert text.count("@approval") == 2
    assert "@approval" not in create_code_mode_tool([Tool("find", execute=len)]).description
    assert "Refunds" in extract_first_sentence("# Refunds\n\nmore")
    assert not extract_first_sentence("## Refunds").startswith("#")
