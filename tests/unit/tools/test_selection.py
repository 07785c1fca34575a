"""Which tools an option of a plugin means, and where they are called then."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode.tools.selection import Selection, places


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
    chosen = Selection(given, "keep")
    assert [name for name, metadata in tools.items() if chosen.has(name, metadata)] == expected
    assert chosen.predicate is None


def test_a_function_is_for_the_plugin_to_ask() -> None:
    assert Selection(len, "tools").predicate is len


def test_all_is_a_word_where_it_may_be() -> None:
    assert Selection("all", "tools", may_be_all=True).has("anything", None)
    with pytest.raises(ValueError, match=r"keep must be a list of tool names, got 'all': write keep=\['all'\]"):
        Selection("all", "keep")


@each_row("wrong", ["stock", "", b"ab", 1, [1], ["a", None], {}, object(), iter(["a"])])
def test_what_means_nothing_is_refused_with_what_is_taken(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^tools .*(write tools=\[|a list of names, a mapping|names of tools)"):
        Selection(wrong, "tools", may_be_all=True)


def test_a_name_that_fits_nothing_is_told_with_the_nearest() -> None:
    Selection(["stock"], "keep").require_known(["stock", "refund"])
    Selection({"a": 1}, "keep").require_known([])
    with pytest.raises(ValueError, match=r"keep names 'stok', which is not among the tools. Did you mean 'stock'\?"):
        Selection(["stok"], "keep").require_known(["stock", "refund"])
    with pytest.raises(ValueError, match=r"tools names 'zzz', which is not among the tools. There is a, b\."):
        Selection(["zzz"], "tools").require_known({"b", "a"})
    with pytest.raises(ValueError, match=r"There is none\.$"):
        Selection(["zzz"], "tools").require_known([])


@each_row(
    "is_kept, is_named, expected",
    [
        (False, None, (True, False)),
        (True, None, (False, True)),
        (False, True, (True, False)),
        (True, True, (True, True)),
        (False, False, (False, True)),
        (True, False, (False, True)),
    ],
)
def test_a_tool_is_called_in_programs_or_directly_or_both_and_never_nowhere(
    is_kept: bool, is_named: bool | None, expected: tuple[bool, bool]
) -> None:
    assert places(is_kept=is_kept, is_named=is_named) == expected
