"""The hidden catalog: ids, safe names, what it leaves out, and what a program asks of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from suite import each_row

from codemode import CodeModeToolError, Tool
from codemode.surfaces.exec_wait.catalog import MAX_ENTRIES_BYTES, ExecCatalog
from codemode.surfaces.exec_wait.options import ExecWaitOptions, InvalidConfigError
from codemode.surfaces.exec_wait.program_run import UsageCounts
from codemode.surfaces.exec_wait.sources import ToolSource, collect_non_server_entries, to_identifier


def tool(name: str, description: str = "Does something. In detail.", **more: Any) -> Tool:
    return Tool(name, execute=lambda value, _: value, description=description, **more)


def catalog(*sources: Any, **options: Any) -> ExecCatalog:
    return ExecCatalog(collect_non_server_entries(sources), ExecWaitOptions(**options), UsageCounts())


def test_ids_are_the_same_for_the_same_tools_in_any_order():
    left = ToolSource([tool("b"), tool("a")], source="plugin", owner="left")
    assert catalog(left, ToolSource([tool("c")])).names() == ("host:core:c", "plugin:left:a", "plugin:left:b")
    turned = ToolSource({"a": tool("a"), "b": tool("b")}, source="plugin", owner="left")
    assert catalog(ToolSource([tool("c")]), turned).names() == catalog(left, ToolSource([tool("c")])).names()


@each_row("name", ["", "a:b", "a b", "é", "x" * 65, 5])
def test_a_source_and_an_owner_are_plain_names(name: Any):
    for which in ("source", "owner"):
        with pytest.raises(InvalidConfigError, match=rf"sources\.{which}"):
            ToolSource([], **{which: name})


def test_no_source_has_the_ids_of_namespaces():
    with pytest.raises(InvalidConfigError, match=r"sources\.source"):
        ToolSource([], source="namespace")


def test_two_tools_of_one_id_are_refused():
    with pytest.raises(InvalidConfigError, match="host:core:a"):
        collect_non_server_entries([ToolSource([tool("a")]), ToolSource([tool("a")])])


def test_tools_that_look_for_tools_are_left_out_and_one_called_exec_is_not():
    names = ("tool_search_code", "tool_search", "tool_describe", "tool_call", "exec", "wait", "a")
    assert catalog(*map(tool, names)).names() == ("host:core:a", "host:core:exec", "host:core:wait")


def test_a_safe_name_is_that_of_exactly_one_tool_and_never_a_helper_or_what_the_language_reads():
    names = ["list-issues", "a.b", "a_b", "search", "call", "then", "constructor", "toJSON", "__proto__", "9lives"]
    source = ToolSource({name: tool(name) for name in names}, owner="own")
    named = json.loads(catalog(source, ToolSource([tool("free")])).ids_by_name_json)
    assert named == {"list_issues": "host:own:list-issues", "_9lives": "host:own:9lives", "free": "host:core:free"}
    assert to_identifier("grün 1") == "grün_1"


def test_a_search_gives_entries_without_schemas_and_never_more_than_its_most():
    made = catalog(*(tool(f"send_{at}", "Sends mail. To anybody.") for at in range(20)), max_search_limit=5)
    found = made.answer_query("search", ["send mail", None])
    assert len(found) == 5
    assert set(found[0]) == {"id", "name", "description", "source"}
    assert found[0]["description"] == "Sends mail."
    assert len(made.answer_query("search", ["send mail", {"limit": 2}])) == 2
    assert len(made.answer_query("search", ["send mail", {"limit": 10**9}])) == 5


@each_row(
    "given",
    [[], [1], [None, {"limit": 1}], ["a", 5], ["a", {"limit": 0}], ["a", {"limit": 1.5}], ["a", {"limit": "1"}]],
)
def test_a_search_for_nothing_that_can_be_searched_is_refused(given: Any):
    with pytest.raises(CodeModeToolError, match=r"tools\.search"):
        catalog(tool("a")).answer_query("search", given)


def test_describe_adds_parameters_and_tells_label_and_owner():
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    titled = tool("a", annotations={"title": "The first"}, input_schema=schema)
    found = catalog(ToolSource([titled], source="plugin", owner="own")).answer_query("describe", ["plugin:own:a"])
    assert found["parameters"]["properties"]["x"]["type"] == "integer"
    assert (found["label"], found["sourceName"], found["source"]) == ("The first", "own", "plugin")


@pytest.mark.parametrize(
    ("given", "near"), [("host:core:send_mial", "host:core:send_mail"), ("send_mail", "host:core:send_mail")]
)
def test_an_unknown_id_tells_of_near_ones_and_the_way(given: str, near: str):
    made = catalog(tool("send_mail"), tool("read"))
    for error in (made.tool_not_found_error(given), *_raised(made, given)):
        assert near in str(error)
        assert "tools.search" in str(error)


def _raised(made: ExecCatalog, given: str) -> list[Exception]:
    with pytest.raises(CodeModeToolError) as caught:
        made.answer_query("describe", [given])
    return [caught.value]


def test_all_tools_is_cut_at_its_most_bytes_and_the_program_is_told():
    made = catalog(*(tool(f"t_{at}", "x" * 115 + ".") for at in range(6_500)))
    text, left_out = made.entries_text_and_omitted_count
    assert len(text.encode()) <= MAX_ENTRIES_BYTES
    assert len(json.loads(text)) + left_out == 6_500
    assert left_out > 0
    assert f"{left_out} tools" in made.get_program_view("ALL_TOOLS").warnings[0]
    assert made.get_program_view("return 1").warnings == []


@each_row(
    "code, given",
    [
        ("return 1", frozenset[str]()),
        ("tools.search('x'); tools?.call('y')", frozenset[str]()),
        ("ALL_TOOLS", {"entries"}),
        ("tools.send()", {"names"}),
        ("const t = tools; ALL_TOOLS", {"names", "entries"}),
        ("t\\u006fols", {"names", "entries"}),
    ],
)
def test_a_program_is_given_what_it_may_look_at(code: str, given: frozenset[str]):
    assert set(catalog(tool("send")).get_program_view(code).build_invocation_data(None)) == given
