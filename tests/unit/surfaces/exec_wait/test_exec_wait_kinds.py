"""What tells exec and wait from other tools of these names, for frameworks, policies and other catalogs."""

from __future__ import annotations

from typing import Any

from suite import each_row

from codemode import Tool, create_exec_wait_tools


def tools(*names: str, **more: Any) -> list[Tool]:
    return [Tool(name, execute=lambda value, _: value, **more) for name in names]


def test_both_tools_say_what_they_are():
    pair = create_exec_wait_tools(tools("a"))
    assert pair.exec.metadata == {"toolKind": "code_mode_exec", "toolInputKind": "javascript"}
    assert pair.wait.metadata == {"toolKind": "code_mode_wait"}


def test_nobody_changes_it_for_others():
    pair = create_exec_wait_tools(tools("a"))
    pair.exec.metadata["toolKind"] = "another"
    assert pair.exec.metadata["toolKind"] == "code_mode_exec"


@each_row(
    "languages, given, kind",
    [
        (["javascript", "typescript"], {"code": "1"}, "javascript"),
        (["javascript", "typescript"], {"code": "1", "language": None}, "javascript"),
        (["javascript", "typescript"], {"code": "1", "language": "typescript"}, "typescript"),
        (["typescript"], {"code": "1"}, "typescript"),
        (["javascript"], {"code": "1", "language": "typescript"}, None),
        (["javascript", "typescript"], {"code": "1", "language": "python"}, None),
        (["javascript", "typescript"], {"code": "1", "language": ["javascript"]}, None),
        (["javascript", "typescript"], "no mapping", "javascript"),
    ],
)
def test_a_call_says_the_language_of_its_input(languages: list[str], given: Any, kind: str | None):
    pair = create_exec_wait_tools(tools("a"), {"languages": languages})
    told = {"toolKind": "code_mode_exec"}
    assert pair.exec.metadata_of(given) == (told if kind is None else {**told, "toolInputKind": kind})
    assert pair.wait.metadata_of(given) == {"toolKind": "code_mode_wait"}


def test_neither_is_in_the_catalog_of_another_pair_under_any_name():
    first = create_exec_wait_tools(tools("a"))
    own = [*tools("exec", metadata=first.exec.metadata), *tools("go_on", metadata=first.wait.metadata)]
    pair = create_exec_wait_tools([*own, *tools("wait", "b")])
    assert pair.catalog.names() == ("host:core:b", "host:core:wait")
