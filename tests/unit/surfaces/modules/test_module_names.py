"""Paths of servers and exports of tools: legal, distinct, stable, whatever the names."""

from __future__ import annotations

import re
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.surfaces.modules.module_tools import assign_export_names, assign_module_paths, to_server_path

NAMES = st.lists(st.text(max_size=8) | st.text("aA_.-1 $é", max_size=4), unique=True, max_size=12)


@each_row(
    "server_id, path",
    [
        ("github", "github"),
        ("Google Drive", "google-drive"),
        ("__weird__..id", "weird-id"),
        ("--a--b--", "a-b"),
        ("Ünïcode", "n-code"),
        ("日本", "server"),
        ("---", "server"),
        ("A", "a"),
    ],
)
def test_a_path_is_lower_case_with_single_hyphens(server_id: str, path: str):
    assert assign_module_paths([server_id]) == [path]


def test_collisions_are_numbered_and_the_first_keeps_its_path():
    assert assign_module_paths(["b", "a b", "A-B", "a.b", "b-2"]) == ["b", "a-b", "a-b--2", "a-b--3", "b-2"]


@given(st.lists(st.text(min_size=1, max_size=10), max_size=12))
def test_paths_are_distinct_and_only_of_their_characters(server_ids: list[str]):
    paths = assign_module_paths(server_ids)
    assert len(set(paths)) == len(server_ids)
    assert all(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*(?:--[2-9]\d*|--1\d+)?", path) for path in paths)


@each_row(
    "tool_name, export",
    [
        ("create_issue", "create_issue"),
        ("create-issue", "create_issue"),
        ("a.b/c d", "a_b_c_d"),
        ("123tool", "_123tool"),
        ("$search", "$search"),
        ("default", "default_"),
        ("await", "await_"),
        ("enum", "enum_"),
        ("arguments", "arguments_"),
        ("then", "then_"),
        ("größe", "größe"),
        ("日本", "日本"),
        ("read\u3164", "read_"),
        ("\u115fread\u034f\ufe0f", "_read__"),
        ("", "_"),
        ("\u0301", "_\u0301"),
        ("😀", "_"),
        ("__meta__", "__meta____2"),
    ],
)
def test_an_export_is_an_identifier(tool_name: str, export: str):
    assert assign_export_names([tool_name]) == {tool_name: export}


def test_collisions_are_numbered_in_alphabetical_order():
    assert assign_export_names(["a_b", "a-b", "a.b", "a_b__2"]) == {
        "a-b": "a_b",
        "a.b": "a_b__2",
        "a_b": "a_b__3",
        "a_b__2": "a_b__2__2",
    }


@given(NAMES, st.randoms(use_true_random=False))
def test_exports_are_distinct_and_do_not_depend_on_the_order(names: list[str], random: Random):
    exports = assign_export_names(names)
    shuffled = list(names)
    random.shuffle(shuffled)
    assert assign_export_names(shuffled) == exports
    assert list(exports) == sorted(names)
    assert len(set(exports.values())) == len(names)
    assert all(name.replace("$", "_").isidentifier() for name in exports.values())
    assert "__meta__" not in exports.values()


def test_the_path_of_a_specifier():
    assert to_server_path("@codemode/servers/github") == "github"
    assert to_server_path("@codemode/errors") is None
