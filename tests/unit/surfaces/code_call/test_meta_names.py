"""What looks like a meta-tool is none of the tools, however it is spelled; what only looks alike is refused."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spellings import meta_spellings
from suite import each_row

from codemode import CodeModeToolError, Tool, create_code_call_tools
from codemode.surfaces.code_call.names import (
    LOOK_ALIKES,
    compute_skeleton,
    format_meta_tool_name,
    looks_like_meta_tool,
    parse_meta_tool_name,
)

SPELLINGS = meta_spellings()


def named(*names: str) -> list[Tool]:
    return [Tool(name, execute=lambda value: value) for name in names]


def test_every_spelling_looks_like_a_meta_tool():
    assert len(set(SPELLINGS)) == 300
    assert [name for name in SPELLINGS if not looks_like_meta_tool(name)] == []


@each_row("tall", ["\u04cf", "\u04c0", "\u0406", "I", "1", "|", "\u01c0", "\uff4c", "\u2113"])
def test_what_fonts_draw_as_an_l_is_one(tall: str):
    assert looks_like_meta_tool(f"codeca{tall}{tall}.search")
    assert not looks_like_meta_tool(f"codeca{tall}.{tall}")


def test_no_spelling_can_be_registered_or_described():
    registered = []
    for name in SPELLINGS:
        try:
            create_code_call_tools(named(name))
        except ValueError:
            continue
        registered.append(name)
    assert registered == []
    tools = create_code_call_tools(named("echo"))
    answer = tools.describe_sync({"tools": SPELLINGS, "max": 50})
    assert answer == {"tools": [], "notFound": SPELLINGS}


def test_the_guard_cannot_be_configured_away():
    for options in ({"include_tools": lambda info: False}, {"reserved_prefixes": []}, {"app_ids": ["a"]}):
        for mode in ("codecall_only", "codecall_opt_in", "metadata_driven"):
            with pytest.raises(ValueError, match="looks like a meta-tool"):
                create_code_call_tools(named("CodeCall-x"), {**options, "mode": mode})
    hidden = Tool("codecall.x", execute=None, metadata={"codecall": {"enabledInCodeCall": False}})
    with pytest.raises(ValueError, match="looks like a meta-tool"):
        create_code_call_tools([hidden])


def test_an_update_is_guarded_too():
    tools = create_code_call_tools(named("echo"))
    with pytest.raises(ValueError, match="looks like a meta-tool"):
        tools.update(named("echo", "\u0441odecall:search"))
    assert [found["name"] for found in tools.search_sync({"query": "echo"})["tools"]] == ["echo"]
    assert tools.version == 1


@each_row(
    "name",
    ["codecall", "codecallx", "codecall2.x", "mycodecall.x", "code.call", "cod.ecall.x", "decodecall:x", "call.x", ""],
)
def test_other_names_do_not(name: str):
    assert not looks_like_meta_tool(name)


def test_a_name_of_any_length_takes_a_moment():
    assert not looks_like_meta_tool("\u200b" * 2_000_000 + "codecall.x")
    assert looks_like_meta_tool("codecall." + "x" * 2_000_000)


@each_row(
    "others",
    [
        ("pay.send", "p\u0430y.send"),
        ("pay.send", "pay\uff0esend"),
        ("pay", "pa\u0301y"),
        ("send", "s end"),
        ("list", "\uff4c\u0131st".replace("\u0131", "i")),
        ("Pay", "p\u0430y"),
    ],
)
def test_two_names_that_look_the_same_are_refused(others: tuple[str, str]):
    with pytest.raises(ValueError, match="look the same"):
        create_code_call_tools(named(*others))


@each_row("others", [("getUser", "GetUser"), ("v1", "vl"), ("a.b", "a_b"), ("a0", "ao"), ("x", "xx")])
def test_names_that_a_reader_tells_apart_are_two(others: tuple[str, str]):
    assert create_code_call_tools(named(*others)).describe_sync({"tools": list(others)}).get("notFound") is None


@given(st.text(max_size=40))
def test_a_skeleton_has_nothing_that_cannot_be_seen(text: str):
    hidden = {"Mn", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"}
    assert not [one for one in compute_skeleton(text) if unicodedata.category(one) in hidden]


@each_row("at", range(9))
def test_what_is_hidden_in_between_changes_nothing(at: int):
    name = "codecall.search"
    for hidden in "\u200b\u0301\u2066\ufe0f\u00a0":
        assert looks_like_meta_tool(name[:at] + hidden + name[at:])


def test_the_table_has_letters_and_separators_alone():
    assert all(set(plain) <= set("abcdefghijklmnopqrstuvwxyz.:_-/") for plain in LOOK_ALIKES.values())
    assert not any(character.isascii() for character in LOOK_ALIKES)
    assert all(len(character) == 1 for character in LOOK_ALIKES)


@pytest.mark.parametrize("style", ["dotted", "colon", "underscore"])
def test_meta_tools_have_their_names_in_each_style(style: str):
    tools = create_code_call_tools(named("echo"), {"names": style, "direct_calls": {"enabled": True}})
    names = [tool.name for tool in tools.tools]
    assert names == [format_meta_tool_name(kind, style) for kind in ("search", "describe", "execute", "invoke")]
    assert [parse_meta_tool_name(name) for name in names] == ["search", "describe", "execute", "invoke"]
    for other in ("codecall.search", "codecall:search", "codecall_search"):
        assert tools.call_sync(other, {"query": "echo"})["tools"][0]["name"] == "echo"
    with pytest.raises(CodeModeToolError, match="no meta-tool"):
        tools.call_sync("codecall-search", {"query": "echo"})
