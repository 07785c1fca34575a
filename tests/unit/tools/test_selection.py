"""Which tools an option of a plugin means, and where they are called then."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row
from waiting import within

from codemode.tools.selection import CallRoutes, ToolSelection, ToolSelectionOption


@each_row(
    "given, expected",
    [
        (["stock", "refund"], ["stock", "refund"]),
        ({"stock"}, ["stock"]),
        ((), []),
        ({"team": "desk"}, ["refund"]),
        ({"team": "desk", "annotations": {"destructiveHint": True}}, ["refund"]),
        ({"annotations": {"destructiveHint": False}}, []),
        ({"annotations": {}}, ["refund"]),
        ({"annotations": True}, []),
        ({"absent": None}, []),
    ],
)
def test_names_and_metadata(given: Any, expected: list[str]) -> None:
    tools = {"stock": None, "refund": {"team": "desk", "annotations": {"destructiveHint": True, "title": "Refund"}}}
    chosen = ToolSelectionOption(given, "keep")
    assert [name for name, metadata in tools.items() if chosen.selects_by_name_or_metadata(name, metadata)] == expected
    assert chosen.predicate is None


def test_a_function_is_for_the_plugin_to_ask() -> None:
    assert ToolSelectionOption(len, "tools").predicate is len


def test_all_is_a_word_where_it_may_be() -> None:
    assert ToolSelectionOption("all", "tools", may_be_all=True).selects_by_name_or_metadata("anything", None)
    with pytest.raises(ValueError, match=r"keep must be a list of tool names, got 'all': write keep=\['all'\]"):
        ToolSelectionOption("all", "keep")


@each_row("wrong", ["stock", "", b"ab", 1, [1], ["a", None], {}, object(), iter(["a"])])
def test_what_means_nothing_is_refused_with_what_is_taken(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^tools .*(write tools=\[|a list of names, a mapping|names of tools)"):
        ToolSelectionOption(wrong, "tools", may_be_all=True)


def test_a_name_that_fits_nothing_is_told_with_the_nearest() -> None:
    ToolSelectionOption(["stock"], "keep").require_names_among(["stock", "refund"])
    ToolSelectionOption({"a": 1}, "keep").require_names_among([])
    with pytest.raises(ValueError, match=r"keep names 'stok', which is not among the tools. Did you mean 'stock'\?"):
        ToolSelectionOption(["stok"], "keep").require_names_among(["stock", "refund"])
    with pytest.raises(ValueError, match=r"tools names 'zzz', which is not among the tools. There is a, b\."):
        ToolSelectionOption(["zzz"], "tools").require_names_among({"b", "a"})
    with pytest.raises(ValueError, match=r"There is none\.$"):
        ToolSelectionOption(["zzz"], "tools").require_names_among([])


TOOLS = ["both", "kept", "named", "neither"]


def found(selection: ToolSelection) -> dict[str, CallRoutes]:
    return {name: selection.find_routes(name, None, name) for name in TOOLS}


def test_a_tool_is_called_in_programs_by_the_model_or_both_ways() -> None:
    programs, both = CallRoutes(in_programs=True, directly=False), CallRoutes(in_programs=True, directly=True)
    direct = ToolSelection.ONLY_DIRECTLY
    rows: list[tuple[Any, Any, list[CallRoutes]]] = [
        (None, [], [programs, programs, programs, programs]),
        (None, ["both", "kept"], [direct, direct, programs, programs]),
        (["both", "named"], ["both", "kept"], [both, direct, programs, direct]),
        ("all", ["kept"], [programs, both, programs, programs]),
        (lambda name: name == "named", lambda name: name == "kept", [direct, direct, programs, direct]),
    ]
    for tools, keep, expected in rows:
        assert [*found(ToolSelection(tools, keep)).values()] == expected, (tools, keep)


async def _is_kept(name: str) -> bool:
    return name == "kept"


def test_an_async_function_is_awaited_or_refused() -> None:
    selection = ToolSelection(None, _is_kept)
    assert within(selection.find_routes_async("kept", None, "kept")) == ToolSelection.ONLY_DIRECTLY
    assert within(selection.find_routes_async("other", None, "other")).in_programs
    with pytest.raises(ValueError, match="must not be async"):
        selection.find_routes("kept", None, "kept")


def test_unknown_names_of_both_options_are_refused() -> None:
    ToolSelection(["kept"], ["both"]).require_names_among(TOOLS)
    for tools, keep, path in ((["zzz"], [], "tools"), (None, ["zzz"], "native")):
        with pytest.raises(ValueError, match=f"{path} names 'zzz', which is not among the tools"):
            ToolSelection(tools, keep, keep_path="native").require_names_among(TOOLS)
    assert "approve names 'zzz'" in ToolSelection.describe_missing_name("approve", "zzz", TOOLS)
