"""Modules of servers as TypeScript text: what is said of each tool, and what goes when there is little room."""

from __future__ import annotations

import re

import pytest
import tree_sitter_typescript
from hypothesis import given
from hypothesis import strategies as st
from listed_servers import listed, sample_servers
from suite import each_row
from tree_sitter import Language, Parser

from codemode.surfaces.modules.declarations import (
    MAX_DECLARATION_CHARACTERS,
    declare_server,
    declare_server_if_fits,
    declare_servers_within,
    declare_tool,
)

PARSER = Parser(Language(tree_sitter_typescript.language_typescript()))
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
}
EXPORTED = re.compile(r"^  export function (\S+?)\(", re.MULTILINE)


def parses(text: str) -> bool:
    return not PARSER.parse(text.encode("utf-8")).root_node.has_error


def test_a_module_has_a_function_for_each_tool_and_meta():
    server = listed("git-hub", [{"name": "b", "inputSchema": QUERY, "description": "Does b. Slowly."}, {"name": "a-c"}])
    assert declare_server(server) == (
        'declare module "@codemode/servers/git-hub" {\n'
        "  export function a_c(input?: unknown): Promise<unknown>;\n"
        "  /** Does b. Slowly. */\n"
        "  export function b(input: {\n"
        "    /** What to look for. */\n"
        "    query: string;\n"
        "  }): Promise<unknown>;\n"
        "  export const __meta__: { serverId: string; serverName: string; serverVersion?: string; "
        "tools: { toolName: string; exportName: string; description?: string }[] };\n"
        "}"
    )


def test_hints_are_one_tag_and_other_annotations_keep_their_names():
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    annotations = {"title": "The */ tool\n@evil", **hints, "vendorHint": 3, "not a tag": 1, "list": [1]}
    text = declare_server(listed("s", [{"name": "a", "annotations": annotations}]))
    for said in ("@title The *\\/ tool @evil", "@annotations read-only, non-destructive, idempotent", "@vendorHint 3"):
        assert said in text
    assert "not a tag" not in text
    assert "@list" not in text
    assert parses(text)
    short = declare_servers_within(
        [listed("s", [{"name": "a", "annotations": annotations, "description": "x" * 900}])], 600
    )
    assert "@annotations read-only, non-destructive, idempotent" in short


def test_what_cannot_be_said_is_unknown_with_a_comment():
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}, "b": {"$ref": "#/x/*/y"}}}
    server = listed("s", [{"name": "t", "outputSchema": {"not": {"type": "string"}}, "inputSchema": schema}])
    text = declare_server(server)
    assert "Promise</* TypeScript cannot express: not */ unknown>" in text
    assert "a?: /* TypeScript cannot express: not */ unknown" in text


def test_types_that_tools_share_are_declared_once_and_not_exported():
    node = {"$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}}
    tools = [{"name": name, "outputSchema": {"$ref": "#/$defs/Node", **node}} for name in ("a", "b")]
    text = declare_server(listed("s", tools))
    assert text.count("type Node = ") == 1
    assert "  export {};\n" in text


def test_names_under_which_no_function_can_be_declared_are_exported_all_the_same():
    text = declare_server(listed("s", [{"name": "t", "exportName": "enum"}, {"name": "u", "exportName": "type"}]))
    assert "  function _0(input?: unknown): Promise<unknown>;\n" in text
    assert "  export { _0 as enum };\n" in text
    assert "  export function type(" in text


def test_a_module_is_made_once():
    server = listed("s", [{"name": "t"}])
    assert declare_server(server) is declare_server(server)


@each_row("server", sample_servers())
def test_every_function_is_in_the_short_form_too(server):
    names = [one.export_name for one in server.tools]
    assert EXPORTED.findall(declare_server(server)) == names
    looked_up = declare_servers_within([server], 20_000)
    assert len(looked_up) <= MAX_DECLARATION_CHARACTERS
    assert EXPORTED.findall(looked_up) == names
    for one in server.tools:
        text = declare_tool(server, one)
        assert EXPORTED.findall(text) == [one.export_name]
        assert len(text) <= MAX_DECLARATION_CHARACTERS


@given(room=st.integers(0, 60_000))
def test_declarations_never_pass_their_room_and_always_parse(room):
    servers = _SAMPLE
    text = declare_servers_within(servers, room)
    assert len(text) <= room
    assert parses(text)
    assert text == declare_servers_within(servers, room)


_SAMPLE = sample_servers()


def test_comments_go_before_types_and_types_before_functions():
    tools = [{"name": f"t{at}", "description": "Long. " * 50, "inputSchema": QUERY} for at in range(20)]
    server = listed("s", tools)
    whole, short, names = (declare_servers_within([server], room) for room in (12_000, 3_000, 1_800))
    assert "Long. Long." in whole
    assert "What to look for." in whole
    assert "Long. Long." not in short
    assert "/** Long. */" in short
    assert "query: string" in short
    assert "query" not in names
    assert [len(EXPORTED.findall(text)) for text in (whole, short, names)] == [20, 20, 20]
    cut = declare_servers_within([server], 700)
    some = len(EXPORTED.findall(cut))
    assert 0 < some < 20
    assert f"// {20 - some} more: listTools" in cut


def test_the_longest_module_gives_way_first():
    small = listed("small", [{"name": "a", "description": "Kept whole. Really.", "inputSchema": QUERY}])
    large = listed("large", [{"name": f"t{at}", "description": "Many words. " * 40} for at in range(30)])
    text = declare_servers_within([small, large], 9_000)
    assert declare_server(small) in text
    assert declare_server(large) not in text
    assert len(EXPORTED.findall(text)) == 31


def test_a_module_that_does_not_fit_is_seen_before_its_types_are_read():
    server = listed("s", [{"name": f"t{at}", "description": "x" * 100, "inputSchema": QUERY} for at in range(100)])
    assert declare_server_if_fits(server, 5_000) is None
    assert not any("_input" in vars(one.tool) for one in server.tools)
    assert declare_server_if_fits(server, 100_000) == declare_server(server)


@pytest.mark.full
def test_schemas_without_end_are_not_read_for_a_text_that_has_one():
    every = {f"p{at}": {"$ref": f"#/$defs/D{at}"} for at in range(60)}
    mesh = {"$ref": "#/$defs/D0", "$defs": {f"D{at}": {"properties": {**every, f"own{at}": True}} for at in range(60)}}
    server = listed("s", [{"name": f"t{at:03}", "inputSchema": {**mesh, "title": f"T{at}"}} for at in range(20)])
    assert declare_server_if_fits(server, 800) is None
    text = declare_servers_within([server], 3_200)
    assert len(EXPORTED.findall(text)) == 20
    assert "_declared_0" not in vars(server)
    assert "_declared_1" not in vars(server)
