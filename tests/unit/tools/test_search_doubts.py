"""What a search says beside the tools that it found; queries in any script; values in a query."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import each_row, rounds

from codemode.tools.search import query as forms_of_values
from codemode.tools.search.index import ToolIndex
from codemode.tools.search.query import list_parameter_value_kinds, split_off_values


def takes(name: str, **parameters: dict[str, str]) -> PlainTool:
    return PlainTool(name, "Does what it does.", {"properties": parameters})


TOOLS = [
    PlainTool("list_tables", "Lists the tables of a database."),
    PlainTool("add_column", "Adds a column to a table of the database."),
    PlainTool("search_files", "Searches files."),
    PlainTool("create_issue", "Creates an issue."),
    *(PlainTool(f"other_{n}", "Something else.") for n in range(8)),
    takes("by_link", website={}),
    takes("by_place", latitude={}, longitude={}),
    takes("by_key", issue_id={}),
    takes("by_mail", recipient={"format": "email"}),
    takes("by_day", due={"format": "date"}),
    takes("by_file", target={}, path={}),
    takes("by_machine", hostname={}),
    takes("by_hour", clock={}),
]
INDEX = ToolIndex((tool.name, tool) for tool in TOOLS)


def names(query: str) -> list[str]:
    return [TOOLS[one.position].name for one in INDEX.search_with_warnings(query, 8).found]


def warning(query: str) -> str:
    return " ".join(INDEX.search_with_warnings(query, 8).warnings)


@each_row("query", ["list tables", "serch fiels", "list the tables", "create_issue", "make an issue"])
def test_what_fits_is_told_without_a_word(query):
    assert (bool(names(query)), warning(query)) == (True, "")


def test_a_list_that_only_a_stray_word_ranks_says_so():
    assert names("add a priority column to our team's tracker")
    told = warning("add a priority column to our team's tracker")
    assert told.startswith("No tool has 'priority' or 'team' or 'tracker': these fit other, common words")
    assert "Try other words" in told


def test_other_words_are_those_that_tools_have():
    assert warning("bugs quickly thoroughly").endswith("such as issue.")
    assert warning("zzzzz").startswith("No tool has 'zzzzz'. Try other words; tools here are about column, ")


@each_row("query", ["", " ", "?!", "🎉🎉", "---", "\u200d"])
def test_a_query_without_a_word(query):
    assert (names(query), warning(query)) == ([], "The query has no word in it: say in words what is to be done.")


@each_row("query", ["水豚", "カピバラ", "бармаглот", "عنقاء", "คาปิบารา", "ოცნება", "όνειρο", "חלום"])
def test_no_query_in_any_script_finds_nothing(query):
    answer = INDEX.search_with_warnings(query, 3)
    assert [(one.position, one.score) for one in answer.found] == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert "These are the first tools only" in answer.warnings[0]
    assert [one.position for one in INDEX.search_with_warnings(query, 3, {7, 5}).found] == [5, 7]


@settings(max_examples=rounds(20, 200), deadline=None)
@given(st.text(max_size=60), st.integers(-1, 9))
def test_any_query_gets_tools_or_is_told_why_not(query, limit):
    answer = INDEX.search_with_warnings(query, limit)
    assert len(answer.found) <= max(limit, 0)
    assert answer.found or answer.warnings or limit <= 0
    assert all(0 < len(one) < 600 for one in answer.warnings)


# --- values ---


@each_row(
    "query, name",
    [
        ("https://example.com/a/b?c=d", "by_link"),
        ("look at www.example.org please", "by_link"),
        ("what is at 52.5200, 13.4050", "by_place"),
        ("close ABC-123", "by_key"),
        ("close #42", "by_key"),
        ("who is 123e4567-e89b-12d3-a456-426614174000", "by_key"),
        ("tell ann@example.com", "by_mail"),
        ("by 2026-11-30", "by_day"),
        ("is /etc/hosts there", "by_file"),
        ("is report.pdf there", "by_file"),
        ("ping 10.0.0.1", "by_machine"),
        ("at 14:30", "by_hour"),
    ],
)
def test_values_speak_for_parameters_of_their_form(query, name):
    assert names(query)[0] == name


@given(st.text() | st.text("0123456789abcdef-./:@#,+ ", max_size=80))
def test_any_query_is_taken_apart(query):
    rest, forms, values = split_off_values(query)
    assert bool(forms) == bool(values.strip()) or not forms
    assert len(rest) <= len(query) + 100
    assert len(set(forms)) == len(forms)
    assert bool(forms) == any(pattern.search(query) for _, pattern in forms_of_values._VALUE_PATTERNS)


def test_a_form_is_read_from_a_name_or_a_format():
    assert set(list_parameter_value_kinds("fileUrl", {})) == {"=url", "=path"}
    assert set(list_parameter_value_kinds("x", {"format": "uuid"})) == {"=id"}
    assert set(list_parameter_value_kinds("x", {"format": ["uri"]})) == set()
