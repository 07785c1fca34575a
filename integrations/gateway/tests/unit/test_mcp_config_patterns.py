"""Patterns of tools in a configuration: which count for a server, and which match none of its tools."""

from __future__ import annotations

from typing import Any

from codemode_gateway import ServerConfig, load_config
from codemode_gateway.config.patterns import describe_unmatched_patterns, get_tool_patterns


def servers(top: dict[str, Any], **entries: Any) -> dict[str, ServerConfig]:
    said = {"mcpServers": {name: {"command": "none", **one} for name, one in entries.items()}, "codemode": top}
    return {one.name: one for one in load_config(said).servers}


def test_tools_that_the_top_allows_count_for_servers_that_do_not_say_so():
    found = servers({"tools": {"allow": ["read_*"]}}, plain={}, own={"enabled_tools": ["write"]})
    assert (found["plain"].allow, found["own"].allow) == (("read_*",), ("write",))


def test_patterns_of_the_top_are_known_as_such_where_there_are_several_servers():
    top = {"approval": {"drop": "always"}, "tools": {"deny": ["a", "b"]}}
    found = servers(top, one={"disabledTools": ["b", "c"]}, two={})
    assert found["one"].common_patterns == {"drop", "a"}
    assert found["two"].common_patterns == {"drop", "a", "b"}
    assert servers(top, one={})["one"].common_patterns == frozenset()


def test_each_pattern_that_matches_no_tool_is_named_by_its_key_with_the_nearest_names():
    config = servers({}, one={"codemode": {"approval": {"Read": "never", "*": "always"}, "tools": {"allow": ["wr*"]}}})[
        "one"
    ]
    assert describe_unmatched_patterns(get_tool_patterns(config), {"read", "write", "reads"}) == [
        'approval: "Read" matches no tool; did you mean "read"?'
    ]
    assert describe_unmatched_patterns(get_tool_patterns(config), {"x"}) == [
        'approval: "Read" matches no tool',
        'tools.allow: "wr*" matches no tool',
    ]


def test_of_many_patterns_that_match_nothing_some_are_named_and_the_others_counted():
    notes = describe_unmatched_patterns({"tools.deny": tuple(f"none_{at}" for at in range(1_000))}, {"a"})
    assert len(notes) == 9
    assert notes[-1] == "992 more patterns match no tool"
